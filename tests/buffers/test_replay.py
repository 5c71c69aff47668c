"""Replay against plain lists of transitions: several environments, full rings, resets, both storages."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transitions import transition

from zoo import DQN
from zoo.buffers import replay, rings
from zoo.buffers.arrays import ArraySpec, Transition
from zoo.buffers.replay import ReplayBuffer, Storing, replay_bytes, ring_length
from zoo.buffers.rings import Drawn, Rings, UniformSampler
from zoo.core.tensors import join, split
from zoo.envs.monitor import EpisodeRecord
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
        """Take some steps, and store them at once."""
        self.buffer.extend([self.taken() for _ in range(n)])

    def taken(self) -> Transition:
        observations, actions, rewards = self.current, self.numbers(), self.rng.normal(size=self.n_envs)
        terminated = self.rng.random(self.n_envs) < 0.15
        ended = terminated | (self.rng.random(self.n_envs) < 0.15)
        following, after = self.numbers(), self.numbers()
        valid = ~self.resets if self.next_step else np.ones(self.n_envs, bool)
        terminated, ended = terminated & valid, ended & valid
        step = transition(
            {"observations": shown(observations, self.dictionary), "actions": actions},
            shown(following, self.dictionary),
            rewards.astype(np.float32),
            terminated,
            ended,
            None if valid.all() and self.rng.random() < 0.8 else valid,
        )
        for i in np.flatnonzero(valid):
            self.lists[i].append(
                (observations[i], actions[i], following[i], np.float32(rewards[i]), terminated[i])
            )
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
        assert all(
            array.shape[:2] == (3, n) for key, array in batch.items() if not key.endswith("observations")
        )
        columns = (
            number(batch["observations"]),
            batch["actions"],
            number(batch["next_observations"]),
            batch["rewards"],
            batch["terminated"],
        )
        return list(zip(*(column.reshape(-1) for column in columns), strict=True))


def make_world(
    n_envs: int, capacity: int, *, optimize: bool, dictionary: bool, next_step: bool, seed: int
) -> World:
    buffer = ReplayBuffer(capacity, n_envs, DICT if dictionary else PLAIN, optimize_memory_usage=optimize)
    return World(n_envs, buffer, dictionary, next_step, seed)


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
def test_buffer_holds_the_newest_transitions_as_they_were(world: World, what: list[int | str]) -> None:
    """Also after a reset from outside, and after a round trip through `state` into a fresh buffer."""
    for each in what:
        if isinstance(each, int):
            world.step(each)
        elif each == "cut":
            world.cut()
        else:
            saved = join(*split(copy.deepcopy(world.buffer.state())))
            fresh = make_world(
                world.n_envs,
                world.buffer.length * world.n_envs,
                optimize=world.buffer.optimize_memory_usage,
                dictionary=world.dictionary,
                next_step=world.next_step,
                seed=0,
            ).buffer
            fresh.load_state(saved)
            world.buffer = fresh
        expected = world.kept()
        assert len(world.buffer) == len(expected)
    if expected:
        assert set(world.sampled(100)) <= set(expected)
        if len(expected) <= 20:
            assert set(world.sampled(300)) == set(expected)


@pytest.mark.parametrize("dictionary", [False, True])
def test_steps_stored_at_once_are_those_stored_one_by_one(
    monkeypatch: pytest.MonkeyPatch, dictionary: bool
) -> None:
    world = make_world(2, 14, optimize=False, dictionary=dictionary, next_step=False, seed=0)
    singly = copy.deepcopy(world.buffer)
    parts = [[world.taken() for _ in range(n)] for n in (2, 4, 3, 7, 5)]
    for part in parts:
        for step in part:
            step.outcome.valid = None
            singly.add(step)
    monkeypatch.setattr(ReplayBuffer, "add", None)  # none goes in by itself
    for part in parts:
        world.buffer.extend(part)
        world.buffer.extend([])
    assert world.buffer.n_unchecked == singly.n_unchecked == 21
    for expected, found in zip(*(split(buffer.state()) for buffer in (singly, world.buffer)), strict=True):
        assert expected.keys() == found.keys()
        assert all(np.array_equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize("optimize", [False, True])
def test_sampling_is_uniform_over_environments_of_different_fill(optimize: bool) -> None:
    buffer = ReplayBuffer(60, 3, PLAIN, optimize_memory_usage=optimize)
    rng = np.random.default_rng(0)
    for step in range(30):
        numbers = 100 * np.arange(3) + step
        buffer.add(
            transition(
                {"observations": shown(numbers, False), "actions": numbers},
                shown(numbers + 1, False),
                np.zeros(3, np.float32),
                np.zeros(3, bool),
                np.zeros(3, bool),
                np.array([True, step % 2 == 0, step < 3]),
            )
        )
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
    allocated = 0
    for column in buffer.columns.values():
        allocated += (
            sum(part.nbytes for part in column.values()) if isinstance(column, dict) else column.nbytes
        )
    assert replay_bytes(60, specs, optimize_memory_usage=optimize) == allocated


MASKED = {**PLAIN, "action_masks": ArraySpec((3,), np.bool_)}


@pytest.mark.parametrize("optimize", [False, True])
def test_masks_come_with_what_was_shown_before_and_after(optimize: bool) -> None:
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


class NewestWithWeights(UniformSampler):
    """Draws the newest transition of each environment, and says how much it counts."""

    def draw(self, rng: Any, shape: Any, rings: Rings, progress: float) -> Drawn:
        envs = np.arange(np.prod(shape)).reshape(shape) % len(rings.heads)
        return Drawn((rings.heads[envs] - 1) % rings.length, envs, 0.5 + envs.astype(np.float32))


def test_a_sampler_decides_what_is_drawn_and_how_much_it_counts_and_transforms_follow_in_order() -> None:
    def double(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "rewards": 2 * batch["rewards"]}

    def add_one(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "rewards": batch["rewards"] + 1}

    buffer = ReplayBuffer(20, 2, PLAIN, sampler=NewestWithWeights(), transforms=(double, add_one))
    for step in range(3):
        numbers = np.array([step, 10 + step])
        no = np.zeros(2, bool)
        columns = {"observations": shown(numbers, False), "actions": numbers}
        buffer.add(transition(columns, shown(numbers + 1, False), numbers, no, no))
    batch = buffer.sample(np.random.default_rng(0), (2, 2))
    assert batch["actions"].tolist() == [[2, 12], [2, 12]]
    assert batch["rewards"].tolist() == [[5, 25], [5, 25]]
    assert batch["weights"].tolist() == [[0.5, 1.5], [0.5, 1.5]]


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


@pytest.mark.parametrize("capacity", [6, 24])
def test_first_number_that_is_not_finite_is_found_with_its_environment(capacity: int) -> None:
    buffer = of_rewards([1, 2], [3, 4], capacity=capacity)
    assert buffer.first_not_finite() is None
    for both in ([5, np.nan], [np.inf, 6], [7, 8]):
        add_rewards(buffer, both)
    found = buffer.first_not_finite()
    assert found is not None
    assert found[:2] == ("rewards", 1)
    assert buffer.first_not_finite() is not None, "until it is gone"


def test_final_observation_that_is_kept_apart_is_looked_at_too() -> None:
    buffer = of_rewards([1, 0.0], once=True)
    add_rewards(buffer, [1, 2], following=np.inf, ended=True)
    buffer.columns["observations"][:] = 0  # the second environment's own is not looked at here
    found = buffer.first_not_finite()
    assert found is not None
    assert found[:2] == ("next_observations", 0)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("capacity", [10, 40])
def test_rings_of_a_buffer_of_another_length_are_refused(capacity: int, once: bool) -> None:
    """In a longer one the rows from where the ring was closed would count, which nobody wrote."""
    state = of_rewards(*([number, number] for number in range(30)), once=once).state()
    of_rewards(once=once).load_state(state)
    with pytest.raises(ZooError, match=r"longer or shorter: is `algo\.buffer_size` another"):
        of_rewards(capacity=capacity, once=once).load_state(state)


def test_each_environment_has_a_row_at_least_or_two_where_observations_are_stored_once() -> None:
    assert [ring_length(capacity, 4, once=False) for capacity in (1, 8, 11)] == [1, 2, 2]
    assert [ring_length(capacity, 4, once=True) for capacity in (1, 8, 12)] == [2, 2, 3]


def test_a_cut_is_written_into_the_next_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of segments of two rows only that is written again whose last transition is an end from now on."""
    monkeypatch.setattr(rings, "SMALLEST_SEGMENT", 1)
    buffer = of_rewards(*[[1.0, 2.0]] * 7, capacity=300)
    assert buffer._segments.n_rows == 2
    before = buffer.state()["chunks"]
    buffer.cut()
    after = buffer.state()["chunks"]
    assert [first for first, part in after.items() if part.name != before[first].name] == ["6"]


SMALL = ArraySpec((3,), np.float32)


def buffer_of(observations: Any, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(200, 2, {"observations": observations, "actions": ArraySpec((), np.int64)}, **options)


def step(number: int, observations: Any = None) -> Transition:
    shown = np.full((2, 3), number, np.float32) if observations is None else observations
    no = np.zeros(2, np.bool_)
    columns = {"observations": shown, "actions": np.full(2, number)}
    return transition(columns, shown, np.zeros(2, np.float32), no, no)


def store(buffer: ReplayBuffer, numbers: range, ends_with: type[BaseException] | None = None) -> None:
    with Storing(buffer, buffer.steps_at_once) as storing:
        for number in numbers:
            storing.add(step(number))
        if ends_with is not None:
            raise ends_with


def test_small_steps_of_a_plain_memory_are_stored_at_once() -> None:
    buffer, sizes = buffer_of(SMALL), []
    with Storing(buffer, buffer.steps_at_once) as storing:
        for number in range(70):
            storing.add(step(number))
            sizes.append(int(buffer.sizes[0]))
    assert sorted(set(sizes)) == [0, 32, 64]
    assert buffer.columns["actions"][:70, 1].tolist() == list(range(70))
    assert len(buffer) == 140


def test_what_was_collected_is_stored_when_something_raises() -> None:
    buffer = buffer_of(SMALL)
    with pytest.raises(KeyboardInterrupt):
        store(buffer, range(40), ends_with=KeyboardInterrupt)
    assert buffer.columns["actions"][:41, 0].tolist() == [*range(40), 0]
    assert buffer.sizes.tolist() == [40, 40]


def test_nothing_waits_when_an_episode_ends() -> None:
    buffer = buffer_of(SMALL)
    with Storing(buffer, buffer.steps_at_once) as storing:
        for number in range(3):
            storing.add(step(number))
        assert not len(buffer)
        last = step(3)
        last.outcome.episodes.append(EpisodeRecord(0, 1.0, 4, 0.1))
        storing.add(last)
        assert buffer.sizes.tolist() == [4, 4]


@pytest.mark.parametrize("column", ["observations", "actions", "next_observations", "rewards", "ended"])
def test_an_interrupted_store_leaves_no_half_written_rows(
    column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring is full: where some columns are new and others not, a row is none that ever was."""
    buffer = buffer_of(SMALL)
    store(buffer, range(120))
    original, has_interrupted = replay.assign, False

    def interrupted(target: Any, *rest: Any) -> None:
        nonlocal has_interrupted
        if target is buffer.columns[column] and not has_interrupted:
            has_interrupted = True
            raise KeyboardInterrupt
        original(target, *rest)

    monkeypatch.setattr(replay, "assign", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store(buffer, range(120, 150))
    assert has_interrupted
    numbers = [*range(100, 150), *range(50, 100)]
    assert buffer.columns["actions"][:, 0].tolist() == numbers
    for name in ("observations", "next_observations"):
        assert buffer.columns[name][:, 1, 0].tolist() == numbers
    assert (buffer.heads.tolist(), buffer.sizes.tolist()) == ([50, 50], [100, 100])


def make(env: str = "FrozenLake-v1", **options: Any) -> DQN:
    settings = {"learning_starts": 20, "batch_size": 8, "buffer_size": 60, **options}
    return DQN({"net_arch": [4]}, env, seed=0, compile=False, threads=1, **settings)


def test_model_goes_back_to_before_a_number_that_was_not_finite(tmp_path: Any) -> None:
    """Rows behind those of the checkpoint are the model's own, of what came after it."""
    model = make(buffer_size=300).learn(50)
    write_checkpoint(tmp_path / "saved", model)
    model.learn(30, reset_num_timesteps=False)
    model.buffer.columns["rewards"][70] = np.nan
    restore(read_checkpoint(tmp_path / "saved"), model)
    model.learn(10, reset_num_timesteps=False)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"buffer_size": 30}, r"`algo\.buffer_size`"), ({"buffer_size": 300}, r"`algo\.buffer_size`")],
)
def test_model_of_another_memory_says_which_setting_is_another_and_learns_no_more(
    options: dict[str, Any], named: str, tmp_path: Any
) -> None:
    write_checkpoint(tmp_path / "saved", make().learn(80))
    saved = read_checkpoint(tmp_path / "saved")
    restore(saved, usual := make())
    usual.learn(10, reset_num_timesteps=False)
    model = make(**options)
    with pytest.raises(ZooError, match=named):
        restore(saved, model)
    with pytest.raises(ZooError, match="was restored in part; make the model anew"):
        model.learn(10, reset_num_timesteps=False)
