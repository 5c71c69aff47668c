"""Parts of Rainbow and its kin: Munchausen targets, distributions, noisy layers, implicit quantiles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from zoo import DQN, QRDQN, make_vec_env

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
