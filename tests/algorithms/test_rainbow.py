"""Parts of Rainbow and its kin: Munchausen targets, distributions, noisy layers, implicit quantiles."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import zoo
from zoo import C51, DQN, QRDQN, Rainbow, make_vec_env
from zoo.cli import status_of
from zoo.policies.networks import NoisyLinear, factor_noise

BATCH = 12
GAMMA = 0.8


def make(algorithm: Any, **options: Any) -> Any:
    """Return an algorithm whose target network is not the online one, with masks of six actions."""
    settings = {"seed": 0, "compile": False, "gamma": GAMMA, **options}
    model = algorithm({"net_arch": [8]}, make_vec_env("Zoo/Masked-v0", 1), **settings)
    generator = torch.Generator().manual_seed(0)
    for name in ("q_network", "target"):
        vector = model.runner.state[name]
        vector.copy_(torch.randn(vector.shape, generator=generator))
    return model


def made_by_hand(model: Any, *, masks: bool = True) -> dict[str, Tensor]:
    rng = np.random.default_rng(3)
    model.observation_space.seed(4)
    observations, following = (
        np.stack([model.observation_space.sample() for _ in range(BATCH)]) for _ in range(2)
    )
    rows = {
        "observations": observations,
        "actions": rng.integers(6, size=BATCH),
        "rewards": rng.normal(size=BATCH).astype(np.float32),
        "terminated": (rng.random(BATCH) < 0.3).astype(np.float32),
        "next_observations": following,
    }
    if masks:
        allowed = rng.random((2, BATCH, 6)) < 0.5
        allowed[0, np.arange(BATCH), rows["actions"]] = True
        allowed[1, :, 2] = True
        rows |= {"action_masks": allowed[0], "next_action_masks": allowed[1]}
    return model._tensors(rows)


def estimates(model: Any, network: str, observations: Tensor) -> np.ndarray:
    with torch.no_grad():
        return model.updater.parameters.functional(model.runner.state[network])(observations).double().numpy()


# -- Munchausen ----------------------------------------------------------------------------------------


def log_policy(values: Any, tau: float) -> np.ndarray:
    """Return log π by plain sums in double precision."""
    values = np.array(values, np.float64) / tau
    shifted = values - values.max()
    return shifted - math.log(np.exp(shifted).sum())


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_munchausen_targets_against_loops(algorithm: Any, masks: bool) -> None:
    more = {"n_quantiles": 5} if algorithm is QRDQN else {}
    model = make(algorithm, munchausen={"alpha": 0.7, "tau": 0.5, "floor": -2.0}, **more)
    batch = made_by_hand(model, masks=masks)
    now, following = (estimates(model, "target", batch[f"{when}observations"]) for when in ("", "next_"))
    n = 5 if more else 1
    now, following = now.reshape(BATCH, n, 6), following.reshape(BATCH, n, 6)
    every = np.ones((BATCH, 6), bool)
    clipped = 0
    for k in range(BATCH):
        allowed = [
            np.flatnonzero(batch[f"{when}action_masks"][k].numpy() if masks else every[k])
            for when in ("", "next_")
        ]
        place = list(allowed[0]).index(int(batch["actions"][k]))
        bonus = 0.5 * log_policy(now[k].mean(0)[allowed[0]], 0.5)[place]
        clipped += bonus < -2
        log_pi = log_policy(following[k].mean(0)[allowed[1]], 0.5)
        soft = [
            sum(math.exp(lp) * (row[a] - 0.5 * lp) for lp, a in zip(log_pi, allowed[1], strict=True))
            for row in following[k]
        ]
        discount = GAMMA * (1 - batch["terminated"][k].item())
        expected = [batch["rewards"][k].item() + 0.7 * max(bonus, -2.0) + discount * value for value in soft]
        targets = model.targets(
            model.runner.state, {name: column[k : k + 1] for name, column in batch.items()}
        )
        np.testing.assert_allclose(targets.numpy().reshape(n), expected, rtol=1e-4, atol=1e-4)
    assert clipped


@pytest.mark.parametrize(
    ("values", "logs", "soft"),
    [
        ((1.0, 2.0), (-1.0, 0.0), 2.0),
        ((1.0, 1.02), (-0.032431, -0.012431), 1.032431),
        ((1.0, 1.0), None, 1.020794),
    ],
)
def test_worked_numbers_of_munchausen(values: Any, logs: Any, soft: float) -> None:
    model = DQN("MlpPolicy", "CartPole-v1", munchausen={}, compile=False, gamma=1.0)
    estimates = torch.tensor([values])
    log_pi = model._log_policy(estimates, None)
    if logs:
        torch.testing.assert_close(log_pi.clamp(min=-1.0), torch.tensor([logs]), atol=1e-6, rtol=0)
    value = ((log_pi / 0.03).exp() * (estimates - log_pi)).sum()
    assert value.item() == pytest.approx(soft, abs=1e-6)


def test_large_values_keep_their_differences() -> None:
    model = DQN("MlpPolicy", "CartPole-v1", munchausen={}, compile=False)
    small, large = (model._log_policy(torch.tensor([[0.0, 0.125]]) + more, None) for more in (0, 4096))
    assert torch.equal(small, large)


# -- C51 -----------------------------------------------------------------------------------------------


def project(probabilities: np.ndarray, values: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Project by the triangle around each atom, max(0, 1 - |value - atom| / spacing)."""
    distances = np.abs(values.clip(atoms[0], atoms[-1])[:, None] - atoms) / (atoms[1] - atoms[0])
    return probabilities @ (1 - distances).clip(0.0)


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(0)


ATOMS = np.linspace(-2, 3, 6)
C51_OPTIONS: dict[str, Any] = {"n_atoms": 6, "value_range": [-2.0, 3.0]}


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dueling", [False, True])
def test_categorical_step_against_loops(double: bool, dueling: bool, masks: bool) -> None:
    model = make(C51, double=double, dueling=dueling, learning_rate=0.0, **C51_OPTIONS)
    batch = made_by_hand(model, masks=masks)
    batch["discounts"] = GAMMA ** (1 + torch.arange(BATCH) % 3).float()
    batch["weights"] = torch.linspace(0.1, 1.0, BATCH)
    now = estimates(model, "q_network", batch["observations"])
    valued = estimates(model, "target", batch["next_observations"])
    decided = estimates(model, "q_network", batch["next_observations"]) if double else valued
    losses, expected = [], []
    by_atom = 0
    for k in range(BATCH):
        allowed = np.flatnonzero(batch["next_action_masks"][k].numpy()) if masks else range(6)
        best = max(allowed, key=lambda a: ATOMS @ softmax(decided[k])[:, a])
        by_atom += best != max(allowed, key=lambda a: decided[k][:, a].max())
        discount = batch["discounts"][k].item() * (1 - batch["terminated"][k].item())
        returns = batch["rewards"][k].item() + discount * ATOMS
        expected.append(project(softmax(valued[k])[:, best], returns, ATOMS))
        losses.append(-expected[-1] @ np.log(softmax(now[k])[:, int(batch["actions"][k])]))
    assert by_atom
    np.testing.assert_allclose(model.targets(model.runner.state, batch).numpy(), expected, atol=1e-5)
    rows = {name: column[None] for name, column in batch.items()}
    outputs = model.take_steps(model._gradient_step, model.rates(0.0), rows)
    loss = (batch["weights"].numpy() * losses).mean()
    assert model.read_metrics()["train/loss"] == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(outputs["td_errors"].numpy(), [losses], rtol=1e-4)


@pytest.mark.parametrize(
    ("reward", "terminated", "expected"),
    [
        (0.5, 0.0, [0.08, 0.37, 0.55]),
        (0.5, 1.0, [0, 0.5, 0.5]),
        (1.0, 1.0, [0, 0, 1]),
        (-7, 1.0, [1, 0, 0]),
    ],
)
def test_worked_numbers_of_the_projection(reward: float, terminated: float, expected: list[float]) -> None:
    model = C51("MlpPolicy", "CartPole-v1", n_atoms=3, value_range=[-1.0, 1.0], gamma=0.9, compile=False)
    batch: Any = {"rewards": torch.tensor([reward]), "terminated": torch.tensor([terminated])}
    targets = model._bootstrapped(batch, torch.tensor([[0.2, 0.5, 0.3]]).log())
    torch.testing.assert_close(targets, torch.tensor([expected]).float(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("dueling", [False, True])
def test_numpy_acts_by_the_expected_returns(dueling: bool) -> None:
    model = make(C51, dueling=dueling, **C51_OPTIONS)
    batch = made_by_hand(model)
    assert model.acting.uses_numpy
    values, _ = model.acting.parameters({"observations": batch["observations"].numpy()})
    by_sums = [ATOMS @ softmax(one) for one in estimates(model, "q_network", batch["observations"])]
    np.testing.assert_allclose(values, by_sums, atol=1e-5)


# -- noisy layers --------------------------------------------------------------------------------------


def test_worked_variance_of_a_noisy_layer() -> None:
    layer = NoisyLinear(64, 1, 0.5)
    assert layer.weight_std.unique().item() == layer.bias_std.item() == 0.5 / 8
    assert layer.weight.abs().max() <= 1 / 8
    layer.weight.data.zero_()
    layer.bias.data.zero_()
    noise = torch.from_numpy(factor_noise(np.random.default_rng(0), (200_000, 65)))
    assert noise.square().mean().item() == pytest.approx(0.79788, abs=2e-3)
    outputs = layer(torch.ones(64), noise).detach()
    assert outputs.var().item() == pytest.approx(0.16227, rel=0.02)
    assert outputs.mean().item() == pytest.approx(0, abs=0.01)


def test_noise_of_a_layer_written_out() -> None:
    layer = NoisyLinear(3, 2, 0.5)
    rows, noise = torch.randn(4, 3), torch.randn(4, 5)
    for k in range(4):
        weight = layer.weight + layer.weight_std * noise[k, 3:, None] * noise[k, None, :3]
        expected = weight @ rows[k] + layer.bias + layer.bias_std * noise[k, 3:]
        torch.testing.assert_close(layer(rows, noise)[k], expected)
        torch.testing.assert_close(layer(rows, noise[k])[k], expected)
    torch.testing.assert_close(layer(rows), rows @ layer.weight.T + layer.bias)
    layer.weight_std.data.zero_()
    layer.bias_std.data.zero_()
    torch.testing.assert_close(layer(rows, noise), layer(rows))


@pytest.mark.parametrize("algorithm", [DQN, QRDQN, C51])
def test_noise_is_of_both_networks_at_each_step(algorithm: Any) -> None:
    class Watched(algorithm):  # type: ignore[misc]
        def take_steps(self, step: Any, shared: Any, rows: Any) -> Any:
            drawn.append(rows["noise"].clone())
            return super().take_steps(step, shared, rows)

    drawn: list[Tensor] = []
    settings = {"learning_starts": 20, "train_freq": 4, "gradient_steps": 2, "batch_size": 8, "dueling": True}
    more = {"n_quantiles": 5} if algorithm is QRDQN else C51_OPTIONS if algorithm is C51 else {}
    model = Watched({"net_arch": [8]}, "CartPole-v1", noisy=True, seed=0, compile=False, **settings, **more)
    before = model.runner.state["q_network"].clone()
    model.learn(60)
    noise = torch.cat(drawn)
    n_estimates = {DQN: 1, QRDQN: 5, C51: 6}[algorithm]
    assert noise.shape[1:] == (2, 4 + 8 + 8 + 2 * n_estimates + 4 + 8 + 8 + n_estimates)
    assert len(noise.unique()) == noise.numel()
    stds = [part for name, part in model.updater.parameters.slices.items() if name.endswith("_std")]
    moved = model.runner.state["q_network"] != before
    assert all(moved[part].any() for part in stds)
    batch = {
        name: column[0] for name, column in model._tensors(model.buffer.sample(model.rng, (1, 8))).items()
    }
    batch["noise"] = noise[0]
    targets = model.targets(model.runner.state, batch)
    other_target = model.targets(
        model.runner.state, {**batch, "noise": torch.stack([noise[0, 0], noise[1, 1]])}
    )
    assert not torch.allclose(targets, other_target)


def test_noisy_exploration_draws_for_each_environment() -> None:
    model = make(DQN, noisy=True)
    observations = np.zeros((400, *model.observation_space.shape), model.observation_space.dtype)
    inputs = {"observations": observations}
    actions, _ = model.exploration.act(inputs, model.rng, 0.0)
    assert len(np.unique(actions)) > 1
    masks = np.zeros((400, 6), bool)
    masks[:, 4] = True
    allowed, _ = model.exploration.act({**inputs, "action_masks": masks}, model.rng, 0.0)
    assert (allowed == 4).all()
    assert len(np.unique(model.acting.act(inputs, None)[0])) == 1
    one = observations[0]
    assert len({int(model.predict(one, deterministic=True)[0]) for _ in range(30)}) == 1
    assert len({int(model.predict(one, deterministic=False)[0]) for _ in range(60)}) > 1
    assert model.exploration.rate(0.0) == 0


def test_rainbow_has_the_papers_values() -> None:
    model = Rainbow("MlpPolicy", "CartPole-v1", compile=False)
    config, replay = model.config, model.replay_config
    assert (config.double, config.dueling, config.noisy, config.noisy_std) == (True, True, True, 0.5)
    assert (config.n_atoms, config.value_range, config.learning_rate) == (51, [-10.0, 10.0], 6.25e-5)
    assert replay.n_step == 3
    assert replay.prioritized is not None
    assert (replay.prioritized.alpha, replay.prioritized.beta) == (0.5, 0.4)
    composed = zoo.compose("train", ["algo=rainbow", "env=CartPole-v1", "tuned=none"])
    assert composed.replay["n_step"] == 3
    assert composed.replay["prioritized"]["alpha"] == 0.5
    assert composed.algo.noisy is True


# -- bad input -----------------------------------------------------------------------------------------

WRONG = {
    "algo=dqn algo.noisy=true algo.parameter_noise=true": "`algo.noisy` explores instead of",
    "algo=qrdqn algo.noisy=true policy.block=residual": "`algo.noisy` needs plain hidden layers",
    "algo=c51 algo.value_range=[5,-5]": "algo.value_range=[5.0, -5.0]`: expected [low, high]",
    "algo=c51 algo.munchausen={}": "algo.munchausen",
    "algo=dqn algo.munchausen.tau=0": "algo.munchausen.tau",
    "algo=rainbow env=Pendulum-v1": "Discrete",
}


@pytest.mark.parametrize("given", WRONG)
def test_wrong_values_name_their_key(
    given: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["tuned=none", "n_timesteps=60000", "env=CartPole-v1", *given.split()]
    assert status_of(["train", *{one.partition("=")[0]: one for one in settings}.values()]) == 2
    error = capsys.readouterr().err
    assert WRONG[given] in error
    assert error.count("\n") <= 3
