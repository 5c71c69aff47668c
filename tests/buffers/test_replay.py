"""Replay against plain lists of transitions: several environments, full rings, resets, every storage."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import example, given, settings
from hypothesis import strategies as st
from toy_envs import ImageIdentity
from transitions import transition

from zoo import ACER, DQN, make_vec_env
from zoo.buffers import replay
from zoo.buffers.arrays import ArraySpec, find_not_finite, observation_spec
from zoo.buffers.config import PrioritizedConfig
from zoo.buffers.frames import frame_spec
from zoo.buffers.prioritized import PrioritizedSampler
from zoo.buffers.replay import ReplayBuffer, replay_bytes
from zoo.core.tensors import content_files, join, split
from zoo.envs.transition import Transition
from zoo.errors import ZooError
from zoo.experiment.checkpoint import read_checkpoint, restore, write_checkpoint

each_example = settings(deadline=None, derandomize=True, max_examples=60)
Array = np.ndarray

PLAIN = {"observations": ArraySpec((2,), np.float32), "actions": ArraySpec((), np.int64)}
DICT = {
    "observations": {"a": ArraySpec((2,), np.float32), "b": ArraySpec((), np.int64)},
    "actions": ArraySpec((), np.int64),
}


def shown(numbers: Array, dictionary: bool) -> Any:
    """Return observations that say their number."""
    vectors = np.stack([numbers, -numbers], axis=-1).astype(np.float32)
    return {"a": vectors, "b": numbers.astype(np.int64)} if dictionary else vectors


def number(observations: Any) -> Array:
    """Return the numbers of observations, which must be the same in all their parts."""
    vectors = observations["a"] if isinstance(observations, dict) else observations
    assert (vectors[..., 0] == -vectors[..., 1]).all()
    if isinstance(observations, dict):
        assert (observations["b"] == vectors[..., 0]).all()
    return vectors[..., 0]


@dataclass
class World:
    """Environments that number all that they show, a buffer of them, and plain lists of what it must hold.

    With ``next_step`` an environment resets in the step after an episode's end, which is then not valid.
    """

    n_envs: int
    buffer: ReplayBuffer
    dictionary: bool
    next_step: bool
    seed: int = 0
    count: int = 0
    lists: list[list[tuple[float, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.lists = [[] for _ in range(self.n_envs)]
        self.resets = np.zeros(self.n_envs, bool)
        self.current = self.numbers()

    def numbers(self) -> Array:
        self.count += self.n_envs
        return np.arange(self.count - self.n_envs, self.count)

    def step(self, n: int = 1) -> None:
        for _ in range(n):
            self.buffer.add(self.taken())

    def taken(self) -> Transition:
        observations, actions, rewards = self.current, self.numbers(), self.rng.normal(size=self.n_envs)
        terminated = self.rng.random(self.n_envs) < 0.15
        ended = terminated | (self.rng.random(self.n_envs) < 0.15)
        following, after = self.numbers(), self.numbers()
        valid = ~self.resets if self.next_step else np.ones(self.n_envs, bool)
        terminated, ended = terminated & valid, ended & valid
        columns = {"observations": shown(observations, self.dictionary), "actions": actions}
        rows = None if valid.all() and self.rng.random() < 0.8 else valid
        step = transition(columns, shown(following, self.dictionary), rewards, terminated, ended, rows)
        for i in np.flatnonzero(valid):
            taken = observations[i], actions[i], following[i], np.float32(rewards[i]), terminated[i]
            self.lists[i].append(taken)
        if self.next_step:
            self.current, self.resets = following, ended
        else:
            self.current = np.where(ended, after, following)
        return step

    def cut(self) -> None:
        """Reset from outside, as a barrier does."""
        self.buffer.cut()
        self.current = self.numbers()
        self.resets[:] = False

    def kept(self) -> list[tuple[float, ...]]:
        most = self.buffer.length - self.buffer.optimize_memory_usage
        return sorted(transition for past in self.lists for transition in past[-most:])

    def sampled(self, n: int) -> list[tuple[float, ...]]:
        batch = self.buffer.sample(self.rng, (3, n))
        before, after = number(batch["observations"]), number(batch["next_observations"])
        columns = before, batch["actions"], after, batch["rewards"], batch["terminated"]
        assert all(column.shape == (3, n) for column in columns)
        return list(zip(*(column.reshape(-1) for column in columns), strict=True))


def make_world(n_envs: int, capacity: int, *, optimize: bool, dictionary: bool, **world: Any) -> World:
    buffer = ReplayBuffer(capacity, n_envs, DICT if dictionary else PLAIN, optimize_memory_usage=optimize)
    return World(n_envs, buffer, dictionary, **world)


worlds = st.builds(
    make_world,
    n_envs=st.integers(1, 3),
    capacity=st.integers(1, 24),
    optimize=st.booleans(),
    dictionary=st.booleans(),
    next_step=st.booleans(),
    seed=st.integers(0, 999),
)
actions = st.lists(st.sampled_from([*range(6), *range(6), 1, 1, "cut", "save"]), min_size=1, max_size=40)
"""How many steps are stored at once, or what else is done."""


@given(world=worlds, what=actions)
@each_example
def test_buffer_holds_the_newest_transitions_unchanged(world: World, what: list[int | str]) -> None:
    """Also after a reset from outside, and after a round trip through `state` into a fresh buffer."""
    for each in what:
        if isinstance(each, int):
            world.step(each)
        elif each == "cut":
            world.cut()
        else:
            old, specs = world.buffer, DICT if world.dictionary else PLAIN
            once = old.optimize_memory_usage
            fresh = ReplayBuffer(old.length * old.n_envs, old.n_envs, specs, optimize_memory_usage=once)
            fresh.load_state(join(*split(copy.deepcopy(old.state()))))
            world.buffer = fresh
        expected = world.kept()
        assert len(world.buffer) == len(expected)
    if expected:
        assert set(world.sampled(100)) <= set(expected)
        if len(expected) <= 20:
            assert set(world.sampled(300)) == set(expected)


@pytest.mark.parametrize("optimize", [False, True])
def test_sampling_is_uniform_over_unevenly_filled_envs(optimize: bool) -> None:
    buffer = ReplayBuffer(60, 3, PLAIN, optimize_memory_usage=optimize)
    rng = np.random.default_rng(0)
    for step in range(30):
        numbers, valid = 100 * np.arange(3) + step, np.array([True, step % 2 == 0, step < 3])
        columns = {"observations": shown(numbers, False), "actions": numbers}
        never = np.zeros(3, bool)
        buffer.add(transition(columns, shown(numbers + 1, False), np.zeros(3), never, never, valid))
    n_stored = len(buffer)
    assert n_stored == (20 - optimize) + 15 + 3
    n_draws = 400 * n_stored
    drawn, counts = np.unique(buffer.sample(rng, (n_draws,))["actions"], return_counts=True)
    assert len(drawn) == n_stored
    expected = n_draws / n_stored
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < n_stored + 5 * (2 * n_stored) ** 0.5


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("specs", [PLAIN, DICT])
def test_size_is_known_before_anything_is_allocated(optimize: bool, specs: dict[str, Any]) -> None:
    buffer = ReplayBuffer(60, 3, specs, optimize_memory_usage=optimize)
    columns = (each if isinstance(each, dict) else {"": each} for each in buffer.columns.values())
    allocated = sum(part.nbytes for column in columns for part in column.values())
    assert replay_bytes(60, specs, optimize_memory_usage=optimize) == allocated


MASKED = {**PLAIN, "action_masks": ArraySpec((3,), np.bool_)}


@pytest.mark.parametrize("optimize", [False, True])
def test_masks_match_current_and_next_observations(optimize: bool) -> None:
    """Also after ends, where the mask of the next episode's first observation is another."""
    buffer = ReplayBuffer(12, 2, MASKED, optimize_memory_usage=optimize)
    rng = np.random.default_rng(0)
    masks_of: dict[int, tuple[bool, ...]] = {77: (True, True, True)}
    numbers, masks = np.array([0, 1]), rng.random((2, 3)) < 0.5
    for step in range(1, 30):
        following, after = numbers + 2, rng.random((2, 3)) < 0.5
        for number_shown, mask in zip([*numbers, *following], [*masks, *after], strict=True):
            masks_of.setdefault(int(number_shown), tuple(mask.tolist()))
        ended = rng.random(2) < 0.3
        columns = {"observations": shown(numbers, False), "actions": numbers, "action_masks": masks}
        buffer.add(
            transition(
                columns, shown(following, False), np.zeros(2), ended & (step % 2 == 0), ended, masks=after
            )
        )
        numbers, masks = following + 2 * ended * 50, np.where(ended[:, None], rng.random((2, 3)) < 0.5, after)
        for number_shown, mask in zip(numbers, masks, strict=True):
            masks_of.setdefault(int(number_shown), tuple(mask.tolist()))
        numbers = numbers.copy()
    batch = buffer.sample(rng, (200,))
    for name in ("", "next_"):
        numbers_drawn = number(batch[f"{name}observations"])
        for drawn, mask in zip(numbers_drawn, batch[f"{name}action_masks"], strict=True):
            assert masks_of[int(drawn)] == tuple(mask.tolist())


def of_rewards(*rewards: list[float], capacity: int = 24, once: bool = False) -> ReplayBuffer:
    """Return a buffer with so many steps; None for an environment that was merely reset."""
    buffer = ReplayBuffer(capacity, 2, PLAIN, optimize_memory_usage=once)
    for both in rewards:
        add_rewards(buffer, both)
    return buffer


def add_rewards(buffer: ReplayBuffer, both: Any, following: float = 0.0, *, ended: bool = False) -> None:
    valid, zeros = np.array([reward is not None for reward in both]), np.zeros(2)
    columns = {"observations": np.zeros((2, 2), np.float32), "actions": zeros}
    after = np.full((2, 2), following, np.float32)
    rewards = np.array([reward or 0.0 for reward in both], np.float32)
    ends = np.array([ended, False])
    buffer.add(transition(columns, after, rewards, zeros > 0, ends, None if valid.all() else valid))


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("capacity", [10, 40])
def test_state_of_another_buffer_length_is_refused(capacity: int, once: bool) -> None:
    """In a longer one the rows from where the ring was closed would count, which nobody wrote."""
    state = of_rewards(*([number, number] for number in range(30)), once=once).state()
    of_rewards(once=once).load_state(state)
    with pytest.raises(ZooError, match=r"longer or shorter: is `algo\.buffer_size` another"):
        of_rewards(capacity=capacity, once=once).load_state(state)


def test_a_cut_is_written_into_the_next_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of chunks of two rows only that is written again whose last transition is an end from now on."""
    monkeypatch.setattr(replay, "SMALLEST_CHUNK", 1)
    buffer = of_rewards(*[[1.0, 2.0]] * 7, capacity=300)
    assert buffer._chunks.n_rows == 2
    before = buffer.state()["chunks"]
    buffer.cut()
    after = buffer.state()["chunks"]
    assert [first for first, part in after.items() if part.name != before[first].name] == ["6"]


def make(buffer_size: int = 60) -> DQN:
    settings = {"learning_starts": 20, "batch_size": 8, "buffer_size": buffer_size}
    return DQN({"net_arch": [4]}, "FrozenLake-v1", seed=0, compile=False, threads=1, **settings)


def test_restore_removes_a_later_nonfinite_reward(tmp_path: Any) -> None:
    """Rows behind those of the checkpoint are the model's own, of what came after it."""
    model = make(buffer_size=300).learn(50)
    write_checkpoint(tmp_path / "saved", model)
    model.learn(30, reset_num_timesteps=False)
    model.buffer.columns["rewards"][70] = np.nan
    restore(read_checkpoint(tmp_path / "saved"), model)
    model.learn(10, reset_num_timesteps=False)


@pytest.mark.parametrize("size", [30, 300])
def test_restore_into_other_buffer_names_the_setting(size: int, tmp_path: Any) -> None:
    write_checkpoint(tmp_path / "saved", make().learn(80))
    saved = read_checkpoint(tmp_path / "saved")
    restore(saved, usual := make())
    usual.learn(10, reset_num_timesteps=False)
    model = make(buffer_size=size)
    with pytest.raises(ZooError, match=r"`algo\.buffer_size`"):
        restore(saved, model)


def small_world(seed: int, *, n_envs: int, length: int, **options: bool) -> World:
    """Return a world whose buffer has chunks of as few rows as can be: one, of the small observations."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(replay, "SMALLEST_CHUNK", 1)
        return make_world(n_envs, length * n_envs, seed=seed, **options)


def contents(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return copies of the arrays of each chunk by its name."""
    parts = content_files(state).values()
    return {part.name: {key: array.copy() for key, array in split(part)[0].items()} for part in parts}


def are_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)


@given(
    options=st.fixed_dictionaries(
        {name: st.booleans() for name in ("optimize", "dictionary", "next_step")}
        | {"n_envs": st.integers(1, 3), "length": st.integers(1, 300), "seed": st.integers(0, 999)}
    ),
    what=st.lists(
        st.sampled_from(["step"] * 3 + ["many steps", "cut", "save", "save", "resume"]),
        min_size=4,
        max_size=40,
    ),
)
@example(
    options={"optimize": False, "dictionary": False, "next_step": False, "n_envs": 1, "length": 1, "seed": 0},
    what=["step", "save", "step", "save"],
)
@settings(derandomize=True, max_examples=100)
def test_a_name_stands_for_one_content(options: dict[str, Any], what: list[str]) -> None:
    """Also where environments are reset at different steps, and in a buffer that took a state over."""
    world = small_world(**options)
    written: dict[str, dict[str, Any]] = {}
    for each in what:
        if each == "step":
            world.step()
        elif each == "many steps":
            for _ in range(world.buffer.length // 3):
                world.step()
        elif each == "cut":
            world.cut()
        else:
            state = world.buffer.state()
            for name, content in contents(state).items():
                assert are_equal(written.setdefault(name, content), content)
            if each == "resume":
                fresh = small_world(**options).buffer
                fresh.load_state(copy.deepcopy(state))
                world.buffer = fresh
    assert set(world.sampled(50) if len(world.buffer) else []) <= set(world.kept())


def stored_anew(buffer: ReplayBuffer, before: Mapping[str, Any]) -> int:
    """Return how many rows stand in chunks that have other names than before."""
    now = contents(buffer.state())
    return sum(len(content["rewards"]) for name, content in now.items() if name not in before)


@pytest.mark.parametrize("next_step", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
def test_what_did_not_change_keeps_its_name(optimize: bool, next_step: bool) -> None:
    world = small_world(0, n_envs=2, length=1000, optimize=optimize, dictionary=False, next_step=next_step)
    n_rows = -(-1000 // replay.MOST_CHUNKS)
    for _ in range(30):
        before = contents(world.buffer.state())
        assert stored_anew(world.buffer, before) == 0
        for _ in range(100):
            world.step()
        spread = int(np.ptp(world.buffer.state()["heads"]))
        if spread < 100:  # not where one ring has begun anew and the other has not
            assert 60 <= stored_anew(world.buffer, before) <= 100 + spread + 3 * n_rows
    before = contents(world.buffer.state())
    world.cut()
    assert 1 <= stored_anew(world.buffer, before) <= 2 * n_rows


def test_blocks_of_another_split_get_distinct_names() -> None:
    world = small_world(0, n_envs=1, length=300, optimize=False, dictionary=False, next_step=False)
    for _ in range(200):
        world.step()
    state = world.buffer.state()
    other = make_world(1, 300, optimize=False, dictionary=False, next_step=False, seed=0)
    other.buffer.load_state(state)
    world.buffer = other.buffer
    assert set(world.sampled(100)) <= set(world.kept())
    assert contents(other.buffer.state()).keys().isdisjoint(contents(state).keys())


IMAGE = spaces.Box(0, 255, (4, 5, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "raw", "normalized"),
    [
        (spaces.Box(-1, 1, (3,), np.float32), np.float32, np.float32),
        (spaces.Box(-1, 1, (3,), np.float64), np.float32, np.float32),
        (spaces.Box(-5, 5, (3,), np.int64), np.int64, np.float32),
        (IMAGE, np.uint8, np.uint8),
        (spaces.Discrete(3), np.int64, np.int64),
        (spaces.MultiDiscrete([2, 3]), np.int64, np.int64),
        (spaces.MultiBinary(3), np.int8, np.int8),
    ],
    ids=str,
)
def test_dtype_of_stored_observations(space: spaces.Space[Any], raw: Any, normalized: Any) -> None:
    assert observation_spec(space) == ArraySpec(space.shape, np.dtype(raw))
    assert observation_spec(space, normalized=True) == ArraySpec(space.shape, np.dtype(normalized))


def test_find_not_finite_names_first_column_and_env() -> None:
    columns: dict[str, Any] = {name: np.zeros(2, np.float32) for name in ("a", "b", "c")}
    columns["parts"] = {"d": np.zeros((2, 3)), "numbers": np.zeros(2, np.int64)}
    assert find_not_finite(columns) is None
    columns["parts"]["d"][1, 2] = np.inf
    assert find_not_finite(columns) == ("parts", 1, np.inf)
    columns["c"][0] = -np.inf
    assert find_not_finite(columns) == ("c", 0, -np.inf)
    columns["b"][1] = np.inf
    assert find_not_finite(columns) == ("b", 1, np.inf)


# -- Stacks of frames that are stored once, against lists of what was shown ------------------------------

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
@settings(derandomize=True, max_examples=150)
def test_what_comes_out_is_what_was_shown(
    n_envs: int, rows: int, n_frames: int, channels: int, what: list[str], prioritized: bool, **form: Any
) -> None:
    """In rings that have wrapped, after resets and cuts, and after a round trip through the state."""
    form["first"] &= channels * n_frames < SIDE
    stacks = Stacks(n_envs, n_frames, channels, **form)

    def make() -> ReplayBuffer:
        specs = {"observations": stacks.spec, "actions": ArraySpec((), np.int64)}
        sampler = PrioritizedSampler(PrioritizedConfig()) if prioritized else None
        stored_once = {"optimize_memory_usage": True, "n_frames": n_frames}
        return ReplayBuffer(rows * n_envs, n_envs, specs, sampler=sampler, **stored_once)

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
        is_dqn = algorithm is DQN
        starts = {"learning_starts": 50, "optimize_memory_usage": True} if is_dqn else {"replay_start": 50}
        model = algorithm("CnnPolicy", env, seed=0, buffer_size=600, **starts).learn(200)
        assert model.buffer.columns["observations"].shape[-1] == (1 if stacked else 3)
        return list(model.get_parameters().values())

    for one, other in zip(parameters(stacked=True), parameters(stacked=False), strict=True):
        assert (one == other).all()
