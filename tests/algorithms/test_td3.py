"""TD3: its rounds, and its updates against Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import stable_baselines3
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peer_updates import SETTINGS, Nowhere, largest_distance_after, ours, peer_of
from torch import Tensor

from zoo import TD3
from zoo.algorithms.td3 import rounds
from zoo.optim.state import State, StepResult

# -- TD3's targets, and when its actor and targets move, however the gradient steps are divided into updates


BATCH = 8


def make(**hyperparameters: Any) -> TD3:
    own = {"batch_size": BATCH, "learning_rate": 0.01, "learning_starts": 0, **hyperparameters}
    model = TD3({"net_arch": [8]}, "Pendulum-v1", seed=0, compile=False, threads=1, **own)
    model._progress_before = 0.0
    return model


def batches(n_steps: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(n_steps)

    def drawn(*size: int) -> Tensor:
        return torch.randn(n_steps, BATCH, *size, generator=generator)

    return {
        "observations": drawn(3),
        "actions": drawn(1).tanh(),
        "rewards": drawn(),
        "terminated": (drawn() > 1).float(),
        "next_observations": drawn(3),
    }


def part(rows: dict[str, Tensor], start: int, end: int) -> dict[str, Tensor]:
    return {name: column[start:end] for name, column in rows.items()}


class Ahead:
    """Gives the noise of each gradient step in turn, however many are asked for at once."""

    def __init__(self, n_steps: int) -> None:
        self.waiting = np.random.default_rng(0).standard_normal((n_steps, BATCH, 1), dtype=np.float32)

    def standard_normal(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        taken, self.waiting = self.waiting[: shape[0]], self.waiting[shape[0] :]
        return taken


# Rounds


@given(n_before=st.integers(0, 20), n_steps=st.integers(1, 20), delay=st.integers(1, 5))
@settings(deadline=None, derandomize=True)
def test_the_actor_moves_after_every_delay_steps_of_the_whole_run(
    n_before: int, n_steps: int, delay: int
) -> None:
    moved_after, step = [], n_before
    for n_rows, length, moves_actor in rounds(n_before, n_steps, delay):
        assert 1 <= length <= delay
        for _ in range(n_rows):
            step += length
            if moves_actor:
                moved_after.append(step)
    assert step == n_before + n_steps
    assert moved_after == [n for n in range(n_before + 1, step + 1) if n % delay == 0]


@pytest.mark.parametrize(("delay", "sizes"), [(1, (4, 5)), (2, (1, 7, 1)), (3, (2, 3, 4)), (3, (1,) * 9)])
def test_updates_of_any_size_are_the_same_steps(delay: int, sizes: tuple[int, ...]) -> None:
    whole, divided = make(policy_delay=delay), make(policy_delay=delay)
    rows = batches(9)
    whole.rng, divided.rng = Ahead(9), Ahead(9)  # type: ignore[assignment]
    whole._learn_from(rows, 9)
    start = 0
    for size in sizes:
        divided._learn_from(part(rows, start, start + size), size)
        start += size
    assert divided.n_updates == whole.n_updates == 9
    for name, expected in whole.runner.state.items():
        assert torch.equal(divided.runner.state[name], expected), name


# Targets


# What comes out


# -- TD3's gradient steps end with the weights of Stable-Baselines3's, given the same batches and noise ---


CALLS = (1, 3, 2, 5, 1, 1)
"""Gradient steps of one update after the other: rounds of 2 or 3 begin in one and end in another."""

EXACT = {torch.float32: 1e-4, torch.float64: 1e-11}


def largest_distance(
    dtype: torch.dtype, algorithm: type[TD3] = TD3, changed: Any = None, n_critics: int = 2, **settings: Any
) -> float:
    """Take the same steps with both; ``changed`` are settings of ours alone."""
    settings = {**SETTINGS, **settings}
    model = ours(algorithm, dtype, **{**settings, "n_critics": n_critics, **(changed or {})})
    with torch.no_grad():
        model.policy.actor.head.action.weight.mul_(5.0)  # so that some actions are at their bounds
    model.copy_to_targets()
    networks = {"net_arch": [8, 8], "n_critics": n_critics}
    theirs = stable_baselines3.TD3("MlpPolicy", Nowhere(), policy_kwargs=networks, **settings)
    peer = peer_of(theirs, dtype)
    parts = {
        "actor": (model.policy.actor, peer.actor),
        "critics": (model.policy.critics, peer.critic),
        "target_actor": (model.policy.actor, peer.actor_target),
        "target_critics": (model.policy.critics, peer.critic_target),
    }
    largest = largest_distance_after(CALLS, model, peer, parts, dtype, noise)
    assert model.n_updates == peer._n_updates == sum(CALLS)
    return largest


def noise(actions: Tensor, n_steps: int) -> Tensor:
    return torch.stack([actions.clone().normal_() for _ in range(n_steps)])


@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"policy_delay": 1},
        {"policy_delay": 3, "target_policy_noise": 0.5, "target_noise_clip": 0.25},
        {"n_critics": 1, "target_policy_noise": 0.0, "tau": 1.0},
        {"n_critics": 3},
    ],
    ids=str,
)
def test_updates_are_the_peers(dtype: torch.dtype, settings: dict[str, Any]) -> None:
    assert largest_distance(dtype, **settings) < EXACT[dtype]


# What the comparison has to see


class TargetsFollowEachStep(TD3):
    def _critic_steps(self, state: State, rates: Any, batches: Any) -> StepResult:
        outcome = super()._critic_steps(state, rates, batches)
        self.critics_updater.parameters.polyak_update(state, "target_critics", 1e-3)
        return outcome


class CountsAnew(TD3):
    """Begins a new round with each update."""

    def _learn_from(self, batches: Any, n_steps: int) -> Any:
        n_updates, self.n_updates = self.n_updates, 0
        outputs = super()._learn_from(batches, n_steps)
        self.n_updates += n_updates
        return outputs


class MeanOfCritics(TD3):
    def targets(self, state: State, batch: dict[str, Any]) -> Tensor:
        target = self.critics_updater.parameters.functional(state["target_critics"])
        actions = self.actor_updater.parameters.functional(state["target_actor"])(batch["next_observations"])
        smoothed = (actions + batch["noise"]).clamp(-1, 1)
        return self._bootstrapped(batch, target(batch["next_observations"], smoothed).mean(0))


class BeyondBounds(TD3):
    def targets(self, state: State, batch: dict[str, Any]) -> Tensor:
        target = self.critics_updater.parameters.functional(state["target_critics"])
        actions = self.actor_updater.parameters.functional(state["target_actor"])(batch["next_observations"])
        return self._bootstrapped(batch, target(batch["next_observations"], actions + batch["noise"]).amin(0))


class OnlineActor(TD3):
    def targets(self, state: State, batch: dict[str, Any]) -> Tensor:
        return super().targets(State({**state, "target_actor": state["actor"]}), batch)


class FirstBatch(TD3):
    """Moves the actor by the first batch of a round, not by the last."""

    def _round(self, state: State, rates: Any, batches: Any) -> StepResult:
        turned = {name: column.flip(0) for name, column in batches.items()}
        return super()._round(state, rates, turned)


class BothCritics(TD3):
    """Judges the actor by the smallest value, as SAC does."""

    def _make_state(self) -> State:
        state = super()._make_state()
        forward = self.policy.critics.forward
        self.policy.critics.forward = (  # type: ignore[method-assign]
            lambda observations, actions, first=None: (
                forward(observations, actions)
                if first is None
                else forward(observations, actions).amin(0, keepdim=True)
            )
        )
        return state


class HalfOfTheSquare(TD3):
    """Halves the critics' loss, which Adam all but undoes: only double precision shows it."""

    def _critic_steps(self, state: State, rates: Any, batches: Any) -> StepResult:
        halved = {**batches, "weights": 0.5 * torch.ones_like(batches["rewards"])}
        state, metrics, _ = super()._critic_steps(state, rates, halved)
        return StepResult(state, metrics)


@pytest.mark.parametrize(
    ("algorithm", "changed"),
    [
        (TargetsFollowEachStep, {}),
        (CountsAnew, {}),
        (MeanOfCritics, {}),
        (BeyondBounds, {}),
        (OnlineActor, {}),
        (FirstBatch, {}),
        (BothCritics, {}),
        (HalfOfTheSquare, {}),
        (TD3, {"policy_delay": 3}),
        (TD3, {"target_noise_clip": 0.375}),
        (TD3, {"target_policy_noise": 0.3}),
        (TD3, {"gamma": 0.75}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_errors_are_seen(algorithm: type[TD3], changed: dict[str, Any]) -> None:
    assert largest_distance(torch.float64, algorithm, changed) > 100 * EXACT[torch.float64]
    if algorithm is not HalfOfTheSquare:
        assert largest_distance(torch.float32, algorithm, changed) > 2 * EXACT[torch.float32]
