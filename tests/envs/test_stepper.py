"""What a step of many environments gives, whatever the autoreset mode."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scripted import Counting

from zoo.envs import VecEnvAdapter, make_vec_env
from zoo.envs.sync_vec_env import SyncVecEnv
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
        for i in range(stepper.num_envs):
            if step.valid is None or step.valid[i]:
                row = (before[i], step.rewards[i], step.terminated[i], step.truncated[i], following[i])
                rows[i].append(tuple(np.asarray(value).tolist() for value in row))
        observations = step.new_observations
    return rows


@pytest.mark.parametrize("mode", MODES)
def test_transitions_are_the_same_in_every_autoreset_mode(mode: AutoresetMode) -> None:
    own = transitions(VecEnvAdapter(own_env()), 40)
    other = transitions(VecEnvAdapter(gymnasium_env(mode)), 40)
    for ours, theirs in zip(own, other, strict=True):
        n = len(theirs)
        assert 25 < n <= 40
        assert ours[:n] == theirs


@pytest.mark.parametrize("mode", MODES)
def test_episodes_are_the_same_in_every_autoreset_mode(mode: AutoresetMode) -> None:
    stepper = VecEnvAdapter(gymnasium_env(mode, n=1))
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

    stepper = VecEnvAdapter(own_env(1, make) if mode is None else gymnasium_env(mode, 1, make))
    stepper.reset([0])
    stepper.step([0])
    step = stepper.step([0])
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True], [False])


def test_native_next_step_env_marks_the_resetting_rows_as_invalid() -> None:
    stepper = VecEnvAdapter(gym.make_vec("CartPole-v1", 4, vectorization_mode="vector_entry_point"))
    assert stepper.next_step_autoreset
    stepper.reset([1, 2, 3, 4])
    ended = np.zeros(4, dtype=bool)
    lengths = np.zeros(4, dtype=int)
    n_episodes = 0
    for _ in range(100):
        step = stepper.step(np.ones(4, dtype=np.int64))
        valid = np.ones(4, dtype=bool) if step.valid is None else step.valid
        assert (valid == ~ended).all()
        lengths += valid
        for episode in step.episodes:
            n_episodes += 1
            assert episode.length == episode.episode_return == lengths[episode.env_index]
            lengths[episode.env_index] = 0
        ended = step.terminated | step.truncated
        if step.finished.size:
            assert (step.final_observations == step.new_observations[step.finished]).all()
    assert n_episodes > 20


def test_seeds_may_be_left_out_but_not_one_of_them() -> None:
    stepper = VecEnvAdapter(gymnasium_env(AutoresetMode.SAME_STEP))
    assert stepper.reset().tolist() == [[0.0, 0.0], [0.0, 0.0]]
    with pytest.raises(ValueError, match="1 seeds for 2 environments"):
        stepper.reset([0])


def test_longest_unfinished_episode_begins_with_the_last_reset() -> None:
    stepper = VecEnvAdapter(own_env(2, lambda: Counting((9,))))
    for n in (4, 3):
        stepper.reset([0, 1])
        for _ in range(n):
            stepper.step(np.zeros(2, np.int64))
        assert stepper.longest_unfinished_episode() == n


def test_actions_of_a_discrete_space_begin_at_its_start() -> None:
    class Started(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gym.spaces.Discrete(3, start=1)

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            return super().step(action)

    stepper = VecEnvAdapter(own_env(1, Started))
    stepper.reset([0])
    for action in (1, 2, 3):
        stepper.step([action])
    with pytest.raises(ZooError, match="env 0 \\(step 4 after seed 0\\) raised AssertionError"):
        stepper.step([0])


@pytest.mark.parametrize("mode", [None, *MODES])
def test_infos_of_a_step_are_those_of_episode_ends(mode: AutoresetMode | None) -> None:
    stepper = VecEnvAdapter(own_env(2) if mode is None else gymnasium_env(mode))
    stepper.reset([0, 1])
    infos = [stepper.step([0, 0]).step_infos() for _ in range(2)]
    assert infos == [[{}, {}], [{"is_success": False, "score": 20.0}] * 2]


def test_info_keywords_are_recorded_by_name() -> None:
    stepper = VecEnvAdapter(make_vec_env(Counting, 1, check=False, info_keywords=["score"]))
    stepper.reset([0])
    episodes = [episode for _ in range(2) for episode in stepper.step([0]).episodes]
    assert episodes[0].info == {"is_success": False, "score": 20.0}


def test_arrays_in_infos_are_recorded_as_lists_and_those_of_one_entry_as_that_entry() -> None:
    class Measuring(Counting):
        def step(self, action: Any) -> Any:
            *rest, info = super().step(action)
            return *rest, {**info, "one": np.array([3]), "two": np.array([1.5, 2.5]), "word": "left"}

    keywords = ["one", "two", "word"]
    stepper = VecEnvAdapter(make_vec_env(Measuring, 1, check=False, info_keywords=keywords))
    stepper.reset([0])
    episodes = [episode for _ in range(2) for episode in stepper.step([0]).episodes]
    logged = {name: episodes[0].info[name] for name in keywords}
    assert logged == {"one": 3, "two": [1.5, 2.5], "word": "left"}


def test_missing_info_keyword_names_the_nearest_one() -> None:
    stepper = VecEnvAdapter(make_vec_env(Counting, 1, check=False, info_keywords=["scor"]))
    stepper.reset([0])
    stepper.step([0])
    with pytest.raises(ZooError, match="did you mean 'score'"):
        stepper.step([0])


def test_times_of_episodes_go_on_where_the_state_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("zoo.envs.adapter.time.time", lambda: clock[0])
    first = VecEnvAdapter(SyncVecEnv([Counting]))
    first.reset([0])
    clock[0] = 1007.0
    state = first.state()
    clock[0] = 5000.0
    second = VecEnvAdapter(SyncVecEnv([Counting]))
    second.load_state(state)
    clock[0] = 5001.0
    episodes = [episode for _ in range(2) for episode in second.step([0]).episodes]
    assert [episode.seconds for episode in episodes] == [8.0]


def test_anything_but_a_vector_env_is_refused_with_advice() -> None:
    with pytest.raises(ZooError, match="make_vec_env"):
        VecEnvAdapter(Counting())  # type: ignore[arg-type]


def test_vector_env_that_does_not_say_when_it_resets_is_refused() -> None:
    env = gymnasium_env(AutoresetMode.SAME_STEP)
    env.metadata = {}
    with pytest.raises(ZooError, match="autoreset_mode"):
        VecEnvAdapter(env)


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

    stepper = VecEnvAdapter(Misshapen(gymnasium_env(AutoresetMode.SAME_STEP)))
    with pytest.raises(ZooError, match=r"gave observations of shape \(2, 1\); 2 of Box\(2,\).*\(2, 2\)"):
        transitions(stepper, 3)
    assert stepper.env.n_calls == at + 1  # type: ignore[attr-defined]


def test_who_steps_what_a_wrapper_is_around_disturbs_its_stepper() -> None:
    inner = gymnasium_env(AutoresetMode.SAME_STEP)
    stepper, other = VecEnvAdapter(gym.vector.VectorWrapper(inner)), VecEnvAdapter(inner)
    stepper.reset()
    assert not stepper.was_disturbed
    other.reset()
    assert stepper.was_disturbed


def test_episodes_that_are_begun_anew_count_from_nothing_and_stand_still_at_their_ends() -> None:
    envs = VecEnvAdapter(make_vec_env(lambda: Counting((3,)), 2, check=False))
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
    envs = VecEnvAdapter(env)
    first = envs.reset([3, 4])
    np.testing.assert_array_equal(envs.reset([3, 4]), first)
