"""SAC's options, and TQC's updates against SB3-Contrib."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import sb3_contrib
import torch
from peer_updates import RATE, SETTINGS, Nowhere, largest_distance_after, ours, peer_of
from torch import Tensor, nn

import zoo
from zoo import SAC, TQC
from zoo.algorithms.qrdqn import quantile_huber
from zoo.errors import ZooError

# -- What SAC's entropy coefficient learns from -----------------------------------------------------------


def test_the_temperature_learns_from_weighted_samples() -> None:
    """As the critics and the actor do: the entropy is that of their distribution."""
    batch = {
        "observations": torch.randn(4, 3),
        "next_observations": torch.randn(4, 3),
        "actions": torch.rand(4, 1),
        "rewards": torch.zeros(4),
        "terminated": torch.zeros(4),
    }
    losses = []
    for weights in ([1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]):
        settings = {"seed": 0, "compile": False, "threads": 1, "ent_coef": "auto_0.1"}
        model = zoo.SAC({"net_arch": [4]}, "Pendulum-v1", **settings)
        noise = torch.linspace(-1, 1, 8).reshape(2, 4, 1)
        row = {**batch, "noise": noise, "tau": torch.zeros(()), "weights": torch.tensor(weights)}
        batches = {name: column[None] for name, column in row.items()}
        with model.runtime.in_force():
            outcome = model._round(model.runner.state, {"learning_rate": torch.tensor(1e-3)}, batches)
        losses.append(float(outcome.metrics["ent_coef_loss"]))
    assert losses[0] != losses[1]
    assert losses[2] == pytest.approx(losses[0] + losses[1])


# -- When targets follow -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [zoo.SAC, TQC])
@pytest.mark.parametrize(("gradient_steps", "expected"), [(1, [3, 6, 9, 12]), (2, [4, 6, 10, 12])])
def test_targets_follow_after_each_third_update(
    algorithm: Any, gradient_steps: int, expected: list[int]
) -> None:
    """Gradient steps are counted over all updates of a training."""
    settings: dict[str, Any] = {"learning_starts": 0, "batch_size": 4, "gradient_steps": gradient_steps}
    settings |= {"target_update_interval": 3, "seed": 0, "compile": False, "threads": 1}
    model, moved_by = algorithm({"net_arch": [4]}, "Pendulum-v1", **settings), []
    while model.n_updates < 12:
        before = model.runner.state["target"].clone()
        model.learn(1, reset_num_timesteps=False)
        if not torch.equal(model.runner.state["target"], before):
            moved_by.append(model.n_updates)
    assert moved_by == expected


# -- What TQC refuses -------------------------------------------------------------------------------------
def make(**hyperparameters: Any) -> TQC:
    settings = {"buffer_size": 100, "batch_size": 8, "learning_starts": 0, **hyperparameters}
    return TQC({"net_arch": [8]}, "Pendulum-v1", seed=0, compile=False, threads=1, **settings)


@pytest.mark.parametrize("dropped", [4, 5])
def test_dropping_all_quantiles_is_refused(dropped: int) -> None:
    message = rf"`algo\.top_quantiles_to_drop_per_net={dropped}` leaves nothing of `algo\.n_quantiles=4`"
    with pytest.raises(ZooError, match=f"{message}; expected at most 3"):
        make(n_quantiles=4, top_quantiles_to_drop_per_net=dropped)


# -- TQC's gradient steps end with the weights of SB3-Contrib's, given the same batches and noise ---------

CALLS = (1, 3, 2, 4)
EXACT = {torch.float32: 1e-4, torch.float64: 1e-10}
CRITICS = {"n_critics": 2, "n_quantiles": 8}
"""Eighths are the same in both precisions: the peer's midpoints are always single."""


def largest_distance(
    dtype: torch.dtype, algorithm: type[TQC] = TQC, changed: Any = None, critics: Any = None, **settings: Any
) -> float:
    """Take the same steps with both; ``changed`` are settings of ours alone."""
    settings, critics = {**SETTINGS, **settings}, {**CRITICS, **(critics or {})}
    model = ours(algorithm, dtype, **{**settings, **critics, **(changed or {})})
    networks = {"net_arch": [8, 8], **critics}
    peer = peer_of(sb3_contrib.TQC("MlpPolicy", Nowhere(), policy_kwargs=networks, **settings), dtype)
    peer.actor.action_dist.epsilon = 0.0  # what it adds inside a logarithm: see docs/differences.md
    if peer.ent_coef_optimizer is None:
        nn.init.constant_(model.policy.temperature.log, math.log(settings["ent_coef"]))
    else:
        peer.log_ent_coef = peer.log_ent_coef.detach().to(dtype).requires_grad_()
        peer.ent_coef_optimizer = torch.optim.Adam([peer.log_ent_coef], lr=RATE)
    parts = {
        "actor": (model.policy.actor, peer.actor),
        "critics": (model.policy.critics, peer.critic),
        "target": (model.policy.critics, peer.critic_target),
    }
    largest = largest_distance_after(CALLS, model, peer, parts, dtype, noise)
    if peer.ent_coef_optimizer is None:
        return largest
    theirs = peer.log_ent_coef.item()
    return max(largest, abs(model.policy.temperature.log.item() / theirs - 1.0))


def noise(actions: Tensor, n_steps: int) -> Tensor:
    zero, one = torch.zeros_like(actions), torch.ones_like(actions)
    return torch.stack(
        [torch.stack([torch.normal(zero, one), torch.normal(zero, one)]) for _ in range(n_steps)]
    )


@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"top_quantiles_to_drop_per_net": 0},
        {"top_quantiles_to_drop_per_net": 5, "critics": {"n_critics": 3, "n_quantiles": 16}},
        {"critics": {"n_critics": 1, "n_quantiles": 4}, "ent_coef": 0.125},
    ],
    ids=str,
)
def test_updates_are_the_peers(dtype: torch.dtype, settings: dict[str, Any]) -> None:
    assert largest_distance(dtype, **settings) < EXACT[dtype]


# What the comparison has to see
class DropsOfEach(TQC):
    """Drops the highest quantiles of each critic, before they are put together."""

    def _soft_values(self, next_values: Tensor, weighted_log_prob: Tensor) -> Tensor:
        n_kept = self.config.n_quantiles - self.config.top_quantiles_to_drop_per_net
        kept = next_values.sort(dim=-1).values[..., :n_kept]
        return kept.transpose(0, 1).flatten(1) - weighted_log_prob.unsqueeze(-1)


class DropsTheLowest(TQC):
    def _soft_values(self, next_values: Tensor, weighted_log_prob: Tensor) -> Tensor:
        return -super()._soft_values(-next_values, -weighted_log_prob)


class DropsOneMore(TQC):
    def _soft_values(self, next_values: Tensor, weighted_log_prob: Tensor) -> Tensor:
        return super()._soft_values(next_values, weighted_log_prob)[:, :-1]


class WithoutEntropy(TQC):
    def _soft_values(self, next_values: Tensor, weighted_log_prob: Tensor) -> Tensor:
        return super()._soft_values(next_values, 0.0 * weighted_log_prob)


class SumOverQuantiles(TQC):
    """Adds where the peer takes the mean, which Adam all but undoes: only double precision shows it."""

    def _losses_and_errors(self, values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        losses, errors = super()._losses_and_errors(values, targets)
        return self.config.n_quantiles * losses, errors


class WeightsTargets(TQC):
    """Weighs by the levels of the targets instead of the quantiles."""

    def _losses_and_errors(self, values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        common = targets.expand(len(values), *targets.shape)
        return quantile_huber(common, values).mean((0, -2, -1)), targets.mean(-1)


class LowestForTheActor(TQC):
    def _actor_values(self, values: Tensor) -> Tensor:
        return values.mean(-1).amin(0)


class TruncatedForTheActor(TQC):
    def _actor_values(self, values: Tensor) -> Tensor:
        return self._soft_values(values, torch.zeros_like(values[0, :, 0])).mean(-1)


MISTAKEN = [DropsOfEach, DropsTheLowest, DropsOneMore, WithoutEntropy]
MISTAKEN += [SumOverQuantiles, WeightsTargets, LowestForTheActor, TruncatedForTheActor]


@pytest.mark.parametrize(
    ("algorithm", "changed"),
    [
        *((mistaken, {}) for mistaken in MISTAKEN),
        (TQC, {"top_quantiles_to_drop_per_net": 3}),
        (TQC, {"target_update_interval": 2}),
        (TQC, {"gamma": 0.75}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_errors_are_seen(algorithm: type[TQC], changed: dict[str, Any]) -> None:
    assert largest_distance(torch.float64, algorithm, changed) > 100 * EXACT[torch.float64]
    if algorithm is not SumOverQuantiles:
        assert largest_distance(torch.float32, algorithm, changed) > 2 * EXACT[torch.float32]


def test_entropy_coefficient_may_be_zero(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"learning_starts": 20, "batch_size": 8, "compile": False, "seed": 0}
    model = SAC({"net_arch": [8]}, "Pendulum-v1", ent_coef=0, **settings).learn(60)
    assert model.policy.temperature().exp().item() < 1e-30
    loaded = SAC.load(model.save(tmp_path / "agent"), "Pendulum-v1", ent_coef=0.1)
    assert loaded.policy.temperature().exp().item() == pytest.approx(0.1)
