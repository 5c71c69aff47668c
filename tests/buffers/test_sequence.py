"""Windows over the rings of a replay buffer, against plain lists of what each environment gave."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transitions import transition

from zoo.buffers.arrays import ArraySpec
from zoo.buffers.sequence import NO_INDEX, SequenceBuffer
from zoo.core.tensors import join, split
from zoo.errors import ZooError

each_example = settings(deadline=None, derandomize=True, max_examples=60)
Array = np.ndarray

SPECS = {
    "observations": {"a": ArraySpec((2,), np.float32), "b": ArraySpec((), np.int64)},
    "actions": ArraySpec((), np.int64),
    "behaviour": ArraySpec((3,), np.float32),
    "action_masks": ArraySpec((2,), np.bool_),
    "states": ArraySpec((2,), np.float32),
}


class Moment(NamedTuple):
    """What one environment showed and gave; numbers stand for what is shown, and for the rest too."""

    observation: int
    action: int
    reward: float
    terminated: bool
    ended: bool
    following: int


class World:
    """Environments that number all that they show, and plain lists of it."""

    def __init__(self, n_envs: int, buffer: SequenceBuffer, *, next_step: bool, seed: int) -> None:
        self.n_envs, self.buffer, self.next_step = n_envs, buffer, next_step
        self.rng = np.random.default_rng(seed)
        self.count = 0
        self.lists: list[list[Moment]] = [[] for _ in range(n_envs)]
        self.resets = np.zeros(n_envs, bool)
        self.current = self.numbers()

    def numbers(self) -> Array:
        self.count += self.n_envs
        return np.arange(self.count - self.n_envs, self.count)

    def step(self) -> None:
        shown, actions, following, after = self.current, self.numbers(), self.numbers(), self.numbers()
        rewards = self.rng.normal(size=self.n_envs).astype(np.float32)
        terminated = self.rng.random(self.n_envs) < 0.15
        ended = terminated | (self.rng.random(self.n_envs) < 0.2)
        valid = ~self.resets if self.next_step else np.ones(self.n_envs, bool)
        terminated, ended = terminated & valid, ended & valid
        columns = {"observations": observed(shown), "actions": actions, "action_masks": masked(shown)}
        columns |= {"behaviour": np.stack([actions] * 3, -1).astype(np.float32)}
        columns |= {"states": state(shown), "next_states": state(following)}
        took = columns, observed(following), rewards, terminated, ended, valid
        self.buffer.add(transition(*took, masks=masked(following)))
        gave = shown, actions, rewards, terminated, ended, following
        for i in np.flatnonzero(valid):
            self.lists[i].append(Moment(*(column[i].item() for column in gave)))
        self.current = np.where(ended, after, following)
        if self.next_step:
            self.current, self.resets = following, ended

    def cut(self) -> None:
        """Reset from outside, as a barrier does."""
        self.buffer.cut()
        for past in self.lists:
            if past:
                past[-1] = past[-1]._replace(ended=True)
        self.current, self.resets = self.numbers(), np.zeros(self.n_envs, bool)


def observed(numbers: Array) -> Any:
    return {"a": np.stack([numbers, -numbers], -1).astype(np.float32), "b": numbers.astype(np.int64)}


def masked(numbers: Array) -> Array:
    return np.stack([numbers % 2 == 0, numbers % 3 > 0], -1)


def state(numbers: Array) -> Array:
    return np.stack([numbers, 2 * numbers], -1).astype(np.float32)


def assert_shows(batch: dict[str, Any], where: Any, number: int, prefix: str = "") -> None:
    """Assert that what is shown at a place of a batch is what this number stands for."""
    expected = observed(np.array(number))
    shown = batch[f"{prefix}observations"]
    assert shown["a"][where].tolist() == expected["a"].tolist()
    assert shown["b"][where] == expected["b"]
    assert batch[f"{prefix}action_masks"][where].tolist() == masked(np.array(number)).tolist()


def window_of(batch: dict[str, Any], row: int, env: int, lists: list[list[Moment]]) -> int:
    """Return where a window begins in the list of its environment, having compared all of it."""
    actions = batch["actions"][row, env].tolist()
    first = [moment.action for moment in lists[env]].index(actions[0])
    moments = lists[env][first : first + len(actions)]
    assert actions == [moment.action for moment in moments]
    assert batch["states"][row, env].tolist() == state(np.array(moments[0].observation)).tolist()
    for step, moment in enumerate(moments):
        at = row, env, step
        assert_shows(batch, at, moment.observation)
        assert batch["behaviour"][at].tolist() == [moment.action] * 3
        assert batch["rewards"][at] == np.float32(moment.reward)
        assert (batch["terminated"][at], batch["dones"][at]) == (moment.terminated, moment.ended)
        place = int(batch["next_index"][at])
        is_last, is_cut_short = step == len(actions) - 1, moment.ended and not moment.terminated
        assert (place != NO_INDEX) == (is_last or is_cut_short)
        if place != NO_INDEX and not (is_last and moment.terminated):
            assert_shows(batch, (row, place), moment.following, "next_")
            assert batch["next_states"][row, place].tolist() == state(np.array(moment.following)).tolist()
    return first


def world(n_envs: int, length: int, n_steps: int, *, next_step: bool, seed: int) -> World:
    buffer = SequenceBuffer(length * n_envs, n_envs, SPECS, min(n_steps, length - 1))
    return World(n_envs, buffer, next_step=next_step, seed=seed)


worlds = st.builds(
    world,
    n_envs=st.integers(1, 3),
    length=st.integers(2, 9),
    n_steps=st.integers(1, 6),
    next_step=st.booleans(),
    seed=st.integers(0, 999),
)
actions = st.lists(st.sampled_from(["step"] * 12 + ["cut", "save"]), min_size=1, max_size=40)


@given(world=worlds, what=actions)
@each_example
def test_windows_are_consecutive_steps_of_one_env(world: World, what: list[str]) -> None:
    """Also in a full ring, after a reset from outside, and after a round trip through `state`."""
    for each in what:
        if each == "step":
            world.step()
        elif each == "cut":
            world.cut()
        else:
            old = world.buffer
            world.buffer = SequenceBuffer(old.length * old.n_envs, old.n_envs, SPECS, old.n_steps)
            world.buffer.load_state(join(*split(copy.deepcopy(old.state()))))
            assert world.buffer.n_next == old.n_next
        buffer = world.buffer
        assert buffer.has_windows == all(len(past) >= buffer.n_steps for past in world.lists)
        if not buffer.has_windows:
            continue
        batch = buffer.windows(np.concatenate([buffer.newest_starts(), buffer.sample_starts(world.rng, 2)]))
        for env, past in enumerate(world.lists):
            oldest = max(0, len(past) - (buffer.length - 1))
            firsts = [window_of(batch, row, env, world.lists) for row in range(3)]
            assert firsts[0] == len(past) - buffer.n_steps
            assert all(oldest <= first for first in firsts)


def filled(n_steps: int, n_envs: int = 2, length: int = 9) -> World:
    made = world(n_envs, length, n_steps, next_step=False, seed=1)
    for _ in range(2 * length):
        made.step()
    return made


def test_all_windows_of_an_env_are_equally_likely() -> None:
    made = filled(n_steps=4)
    batch = made.buffer.windows(made.buffer.sample_starts(np.random.default_rng(0), 5000))
    for env in range(2):
        found, counts = np.unique(batch["actions"][:, env, 0], return_counts=True)
        assert len(found) == 8 - 4 + 1
        assert counts.min() > 900
        assert counts.max() < 1100
    pairs = np.unique(batch["actions"][:, :, 0], axis=0)
    assert len(pairs) == 5 * 5, "each environment's is drawn by itself"


def test_places_for_what_followed_only_grow() -> None:
    buffer = SequenceBuffer(80, 2, {"observations": ArraySpec((), np.int64)}, 4)
    shapes = []
    for step in range(24):
        ended = np.array([step in range(8, 12), step in range(8, 12)])
        shown = np.array([step, step])
        buffer.add(transition({"observations": shown}, shown + 1, np.zeros(2), ended & False, ended))
        if buffer.has_windows:
            shapes.append(buffer.windows(buffer.newest_starts())["next_observations"].shape)
    assert [shape[1] for shape in shapes] == [4] * 7 + [8] * 14
    assert SequenceBuffer(80, 2, SPECS, 1).n_next == 2  # what follows a single step alone


@pytest.mark.parametrize(("capacity", "n_envs", "enough"), [(40, 2, 42), (20, 1, 21), (9, 3, 63)])
def test_a_ring_without_room_for_a_window_is_refused(capacity: int, n_envs: int, enough: int) -> None:
    with pytest.raises(
        ZooError, match=f"`algo.buffer_size={capacity}`.*`algo.n_steps=20`.* {enough} or more"
    ):
        SequenceBuffer(capacity, n_envs, SPECS, 20)
    buffer = SequenceBuffer(enough, n_envs, SPECS, 20)
    assert buffer.sizes.tolist() == [0] * n_envs
    with pytest.raises(ZooError):
        SequenceBuffer(enough - 1, n_envs, SPECS, 20)
