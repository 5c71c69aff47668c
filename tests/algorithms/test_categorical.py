"""Critics of distributions: projections by hand, targets written out, learning."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from peer_updates import ours
from torch import Tensor

import zoo
from zoo import SAC, TD3, CrossQ, ZooError
from zoo.algorithms.categorical import Categorical
from zoo.envs.config import NormalizeConfig
from zoo.envs.normalize import Normalizer

ATOMS = Categorical(-2.0, 2.0, 5)
RETURNS = torch.linspace(-2, 2, 5)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, [0, 0, 0, 1, 0]),
        (-2.0, [1, 0, 0, 0, 0]),
        (2.0, [0, 0, 0, 0, 1]),
        (0.25, [0, 0, 0.75, 0.25, 0]),
        (-1.5, [0.5, 0.5, 0, 0, 0]),
        (7.0, [0, 0, 0, 0, 1]),
        (-2.1, [1, 0, 0, 0, 0]),
    ],
)
def test_value_splits_probability_between_neighbours(value: float, expected: list[float]) -> None:
    certain, nothing = torch.zeros(1, 5), torch.full((1, 5), value)
    certain[0, 3] = 1.0
    torch.testing.assert_close(ATOMS.projected(certain, nothing), torch.tensor([expected]).float())


def plainly(probabilities: Tensor, values: Tensor, atoms: Tensor) -> Tensor:
    """Project by the triangle around each atom, max(0, 1 - |value - atom| / spacing)."""
    spacing = atoms[1] - atoms[0]
    result = torch.zeros_like(probabilities)
    for row in range(len(values)):
        for probability, value in zip(
            probabilities[row], values[row].clamp(atoms[0], atoms[-1]), strict=True
        ):
            result[row] += probability * (1 - (value - atoms).abs() / spacing).clamp(min=0.0)
    return result


def test_projection_as_by_triangles() -> None:
    distribution, atoms = Categorical(-3.0, 7.0, 11), torch.linspace(-3, 7, 11, dtype=torch.float64)
    probabilities = torch.softmax(torch.randn(6, 11, dtype=torch.float64), -1)
    values = torch.randn(6, 11, dtype=torch.float64) * 4 + 2
    values[0] = atoms
    projected = distribution.projected(probabilities, values)
    torch.testing.assert_close(projected, plainly(probabilities, values, atoms))
    torch.testing.assert_close(projected[0], probabilities[0])
    torch.testing.assert_close(projected.sum(-1), torch.ones(6, dtype=torch.float64))
    inside = values.clamp(-3, 7)
    torch.testing.assert_close(projected @ atoms, (probabilities * inside).sum(-1))


def test_smallest_is_one_critics_whole_distribution() -> None:
    ones, twos = torch.tensor([0.0, 0.0, 0.5, 0.0, 0.5]), torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])
    probabilities = torch.stack([torch.stack([ones, twos]), torch.stack([twos, ones])])
    torch.testing.assert_close(ATOMS.expected(probabilities.log()), torch.tensor([[1.0, 2.0], [2.0, 1.0]]))
    torch.testing.assert_close(ATOMS.smallest(probabilities), torch.stack([ones, ones]))


def test_loss_is_the_cross_entropy() -> None:
    logits, targets = torch.randn(2, 3, 5), torch.softmax(torch.randn(3, 5), -1)
    losses, errors = ATOMS.losses_and_errors(logits, targets)
    by_torch = [torch.nn.functional.cross_entropy(one, targets, reduction="none") for one in logits]
    torch.testing.assert_close(losses, by_torch[0] + by_torch[1])
    means = torch.softmax(logits, -1) @ RETURNS
    torch.testing.assert_close(errors, (means - targets @ RETURNS).abs().mean(0))


BATCH = 7


def batch_of(noise: Tensor) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = {
        name: torch.randn(BATCH, 3, generator=generator) for name in ("observations", "next_observations")
    }
    rows |= {"actions": torch.rand(BATCH, 2, generator=generator) * 2 - 1}
    rows |= {"rewards": torch.randn(BATCH, generator=generator), "terminated": torch.zeros(BATCH)}
    rows["terminated"][2:4] = 1.0
    return {name: column.double() for name, column in {**rows, "noise": noise}.items()}


@pytest.mark.parametrize("algorithm", [SAC, TD3])
def test_targets_as_written_out(algorithm: type[Any]) -> None:
    settings = {"critic_loss": "categorical", "n_atoms": 9, "value_range": [-4.0, 4.0], "gamma": 0.9}
    model = ours(algorithm, torch.float64, policy_kwargs={"net_arch": [8]}, **settings)
    is_sac = algorithm is SAC
    noise = torch.randn(*((2, BATCH, 2) if is_sac else (BATCH, 2)), dtype=torch.float64) * 0.1
    batch = batch_of(noise)
    targets = model.targets(model.runner.state, batch)
    actor, critics, atoms = model.policy.actor, model.policy.critics, torch.linspace(-4, 4, 9).double()
    with torch.no_grad():
        if is_sac:
            actions, log_prob = actor.head.rsample(actor(batch["next_observations"]), noise[1])
            cost = model.policy.temperature.log.exp() * log_prob
        else:
            actions, cost = (actor(batch["next_observations"]) + noise).clamp(-1, 1), torch.zeros(BATCH)
        logits = critics(batch["next_observations"], actions)
        for row in range(BATCH):
            returns = batch["rewards"][row] + 0.9 * (1 - batch["terminated"][row]) * (atoms - cost[row])
            projected = [plainly(one[None, row].softmax(-1), returns[None], atoms)[0] for one in logits]
            torch.testing.assert_close(targets[row], min(projected, key=lambda p: float(p @ atoms)))


def test_the_least_is_that_of_projected_distributions() -> None:
    """A reward of 4 clips high returns: the critic that expected more may expect less then."""
    model = TD3(env="Pendulum-v1", critic_loss="categorical", policy_kwargs={"net_arch": [8]}, compile=False)
    sure, wide = torch.zeros(101), torch.zeros(101)
    sure[60], wide[100], wide[30] = 1.0, 0.5, 0.5  # all at 1; half at 5, half at -2
    assert sure @ torch.linspace(-5, 5, 101) < wide @ torch.linspace(-5, 5, 101)
    batch = {"rewards": torch.tensor([4.0]), "terminated": torch.zeros(1)}
    logits = torch.stack([sure, wide])[:, None].log()
    targets = model._distribution_targets(batch, logits, 0.0)  # type: ignore[arg-type]
    assert (targets @ torch.linspace(-5, 5, 101)).item() == pytest.approx((5 + 4 - 0.99 * 2) / 2, abs=1e-4)


# -- scaled rewards ----------------------------------------------------------------------------------


def scaling() -> Normalizer:
    config = NormalizeConfig(observations=False, rewards="scaled")
    return Normalizer(spaces.Box(-1, 1, (1,)), config, gamma=0.99)


def test_returns_and_scale_by_hand() -> None:
    """R of rewards of 1 is 1, 1.99, 2.9701; the scale is that of the largest while deviations are small."""
    normalizer = scaling()
    seen = []
    for done in (False, False, True, False):
        normalizer.update(np.zeros((1, 1)), np.ones(1), np.array([done]))
        seen.append(normalizer.largest_return)
    assert seen == pytest.approx([1.0, 1.99, 2.9701, 2.9701])
    returns = np.array([1.0, 1.99, 2.9701, 1.0])
    scale = max(returns.std(), 2.9701 / 5)
    assert normalizer.normalize_rewards(np.array([3.0])) == pytest.approx([3.0 / scale], rel=1e-6)
    normalizer.largest_return = 400.0
    assert normalizer.normalize_rewards(np.array([3.0])) == pytest.approx([3.0 / 80.0])
    assert normalizer.unnormalize_reward(np.array([1.0])) == pytest.approx([80.0])
    again = Normalizer.from_state(normalizer.state())
    assert (again.rewards, again.largest_return, again.return_bound) == ("scaled", 400.0, 5.0)


def test_largest_return_of_all_ranks_counts() -> None:
    parts = [scaling(), scaling()]
    for normalizer, reward in zip(parts, (1.0, -7.0), strict=True):
        normalizer.share()
        normalizer.update(np.zeros((1, 1)), np.array([reward]), np.array([False]))
    statistics = np.stack([normalizer.local_statistics() for normalizer in parts])
    for normalizer in parts:
        normalizer.merge_shared(statistics)
    assert [normalizer.largest_return for normalizer in parts] == [7.0, 7.0]


# -- whole updates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [SAC, TD3, pytest.param(CrossQ, marks=pytest.mark.slow)])
def test_categorical_critics_learn_a_return(algorithm: type[Any]) -> None:
    """Every episode is one step with a reward of 1 or so: that is what critics come to expect."""
    env = zoo.EnvConfig("Zoo/IdentityBox-v0")
    settings: dict[str, Any] = {"learning_starts": 50, "batch_size": 32, "n_atoms": 21, "gamma": 0.0}
    settings |= {"value_range": [-2.0, 2.0], "learning_rate": 3e-3, "compile": False, "seed": 0}
    model = algorithm({"net_arch": [32]}, env, critic_loss="categorical", **settings)
    model.learn(900)
    batch = model._tensors(model.buffer.sample(model.rng, (1, 200), 0.0))
    with torch.no_grad(), model.policy_mode.evaluation():
        logits = model.policy.critics(batch["observations"][0], batch["actions"][0])
    expected = model.distribution.expected(logits).mean(0)
    errors = (expected - batch["rewards"][0]).abs()
    assert errors.mean() < 0.5 * (batch["rewards"][0] - batch["rewards"].mean()).abs().mean()
    assert math.isfinite(model.read_metrics()["train/critic_loss"])


@pytest.mark.parametrize("bounds", [[5.0, -5.0], [1.0]], ids=str)
def test_wrong_range_is_refused(bounds: list[float]) -> None:
    with pytest.raises(ZooError, match=r"algo.value_range=.*expected \[low, high\]"):
        SAC("MlpPolicy", "Pendulum-v1", critic_loss="categorical", value_range=bounds)


def test_range_of_a_saved_agent_stays(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"critic_loss": "categorical", "n_atoms": 5, "compile": False}
    SAC({"net_arch": [8]}, "Pendulum-v1", **settings).save(tmp_path / "agent")
    with pytest.raises(ZooError, match="learned returns of another range"):
        SAC.load(tmp_path / "agent", value_range=[-9.0, 9.0])


def test_unknown_scaling_is_refused() -> None:
    with pytest.raises(ZooError, match=r"env.normalize.rewards=half`: expected true, false or scaled"):
        zoo.compose("train", ["algo=sac", "env=Pendulum-v1", "env.normalize.rewards=half"])
