"""Stacks of frames that are stored once, against lists of what was shown."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_envs import ImageIdentity
from transitions import transition

from zoo import ACER, DQN, make_vec_env
from zoo.buffers.arrays import ArraySpec
from zoo.buffers.config import PrioritizedConfig
from zoo.buffers.frames import frame_spec
from zoo.buffers.prioritized import PrioritizedSampler
from zoo.buffers.replay import ReplayBuffer, replay_bytes
from zoo.core.tensors import join, split

Array = np.ndarray
SIDE = 5


class Stacks:
    """Environments whose pictures show their last frames; ``padding`` is what comes before the first."""

    def __init__(self, n_envs: int, n_frames: int, channels: int, *, first: bool, padding: str) -> None:
        self.n_envs, self.n_frames, self.padding = n_envs, n_frames, padding
        self.axis = 0 if first else 2
        self.frame = (channels, SIDE, SIDE) if first else (SIDE, SIDE, channels)
        shape = list(self.frame)
        shape[self.axis] *= n_frames
        self.spec = ArraySpec(tuple(shape), np.uint8)
        self.rng = np.random.default_rng(0)
        self.frames: list[list[Array]] = [[] for _ in range(n_envs)]
        self.lists: list[list[tuple[Array, Array]]] = [[] for _ in range(n_envs)]
        for env in range(n_envs):
            self.begin(env)

    def begin(self, env: int) -> None:
        frame = self.new()
        before = frame if self.padding == "repeated" else np.zeros_like(frame)
        # A lost life: the game, and its frames, go on.
        if self.padding != "kept" or not self.frames[env]:
            self.frames[env] = [before] * (self.n_frames - 1) + [frame]

    def new(self) -> Array:
        return self.rng.integers(0, 3, self.frame).astype(np.uint8)

    def shown(self) -> Array:
        stacks = [np.concatenate(frames[-self.n_frames :], self.axis) for frames in self.frames]
        return np.stack(stacks)

    def step(self, buffer: ReplayBuffer, valid: Array) -> None:
        before, number = self.shown(), np.array([len(past) for past in self.lists])
        for env in np.flatnonzero(valid):
            self.frames[env].append(self.new())
        after, ended = self.shown(), (self.rng.random(self.n_envs) < 0.2) & valid
        terminated = ended & (self.rng.random(self.n_envs) < 0.5)
        for env in np.flatnonzero(valid):
            self.lists[env].append((before[env], after[env]))
        columns = {"observations": before, "actions": number}
        every = None if valid.all() else valid
        buffer.add(transition(columns, after, np.arange(self.n_envs), terminated, ended, every))
        for env in np.flatnonzero(ended):
            self.begin(int(env))


@given(
    n_envs=st.integers(1, 3),
    rows=st.integers(2, 15),
    n_frames=st.integers(2, 4),
    channels=st.sampled_from([1, 1, 3]),
    first=st.booleans(),
    padding=st.sampled_from(["zeros", "repeated", "kept"]),
    prioritized=st.booleans(),
    what=st.lists(st.sampled_from(["add"] * 9 + ["some", "cut", "save"]), min_size=1, max_size=60),
)
@settings(deadline=None, derandomize=True, max_examples=150)
def test_what_comes_out_is_what_was_shown(
    n_envs: int,
    rows: int,
    n_frames: int,
    channels: int,
    first: bool,
    padding: str,
    prioritized: bool,
    what: list[str],
) -> None:
    """In rings that have wrapped, after resets and cuts, and after a round trip through the state."""
    stacks = Stacks(n_envs, n_frames, channels, first=first and channels * n_frames < SIDE, padding=padding)

    def make() -> ReplayBuffer:
        return ReplayBuffer(
            *(rows * n_envs, n_envs, {"observations": stacks.spec, "actions": ArraySpec((), np.int64)}),
            optimize_memory_usage=True,
            n_frames=n_frames,
            sampler=PrioritizedSampler(PrioritizedConfig()) if prioritized else None,
        )

    buffer = make()
    for each in what:
        if each == "cut":
            buffer.cut()
            for env in range(n_envs):
                stacks.begin(env)
        elif each == "save":
            saved = join(*split(copy.deepcopy(buffer.state())))
            buffer = make()
            buffer.load_state(saved)
        else:
            valid = stacks.rng.random(n_envs) < 0.5 if each == "some" else np.ones(n_envs, bool)
            stacks.step(buffer, valid)
    most = max(rows, n_frames + 1) - n_frames
    kept = {
        (env, i) for env, past in enumerate(stacks.lists) for i in range(max(0, len(past) - most), len(past))
    }
    assert len(buffer) == len(kept)
    if not kept:
        return
    batch = buffer.sample(np.random.default_rng(1), (4, 100))
    envs, numbers = batch["rewards"].astype(int), batch["actions"]
    assert set(zip(envs.ravel().tolist(), numbers.ravel().tolist(), strict=True)) <= kept
    for place in np.ndindex(envs.shape):
        before, after = stacks.lists[envs[place]][numbers[place]]
        assert (batch["observations"][place] == before).all()
        assert (batch["next_observations"][place] == after).all()


@pytest.mark.parametrize(
    ("stacked", "frame"),
    [((4, 84, 84), (1, 84, 84)), ((9, 11, 12), (9, 11, 3)), ((12, 84, 84), (3, 84, 84)), ((9, 11, 3), None)],
)
def test_frame_is_found_as_stacks_are_made(stacked: tuple[int, ...], frame: tuple[int, ...] | None) -> None:
    spec = frame_spec(ArraySpec(stacked, np.uint8), 4)
    assert (None if spec is None else spec.shape) == frame


@pytest.mark.parametrize("first", [True, False])
def test_only_starts_of_episodes_are_kept_whole(first: bool) -> None:
    stacks = Stacks(2, 4, 1, first=first, padding="zeros")
    specs = {"observations": stacks.spec, "actions": ArraySpec((), np.int64)}
    buffer = ReplayBuffer(200, 2, specs, optimize_memory_usage=True, n_frames=4)
    for _ in range(500):
        stacks.step(buffer, np.ones(2, bool))
    frame = 2 * 100 * SIDE * SIDE
    assert buffer.columns["observations"].nbytes == frame
    assert replay_bytes(200, specs, optimize_memory_usage=True, n_frames=4) < 2 * frame
    starts = 1 + int(buffer.columns["dones"].sum())
    assert 0 < len(buffer.state()["stacks"]["places"]) <= 3 * starts + 2


@pytest.mark.parametrize("algorithm", [DQN, ACER])
def test_learning_is_the_same_with_frames_stored_once(algorithm: Any) -> None:
    """Down to the last bit: only the memory that holds what is learned from is another."""

    def parameters(*, stacked: bool) -> list[Array]:
        env: Any = make_vec_env(ImageIdentity, 2, seed=0, frame_stack=3)
        if not stacked:
            env.frame_stack = 1
        starts = (
            {"learning_starts": 50, "optimize_memory_usage": True}
            if algorithm is DQN
            else {"replay_start": 50}
        )
        model = algorithm("CnnPolicy", env, seed=0, buffer_size=600, **starts).learn(200)
        assert model.buffer.columns["observations"].shape[-1] == (1 if stacked else 3)
        return list(model.get_parameters().values())

    for one, other in zip(parameters(stacked=True), parameters(stacked=False), strict=True):
        assert (one == other).all()
