"""Hindsight replay, and the index of episodes, against plain lists of what each environment gave."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from transitions import transition

from zoo.buffers.arrays import ArraySpec
from zoo.buffers.config import GOAL_STRATEGIES
from zoo.buffers.hindsight import UNDER_WAY, EpisodeIndex, Hindsight
from zoo.buffers.replay import ReplayBuffer, UniformSampler

Array = np.ndarray

GOAL = ArraySpec((2,), np.float32)
SPECS = {
    "observations": {"observation": ArraySpec((1,), np.float32), "achieved_goal": GOAL, "desired_goal": GOAL},
    "actions": ArraySpec((), np.int64),
}
GAMMA = 0.5


def reward(achieved: Any, desired: Any) -> Any:
    """Return a reward in which the two can't be exchanged, (…) of goals (…, 2)."""
    return 3.0 * achieved[..., 0] - desired[..., 0] / 7.0


def reaches(achieved: Any, desired: Any) -> Any:
    """Whether a step ends its episode: some goals are reached by a few steps before and behind them too."""
    return np.abs(achieved[..., 0] - desired[..., 0]) <= 1.0


class Asked:
    """What the environment says of other goals; with ``ends`` also what they would have ended."""

    def __init__(self, *, ends: bool = False) -> None:
        self.ends = ends
        self.n_calls = 0

    def rewards(self, achieved: Array, desired: Array, infos: Any = None) -> Array:
        self.n_calls += 1
        return reward(achieved, desired).astype(np.float32)

    def terminated(self, achieved: Array, desired: Array, infos: Any = None) -> Array | None:
        return reaches(achieved, desired) if self.ends else None


class Step(NamedTuple):
    number: int
    achieved: float
    goal: float
    reward: float
    terminated: bool


@dataclass
class Episode:
    steps: list[Step] = field(default_factory=list)
    is_over: bool = False


@dataclass
class World:
    """Environments that achieve a goal of another number at each step, and plain lists of what they did."""

    buffer: ReplayBuffer
    seed: int = 0
    end: float = 0.12
    next_step: bool = False

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.n_envs = self.buffer.n_envs
        self.episodes: list[list[Episode]] = [[Episode()] for _ in range(self.n_envs)]
        self.count = 0
        self.now = self._new(self.n_envs)
        self.goals = -self._new(self.n_envs)
        self.resets = np.zeros(self.n_envs, bool)

    def _new(self, n: int) -> Array:
        self.count += n
        return np.arange(self.count - n, self.count) + 1.0

    def _shown(self, numbers: Array) -> dict[str, Array]:
        achieved, desired = (np.stack([each, -each], -1) for each in (numbers, self.goals))
        observation = numbers[:, None].astype(np.float32)
        return {"observation": observation, "achieved_goal": achieved, "desired_goal": desired}

    def step(self) -> None:
        following, actions = self._new(self.n_envs), self._new(self.n_envs).astype(np.int64)
        rewards = self.rng.normal(size=self.n_envs).astype(np.float32)
        terminated = self.rng.random(self.n_envs) < self.end / 2
        ended = terminated | (self.rng.random(self.n_envs) < self.end / 2)
        valid = ~self.resets
        terminated, ended = terminated & valid, ended & valid
        columns = {"observations": self._shown(self.now), "actions": actions}
        rows = valid if self.next_step else None
        self.buffer.add(transition(columns, self._shown(following), rewards, terminated, ended, rows))
        for env in np.flatnonzero(valid):
            episodes = self.episodes[env]
            episodes[-1].steps.append(
                Step(actions[env], following[env], self.goals[env], rewards[env], terminated[env])
            )
            if ended[env]:
                episodes[-1].is_over = True
                episodes.append(Episode())
        self.resets = ended if self.next_step else np.zeros(self.n_envs, bool)
        self.now = np.where(ended, self._new(self.n_envs), following)
        self.goals = np.where(ended, -self._new(self.n_envs), self.goals)

    def lived(self, n_steps: int) -> World:
        for _ in range(n_steps):
            self.step()
        self.cut()
        return self

    def cut(self, envs: list[int] | None = None) -> None:
        self.buffer.cut(envs)
        for env in range(self.n_envs) if envs is None else envs:
            if self.episodes[env][-1].steps:
                self.episodes[env][-1].is_over = True
                self.episodes[env].append(Episode())

    def kept(self) -> list[Episode]:
        """Return the episodes as far as their transitions are still stored."""
        most = self.buffer.length - self.buffer.optimize_memory_usage
        kept = []
        for episodes in self.episodes:
            left = most
            for episode in reversed(episodes):
                steps = episode.steps[max(0, len(episode.steps) - left) :]
                left -= len(steps)
                if steps:
                    kept.append(Episode(steps, episode.is_over))
        return kept

    def goals_of(self, strategy: str) -> dict[int, list[float]]:
        """Return by transition all goals that it may get, each as likely as it is often there."""
        anywhere = [step.achieved for episode in self.kept() for step in episode.steps]
        goals = {}
        for episode in self.kept():
            reached = [step.achieved for step in episode.steps]
            for i, step in enumerate(episode.steps):
                allowed = {"future": reached[i:], "final": reached[-1:], "episode": reached}
                if episode.is_over:
                    goals[step.number] = allowed.get(strategy, anywhere)
        return goals


def make_world(
    strategy: str = "future",
    *,
    length: int = 12,
    n_envs: int = 3,
    optimize: bool = False,
    n_step: int = 1,
    ends: bool = False,
    seed: int = 0,
    end: float = 0.12,
    next_step: bool = False,
    n_sampled_goal: int = 4,
    sampler: Any = None,
) -> World:
    hindsight = Hindsight(Asked(ends=ends), strategy, n_sampled_goal)
    options = {"n_step": n_step, "gamma": GAMMA, "sampler": sampler, "relabelling": hindsight}
    buffer = ReplayBuffer(length * n_envs, n_envs, SPECS, optimize_memory_usage=optimize, **options)
    return World(buffer, seed, end, next_step)


def sampled_goals(batch: dict[str, Any]) -> Array:
    """Return the goals of a batch, which must be the same before and after the step."""
    before, after = (batch[name]["desired_goal"] for name in ("observations", "next_observations"))
    np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(before[..., 0], -before[..., 1])
    return before[..., 0]


def assert_as_likely(counts: Counter[Any], expected: dict[Any, float]) -> None:
    assert set(counts) == set(expected)
    chi_square = sum((counts[key] - each) ** 2 / each for key, each in expected.items())
    assert chi_square < len(expected) + 5 * (2 * len(expected)) ** 0.5


@pytest.mark.parametrize("strategy", GOAL_STRATEGIES)
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("next_step", [False, True])
def test_strategy_goals_have_the_right_probabilities(strategy: str, optimize: bool, next_step: bool) -> None:
    """Of several environments, in rings that have wrapped, and after episodes were cut."""
    world = make_world(strategy, optimize=optimize, next_step=next_step, seed=3)
    for step in range(40):
        world.step()
        if step == 25:
            world.cut([1])
    allowed = world.goals_of(strategy)
    assert len(allowed) < len(world.buffer), "no episode is under way: the test shows less than it should"
    originals = {step.number: step.goal for episode in world.kept() for step in episode.steps}
    counts: Counter[Any] = Counter()
    for _ in range(40):
        batch = world.buffer.sample(world.rng, (20, 64))
        goals = sampled_goals(batch)
        actions = batch["actions"]
        is_original = goals < 0
        assert (~is_original.all(-1)).all()
        for action, goal in zip(actions[is_original].tolist(), goals[is_original].tolist(), strict=True):
            assert originals[action] == goal
        counts.update(zip(actions[~is_original].tolist(), goals[~is_original].tolist(), strict=True))
    n = sum(counts.values()) / len(allowed)
    expected: Counter[Any] = Counter()
    for number, goals_of in allowed.items():
        for goal in goals_of:
            expected[number, goal] += n / len(goals_of)  # type: ignore[assignment]
    assert_as_likely(counts, expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(40,), (1, 40), (30, 40)])
@pytest.mark.parametrize("n_sampled_goal", [1, 4, 7])
def test_share_of_other_goals_is_exact_in_every_batch(n_sampled_goal: int, shape: tuple[int, ...]) -> None:
    """Of one batch and of several; episodes under way keep their goals and do not count."""
    share = n_sampled_goal / (n_sampled_goal + 1)
    world = make_world(n_sampled_goal=n_sampled_goal).lived(30)
    goals = sampled_goals(world.buffer.sample(world.rng, shape))
    assert ((goals > 0).sum(-1) == 40 * share).all()
    for _ in range(3):
        world.step()
    ended = [step.number for episode in world.kept() if episode.is_over for step in episode.steps]
    batch = world.buffer.sample(world.rng, shape)
    n_ended = np.isin(batch["actions"], ended).sum(-1)
    assert (n_ended < 40).all()
    assert ((sampled_goals(batch) > 0).sum(-1) == np.rint(share * n_ended)).all()


@pytest.mark.parametrize("strategy", GOAL_STRATEGIES)
@pytest.mark.parametrize("n_step", [1, 2, 3])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
def test_rewards_and_ends_are_of_the_goal(strategy: str, n_step: int, ends: bool, optimize: bool) -> None:
    """Every one is computed again, step by step; all steps of a window have one goal."""
    world = make_world(strategy, n_step=n_step, ends=ends, optimize=optimize, length=20)
    for step in range(55):
        world.step()
        if step > 40:
            world.buffer.sample(world.rng, (2, 16))
    places = {
        step.number: episode.steps[i:] for episode in world.kept() for i, step in enumerate(episode.steps)
    }
    batch = world.buffer.sample(world.rng, (8, 64))
    goals = sampled_goals(batch)
    n_ended_early = 0
    for index in np.ndindex(goals.shape):
        goal, window = float(goals[index]), places[int(batch["actions"][index])][:n_step]
        total, discount, terminated = 0.0, 1.0, False
        for step in window:
            own, virtual = np.array([step.achieved]), np.array([goal])
            total += discount * (step.reward if goal < 0 else reward(own, virtual))
            discount *= GAMMA
            terminated = bool(reaches(own, virtual)) if ends and goal > 0 else step.terminated
            if terminated:
                n_ended_early += step is not window[-1]
                break
        np.testing.assert_allclose(batch["rewards"][index], total, rtol=1e-5, atol=1e-5)
        assert batch["terminated"][index] == terminated
        if n_step > 1:
            np.testing.assert_allclose(batch["discounts"][index], discount)
        if not terminated:
            assert batch["next_observations"]["achieved_goal"][index][0] == window[-1].achieved
    assert bool(n_ended_early) == (ends and n_step > 1 and strategy != "final") or strategy == "random"


@pytest.mark.parametrize("optimize", [False, True])
def test_running_episode_is_never_relabelled(optimize: bool) -> None:
    world = make_world(end=0.0, optimize=optimize)
    for _ in range(30):
        world.step()
        assert (sampled_goals(world.buffer.sample(world.rng, (2, 16))) < 0).all()
    world.cut()
    assert (sampled_goals(world.buffer.sample(world.rng, (2, 20))) > 0).sum() == 32
    (first, *_) = world.buffer.sample(world.rng, (500,))["observations"]["observation"]
    assert first > 0
    assert set(world.goals_of("future"))


class Newest(UniformSampler):
    """Draws the newest transitions, and says that each counts as much as its place in the batch."""

    def sample(self, rng: Any, shape: Any, buffer: Any, progress: float) -> tuple[Array, Array, Array]:
        places = np.arange(np.prod(shape)).reshape(shape)
        positions = (buffer.heads[0] - 1 - places % 4) % buffer.length
        return positions, np.zeros(shape, np.int64), places.astype(np.float32)


def test_sampler_chooses_transitions_and_their_weights() -> None:
    world = make_world(sampler=Newest(), n_envs=1).lived(30)
    batch = world.buffer.sample(world.rng, (2, 10))
    newest = [step.number for episode in world.kept() for step in episode.steps]
    assert (batch["actions"].reshape(-1) == np.array([sorted(newest)[-1 - i % 4] for i in range(20)])).all()
    assert batch["weights"].reshape(-1).tolist() == list(range(20))
    assert ((sampled_goals(batch) > 0).sum(-1) == 8).all()


class Noting(Newest):
    """Keeps what it is told of errors."""

    def update_priorities(self, td_errors: Array, rows: Any = None) -> None:
        self.rows = rows


def test_priorities_update_only_for_original_goals() -> None:
    sampler = Noting()
    world = make_world(sampler=sampler, n_envs=1).lived(30)
    batch = world.buffer.sample(world.rng, (3, 10))
    world.buffer.update_priorities(np.ones((3, 10)))
    assert sampler.rows.tolist() == np.flatnonzero(sampled_goals(batch) < 0).tolist()
    assert 0 < len(sampler.rows) < 30


def test_rebuilt_episode_index_goes_on_counting() -> None:
    ended = np.array([[False, True], [True, False], [False, False], [False, True]])
    added, rebuilt, envs = EpisodeIndex(6, 2), EpisodeIndex(6, 2), np.arange(2)
    for step in range(4):
        added.add(np.full(2, step), envs, ended[step])
    ring = np.concatenate([ended, np.ones((2, 2), np.bool_)])
    rebuilt.rebuild(ring, np.full(2, 4), np.full(2, 4))
    for episodes in (added, rebuilt):
        episodes.add(np.full(2, 4), envs, np.array([True, False]))
        assert episodes.steps_since_start[:5].T.tolist() == [[0, 1, 0, 1, 2], [0, 0, 1, 2, 0]]
        assert episodes.steps_to_end[:5].T.tolist() == [[1, 0, 2, 1, 0], [0, 2, 1, 0, UNDER_WAY]]
