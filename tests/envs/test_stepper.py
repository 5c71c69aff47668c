"""What a step of many environments gives, whatever the autoreset mode."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from scripted import Counting, Noisy

from zoo.envs import EnvStepper, make_vec_env
from zoo.envs.in_process import InProcessVectorEnv
from zoo.errors import ZooError

MODES = list(AutoresetMode)


def gymnasium_env(mode: AutoresetMode, n: int = 2, make: Any = Counting) -> SyncVectorEnv:
    return SyncVectorEnv([make] * n, autoreset_mode=mode)


def own_env(n: int = 2, make: Any = Counting) -> Any:
    return make_vec_env(make, n, check=False)


def transitions(stepper: EnvStepper, n_steps: int, action: Any = 0) -> list[list[Any]]:
    """Return, for each env, (observation, reward, terminated, truncated, next or final observation)."""
    rows: list[list[Any]] = [[] for _ in range(stepper.num_envs)]
    observations = stepper.reset([3 + i for i in range(stepper.num_envs)])
    for _ in range(n_steps):
        before = observations.copy()
        step = stepper.step(np.full(stepper.num_envs, action))
        following = np.array(step.observations)
        if step.final_observations is not None:
            following[step.finished] = step.final_observations
        for i in range(stepper.num_envs):
            if step.valid is None or step.valid[i]:
                row = (before[i], step.rewards[i], step.terminated[i], step.truncated[i], following[i])
                rows[i].append(tuple(np.asarray(value).tolist() for value in row))
        observations = step.observations
    return rows


@pytest.mark.parametrize("mode", MODES)
def test_transitions_are_the_same_in_every_autoreset_mode(mode: AutoresetMode) -> None:
    own = transitions(EnvStepper(own_env()), 40)
    other = transitions(EnvStepper(gymnasium_env(mode)), 40)
    for ours, theirs in zip(own, other, strict=True):
        n = len(theirs)
        assert 25 < n <= 40
        assert ours[:n] == theirs


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_transitions_are_the_same_in_gymnasiums_worker_processes(mode: AutoresetMode) -> None:
    own = transitions(EnvStepper(own_env()), 20)
    stepper = EnvStepper(AsyncVectorEnv([Counting] * 2, autoreset_mode=mode))
    for ours, theirs in zip(own, transitions(stepper, 20), strict=True):
        assert ours[: len(theirs)] == theirs
    stepper.close()


@pytest.mark.parametrize("mode", MODES)
def test_episodes_are_the_same_in_every_autoreset_mode(mode: AutoresetMode) -> None:
    stepper = EnvStepper(gymnasium_env(mode, n=1))
    stepper.reset([0])
    episodes = [episode for _ in range(20) for episode in stepper.step(np.zeros(1)).episodes]
    lengths = [episode.length for episode in episodes]
    assert lengths[:5] == [2, 3, 4, 2, 3]
    assert [episode.episode_return for episode in episodes[:3]] == [3.0, 6.0, 10.0]
    assert [episode.info["is_success"] for episode in episodes[:4]] == [False, True, False, True]


def test_final_observation_is_the_episodes_own_and_not_the_resets() -> None:
    stepper = EnvStepper(own_env(1, lambda: Counting(reuse=True)))
    stepper.reset([0])
    stepper.step([0])
    step = stepper.step([0])
    assert step.finished.tolist() == [0]
    assert step.final_observations.tolist() == [[0.0, 2.0]]
    assert step.observations.tolist() == [[1.0, 0.0]]
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True], [False])


def test_truncated_episode_is_not_terminated() -> None:
    stepper = EnvStepper(make_vec_env("Pendulum-v1", 2, max_episode_steps=3))
    stepper.reset([0, 1])
    steps = [stepper.step(np.zeros((2, 1))) for _ in range(3)]
    assert steps[-1].truncated.all()
    assert not steps[-1].terminated.any()
    assert not np.allclose(steps[-1].final_observations, steps[-1].observations)


@pytest.mark.parametrize("mode", [None, *MODES])
def test_terminal_wins_where_both_flags_are_set(mode: AutoresetMode | None) -> None:
    def make() -> Counting:
        return Counting(both=True)

    stepper = EnvStepper(own_env(1, make) if mode is None else gymnasium_env(mode, 1, make))
    stepper.reset([0])
    stepper.step([0])
    step = stepper.step([0])
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True], [False])


def test_native_next_step_env_marks_the_resetting_rows_as_invalid() -> None:
    stepper = EnvStepper(gym.make_vec("CartPole-v1", 4, vectorization_mode="vector_entry_point"))
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
            assert (step.final_observations == step.observations[step.finished]).all()
    assert n_episodes > 20


def test_reset_drops_unfinished_episodes_from_the_records() -> None:
    stepper = EnvStepper(own_env(1))
    stepper.reset([0])
    stepper.step([0])
    stepper.reset([0])
    episodes = [episode for _ in range(3) for episode in stepper.step([0]).episodes]
    assert [(episode.length, episode.episode_return) for episode in episodes] == [(3, 6.0)]


def test_each_env_of_gymnasiums_own_vector_env_is_reset_with_its_seed() -> None:
    stepper = EnvStepper(gymnasium_env(AutoresetMode.SAME_STEP, 2, Noisy))
    observations = stepper.reset([5, 50])
    for i, seed in enumerate((5, 50)):
        assert (observations["state"][i] == Noisy().reset(seed=seed)[0]["state"]).all()


def test_seeds_may_be_left_out_but_not_one_of_them() -> None:
    stepper = EnvStepper(gymnasium_env(AutoresetMode.SAME_STEP))
    assert stepper.reset().tolist() == [[0.0, 0.0], [0.0, 0.0]]
    with pytest.raises(ValueError, match="1 seeds for 2 environments"):
        stepper.reset([0])


def test_longest_unfinished_episode_is_counted() -> None:
    stepper = EnvStepper(make_vec_env("Pendulum-v1", 2))
    stepper.reset([0, 1])
    for _ in range(7):
        stepper.step(np.zeros((2, 1)))
    assert stepper.longest_unfinished_episode() == 7


def test_longest_unfinished_episode_begins_with_the_last_reset() -> None:
    stepper = EnvStepper(own_env(2, lambda: Counting((9,))))
    for n in (4, 3):
        stepper.reset([0, 1])
        for _ in range(n):
            stepper.step(np.zeros(2, np.int64))
        assert stepper.longest_unfinished_episode() == n


def test_dictionary_observations_and_their_ends_are_dicts_of_rows() -> None:
    stepper = EnvStepper(own_env(3, Noisy))
    observations = stepper.reset([0, 1, 2])
    assert {key: (values.shape, values.dtype) for key, values in observations.items()} == {
        "image": ((3, 3, 4), np.uint8),
        "state": ((3, 3), np.float64),
        "token": ((3,), np.int64),
    }
    while not (step := stepper.step(np.zeros((3, 2)))).finished.size:
        pass
    n = len(step.finished)
    assert {key: values.shape for key, values in step.final_observations.items()} == {
        "image": (n, 3, 4),
        "state": (n, 3),
        "token": (n,),
    }


@pytest.mark.parametrize("mode", MODES)
def test_dictionary_observations_of_other_vector_envs_come_out_alike(mode: AutoresetMode) -> None:
    stepper = EnvStepper(gymnasium_env(mode, 3, Noisy))
    stepper.reset([0, 1, 2])
    while not (step := stepper.step(np.zeros((3, 2), dtype=np.float32))).finished.size:
        pass
    assert step.final_observations["state"].shape == (len(step.finished), 3)


def test_action_masks_come_from_the_method_of_the_env() -> None:
    stepper = EnvStepper(make_vec_env("Zoo/Masked-v0", 3))
    stepper.reset([0, 1, 2])
    masks = stepper.action_masks()
    assert masks is not None
    assert masks.shape == (3, 6)
    assert masks.sum(axis=1).tolist() == [3, 3, 3]
    for _ in range(50):
        step = stepper.step(stepper.action_masks().argmax(axis=1))
        assert not step.terminated.any()


def test_action_masks_come_from_infos_too() -> None:
    class Telling(Counting):
        def step(self, action: Any) -> Any:
            *rest, info = super().step(action)
            return *rest, {**info, "action_mask": np.array([action, 1], dtype=np.int8)}

        def reset(self, **options: Any) -> Any:
            return super().reset(**options)[0], {"action_mask": np.array([1, 0], dtype=np.int8)}

    for env in (own_env(2, Telling), gymnasium_env(AutoresetMode.SAME_STEP, 2, Telling)):
        stepper = EnvStepper(env)
        stepper.reset([0, 1])
        assert stepper.action_masks().tolist() == [[True, False], [True, False]]
        stepper.step([0, 1])
        assert stepper.action_masks().tolist() == [[False, True], [True, True]]


def test_action_masks_of_gymnasiums_own_vector_env_come_from_the_method() -> None:
    stepper = EnvStepper(gymnasium_env(AutoresetMode.NEXT_STEP, 2, Noisy))
    stepper.reset([0, 1])
    own = EnvStepper(own_env(2, Noisy))
    own.reset([0, 1])
    assert (stepper.action_masks() == own.action_masks()).all()


def test_envs_without_masks_have_none() -> None:
    stepper = EnvStepper(make_vec_env("CartPole-v1", 2))
    stepper.reset([0, 1])
    assert stepper.action_masks() is None


def test_actions_of_a_discrete_space_begin_at_its_start() -> None:
    class Started(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gym.spaces.Discrete(3, start=1)

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            return super().step(action)

    stepper = EnvStepper(own_env(1, Started))
    stepper.reset([0])
    for action in (1, 2, 3):
        stepper.step([action])
    with pytest.raises(ZooError, match="env 0 \\(step 4 after seed 0\\) raised AssertionError"):
        stepper.step([0])


def test_rows_are_not_overwritten_by_later_steps() -> None:
    stepper = EnvStepper(own_env(1, lambda: Counting(reuse=True)))
    first = stepper.reset([0])
    kept = [stepper.step([0]) for _ in range(5)]
    assert first.tolist() == [[0.0, 0.0]]
    assert [step.rewards.tolist() for step in kept] == [[1.0], [2.0], [1.0], [2.0], [3.0]]


def test_infos_of_a_step_are_in_gymnasiums_form() -> None:
    stepper = EnvStepper(own_env(2))
    other = gymnasium_env(AutoresetMode.SAME_STEP)
    stepper.reset([0, 1])
    other.reset(seed=[0, 1])
    for _ in range(2):
        step = stepper.step([0, 0])
        *_, infos = other.step(np.zeros(2, dtype=np.int64))
    assert step.infos.keys() == infos.keys()
    assert step.infos["final_info"]["score"].tolist() == infos["final_info"]["score"].tolist()
    assert np.array_equal(step.infos["final_obs"][1], infos["final_obs"][1])


def test_info_keywords_are_recorded_by_name() -> None:
    stepper = EnvStepper(make_vec_env(Counting, 1, check=False, info_keywords=["score"]))
    stepper.reset([0])
    episodes = [episode for _ in range(2) for episode in stepper.step([0]).episodes]
    assert episodes[0].info == {"is_success": False, "score": 20.0}


@pytest.mark.parametrize(
    ("info", "logged"),
    [
        ({"success": False}, {"is_success": False}),
        ({"success": np.float64(1.0)}, {"is_success": True}),
        ({"success": 1, "is_success": False}, {"is_success": False}),
        ({"success": 0.5}, {}),
        ({"success": "yes"}, {}),
        ({"success": np.zeros(2)}, {}),
    ],
)
def test_success_counts_where_there_is_no_is_success(info: dict[str, Any], logged: dict[str, bool]) -> None:
    class Saying(Counting):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], info

    stepper = EnvStepper(make_vec_env(Saying, 1, check=False))
    stepper.reset([0])
    episodes = [episode for _ in range(2) for episode in stepper.step([0]).episodes]
    assert episodes[0].info == logged


def test_arrays_in_infos_are_recorded_as_lists_and_those_of_one_entry_as_that_entry() -> None:
    class Measuring(Counting):
        def step(self, action: Any) -> Any:
            *rest, info = super().step(action)
            return *rest, {**info, "one": np.array([3]), "two": np.array([1.5, 2.5]), "word": "left"}

    keywords = ["one", "two", "word"]
    stepper = EnvStepper(make_vec_env(Measuring, 1, check=False, info_keywords=keywords))
    stepper.reset([0])
    episodes = [episode for _ in range(2) for episode in stepper.step([0]).episodes]
    logged = {name: episodes[0].info[name] for name in keywords}
    assert logged == {"one": 3, "two": [1.5, 2.5], "word": "left"}


def test_missing_info_keyword_names_the_nearest_one() -> None:
    stepper = EnvStepper(make_vec_env(Counting, 1, check=False, info_keywords=["scor"]))
    stepper.reset([0])
    stepper.step([0])
    with pytest.raises(ZooError, match="did you mean 'score'"):
        stepper.step([0])


def test_times_of_episodes_go_on_where_the_state_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("zoo.envs.stepper.time.time", lambda: clock[0])
    first = EnvStepper(InProcessVectorEnv([Counting]))
    first.reset([0])
    clock[0] = 1007.0
    state = first.state()
    clock[0] = 5000.0
    second = EnvStepper(InProcessVectorEnv([Counting]))
    second.load_state(state)
    clock[0] = 5001.0
    episodes = [episode for _ in range(2) for episode in second.step([0]).episodes]
    assert [episode.seconds for episode in episodes] == [8.0]


def test_statistics_of_gymnasiums_own_wrapper_are_taken() -> None:
    class Shaped(gym.RewardWrapper):  # type: ignore[type-arg]
        def reward(self, reward: Any) -> float:
            return 100.0

    def make() -> Any:
        return Shaped(gym.wrappers.RecordEpisodeStatistics(Counting()))

    stepper = EnvStepper(own_env(1, make))
    stepper.reset([0])
    episodes = [episode for _ in range(2) for episode in stepper.step([0]).episodes]
    assert (episodes[0].episode_return, episodes[0].length) == (3.0, 2)


def test_anything_but_a_vector_env_is_refused_with_advice() -> None:
    with pytest.raises(ZooError, match="make_vec_env"):
        EnvStepper(Counting())  # type: ignore[arg-type]


def test_vector_env_that_does_not_say_when_it_resets_is_refused() -> None:
    env = gymnasium_env(AutoresetMode.SAME_STEP)
    env.metadata = {}
    with pytest.raises(ZooError, match="autoreset_mode"):
        EnvStepper(env)


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

    stepper = EnvStepper(Misshapen(gymnasium_env(AutoresetMode.SAME_STEP)))
    with pytest.raises(ZooError, match=r"gave observations of shape \(2, 1\); 2 of Box\(2,\).*\(2, 2\)"):
        transitions(stepper, 3)
    assert stepper.env.n_calls == at + 1  # type: ignore[attr-defined]


def test_observations_of_another_shape_after_a_reset_between_episodes_are_refused() -> None:
    class Misshapen(gym.vector.VectorWrapper):  # type: ignore[type-arg]
        def reset(self, **options: Any) -> Any:
            is_between = bool(options.get("options"))
            observations, infos = self.env.reset(**options)
            return (observations[:, :1] if is_between else observations), infos

    stepper = EnvStepper(Misshapen(gymnasium_env(AutoresetMode.DISABLED)))
    with pytest.raises(ZooError, match=r"gave observations of shape \(2, 1\); 2 of Box\(2,\).*\(2, 2\)"):
        transitions(stepper, 30)


def test_who_steps_what_a_wrapper_is_around_disturbs_its_stepper() -> None:
    inner = gymnasium_env(AutoresetMode.SAME_STEP)
    stepper, other = EnvStepper(gym.vector.VectorWrapper(inner)), EnvStepper(inner)
    stepper.reset()
    assert not stepper.was_disturbed
    other.reset()
    assert stepper.was_disturbed


def test_vector_environment_of_somebody_that_cannot_be_closed_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Clinging(gym.vector.SyncVectorEnv):
        def close_extras(self, **kwargs: Any) -> None:
            raise OSError("the simulator is gone")

    EnvStepper(Clinging([Counting] * 2)).close()
    assert capsys.readouterr().err == "zoo: Clinging: close() raised OSError: the simulator is gone\n"


def test_of_a_step_its_numbers_are_shown_and_not_the_environments() -> None:
    envs = EnvStepper(make_vec_env(Counting, 2, check=False))
    envs.reset([0, 1])
    shown = repr(envs.step(np.zeros(2, np.int64)))
    assert "rewards=array([1., 1.]" in shown
    assert "_env" not in shown
    assert "_infos" not in shown
    assert "_ends" not in shown


def test_episodes_that_are_begun_anew_count_from_nothing_and_stand_still_at_their_ends() -> None:
    envs = EnvStepper(make_vec_env(lambda: Counting((3,)), 2, check=False))
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


def test_episodes_that_are_begun_anew_below_a_wrapper_count_from_nothing() -> None:
    envs = EnvStepper(make_vec_env(lambda: Counting((3,)), 2, check=False, nan_check=True))
    envs.reset([0, 1])
    envs.step(np.zeros(2, np.int64))
    envs.begin({0: 7})
    records = [record for _ in range(3) for record in envs.step(np.zeros(2, np.int64)).episodes]
    found = [(record.env_index, record.episode_return, record.length) for record in records]
    assert found == [(1, 6.0, 3), (0, 6.0, 3)]


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
    envs = EnvStepper(env)
    first = envs.reset([3, 4])
    np.testing.assert_array_equal(envs.reset([3, 4]), first)


def test_seeds_that_are_taken_in_no_form_are_refused_with_the_reason() -> None:
    env = Choosy([lambda: gym.make("CartPole-v1")] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    env.form = tuple
    with pytest.raises(TypeError, match="no int"):
        EnvStepper(env).reset([3, 4])


def test_rows_that_are_idle_or_only_reset_do_not_count() -> None:
    envs = EnvStepper(make_vec_env(Noisy, 3, check=False))
    valid = np.array([True, False, True])
    assert envs._counted(None) is None
    assert envs._counted(valid) is valid
    envs.idle[2] = True
    for given, counted in ((None, [True, True, False]), (valid, [True, False, False])):
        found = envs._counted(given)
        assert found is not None
        assert found.tolist() == counted
