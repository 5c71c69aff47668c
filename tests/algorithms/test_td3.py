"""TD3: its rounds, and its updates against Stable-Baselines3; FastTD3 against its steps written out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import stable_baselines3
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peer_updates import (
    BATCH,
    RATE,
    SETTINGS,
    Nowhere,
    Prepared,
    batches,
    flat,
    largest_distance_after,
    ours,
    peer_of,
)
from torch import Tensor

from zoo import TD3, FastTD3
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


# -- FastTD3's gradient steps, written out ----------------------------------------------------------------

ATOMS = torch.linspace(-2, 2, 11, dtype=torch.float64)


def fast_td3_by_hand(model: Any, rows: dict[str, Tensor], noise: Tensor) -> dict[str, Tensor]:
    """Return the weights that the model should have after a step on each row."""
    actor, critics = copy.deepcopy(model.policy.actor), copy.deepcopy(model.policy.critics)
    target = copy.deepcopy(critics)
    for_actor, for_critics = (
        torch.optim.AdamW(network.parameters(), RATE, weight_decay=0.125) for network in (actor, critics)
    )

    def climb(optimizer: Any, loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for index in range(len(noise)):
        row = {name: column[index] for name, column in rows.items()}
        with torch.no_grad():
            smooth = (0.001 * noise[index]).clamp(-0.5, 0.5)
            next_actions = (actor(row["next_observations"]) + smooth).clamp(-1, 1)
            next_ones = target(row["next_observations"], next_actions).softmax(-1)
            wanted = torch.zeros(BATCH, len(ATOMS), dtype=torch.float64)
            for sample in range(BATCH):
                discount = 0.875 * (1 - row["terminated"][sample])
                places = (row["rewards"][sample] + discount * ATOMS).clamp(-2, 2)
                shares = (1 - (places[:, None] - ATOMS).abs() / 0.4).clamp(min=0)
                projected = next_ones[:, sample] @ shares
                wanted[sample] = projected[(projected @ ATOMS).argmin()]
        logits = critics(row["observations"], row["actions"])
        climb(for_critics, -(wanted * logits.log_softmax(-1)).sum(-1).mean(1).sum())
        if index % 2:
            values = critics(row["observations"], actor(row["observations"])).softmax(-1) @ ATOMS
            climb(for_actor, -values.amin(0).mean())
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), critics.parameters(), strict=True):
                    slow.lerp_(fast, 0.125)
    networks = {"actor": actor, "critics": critics, "target_critics": target}
    return {name: flat(network.parameters()) for name, network in networks.items()}


class TargetActor(FastTD3):
    targets_of = TD3.targets_of


@pytest.mark.parametrize(
    ("algorithm", "changed"),
    [
        (FastTD3, {}),
        (TargetActor, {}),
        (FastTD3, {"actor_critics": "mean"}),
        (FastTD3, {"weight_decay": 0.0}),
        (FastTD3, {"target_policy_noise": 0.1}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_fast_td3_by_hand(algorithm: type[FastTD3], changed: dict[str, Any]) -> None:
    small = {"value_range": [-2.0, 2.0], "n_atoms": 11, "buffer_size": 100, "weight_decay": 0.125}
    model = ours(algorithm, torch.float64, **{**SETTINGS, **small, **changed})
    rows = batches(6, 0, torch.float64)
    draws = noise(rows["actions"][0], 6)
    wanted = fast_td3_by_hand(model, rows, draws)
    model.copy_to_targets()
    model.rng = Prepared(draws)
    model._learn_from(rows, 6)
    largest = max((model.runner.state[name] - vector).abs().max().item() for name, vector in wanted.items())
    if algorithm is FastTD3 and not changed:
        assert largest < 1e-12
    else:
        assert largest > 1e-8
