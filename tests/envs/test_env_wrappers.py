"""Wrappers, chosen by config."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from scripted import Counting, Noisy

from zoo import PPO2
from zoo.envs import VecEnvAdapter, make_vec_env
from zoo.envs.wrappers import History
from zoo.errors import ZooError

BOX2D = pytest.mark.skipif(importlib.util.find_spec("Box2D") is None, reason="Box2D is not installed")


def made(env: Any, **options: Any) -> Any:
    return make_vec_env(env, 1, seed=0, **{"check": False, **options})


class Pictures(gym.Env[Any, Any]):
    """Shows pictures filled with the step's number."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._n = 1
        return np.full(self.observation_space.shape, 1, dtype=np.uint8), {}

    def step(self, action: Any) -> Any:
        self._n += 1
        return np.full(self.observation_space.shape, self._n, dtype=np.uint8), 0.0, False, False, {}


def test_stacked_vectors_lie_end_to_end_with_zeros_before_the_start() -> None:
    env = made(Counting, frame_stack=3)
    assert env.single_observation_space.shape == (6,)
    assert env.reset()[0].tolist() == [[0, 0, 0, 0, 0, 0]]
    env.step([0])
    observations, *_, infos = env.step([0])
    assert infos["final_obs"][0].tolist() == [0, 0, 0, 1, 0, 2]
    assert observations.tolist() == [[0, 0, 0, 0, 1, 0]]


@pytest.mark.parametrize(
    ("shape", "stacked", "axis"),
    [
        ((5, 6), (4, 5, 6), 0),
        ((5, 6, 3), (5, 6, 12), 2),
        ((3, 7, 6), (12, 7, 6), 0),
        ((12, 36, 40), (48, 36, 40), 0),
        ((36, 40, 12), (36, 40, 48), 2),
    ],
)
def test_pictures_are_stacked_along_their_channels(
    shape: tuple[int, ...], stacked: tuple[int, ...], axis: int
) -> None:
    env = made(lambda: Pictures(shape), frame_stack=4)
    env.reset()
    observation = env.step([0])[0][0]
    assert observation.shape == env.single_observation_space.shape == stacked
    assert observation.dtype == np.uint8
    along = np.moveaxis(observation, axis, 0).reshape(4, -1)
    assert [row.tolist() for row in np.unique(along, axis=1).T] == [[0, 0, 1, 2]]


def test_boxes_of_a_dictionary_are_stacked() -> None:
    env = made(Noisy, frame_stack=2)
    assert env.single_observation_space["state"].shape == (6,)
    assert env.single_observation_space["image"].shape == (2, 3, 4)
    assert env.single_observation_space["token"] == spaces.Discrete(4, start=-1)
    observations, _ = env.reset()
    assert env.observation_space["image"].contains(observations["image"])


def test_time_feature_is_the_fraction_that_is_left() -> None:
    env = made("Pendulum-v1", time_feature=True, max_episode_steps=4)
    features = [env.reset()[0][0, -1], *(env.step(np.zeros((1, 1)))[0][0, -1] for _ in range(3))]
    assert features == [1.0, 0.75, 0.5, 0.25]
    bounds = env.single_observation_space.low[-1], env.single_observation_space.high[-1]
    assert bounds == (0.0, 1.0)
    assert env.observation_space.contains(env.reset()[0])
    *_, infos = [env.step(np.zeros((1, 1))) for _ in range(4)][-1]
    assert infos["final_obs"][0][-1] == 0.0


@pytest.mark.parametrize(
    "options",
    [
        {"max_episode_steps": 8, "time_feature": True},
        {"max_episode_steps": 8, "time_feature": {"max_steps": 8}},
        {"time_feature": {"max_steps": 8}},
    ],
)
def test_time_feature_counts_repeated_steps(options: dict[str, Any]) -> None:
    env = made(lambda: Counting((8,)), action_repeat=3, **options)
    left = [env.reset()[0][0, -1]]
    for _ in range(3):
        observations, *_, infos = env.step([0])
        left.append(infos["final_obs"][0][-1] if "final_obs" in infos else observations[0, -1])
    assert left == [1.0, 5 / 8, 2 / 8, 0.0]
    assert observations[0, -1] == 1.0


def test_time_feature_without_a_limit_is_refused() -> None:
    with pytest.raises(ZooError, match=r"set env\.max_episode_steps"):
        made(Counting, time_feature=True)


def test_history_shows_observations_then_actions_oldest_first() -> None:
    env = made(lambda: Counting(lengths=(9,)), history=2)
    assert env.single_observation_space.shape == (2 * 2 + 2 * 2,)
    assert env.reset()[0].tolist() == [[0, 0, 0, 0, 0, 0, 0, 0]]
    assert env.step([1])[0].tolist() == [[0, 0, 0, 1, 0, 0, 0, 1]]
    assert env.step([0])[0].tolist() == [[0, 1, 0, 2, 0, 1, 1, 0]]


@pytest.mark.parametrize(
    "actions",
    [
        spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))),
        spaces.Dict({"a": spaces.Discrete(2)}),
        spaces.Box(-1.0, 1.0, (0,), np.float32),
    ],
    ids=["tuple", "dict", "none"],
)
def test_history_of_actions_that_are_no_vector_is_refused(actions: spaces.Space[Any]) -> None:
    env = Counting()
    env.action_space = actions
    with pytest.raises(ZooError, match=r"env\.history: actions of .* cannot be shown as a vector"):
        History(env)


def test_repeated_actions_sum_their_rewards() -> None:
    env = made(lambda: Counting(lengths=(5,)), action_repeat=3)
    env.reset()
    first, second = env.step([0]), env.step([0])
    assert (first[1].tolist(), second[1].tolist()) == ([6.0], [9.0])
    assert second[2].tolist() == [True]


@pytest.mark.parametrize(
    ("env_id", "masked"),
    [
        ("CartPole-v1", [1, 3]),
        ("MountainCarContinuous-v0", [1]),
        ("Pendulum-v1", [2]),
        ("MountainCar-v0", [1]),
        ("Acrobot-v1", [4, 5]),
        pytest.param("LunarLander-v3", [2, 3, 5], marks=BOX2D),
        pytest.param("LunarLanderContinuous-v3", [2, 3, 5], marks=BOX2D),
        pytest.param("BipedalWalker-v3", [1, 2, 3, 5, 7, 10, 12], marks=BOX2D),
        pytest.param("BipedalWalkerHardcore-v3", [1, 2, 3, 5, 7, 10, 12], marks=BOX2D),
    ],
)
def test_masked_velocities_are_zero(env_id: str, masked: list[int]) -> None:
    env, raw = made(env_id, mask_velocities=True), made(env_id)
    env.reset(), raw.reset()
    actions = raw.action_space.sample()
    for _ in range(3):
        shown, moving = env.step(actions)[0][0], raw.step(actions)[0][0]
    assert np.flatnonzero(shown != moving).tolist() == masked
    assert not shown[masked].any()


def test_unknown_velocities_are_refused_with_what_to_write() -> None:
    with pytest.raises(ZooError, match=r"velocities is not known; known: Acrobot.*indices: \[\.\.\.\]"):
        made(Counting, mask_velocities=True)
    wrapper = {"_target_": "zoo.envs.wrappers.MaskVelocities", "indices": [1]}
    env = made(Counting, wrappers=[wrapper])
    env.reset()
    assert env.step([0])[0].tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("ClipRewards", "unknown wrapper `ClipRewards`; did you mean 'ClipReward'"),
        ("no_such_module.Wrapper", "No module named 'no_such_module'"),
        ("gymnasium.wrappers.ClipRewards", "has no `ClipRewards`; did you mean 'ClipReward'"),
        ({"target": "ClipReward"}, "has no `_target_`"),
        ({"_target_": "FrameStack", "size": 2}, "unexpected keyword argument 'size'"),
        ({"_target_": "pydoc.pipepager", "cmd": "touch called"}, "pydoc.pipepager` is not a subclass"),
        ("builtins.str", "builtins.str` is not a subclass of gymnasium.core.Wrapper"),
    ],
)
def test_wrong_wrapper_is_explained(wrapper: Any, message: str) -> None:
    with pytest.raises(ZooError) as caught:
        made(Counting, wrappers=[wrapper])
    assert message in str(caught.value)


def test_videos_are_recorded(tmp_path: Path) -> None:
    pytest.importorskip("moviepy")
    pytest.importorskip("pygame")
    recorder = {"_target_": "RecordVideo", "video_folder": str(tmp_path), "video_length": 5}
    env = made("CartPole-v1", render_mode="rgb_array", wrappers=[recorder], check=True)
    assert not list(tmp_path.iterdir())
    env.reset()
    for _ in range(12):
        env.step([0])
    env.close()
    videos = list(tmp_path.glob("*.mp4"))
    assert videos
    assert all(video.stat().st_size > 1000 for video in videos)


class Breaking(Counting):
    """Gives what a config says to in the second step."""

    def __init__(self, what: str) -> None:
        super().__init__(lengths=(9,))
        self._what = what

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        if observation[1] == 2 and self.np_random_seed == 1:
            if self._what == "reward":
                reward = float("inf")
            else:
                observation = np.array([0.0, np.nan], dtype=np.float32)
            if self._what == "final observation":
                rest[0] = True
        return observation, reward, *rest


@pytest.mark.parametrize("what", ["observation", "reward", "final observation"])
def test_nan_is_named_with_its_env(what: str) -> None:
    env = make_vec_env(lambda: Breaking(what), 2, check=False, nan_check=True)
    stepper = VecEnvAdapter(env)
    stepper.reset([0, 1])
    stepper.step([0, 0])
    with pytest.raises(ZooError, match=f"(nan|inf) in the {what} of env 1 at step 2"):
        stepper.step([0, 0])


def test_nan_in_an_action_is_named() -> None:
    env = make_vec_env("Pendulum-v1", 2, nan_check=True)
    env.reset(seed=0)
    with pytest.raises(ZooError, match=r"nan in the action given to env 1 at step 1, at \[0\]"):
        env.step(np.array([[0.0], [np.nan]]))


def normalized_inside() -> Any:
    env = gym.wrappers.NormalizeObservation(gym.make("CartPole-v1"))
    return gym.wrappers.TimeLimit(gym.wrappers.NormalizeReward(env), 50)


@pytest.mark.parametrize(
    ("env", "options", "told"),
    [
        ("CartPole-v1", {"wrappers": ["NormalizeObservation"]}, "NormalizeObservation"),
        (
            "CartPole-v1",
            {"wrappers": ["NormalizeReward", {"_target_": "TimeLimit", "max_episode_steps": 9}]},
            "Rew",
        ),
        (normalized_inside, {}, "NormalizeObservation and NormalizeReward"),
        (
            normalized_inside,
            {"wrappers": ["FlattenObservation"], "vectorization": "workers"},
            "NormalizeReward",
        ),
        (
            lambda: gym.wrappers.vector.NormalizeObservation(gym.make_vec("CartPole-v1", 2)),
            None,
            "NormalizeObs",
        ),
    ],
)
def test_statistics_of_wrappers_are_said_to_be_neither_saved_nor_shared(
    env: Any, options: Any, told: str
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made_env = env() if options is None else make_vec_env(env, 1, **options)
        PPO2("MlpPolicy", made_env, compile=False)
        made_env.close()
    (line,) = [str(each.message) for each in caught if "Normalize" in str(each.message)]
    assert told in line
    assert "env.normalize" in line
