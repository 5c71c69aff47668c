"""Gradient steps of DQN and QR-DQN on batches made by hand, against loops over samples and quantiles.

What a memory may give beside transitions counts: importance weights, discounts of several steps, masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from zoo import DQN, QRDQN, make_vec_env

BATCH = 12
GAMMA = 0.8


def make(algorithm: Any, *, double: bool, dueling: bool) -> Any:
    """Return an algorithm whose target network is not the online one, and whose steps move nothing."""
    extra = {"n_quantiles": 5} if algorithm is QRDQN else {}
    envs = make_vec_env("Zoo/Masked-v0", 1)
    model = algorithm(
        {"net_arch": [8]},
        envs,
        seed=0,
        compile=False,
        gamma=GAMMA,
        learning_rate=0.0,
        double=double,
        dueling=dueling,
        **extra,
    )
    generator = torch.Generator().manual_seed(0)
    for name in ("q_network", "target"):
        vector = model.runner.state[name]
        vector.copy_(torch.randn(vector.shape, generator=generator))
    return model


def made_by_hand(model: Any) -> dict[str, Tensor]:
    rng = np.random.default_rng(3)
    model.observation_space.seed(4)
    observations, following = (
        np.stack([model.observation_space.sample() for _ in range(BATCH)]) for _ in range(2)
    )
    return model._tensors(
        {
            "observations": observations,
            "actions": rng.integers(6, size=BATCH),
            "rewards": rng.normal(size=BATCH).astype(np.float32),
            "terminated": (rng.random(BATCH) < 0.3).astype(np.float32),
            "next_observations": following,
        }
    )


EXTRAS: dict[str, Any] = {
    "weights": torch.linspace(0.1, 1.0, BATCH),
    "discounts": GAMMA ** (1 + torch.arange(BATCH) % 3).float(),
    "next_action_masks": (torch.arange(BATCH)[:, None] + torch.arange(6)) % 3 == 0,
}


def huber(error: float) -> float:
    return error**2 / 2 if abs(error) <= 1 else abs(error) - 1 / 2


def quantile_loss(error: float, i: int, n: int) -> float:
    place = (i + 0.5) / n
    return (1 - place if error < 0 else place) * huber(error)


def written_out(model: Any, batch: dict[str, Tensor]) -> tuple[list[list[float]], list[float], list[float]]:
    """Return each sample's targets, loss, and absolute error of the mean; DQN has one quantile, its value."""
    parameters, state = model.updater.parameters, model.runner.state
    is_dqn = type(model) is DQN

    def estimates(network: str, observations: Tensor) -> Any:
        with torch.no_grad():
            given = parameters.functional(state[network])(observations).double()
        return (given[:, None] if is_dqn else given).tolist()

    now = estimates("q_network", batch["observations"])
    valued = estimates("target", batch["next_observations"])
    decided = estimates("q_network", batch["next_observations"]) if model.config.double else valued
    targets, losses, sizes = [], [], []
    for k in range(BATCH):
        n = len(now[k])
        allowed = range(6)
        if "next_action_masks" in batch:
            allowed = [a for a in range(6) if batch["next_action_masks"][k, a]]  # type: ignore[assignment]
        best = max(allowed, key=lambda a: sum(decided[k][i][a] for i in range(n)))
        discount = batch["discounts"][k].item() if "discounts" in batch else GAMMA
        if batch["terminated"][k]:
            discount = 0.0
        towards = [batch["rewards"][k].item() + discount * valued[k][i][best] for i in range(n)]
        have = [now[k][i][int(batch["actions"][k])] for i in range(n)]
        loss = 0.0
        for i in range(n):
            for target in towards:
                error = target - have[i]
                loss += huber(error) if is_dqn else quantile_loss(error, i, n) / n
        targets.append(towards)
        losses.append(loss)
        sizes.append(abs(sum(towards) / n - sum(have) / n))
    return targets, losses, sizes


@pytest.mark.parametrize("extra", [(), *[(name,) for name in EXTRAS], tuple(EXTRAS)], ids=str)
@pytest.mark.parametrize(("double", "dueling"), [(False, True), (True, False)])
@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_step_against_loops(algorithm: Any, double: bool, dueling: bool, extra: tuple[str, ...]) -> None:
    model = make(algorithm, double=double, dueling=dueling)
    batch = {**made_by_hand(model), **{name: EXTRAS[name] for name in extra}}
    targets, losses, sizes = written_out(model, batch)

    ours = model.targets(model.runner.state, batch).reshape(BATCH, -1)
    np.testing.assert_allclose(ours.numpy(), targets, rtol=1e-5, atol=1e-5)

    rows = {name: column[None] for name, column in batch.items()}
    outputs = model._take_steps(model._gradient_step, model.rates(0.0), rows)
    weights = batch["weights"].tolist() if "weights" in batch else [1.0] * BATCH
    expected = sum(weight * loss for weight, loss in zip(weights, losses, strict=True)) / BATCH
    assert model.read_metrics()["train/loss"] == pytest.approx(expected, rel=1e-5)
    if "weights" in extra:
        np.testing.assert_allclose(outputs["td_errors"].numpy(), [sizes], rtol=1e-5, atol=1e-5)
    else:
        assert outputs == {}


@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_double_and_masks_change_these_targets(algorithm: Any) -> None:
    """Else the tests above would show nothing of them."""
    plain, double = (make(algorithm, double=double, dueling=False) for double in (False, True))
    batch = made_by_hand(plain)
    masked = {**batch, "next_action_masks": EXTRAS["next_action_masks"]}
    ours = plain.targets(plain.runner.state, batch)
    for other in (
        double.targets(double.runner.state, batch),
        plain.targets(plain.runner.state, masked),
    ):
        assert (ours != other).reshape(BATCH, -1).any(-1).sum() >= 3
