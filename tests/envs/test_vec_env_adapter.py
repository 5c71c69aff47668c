"""What a step of many environments gives, whatever the autoreset mode."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from scripted import Counting

import zoo
from zoo import A2C, DQN, PPO2, check_env, evaluate_policy
from zoo.algorithms.callback import Callback
from zoo.envs.adapter import VecEnvAdapter, make_adapter
from zoo.envs.make_env import make_vec_env
from zoo.envs.monitor import EpisodeMonitor
from zoo.envs.transition import check_observations
from zoo.errors import ZooError

MODES = list(AutoresetMode)


def gymnasium_env(mode: AutoresetMode, n: int = 2, make: Any = Counting) -> SyncVectorEnv:
    return SyncVectorEnv([make] * n, autoreset_mode=mode)


def own_env(n: int = 2, make: Any = Counting) -> Any:
    return make_vec_env(make, n, check=False)


def transitions(stepper: VecEnvAdapter, n_steps: int, action: Any = 0) -> list[list[Any]]:
    """Return, for each env, (observation, reward, terminated, truncated, next or final observation)."""
    rows: list[list[Any]] = [[] for _ in range(stepper.num_envs)]
    observations = stepper.reset([3 + i for i in range(stepper.num_envs)])
    for _ in range(n_steps):
        before = observations.copy()
        step = stepper.step(np.full(stepper.num_envs, action))
        following = np.array(step.new_observations)
        if step.final_observations is not None:
            following[step.finished] = step.final_observations
        for i in step.envs:
            row = (before[i], step.rewards[i], step.terminated[i], step.truncated[i], following[i])
            rows[i].append(tuple(np.asarray(value).tolist() for value in row))
        observations = step.new_observations
    return rows


@pytest.mark.parametrize("mode", MODES)
def test_transitions_agree_in_every_autoreset_mode(mode: AutoresetMode) -> None:
    own = transitions(make_adapter(own_env()), 40)
    other = transitions(make_adapter(gymnasium_env(mode)), 40)
    for ours, theirs in zip(own, other, strict=True):
        n = len(theirs)
        assert 25 < n <= 40
        assert ours[:n] == theirs


@pytest.mark.parametrize("mode", MODES)
def test_episodes_are_the_same_in_every_autoreset_mode(mode: AutoresetMode) -> None:
    stepper = make_adapter(gymnasium_env(mode, n=1))
    stepper.reset([0])
    episodes = [episode for _ in range(20) for episode in stepper.step(np.zeros(1)).episodes]
    lengths = [episode.length for episode in episodes]
    assert lengths[:5] == [2, 3, 4, 2, 3]
    assert [episode.episode_return for episode in episodes[:3]] == [3.0, 6.0, 10.0]
    assert [episode.info["is_success"] for episode in episodes[:4]] == [False, True, False, True]


@pytest.mark.parametrize("mode", [None, *MODES])
def test_terminal_wins_where_both_flags_are_set(mode: AutoresetMode | None) -> None:
    def make() -> Counting:
        return Counting(both=True)

    stepper = make_adapter(own_env(1, make) if mode is None else gymnasium_env(mode, 1, make))
    stepper.reset([0])
    stepper.step([0])
    step = stepper.step([0])
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True], [False])


def test_discrete_actions_begin_at_the_spaces_start() -> None:
    class Started(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gym.spaces.Discrete(3, start=1)

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            return super().step(action)

    stepper = make_adapter(own_env(1, Started))
    stepper.reset([0])
    for action in (1, 2, 3):
        stepper.step([action])
    with pytest.raises(ZooError, match="env 0 \\(step 4 after seed 0\\) raised AssertionError"):
        stepper.step([0])


@pytest.mark.parametrize("mode", [None, *MODES])
def test_infos_of_a_step_are_those_of_episode_ends(mode: AutoresetMode | None) -> None:
    stepper = make_adapter(own_env(2) if mode is None else gymnasium_env(mode))
    stepper.reset([0, 1])
    infos = [stepper.step([0, 0]).step_infos() for _ in range(2)]
    assert infos == [[{}, {}], [{"is_success": False, "score": 20.0}] * 2]


def test_info_keywords_are_recorded_arrays_as_lists() -> None:
    class Measuring(Counting):
        def step(self, action: Any) -> Any:
            *rest, info = super().step(action)
            return *rest, {**info, "one": np.array([3]), "two": np.array([1.5, 2.5]), "word": "left"}

    keywords = ["score", "one", "two", "word"]
    stepper = make_adapter(make_vec_env(Measuring, 1, check=False, info_keywords=keywords))
    stepper.reset([0])
    (episode,) = [episode for _ in range(2) for episode in stepper.step([0]).episodes]
    assert episode.info == {"is_success": False, "score": 20.0, "one": 3, "two": [1.5, 2.5], "word": "left"}


def test_missing_info_keyword_names_the_nearest_one() -> None:
    stepper = make_adapter(make_vec_env(Counting, 1, check=False, info_keywords=["scor"]))
    stepper.reset([0])
    stepper.step([0])
    with pytest.raises(ZooError, match="did you mean 'score'"):
        stepper.step([0])


def test_single_env_is_refused_with_advice() -> None:
    with pytest.raises(ZooError, match="make_vec_env"):
        make_adapter(Counting())  # type: ignore[arg-type]


def test_vector_env_without_autoreset_mode_is_refused() -> None:
    env = gymnasium_env(AutoresetMode.SAME_STEP)
    env.metadata = {}
    with pytest.raises(ZooError, match="autoreset_mode"):
        make_adapter(env)


@pytest.mark.parametrize("at", [0, 3])
def test_observations_of_another_shape_are_refused(at: int) -> None:
    class Misshapen(gym.vector.VectorWrapper):  # type: ignore[type-arg]
        n_calls = 0

        def reset(self, **options: Any) -> Any:
            observations, infos = self.env.reset(**options)
            return self._misshapen(observations), infos

        def step(self, actions: Any) -> Any:
            observations, *rest = self.env.step(actions)
            return self._misshapen(observations), *rest

        def _misshapen(self, observations: Any) -> Any:
            self.n_calls += 1
            return observations[:, :1] if self.n_calls == at + 1 else observations

    stepper = make_adapter(Misshapen(gymnasium_env(AutoresetMode.SAME_STEP)))
    with pytest.raises(ZooError, match=r"gave observations with shape \(2, 1\) instead of \(2, 2\)"):
        transitions(stepper, 3)
    assert stepper.env.n_calls == at + 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("which", ["rewards", "terminated", "truncated"])
def test_what_is_not_one_a_row_is_refused(which: str) -> None:
    class Misshapen(gym.vector.VectorWrapper):  # type: ignore[type-arg]
        def step(self, actions: Any) -> Any:
            observations, *rest, infos = self.env.step(actions)
            values = dict(zip(("rewards", "terminated", "truncated"), rest, strict=True))
            values[which] = values[which][:1]
            return observations, *values.values(), infos

    stepper = make_adapter(Misshapen(gymnasium_env(AutoresetMode.SAME_STEP)))
    stepper.reset([0, 1])
    with pytest.raises(ZooError, match=rf"gave {which} of shape \(1,\), not \(2,\)"):
        stepper.step([0, 0])


def test_images_of_wrong_dtype_are_refused() -> None:
    space = spaces.Box(0, 255, (2, 2, 3), np.uint8)
    check_observations(np.zeros((2, 2, 2, 3), np.uint8), space, 2)
    with pytest.raises(ZooError, match="gave observations with type float64; its space is Box"):
        check_observations(np.zeros((2, 2, 2, 3)), space, 2)


def test_begun_episodes_restart_counts_and_stop_at_end() -> None:
    envs = make_adapter(make_vec_env(lambda: Counting((3,)), 2, check=False))
    envs.reset([0, 1])
    envs.begin({0: 5, 1: 6})
    envs.step(np.zeros(2, np.int64))
    envs.begin({0: 7})  # amidst an episode
    ended: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(6):
        outcome = envs.step(np.zeros(2, np.int64))
        for episode in outcome.episodes:
            ended[episode.env_index].append(episode.episode_return)
    assert ended == {0: [6.0], 1: [6.0]}
    assert outcome.rewards.tolist() == [0.0, 0.0]


class Choosy(SyncVectorEnv):
    """Takes seeds in one form alone."""

    form: Any = int

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if seed is not None and type(seed) is not self.form:
            raise TypeError(f"no {type(seed).__name__}")
        return super().reset(seed=None if seed is None else int(np.ravel(seed)[0]), options=options)


@pytest.mark.parametrize("form", [list, np.ndarray, int])
def test_seeds_are_given_in_the_form_that_is_taken(form: Any) -> None:
    env = Choosy([lambda: gym.make("CartPole-v1")] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    env.form = form
    envs = make_adapter(env)
    first = envs.reset([3, 4])
    np.testing.assert_array_equal(envs.reset([3, 4]), first)


KINDS: dict[str, dict[Any, Any]] = {
    "counter": {"episode": 3},
    "number_under_r": {"episode": {"r": 1e6, "l": 1}},
    "no_numbers": {"episode": {"r": "high", "l": None}},
    "continues": {"episode_continues": True, "is_life": True, "games": 1},
    "two_successes": {"is_success": np.array([True, False]), "success": None},
    "of_its_own": {"r": 7.0, "l": 8, "t": 9, "TimeLimit.truncated": "no", "monitor": 1},
}


class Saying(Counting):
    """Episodes of 2, 3 and 4 steps with returns of 3, 6 and 10; ``said`` is in each info."""

    def __init__(self, said: dict[Any, Any]) -> None:
        super().__init__()
        self._said = said

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], dict(self._said)

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return *rest, dict(self._said)


class Clipping(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return min(float(reward), 0.5)


WAYS: dict[str, Any] = {
    "in_process": lambda make: make_vec_env(make, 2, check=False),
    "workers": lambda make: make_vec_env(
        make, 2, check=False, vectorization="workers", n_workers=2, start_method="fork"
    ),
    **{
        mode.name.lower(): partial(lambda mode, make: SyncVectorEnv([make] * 2, autoreset_mode=mode), mode)
        for mode in AutoresetMode
    },
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_returns_are_zoos_own(kind: str, way: str, tmp_path: Path) -> None:
    with closing(WAYS[way](lambda: Saying(KINDS[kind]))) as env:
        stepper = make_adapter(env, EpisodeMonitor(tmp_path, 2))
        stepper.reset([0, 1])
        episodes = [each for _ in range(13) for each in stepper.step(np.zeros(2, np.int64)).episodes]
    own = [(each.episode_return, each.length, each.info) for each in episodes if each.env_index == 1]
    assert own[:3] == [(3.0, 2, {}), (6.0, 3, {}), (10.0, 4, {})]
    rows = (tmp_path / "1.monitor.csv").read_text().splitlines()[2:5]
    assert [row.rsplit(",", 1)[0] for row in rows] == ["3.0,2", "6.0,3", "10.0,4"]


@pytest.mark.parametrize(("harm", "n_told"), [("none", 0), ("cut", 1), ("removed", 1)])
def test_episodes_that_are_gone_are_told(
    harm: str, n_told: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monitor, file = EpisodeMonitor(tmp_path, 1), tmp_path / "0.monitor.csv"
    stepper = make_adapter(own_env(1), monitor)
    transitions(stepper, 5)
    offsets = monitor.offsets()
    stepper.close()
    if harm == "cut":
        os.truncate(file, offsets[0] - 1)
    elif harm == "removed":
        file.unlink()
    EpisodeMonitor(tmp_path, 1).truncate(offsets)
    assert len([each for each in caplog.records if "are lost" in each.getMessage()]) == n_told


def test_clock_that_goes_back_makes_no_negative_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hours in (1, 2):  # the second adds rows to the files of the first
        stepper = make_adapter(own_env(1), EpisodeMonitor(tmp_path, 1))
        with monkeypatch.context() as patch:
            earlier = time.time() - hours * 3_600
            patch.setattr(time, "time", lambda earlier=earlier: earlier)
            transitions(stepper, 12)
        stepper.close()
        header = (tmp_path / "0.monitor.csv").read_text().splitlines()
        assert all(float(row.split(",")[2]) >= 0 for row in header[2:])
        assert len(header) > 4 * hours
        text = "\n".join([header[0].replace('"t_start": ', '"t_start": 9'), *header[1:], ""])
        (tmp_path / "0.monitor.csv").write_text(text)


@pytest.mark.parametrize("said", [True, np.True_, 1, 1.0, np.array([True]), np.array(1.0)])
@pytest.mark.parametrize("name", ["is_success", "success"])
def test_successes_are_told_by_anything_that_is_0_or_1(name: str, said: Any) -> None:
    stepper = make_adapter(make_vec_env(lambda: Saying({name: said}), 1, check=False))
    stepper.reset([0])
    episodes = [each for _ in range(2) for each in stepper.step(np.zeros(1)).episodes]
    assert [each.info for each in episodes] == [{"is_success": True}]


def test_records_of_inner_statistics_wrapper_are_raw() -> None:
    def make() -> Any:
        return Clipping(gym.wrappers.RecordEpisodeStatistics(Counting()))

    stepper = make_adapter(make_vec_env(make, 1, check=False))
    stepper.reset([0])
    episodes = [each for _ in range(5) for each in stepper.step(np.zeros(1)).episodes]
    assert [(each.episode_return, each.length) for each in episodes] == [(3.0, 2), (6.0, 3)]


def test_records_of_wrapped_zoo_vector_env_are_raw() -> None:
    inner = make_vec_env(Counting, 1, check=False)
    stepper = make_adapter(gym.wrappers.vector.TransformReward(inner, lambda reward: 10 * reward))
    stepper.reset([0])
    steps = [stepper.step(np.zeros(1)) for _ in range(5)]
    episodes = [each for step in steps for each in step.episodes]
    assert [(each.episode_return, each.length) for each in episodes] == [(3.0, 2), (6.0, 3)]
    assert steps[0].rewards.tolist() == [10.0]


SMALL = {"net_arch": [4]}


class Clock(gym.Env[Any, Any]):
    """Observes how often it was reset and stepped in all, so that no two moments look alike."""

    observation_space = spaces.Box(0, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.n_resets = self.n_steps = self.n_closed = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.n_resets += 1
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.n_steps += 1
        return self._shown(), 1.0, self.n_steps % 10 == 0, False, {}

    def _shown(self) -> Any:
        return np.array([self.n_resets, self.n_steps], np.float32)

    def close(self) -> None:
        self.n_closed += 1


@pytest.mark.parametrize(
    "make",
    [
        lambda env: make_vec_env(lambda: env, 2),
        lambda env: make_vec_env(
            lambda: env, 2, vectorization="workers", check=False, start_method="fork", n_workers=1
        ),
        lambda env: make_vec_env(lambda: gym.wrappers.TimeLimit(env, 5), 2, check=False),
        lambda env: make_adapter(SyncVectorEnv([lambda: env] * 2)),
        lambda env: PPO2(SMALL, lambda: env, n_envs=8, compile=False),
    ],
)
def test_reused_env_is_refused_by_name_and_left_open(make: Callable[[Clock], Any]) -> None:
    env = Clock()
    with pytest.raises(ZooError, match=r"Clock.*expected"):
        make(env)
    assert env.n_closed == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda env: PPO2(SMALL, lambda: env, compile=False),
        lambda env: make_vec_env(lambda: gym.wrappers.TimeLimit(env, 5)),
        lambda env: check_env(env),
    ],
)
@pytest.mark.filterwarnings("ignore:.*given twice")
def test_trial_closes_nothing_of_the_users_own(use: Callable[[Clock], Any]) -> None:
    env = Clock()
    assert use(env) is not None
    assert env.n_closed == 0


def test_stepping_a_models_vector_env_disturbs_it() -> None:
    for envs in (make_vec_env("CartPole-v1", 2), make_vec_env(Clock, 2, check=False)):
        model = A2C(SMALL, envs, seed=0, n_steps=4, compile=False).learn(12)
        assert model.envs is not None
        assert not model.envs.was_disturbed
        envs.step(envs.action_space.sample())
        assert model.envs.was_disturbed
        model.learn(12, reset_num_timesteps=False)
        assert not model.envs.was_disturbed
        evaluate_policy(model, envs, 2)
        assert model.envs.was_disturbed


class Strict(Counting):
    """Has episodes of nine steps, and raises if it is stepped after their end."""

    def __init__(self) -> None:
        super().__init__((9,))

    def step(self, action: Any) -> Any:
        assert self._observation[1] < 9
        return super().step(action)


def play(env: Any, n: int = 9) -> None:
    env.reset()
    for _ in range(n):
        env.step(env.action_space.sample())


@pytest.mark.parametrize(
    ("make", "use", "anew"),
    [
        (Strict, lambda model, env: evaluate_policy(model, env, 2), False),
        (Strict, lambda model, env: check_env(env), False),
        (Strict, lambda model, env: play(env), True),
        (lambda: gym.wrappers.TimeLimit(Strict(), 20), lambda model, env: play(env.unwrapped), True),
        (lambda: gymnasium_env(AutoresetMode.NEXT_STEP, 2, Strict), lambda model, env: play(env, 3), True),
        (lambda: gymnasium_env(AutoresetMode.SAME_STEP, 2, Strict), lambda model, env: play(env, 3), True),
    ],
)
@pytest.mark.parametrize("algorithm", [A2C, DQN])
def test_learning_begins_anew_in_an_env_that_was_used(
    algorithm: Any, make: Any, use: Any, anew: bool
) -> None:
    env = make()
    model = algorithm(SMALL, env, seed=0, compile=False).learn(15)
    use(model, env)
    model.learn(60, reset_num_timesteps=anew)
    assert {episode.length for episode in model.recent_episodes} == {9}


@pytest.mark.parametrize("make", [Strict, lambda: gymnasium_env(AutoresetMode.SAME_STEP, 2, Strict)])
def test_learning_in_pieces_is_learning_at_once(make: Any) -> None:
    whole = A2C(SMALL, make(), seed=0, compile=False).learn(200)
    pieces = A2C(SMALL, make(), seed=0, compile=False)
    for i in range(200 // (5 * pieces.n_envs)):  # each shorter than an episode
        pieces.learn(5 * pieces.n_envs, reset_num_timesteps=i == 0)
    assert pieces.n_episodes == whole.n_episodes > 0
    for name, values in whole.get_parameters().items():
        np.testing.assert_array_equal(pieces.get_parameters()[name], values)


def test_evaluation_in_callback_disturbs_training_env() -> None:
    class Evaluate(Callback):
        every = 10

        def on_steps(self, algorithm: Any) -> None:
            evaluate_policy(algorithm, env, 1)

    env = Strict()
    model = A2C(SMALL, env, seed=0, compile=False).learn(60, Evaluate())
    assert {episode.length for episode in model.recent_episodes} <= {9}


PAIR = spaces.Tuple((spaces.Box(0.0, 1.0, (2,)), spaces.Discrete(4, start=1)))
SEEN_PAIR = (np.float32([0.25, 0.5]), 3)
NESTED: dict[str, tuple[spaces.Space[Any], Any, dict[str, Any]]] = {
    "a tuple": (PAIR, SEEN_PAIR, {"0": [0.25, 0.5], "1": 3}),
    "a tuple of one": (spaces.Tuple((spaces.MultiBinary(2),)), ([0, 1],), {"0": [0, 1]}),
    "a tuple in a dictionary": (
        spaces.Dict({"arm": PAIR, "bits": spaces.MultiBinary(2)}),
        {"arm": SEEN_PAIR, "bits": np.int8([1, 0])},
        {"arm/0": [0.25, 0.5], "arm/1": 3, "bits": [1, 0]},
    ),
    "a dictionary in a dictionary": (
        spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(3), "c": spaces.MultiDiscrete([2, 3])})}),
        {"a": {"b": 2, "c": np.array([1, 2])}},
        {"a/b": 2, "a/c": [1, 2]},
    ),
    "a dictionary in a tuple": (
        spaces.Tuple((spaces.Dict({"b": spaces.Discrete(3)}), spaces.Tuple((spaces.Discrete(2),)))),
        ({"b": np.int64(1)}, (1,)),
        {"0/b": 1, "1/0": 1},
    ),
}


class Shown(gym.Env[Any, Any]):
    """Shows one thing; episodes have four steps and are cut short."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space[Any], shown: Any) -> None:
        self.observation_space, self.shown = space, shown

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.shown, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.shown, 1.0, False, self.steps == 4, {}


@pytest.mark.parametrize("nested", NESTED)
def test_every_part_is_seen_under_its_path(nested: str) -> None:
    space, shown, expected = NESTED[nested]
    stepper = make_adapter(make_vec_env(lambda: Shown(space, shown), 2))
    stepper.reset([0, 1])
    steps = [stepper.step(np.zeros(2, np.int64)) for _ in range(5)]
    (final,) = [step.final_observations for step in steps if len(step.finished)]
    for observations in (stepper.observations, final):
        assert set(observations) == set(stepper.observation_space) == set(expected)
        for key, value in expected.items():
            np.testing.assert_array_equal(np.asarray(observations[key]), [value, value])
            assert stepper.observation_space[key].contains(np.asarray(observations[key])[0])
    assert check_env(lambda: Shown(space, shown)) == check_env(Shown(space, shown)) == []
    with pytest.raises(ZooError, match="observations"):
        make_adapter(SyncVectorEnv([lambda: Shown(space, shown)] * 2))


def test_parts_of_one_name_are_refused() -> None:
    space = spaces.Dict({"a/b": spaces.Discrete(3), "a": spaces.Dict({"b": spaces.Discrete(3)})})
    with pytest.raises(ZooError, match="joined by /"):
        make_vec_env(lambda: Shown(space, {"a/b": 1, "a": {"b": 1}}))


@pytest.mark.parametrize("algorithm", [zoo.PPO2, zoo.DQN])
@pytest.mark.parametrize("policy", ["MlpPolicy", "MultiInputPolicy"])
def test_blackjack_is_learned_saved_and_asked_as_it_is(algorithm: Any, policy: str, tmp_path: Path) -> None:
    model = algorithm(policy, "Blackjack-v1", seed=0, compile=False)
    model.learn(300)
    loaded = algorithm.load(model.save(tmp_path / "agent"))
    own = gym.make("Blackjack-v1")
    observation, _ = own.reset(seed=0)
    parts = {str(i): part for i, part in enumerate(observation)}
    several = gym.make_vec("Blackjack-v1", 3).reset(seed=0)[0]
    for each in (model, loaded):
        assert each.predict(observation)[0] == model.predict(parts)[0]
        assert each.predict(several)[0].shape == (3,)
        assert -1.0 <= evaluate_policy(each, own, 10)[0] <= 1.0


# -- masks ------------------------------------------------------------------------------------------------
class Masked(gym.Env[Any, Any]):
    """Allows one action at a time, shown under `action_mask`, and fails at any other."""

    action_space = spaces.Discrete(4, start=1)

    def __init__(self, mask_space: spaces.Space[Any] | None = None, seen: Any = None) -> None:
        mask = spaces.Box(0, 1, (4,), np.int8) if mask_space is None else mask_space
        space = spaces.Tuple((spaces.Discrete(9),)) if seen is None else seen
        self.observation_space = spaces.Dict({"action_mask": mask, "observations": space})
        self._mask = np.zeros(mask.shape, mask.dtype)

    def _shown(self) -> Any:
        self._mask[...] = 0  # one array for all masks, as some environments have it
        self.allowed = int(self.np_random.integers(4))
        self._mask[self.allowed] = 1
        return {"action_mask": self._mask, "observations": (self.allowed,)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        assert action == 1 + self.allowed, "this action was not allowed"
        ended, cut = self.np_random.random(2) < 0.1
        return self._shown(), 1.0, bool(ended), bool(cut), {}


MASK_SPACES = [spaces.Box(0, 1, (4,), np.int8), spaces.MultiBinary(4), spaces.Box(0.0, 1.0, (4,))]


@pytest.mark.parametrize("mask_space", MASK_SPACES, ids=str)
def test_mask_in_observations_is_used_but_not_observed(mask_space: spaces.Space[Any]) -> None:
    def make() -> Masked:
        return Masked(mask_space)

    assert check_env(make) == check_env(make()) == []
    for algorithm in (zoo.PPO2, zoo.DQN):
        model = algorithm("MlpPolicy", make_vec_env(make, 2), seed=0, compile=False)
        model.learn(64)
        assert list(model.observation_space) == ["observations/0"]
        assert model.masks_actions
    own = make()
    observation, _ = own.reset(seed=0)
    for _ in range(50):
        action, _ = model.predict(observation, deterministic=False)
        observation, _, ended, cut, _ = own.step(action)
        if ended or cut:
            observation, _ = own.reset()
    assert evaluate_policy(model, own, 5, return_episode_rewards=True)[1]


def test_mask_is_an_observation_if_mask_actions_is_off() -> None:
    env = make_vec_env(Masked, mask_actions=False, check=False)
    assert list(env.single_observation_space) == ["action_mask", "observations/0"]
    stepper = make_adapter(env)
    stepper.reset([0])
    assert stepper.mask_size is None


def test_foreign_vector_env_with_mask_key_is_refused() -> None:
    with pytest.raises(ZooError, match="mask_actions"):
        make_adapter(SyncVectorEnv([lambda: Plain(), lambda: Plain()]))


class Plain(gym.Env[Any, Any]):
    """Has a mask among its observations, of which none is nested."""

    observation_space = spaces.Dict({"action_mask": spaces.MultiBinary(4), "state": spaces.Box(0, 1, (1,))})
    action_space = spaces.Discrete(4)


def test_a_mask_of_another_length_is_refused() -> None:
    with pytest.raises(ZooError, match="mask_actions"):
        make_vec_env(lambda: Masked(spaces.MultiBinary(5)))


class OnDevice(VectorEnv[Any, Any, Any]):
    """Points that each push towards 0 for ten steps, all as tensors."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    single_observation_space: Any = spaces.Box(-2, 2, (1,), np.float32)
    single_action_space: Any = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, num_envs: int) -> None:
        self.num_envs, self.n_steps = num_envs, 0
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[torch.Tensor, dict[str, Any]]:
        super().reset(seed=seed if isinstance(seed, int | None) else int(seed[0]))
        self.points = torch.from_numpy(self.np_random.uniform(-1, 1, (self.num_envs, 1))).float()
        return self.points.clone(), {}

    def step(self, actions: torch.Tensor) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        assert isinstance(actions, torch.Tensor)
        self.points = (self.points + 0.3 * actions).clamp(-2, 2)
        final, self.n_steps = self.points.clone(), self.n_steps + 1
        over = torch.full((self.num_envs,), self.n_steps % 10 == 0)
        infos = {"final_obs": final, "_final_obs": over} if over.all() else {}
        observations = self.reset()[0] if over.all() else final
        return observations, -final.abs()[:, 0], torch.zeros_like(over), over, infos


def test_ppo2_learns_tensor_env_via_array_conversion() -> None:
    """Without a push the mean return is about −5."""
    from gymnasium.wrappers.vector import ArrayConversion

    env = ArrayConversion(OnDevice(16), env_xp=torch, target_xp=np)
    settings = {"n_steps": 32, "batch_size": 128, "learning_rate": 3e-3, "gamma": 0.9}
    model = PPO2("MlpPolicy", env, seed=0, compile=False, threads=1, **settings).learn(10_000)
    assert np.mean([episode.episode_return for episode in model.recent_episodes]) > -1.5


def test_environments_of_tensors_need_that_conversion() -> None:
    with pytest.raises(ZooError, match=r"put it into gymnasium\.wrappers\.vector\.ArrayConversion"):
        PPO2("MlpPolicy", OnDevice(2), seed=0).learn(100)
