"""What an expert does is recorded as it happened, in any number of environments."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from zoo.algorithms.registry import algorithm_class
from zoo.envs.config import EnvConfig
from zoo.envs.vec_env import make_vec_env
from zoo.errors import NotFiniteError, ZooError, ZooWarning
from zoo.memory.expert_data import ExpertData
from zoo.training.evaluation import evaluate, seeds_of
from zoo.training.expert_recording import record_expert


class Countdown(gym.Env[Any, Any]):
    """Counts down from a number that each reset draws, and pays what the action is; odd ones succeed."""

    observation_space = spaces.Discrete(10)
    action_space = spaces.Discrete(2, start=3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.first = self.left = int(self.np_random.integers(1, 6))
        return self.left, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self.left, float(action), self.left == 0, False, {"is_success": bool(self.first % 2)}


def by_parity(observation: Any) -> int:
    return 3 + int(observation) % 2


def assert_is_countdown(data: ExpertData) -> None:
    for start, length in zip(data.starts, data.lengths, strict=True):
        steps = slice(start, start + length)
        assert data.observations[steps].tolist() == list(range(length, 0, -1))
        assert data.actions[steps].tolist() == [3 + left % 2 for left in range(length, 0, -1)]
    assert data.rewards.tolist() == data.actions.tolist()
    assert data.successes is not None
    assert data.successes.tolist() == (data.lengths % 2 == 1).tolist()
    assert data.terminated is not None
    assert data.terminated.all()


@pytest.mark.parametrize("n_envs", [1, 3])
def test_function_of_one_observation_is_recorded(n_envs: int) -> None:
    data = record_expert(by_parity, Countdown, 8, n_envs=n_envs, seed=0)
    assert data.n_episodes == 8
    assert_is_countdown(data)
    assert data.card["source"] == {"expert": "by_parity"}
    again = record_expert(by_parity, Countdown, 8, n_envs=n_envs, seed=0)
    np.testing.assert_array_equal(again.observations, data.observations)
    other = record_expert(by_parity, Countdown, 8, n_envs=n_envs, seed=1)
    assert other.lengths.tolist() != data.lengths.tolist()


@pytest.mark.parametrize("mode", list(gym.vector.AutoresetMode))
def test_steps_that_merely_reset_are_left_out(mode: gym.vector.AutoresetMode) -> None:
    envs = gym.vector.SyncVectorEnv([Countdown] * 2, autoreset_mode=mode)
    assert_is_countdown(record_expert(by_parity, envs, 6, seed=0))
    envs.close()


def test_each_environment_plays_its_share() -> None:
    data = record_expert(by_parity, Countdown, 30, n_envs=3, seed=0)
    assert abs(data.lengths.mean() - 3) < 0.8  # whichever ends first would favour short ones


@pytest.mark.parametrize("mode", list(gym.vector.AutoresetMode))
def test_first_episodes_are_not_the_shortest(mode: gym.vector.AutoresetMode) -> None:
    """The first of each environment come first, however long they take."""
    envs = gym.vector.SyncVectorEnv([Countdown] * 3, autoreset_mode=mode)
    data = record_expert(by_parity, envs, 12, seed=0)
    envs.close()
    alone = []
    for index in range(3):
        env = Countdown()
        env.reset(seed=seeds_of(0, 3)[index])
        lengths = [env.first]
        for _ in range(3):
            env.reset()
            lengths.append(env.first)
        alone.append(lengths)
    expected = [lengths[turn] for turn in range(4) for lengths in alone]
    assert data.lengths.tolist() == expected
    assert expected[:3] != sorted(expected)[:3]


def test_order_is_that_of_turns_also_where_episodes_are_left_out() -> None:
    played: list[tuple[int, float, bool]] = []
    data = record_expert(
        by_parity,
        Countdown,
        9,
        n_envs=3,
        seed=2,
        min_return=8,
        on_episode=lambda each, kept: played.append((each.env_index, each.episode_return, kept)),
    )
    turns = [0, 0, 0]
    kept = []
    for index, episode_return, is_kept in played:
        if is_kept:
            kept.append((turns[index], index, episode_return))
        turns[index] += 1
    assert not all(is_kept for *_, is_kept in played)
    assert data.returns.tolist() == [episode_return for *_, episode_return in sorted(kept)]


@pytest.mark.parametrize("vectorization", ["sync", "workers"])
def test_rewards_and_returns_are_those_that_wrappers_leave(vectorization: str) -> None:
    halved = {"_target_": "gymnasium.wrappers.ClipReward", "max_reward": 0.5}
    config = EnvConfig(
        "CartPole-v1",
        wrappers=[halved],
        max_episode_steps=8,
        vectorization=vectorization,
        start_method="fork",
    )

    def swing(observation: Any) -> int:
        return int(observation[2] + observation[3] > 0)

    with pytest.warns(ZooWarning, match=r"sums of what they give \(4\), not the raw 8") as told:
        data = record_expert(swing, config, 3, n_envs=2, seed=0, min_return=4)
    assert len([each for each in told if each.category is ZooWarning]) == 1
    assert data.returns.tolist() == [4.0, 4.0, 4.0]
    assert data.rewards.tolist() == [0.5] * 24
    with pytest.warns(ZooWarning), pytest.raises(ZooError, match=r"min_return=5 leaves nothing of .* of 4"):
        record_expert(swing, config, 2, seed=0, min_return=5)


def test_seed_that_is_drawn_stands_in_the_card() -> None:
    data = record_expert(by_parity, Countdown, 4, n_envs=2)
    assert isinstance(data.card["seed"], int)
    again = record_expert(by_parity, Countdown, 4, n_envs=2, seed=data.card["seed"])
    np.testing.assert_array_equal(again.observations, data.observations)
    assert record_expert(by_parity, Countdown, 4, n_envs=2).card["seed"] != data.card["seed"]


def test_reward_that_is_not_finite_is_told_as_one_of_a_recording() -> None:
    class Broken(Countdown):
        def step(self, action: Any) -> Any:
            observation, _, *others = super().step(action)
            return (observation, float("nan"), *others)

    with pytest.raises(NotFiniteError, match="a recorded episode returned nan: environment 0 gave a reward"):
        record_expert(by_parity, Broken, 1, seed=0)


def test_action_that_is_forbidden_ends_the_recording_at_once() -> None:
    told: list[Any] = []
    with pytest.raises(ZooError, match=r"the expert's action \d at step 0 .* environment 0 forbids"):
        record_expert(Forbidden(), "Zoo/Masked-v0", 50, seed=0, on_episode=lambda *each: told.append(each))
    assert told == []


class Forbidden:
    """Does what it may not."""

    def predict(
        self,
        observations: Any,
        state: Any = None,
        episode_start: Any = None,
        action_masks: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, None]:
        return np.argmin(action_masks, axis=1), None


def test_environment_whose_mask_forbids_is_named_among_others_that_allow() -> None:
    class OneForbidden:
        def predict(self, observations: Any, *others: Any, action_masks: Any = None, **more: Any) -> Any:
            actions = np.argmax(action_masks, axis=1)
            actions[1] = np.argmin(action_masks[1])
            return actions, None

    with pytest.raises(ZooError, match=r"at step 0 of an episode is one that environment 1 forbids"):
        record_expert(OneForbidden(), "Zoo/Masked-v0", 3, n_envs=3, seed=0)


def test_only_good_episodes_are_kept() -> None:
    told: list[bool] = []
    data = record_expert(
        by_parity,
        Countdown,
        5,
        n_envs=2,
        seed=0,
        successes_only=True,
        on_episode=lambda _, kept: told.append(kept),
    )
    assert (data.lengths % 2 == 1).all()
    assert data.n_episodes == told.count(True) == 5
    assert told.count(False) == data.card["n_played"] - 5 > 0
    data = record_expert(by_parity, Countdown, 5, n_envs=2, seed=0, min_return=14)
    assert data.returns.min() >= 14
    assert data.card["min_return"] == 14
    assert_is_countdown(data)


class Three(Countdown):
    """Counts down from three; what `by_parity` does returns 11."""

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        self.first = self.left = 3
        return 3, {}


def test_return_that_is_just_good_enough_is_kept_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = record_expert(by_parity, Three, 2, seed=0, min_return=11)
    assert data.returns.tolist() == [11.0, 11.0]


def test_single_step_is_recorded() -> None:
    class One(Countdown):
        def reset(self, **options: Any) -> Any:
            super().reset(**options)
            self.first = self.left = 1
            return 1, {}

    data = record_expert(by_parity, One, 1, seed=0)
    assert data.observations.tolist() == [1]
    assert data.actions.tolist() == [4]


def test_single_step_of_several_observations_is_recorded() -> None:
    class Two(gym.Env[Any, Any]):
        observation_space = spaces.Dict({"a": spaces.Discrete(9), "b": spaces.MultiDiscrete([5, 7])})
        action_space = spaces.Discrete(2)
        seen = {"a": np.int64(8), "b": np.array([4, 6])}  # noqa: RUF012

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.seen, {}

        def step(self, action: Any) -> Any:
            return self.seen, 1.0, True, False, {}

    data = record_expert(lambda _: 1, Two, 1, seed=0)
    assert isinstance(data.observations, dict)
    assert {key: array.tolist() for key, array in data.observations.items()} == {"a": [8], "b": [[4, 6]]}


@pytest.mark.parametrize(("n_episodes", "n_envs", "made"), [(4, 1, 1), (4, 3, 3), (2, 3, 2)])
def test_no_more_environments_record_than_there_are_episodes(n_episodes: int, n_envs: int, made: int) -> None:
    played: list[int] = []
    record_expert(
        by_parity,
        Three,
        n_episodes,
        n_envs=n_envs,
        seed=0,
        on_episode=lambda each, _: played.append(each.env_index),
    )
    assert sorted(set(played)) == list(range(made))
    assert len(played) == n_episodes


def test_successes_are_known_only_if_every_episode_tells() -> None:
    class Sometimes(Countdown):
        def step(self, action: Any) -> Any:
            *others, info = super().step(action)
            return (*others, info if self.first > 2 else {})

    data = record_expert(by_parity, Sometimes, 8, seed=0)
    assert {1, 2} & set(data.lengths.tolist())
    assert data.successes is None


def test_expert_that_is_never_good_enough_gets_one_clear_line() -> None:
    class Hopeless(Countdown):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], {"is_success": False})

    with pytest.raises(ZooError, match=r"the expert never succeeds \(20 episodes"):
        record_expert(by_parity, Hopeless, 2, seed=0, successes_only=True)
    with pytest.raises(ZooError, match="min_return=99 leaves nothing of 20 episodes"):
        record_expert(by_parity, Countdown, 2, seed=0, min_return=99)
    with pytest.raises(ZooError, match="does not say whether an episode succeeded"):
        record_expert(lambda _: 0, "CartPole-v1", 2, seed=0, successes_only=True)
    with pytest.raises(ZooError, match="at least one episode"):
        record_expert(by_parity, Countdown, 0)


def test_too_few_good_episodes_are_told_of() -> None:
    class Once(Countdown):
        n_resets = 0

        def reset(self, **options: Any) -> Any:
            self.n_resets += 1
            return super().reset(**options)

        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], {"is_success": self.n_resets == 1})

    with pytest.warns(ZooWarning, match="of 20 episodes only 1 were good enough; 2 were wanted"):
        data = record_expert(by_parity, Once, 2, seed=0, successes_only=True)
    assert data.n_episodes == 1


def test_agent_is_recorded_as_it_is_evaluated() -> None:
    agent = algorithm_class("ppo2")("MlpPolicy", "CartPole-v1", seed=0, compile=False, n_steps=64)
    data = record_expert(agent, "CartPole-v1", 6, n_envs=3, seed=4)
    expected = evaluate(agent, "CartPole-v1", 6, n_envs=3, seed=4)
    assert sorted(data.returns) == sorted(expected.returns)
    assert sorted(data.lengths) == sorted(expected.lengths)
    assert data.card["env"] == "CartPole-v1"
    np.testing.assert_array_equal(agent.predict(data.observations)[0], data.actions)
    noisy = record_expert(agent, "CartPole-v1", 6, n_envs=3, seed=4, deterministic=False)
    assert (agent.predict(noisy.observations)[0] != noisy.actions).any()


def test_observations_are_raw_where_the_agent_normalises() -> None:
    agent = algorithm_class("ppo2")(
        "MlpPolicy", EnvConfig("Pendulum-v1", normalize=True), seed=0, compile=False, n_steps=32
    )
    agent.learn(64)
    data = record_expert(agent, "Pendulum-v1", 1, seed=0)
    np.testing.assert_allclose(np.square(data.observations[:, :2]).sum(1), 1.0, rtol=1e-4)
    assert data.terminated is not None
    assert not data.terminated.any()
    assert data.lengths.tolist() == [200]


def test_recurrent_agents_remember() -> None:
    agent = algorithm_class("ppo2")("MlpLstmPolicy", "Zoo/Memory-v0", seed=0, compile=False, n_steps=128)
    data = record_expert(agent, "Zoo/Memory-v0", 4, n_envs=2, seed=0)
    state = None
    for start, length in zip(data.starts[:1], data.lengths[:1], strict=True):
        for step in range(start, start + length):
            action, state = agent.predict(data.observations[step][None], state)
            assert action.tolist() == [data.actions[step]]


@pytest.mark.parametrize("name", ["Masked", "MaskedMultiDiscrete", "MaskedMultiBinary", "MaskedComposite"])
def test_masks_are_kept_and_obeyed(name: str) -> None:
    agent = algorithm_class("ppo2")("MlpPolicy", f"Zoo/{name}-v0", seed=0, compile=False, n_steps=32)
    data = record_expert(agent, f"Zoo/{name}-v0", 3, n_envs=2, seed=0)
    assert data.action_masks is not None
    assert data.lengths.tolist() == [20, 20, 20]  # a forbidden action would have ended one
    if name == "Masked":
        assert data.action_masks[np.arange(data.n_steps), data.actions].all()


@pytest.mark.parametrize(
    "space", ["Discrete", "Box", "MultiDiscrete", "MultiBinary", "Composite", "Image", "Dict"]
)
def test_every_space_is_recorded(space: str, tmp_path: Any) -> None:
    name = f"Zoo/{space if space == 'Composite' else f'Identity{space}'}-v0"
    with gym.make(name) as env:
        action_space, observation_space = env.action_space, env.observation_space
    data = record_expert(lambda _: action_space.sample(), name, 2, n_envs=2, seed=0)
    assert data.action_space == action_space
    data.check_spaces(observation_space, action_space)
    assert data.n_steps == 40


def test_worker_processes_give_the_same() -> None:
    config = EnvConfig("CartPole-v1", vectorization="workers", start_method="fork")
    envs = make_vec_env(config, 2, training=False)
    try:
        data = record_expert(lambda observation: int(observation[2] > 0), envs, 3, seed=0)
    finally:
        envs.close()
    same = record_expert(lambda observation: int(observation[2] > 0), "CartPole-v1", 3, n_envs=2, seed=0)
    np.testing.assert_array_equal(data.observations, same.observations)


def test_numbers_of_a_function_are_clipped_and_wrong_shapes_refused() -> None:
    data = record_expert(lambda _: [9.0], "Pendulum-v1", 1, seed=0)
    assert data.actions.tolist() == [[2.0]] * 200
    with pytest.raises(ZooError, match=r"returned an action of shape \(2,\)"):
        record_expert(lambda _: [1.0, 2.0], "Pendulum-v1", 1, seed=0)


@pytest.mark.parametrize("action", [0.99, 2, -1, float("nan"), "left", None])
def test_what_is_no_action_is_refused(action: Any) -> None:
    with pytest.raises(ZooError, match=r"the expert returned .*, no action of Discrete\(2\)"):
        record_expert(lambda _: action, "CartPole-v1", 1, seed=0)


def test_number_that_is_not_finite_is_no_action() -> None:
    with pytest.raises(ZooError, match=r"the expert returned \[nan\], no action of Box"):
        record_expert(lambda _: [np.nan], "Pendulum-v1", 1, seed=0)


def test_action_of_a_transposed_shape_is_refused() -> None:
    class Table(Countdown):
        action_space = spaces.Box(-1.0, 1.0, (2, 3), np.float32)  # type: ignore[assignment]

        def step(self, action: Any) -> Any:
            return super().step(0)

    with pytest.raises(ZooError, match=r"returned an action of shape \(3, 2\), expected \(2, 3\)"):
        record_expert(lambda _: np.zeros((3, 2)), Table, 1, seed=0)
    assert record_expert(lambda _: np.zeros((1, 2, 3)), Table, 1, seed=0).actions.shape[1:] == (2, 3)


def test_one_of_several_actions_that_is_missing_is_named() -> None:
    returned = iter([3, None])
    with pytest.raises(ZooError, match=r"the expert returned None, no action of Discrete"):
        record_expert(lambda _: next(returned), Countdown, 2, n_envs=2, seed=0)


def test_long_episode_is_told_as_one_of_a_recording(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("zoo.training.evaluation.LONG_EPISODE", 100)
    record_expert(lambda _: [0.0], "Pendulum-v1", 1, seed=0)
    assert "a recorded episode has not ended after 100 steps" in capsys.readouterr().err
