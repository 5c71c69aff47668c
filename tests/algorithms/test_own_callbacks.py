"""Callbacks: when they are called, and what they may do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from logged_envs import logged_vector_env

from zoo import A2C, DQN
from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.callback import PREEMPTED, Callback, InterruptedCallbackError, Training

SMALL = {"net_arch": [8]}


class Diary(Callback):
    """Writes down each call."""

    def __init__(
        self, every: int = 0, *, name: str = "", comes_last: bool = False, diary: list[Any] | None = None
    ) -> None:
        self.every, self.comes_last, self.name = every, comes_last, name
        self.diary: list[Any] = [] if diary is None else diary

    def on_training_start(self, algorithm: Training) -> None:
        self.diary.append(("start", self.name, algorithm.num_timesteps))

    def on_steps(self, algorithm: Training) -> None:
        self.diary.append(("steps", self.name, algorithm.num_timesteps))

    def on_training_end(self, algorithm: Training) -> None:
        self.diary.append(("end", self.name, algorithm.num_timesteps))

    def steps(self) -> list[int]:
        return [steps for what, _, steps in self.diary if what == "steps"]


def a2c(n_envs: int = 2, n_steps: int = 5, **hyperparameters: Any) -> A2C:
    return A2C(SMALL, "CartPole-v1", n_envs=n_envs, seed=0, compile=False, n_steps=n_steps, **hyperparameters)


def test_training_ends_with_a_whole_update() -> None:
    model = a2c().learn(25)
    assert model.num_timesteps == 30
    assert model.n_updates == 3
    assert model.progress == 1.0


def test_steps_count_anew_or_on_top() -> None:
    model = a2c().learn(30)
    assert model.learn(30).num_timesteps == 30
    assert model.learn(30, reset_num_timesteps=False).num_timesteps == 60
    assert model.n_updates == 9


@pytest.mark.parametrize("n_envs", [1, 2, 4])
def test_callbacks_run_when_updates_reach_a_multiple(n_envs: int) -> None:
    diary = Diary(12)
    a2c(n_envs).learn(60, diary)
    size = 5 * n_envs
    ends = list(range(size, 61, size))
    expected = [end for end in ends if end // 12 > (end - size) // 12]
    assert diary.steps() == expected
    assert diary.diary[0] == ("start", "", 0)
    assert diary.diary[-1] == ("end", "", 60)


def test_intervals_count_from_zero_in_a_continued_run() -> None:
    diary = Diary(20)
    model = a2c().learn(30)
    model.learn(40, diary, reset_num_timesteps=False)
    assert diary.steps() == [40, 60]


def test_callbacks_that_come_last_run_after_all_others() -> None:
    calls: list[Any] = []
    callbacks = [
        Diary(10, name="checkpoint", comes_last=True, diary=calls),
        Diary(10, name="evaluation", diary=calls),
    ]
    a2c().learn(20, callbacks)
    assert [name for what, name, _ in calls if what == "steps"] == ["evaluation", "checkpoint"] * 2


class Preempted(Diary):
    """Hears of a signal while it is called for the n-th time, and finishes or not."""

    def __init__(self, *, at: int, finishes: bool, **options: Any) -> None:
        super().__init__(10, **options)
        self.at, self.finishes, self.n_calls = at, finishes, 0

    def on_steps(self, algorithm: Training) -> None:
        self.n_calls += 1
        if self.n_calls == self.at:
            algorithm.request_stop(PREEMPTED)
            if not self.finishes:
                raise InterruptedCallbackError
        super().on_steps(algorithm)

    def on_preemption(self, algorithm: Training) -> None:
        self.diary.append(("preemption", self.name, algorithm.num_timesteps))


@pytest.mark.parametrize("finishes", [False, True])
def test_resumed_run_catches_up_preempted_callbacks(finishes: bool) -> None:
    calls: list[Any] = []
    callbacks = [
        Preempted(at=2, finishes=finishes, name="first", diary=calls),
        Diary(10, name="second", diary=calls),
    ]
    model = a2c()
    model.learn(40, callbacks)
    assert model.num_timesteps == 20
    done_at_20 = [("steps", "first", 20)] * finishes
    assert [call for call in calls if call[2] == 20] == [
        *done_at_20,
        ("preemption", "first", 20),
        ("end", "first", 20),
        ("end", "second", 20),
    ]
    state = model.state()
    calls.clear()
    resumed = a2c()
    resumed.load_state(state)
    resumed.learn(20, callbacks, reset_num_timesteps=False)
    caught_up = [("steps", "first", 20)] * (not finishes) + [("steps", "second", 20)]
    assert [call for call in calls if call[0] == "steps"] == [
        *caught_up,
        *[("steps", name, at) for at in (30, 40) for name in ("first", "second")],
    ]


class StopAt(Callback):
    """Asks for the end at some step."""

    def __init__(self, every: int, *, at_start: bool = False) -> None:
        self.every, self.at_start = every, at_start

    def on_training_start(self, algorithm: Training) -> None:
        if self.at_start:
            algorithm.request_stop("not today")

    def on_steps(self, algorithm: Training) -> None:
        algorithm.request_stop("enough")


def test_a_callback_ends_the_run_after_its_update() -> None:
    diary = Diary(10)
    model = a2c().learn(1000, [StopAt(40), diary])
    assert model.num_timesteps == 40
    assert model.stop_reason == "enough"
    assert diary.steps() == [10, 20, 30, 40]
    assert diary.diary[-1] == ("end", "", 40)


class Episodes(Callback):
    """Keeps each finished episode."""

    def __init__(self) -> None:
        self.episodes: list[tuple[int, float, int]] = []

    def on_episode(self, algorithm: Training, episode: Any) -> None:
        self.episodes.append((episode.env_index, episode.episode_return, episode.length))
        assert algorithm.recent_episodes[-1] is episode


@pytest.mark.parametrize(
    ("algorithm", "kind"), [("a2c", "own"), ("a2c", "NEXT_STEP"), ("dqn", "SAME_STEP"), ("dqn", "NEXT_STEP")]
)
def test_callback_gets_returns_and_lengths_of_episodes(algorithm: str, kind: str) -> None:
    env, logged = logged_vector_env(kind)
    model: Algorithm = (
        A2C(SMALL, env, seed=0, compile=False, n_steps=7)
        if algorithm == "a2c"
        else DQN(SMALL, env, seed=0, compile=False, learning_starts=1000, train_freq=5)
    )
    watch = Episodes()
    model.learn(150, [watch])
    for index, each in enumerate(logged):
        returns, lengths, total, length = [], [], 0.0, 0
        for step in each.log:
            total, length = total + step.reward, length + 1
            if step.terminated or step.truncated:
                returns.append(total)
                lengths.append(length)
                total, length = 0.0, 0
        told = [episode for episode in watch.episodes if episode[0] == index]
        assert [length for *_, length in told] == lengths
        np.testing.assert_allclose([r for _, r, _ in told], returns, rtol=1e-5, atol=1e-5)
    assert model.n_episodes == len(watch.episodes)
