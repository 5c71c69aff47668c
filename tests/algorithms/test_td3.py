"""TD3: its rounds, and its updates against Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import pytest
import stable_baselines3
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peer_updates import SETTINGS, Nowhere, largest_distance_after, ours, peer_of
from torch import Tensor

from zoo import TD3
from zoo.algorithms.off_policy import split_by_policy_delay
from zoo.optim.update_runner import State, StepResult

# -- When the actor and all targets move, however the gradient steps are divided into updates -------------


@given(n_before=st.integers(0, 20), n_steps=st.integers(1, 20), delay=st.integers(1, 5))
@settings(derandomize=True)
def test_actor_updates_every_policy_delay_steps(n_before: int, n_steps: int, delay: int) -> None:
    moved_after, step = [], n_before
    for n_rows, length, moves_actor in split_by_policy_delay(n_before, n_steps, delay):
        assert 1 <= length <= delay
        for _ in range(n_rows):
            step += length
            if moves_actor:
                moved_after.append(step)
    assert step == n_before + n_steps
    assert moved_after == [n for n in range(n_before + 1, step + 1) if n % delay == 0]


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


MISTAKEN = [TargetsFollowEachStep, CountsAnew, MeanOfCritics, BeyondBounds]
MISTAKEN += [OnlineActor, FirstBatch, BothCritics, HalfOfTheSquare]


@pytest.mark.parametrize(
    ("algorithm", "changed"),
    [
        *((mistaken, {}) for mistaken in MISTAKEN),
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
