"""Wrappers, chosen by config."""

from __future__ import annotations

import importlib.util
import json
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from scripted import Counting, Noisy

import zoo
from zoo import PPO2
from zoo.envs.adapter import VecEnvAdapter, make_adapter
from zoo.envs.config import EnvConfig
from zoo.envs.make_env import make_vec_env
from zoo.envs.spaces import (
    check_supported,
    choice_sizes,
    mask_size,
    space_from_dict,
    space_to_dict,
    spaces_differ,
)
from zoo.envs.wrappers import History, LifeLoss
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


def test_stack_refuses_frames_that_a_cast_changes() -> None:
    class Wide(gym.Env[Any, Any]):
        observation_space = spaces.Box(0, 255, (2,), np.uint8)
        action_space = spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.array([0, 300]), {}

    with pytest.raises(ZooError, match="an observation has 300, which is no uint8"):
        make_vec_env(Wide, 1, frame_stack=2, check=False).reset()


def test_frame_stack_concatenates_and_pads_with_zeros() -> None:
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
def test_pictures_are_stacked_along_their_channels(shape: Any, stacked: tuple[int, ...], axis: int) -> None:
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


def test_history_lists_observations_then_actions() -> None:
    env = made(lambda: Counting(lengths=(9,)), history=2)
    assert env.single_observation_space.shape == (2 * 2 + 2 * 2,)
    assert env.reset()[0].tolist() == [[0, 0, 0, 0, 0, 0, 0, 0]]
    assert env.step([1])[0].tolist() == [[0, 0, 0, 1, 0, 0, 0, 1]]
    assert env.step([0])[0].tolist() == [[0, 1, 0, 2, 0, 1, 1, 0]]


def test_history_refuses_non_vector_actions() -> None:
    env = Counting()
    env.action_space = spaces.Dict({"a": spaces.Discrete(2)})
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
        ("Pendulum-v1", [2]),
        ("Acrobot-v1", [4, 5]),
        pytest.param("LunarLander-v3", [2, 3, 5], marks=BOX2D),
        pytest.param("BipedalWalker-v3", [1, 2, 3, 5, 7, 10, 12], marks=BOX2D),
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


def test_unknown_velocities_error_suggests_indices() -> None:
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
    stepper = make_adapter(env)
    stepper.reset([0, 1])
    stepper.step([0, 0])
    with pytest.raises(ZooError, match=f"(nan|inf) in the {what} of env 1 at step 2"):
        stepper.step([0, 0])


def test_nan_in_an_action_is_named() -> None:
    stepper = make_adapter(make_vec_env("Pendulum-v1", 2, nan_check=True))
    stepper.reset([0, 1])
    with pytest.raises(ZooError, match=r"nan in the action given to env 1 at step 1, at \[0\]"):
        stepper.step(np.array([[0.0], [np.nan]]))


class Broken(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.no_such_attribute  # noqa: B018


def test_bug_in_wrapper_keeps_its_traceback() -> None:
    with pytest.raises(ZooError, match=r"Traceback[\s\S]*self\.no_such_attribute"):
        made(Counting, wrappers=[f"{__name__}.Broken"])


class OwnNormalizer(gym.wrappers.NormalizeObservation[Any, Any, Any]):
    """A class of a user's own."""


def normalized_inside() -> Any:
    env = OwnNormalizer(gym.make("CartPole-v1"))
    return gym.wrappers.TimeLimit(gym.wrappers.NormalizeReward(env), 50)


@pytest.mark.parametrize(
    ("env", "options", "told"),
    [
        ("CartPole-v1", {"wrappers": ["NormalizeObservation"]}, "NormalizeObservation"),
        (normalized_inside, {"vectorization": "workers"}, "OwnNormalizer and NormalizeReward"),
        (
            lambda: gym.wrappers.vector.NormalizeObservation(gym.make_vec("CartPole-v1", 2)),
            None,
            "NormalizeObs",
        ),
    ],
)
def test_warning_says_wrapper_statistics_are_not_saved(env: Any, options: Any, told: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made_env = env() if options is None else make_vec_env(env, 1, **options)
        PPO2("MlpPolicy", made_env, compile=False)
        made_env.close()
    (line,) = [str(each.message) for each in caught if "Normalize" in str(each.message)]
    assert told in line
    assert "env.normalize" in line


@pytest.mark.parametrize("wrappers", [[], ["minigrid.wrappers.FullyObsWrapper"]])
def test_minigrid_shows_its_cells_as_zeros_and_ones(wrappers: list[str]) -> None:
    pytest.importorskip("minigrid")
    envs = make_vec_env("MiniGrid-Fetch-5x5-N2-v0", 1, seed=3, wrappers=wrappers)
    env = envs.envs[0]
    boards = {"board": [], "expected": [], "planted": []}
    states = set()
    for step in range(12):
        shown, _ = env.reset(seed=step)
        raw = (
            env.env.observation({"image": None, **env.unwrapped.gen_obs()})
            if wrappers
            else env.unwrapped.gen_obs()
        )
        expected, planted = np.zeros_like(shown["image"]), np.zeros_like(shown["image"])
        for row, column in np.ndindex(*expected.shape[:2]):
            thing, colour, state = raw["image"][row, column]
            states.add(int(state))
            expected[row, column, [thing, 11 + colour, 17 + state]] = 1
            planted[row, column, [thing, 10 + colour, 16 + state]] = 1
        for name, board in zip(boards, (shown["image"], expected, planted), strict=True):
            boards[name].append(board)
        first, second, third = env.unwrapped.observation_space["mission"].ordered_placeholders
        numbers = shown["mission"]
        assert raw["mission"] == f"{first[numbers[0]]} {second[numbers[1]]} {third[numbers[2]]}"
        assert shown["direction"] == raw["direction"]
        assert env.observation_space.contains(shown)
    np.testing.assert_array_equal(boards["board"], boards["expected"])
    assert not np.array_equal(boards["board"], boards["planted"])
    assert states == (set(range(4)) if wrappers else {0})
    envs.close()


@pytest.mark.parametrize(
    ("env_id", "wrapper", "shape"),
    [
        ("MiniGrid-Empty-5x5-v0", "RGBImgPartialObsWrapper", (56, 56, 3)),
        ("MiniGrid-Empty-5x5-v0", "OneHotPartialObsWrapper", (7, 7, 20)),
        ("MiniGrid-Empty-5x5-v0", "ImgObsWrapper", (7, 7, 3)),
    ],
)
def test_minigrids_own_images_stay(env_id: str, wrapper: str, shape: tuple[int, ...]) -> None:
    pytest.importorskip("minigrid")
    envs = make_vec_env(env_id, 1, seed=0, wrappers=[f"minigrid.wrappers.{wrapper}"])
    space = envs.single_observation_space
    image = space["image"] if wrapper != "ImgObsWrapper" else space
    assert (image.shape, image.high.max()) == (shape, 255)
    assert wrapper == "ImgObsWrapper" or set(space) == {"direction", "image"}
    envs.close()


@pytest.mark.parametrize(("steps", "limit"), [("auto", 5_000), (30, 30)])
def test_minatar_has_a_time_limit(steps: Any, limit: int) -> None:
    pytest.importorskip("minatar")
    envs = make_vec_env(
        "MinAtar/Seaquest-v1", 1, seed=0, max_episode_steps=steps, kwargs={"sticky_action_prob": 0}
    )
    envs.reset()
    truncated = [bool(envs.step([0])[3][0]) for _ in range(limit)]  # the submarine waits at the surface
    assert truncated == [False] * (limit - 1) + [True]
    envs.close()


pytest.importorskip("ale_py")
pytest.importorskip("cv2")

BREAKOUT = "BreakoutNoFrameskip-v4"


def played(env: Any, n_steps: int) -> tuple[list[Any], VecEnvAdapter]:
    stepper = make_adapter(env)
    stepper.reset(list(range(env.num_envs)))
    generator = np.random.default_rng(0)
    steps = []
    for _ in range(n_steps):
        step = stepper.step(generator.integers(0, 4, env.num_envs))
        steps.append(step)
    return steps, stepper


def test_frames_are_those_of_stable_baselines() -> None:
    wrappers = pytest.importorskip("stable_baselines3.common.atari_wrappers")
    theirs = wrappers.AtariWrapper(gym.make(BREAKOUT))
    ours = make_vec_env(BREAKOUT, 1, frame_stack=1)
    observation, _ = theirs.reset(seed=3)
    observations, _ = ours.reset(seed=3)
    rewards = []
    generator = np.random.default_rng(0)
    for _ in range(150):
        assert np.array_equal(observations[0, 0], observation[..., 0])
        action = int(generator.integers(4))
        observation, reward, terminated, _, _ = theirs.step(action)
        observations, our_rewards, our_terminated, *_ = ours.step([action])
        rewards.append(reward)
        assert (our_rewards[0], our_terminated[0]) == (reward, terminated)
        if terminated:
            break
    assert sum(rewards) > 0


def test_life_loss_ends_episodes_but_not_games() -> None:
    steps, _ = played(make_vec_env(BREAKOUT, 1), 400)
    ends = sum(int(step.terminated[0]) for step in steps)
    episodes = [episode for step in steps for episode in step.episodes]
    assert ends >= 10
    assert len(episodes) == ends // 5
    assert max(step.rewards.max() for step in steps) == 1.0


def test_returns_are_summed_before_rewards_are_clipped() -> None:
    unclipped, _ = played(make_vec_env(BREAKOUT, 1, atari={"clip_reward": False}), 600)
    clipped, _ = played(make_vec_env(BREAKOUT, 1), 600)
    returns = [[e.episode_return for step in steps for e in step.episodes] for steps in (unclipped, clipped)]
    assert returns[0] == returns[1]
    assert len(returns[0]) >= 2
    raw, signs = (np.array([step.rewards[0] for step in steps]) for steps in (unclipped, clipped))
    assert (np.sign(raw) == signs).all()


def test_seed_starts_new_game_even_after_a_lost_life() -> None:
    env = make_vec_env(BREAKOUT, 1)
    first, _ = env.reset(seed=5)
    for _ in range(200):
        if env.step([0])[2][0]:
            break
    again, _ = env.reset(seed=5)
    assert np.array_equal(first, again)
    assert env.get_attr("ale")[0].lives() == 5


@pytest.mark.parametrize("action_repeat_probability", [None, 0.0, 0.5])
def test_sticky_actions_are_the_ids_own_unless_said(action_repeat_probability: float | None) -> None:
    options = {"action_repeat_probability": action_repeat_probability}
    env = make_vec_env("ALE/Pong-v5", 1, atari=options)
    found = env.envs[0].unwrapped.spec.kwargs["repeat_action_probability"]
    assert found == (0.25 if action_repeat_probability is None else action_repeat_probability)


@pytest.mark.parametrize(
    ("env", "repeat_probability"),
    [("ale_py:ALE/Breakout-v5", 0.25), ("Breakout-v4", 0.0), ("ale_py:BreakoutNoFrameskip-v4", 0.0)],
)
def test_a_game_is_one_by_each_of_its_ids(env: str, repeat_probability: float) -> None:
    config = zoo.compose("train", ["algo=ppo2", f"env={env}"])
    assert (config.n_envs, config.policy.name) == (8, "CnnPolicy")
    assert config.tuned.endswith("hyperparams/ppo2/atari.yaml")
    assert config.callbacks.eval.deterministic is False
    envs = make_vec_env(env, 1)
    assert envs.single_observation_space == gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    arguments = envs.envs[0].unwrapped.spec.kwargs
    assert (arguments["frameskip"], arguments["repeat_action_probability"]) == (1, repeat_probability)


@pytest.mark.parametrize(
    ("env", "is_greedy"),
    [
        ("CartPole-v1", True),
        ("ALE/Pong-v5", False),
        ("MiniGrid-DoorKey-5x5-v0", False),
        ("minigrid:MiniGrid-X-v0", False),
    ],
)
def test_actions_are_drawn_in_atari_and_minigrid(env: str, is_greedy: bool) -> None:
    config = EnvConfig(id=env)
    assert config.is_greedy(None) is is_greedy
    assert [config.is_greedy(choice) for choice in (True, False)] == [True, False]


@pytest.mark.parametrize("where", [{}, {"vectorization": "native"}])
@pytest.mark.parametrize(("argument", "value"), [("frameskip", 8), ("obs_type", "rgb")])
def test_argument_of_the_preprocessing_is_refused(argument: str, value: Any, where: dict[str, Any]) -> None:
    with pytest.raises(ZooError, match=rf"env\.kwargs\.{argument}={value}"):
        make_vec_env("ALE/Pong-v5", 1, kwargs={argument: value}, **where)


@pytest.mark.parametrize("where", [{}, {"vectorization": "native"}])
@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({"kwargs": {"max_num_frames_per_episode": 160}}, True),
        ({"max_episode_steps": 40}, True),
        ({"max_episode_steps": None}, False),
    ],
)
def test_time_limit_of_a_game(options: dict[str, Any], ends: bool, where: dict[str, Any]) -> None:
    steps, _ = played(make_vec_env("ALE/Pong-v5", 1, **options, **where), 60)
    assert any(step.truncated[0] for step in steps) == ends


def test_worker_processes_play_the_same_games() -> None:
    for env in (BREAKOUT, "ALE/Pong-v5"):
        here, _ = played(make_vec_env(env, 3), 60)
        options = {"vectorization": "workers", "n_workers": 2, "start_method": "fork"}
        there, stepper = played(make_vec_env(env, 3, **options), 60)
        stepper.close()
        for one, other in zip(here, there, strict=True):
            assert np.array_equal(one.new_observations, other.new_observations)
            assert np.array_equal(one.rewards, other.rewards)
            assert np.array_equal(one.terminated, other.terminated)


class Written(gym.Env[Any, Any]):
    """A game whose lives are written down, step by step."""

    observation_space, action_space = gym.spaces.Box(0, 255, (1,), np.uint8), gym.spaces.Discrete(3)

    def __init__(self, lives: list[int]) -> None:
        self.ale, self._lives, self._n = self, lives, 0

    def lives(self) -> int:
        return self._lives[self._n]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._n = 0
        return np.zeros(1, np.uint8), {}

    def step(self, action: Any) -> Any:
        self._n += 1
        return np.zeros(1, np.uint8), 0.0, False, False, {}


def test_last_life_ends_an_episode_only_with_the_game() -> None:
    """Some games show no life for a while before they are over."""
    game = LifeLoss(Written([3, 3, 2, 2, 1, 0, 0]))
    game.reset()
    assert [game.step(0)[2] for _ in range(6)] == [False, True, False, True, False, False]


VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
SPACES = [
    VECTOR,
    spaces.Box(np.array([-1.0, -np.inf]), np.array([np.inf, 2.0]), dtype=np.float64),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64),
    spaces.Box(-0.1, 0.3, (), np.float32),
    spaces.Discrete(3),
    spaces.Discrete(3, start=-2),
    spaces.MultiDiscrete([2, 5], start=[1, 0]),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 3]),
    spaces.Tuple((spaces.Discrete(3, start=1), spaces.Tuple((spaces.MultiBinary(2),)))),
    spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Dict({"c": spaces.Box(-1, 1, (2,))})}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_space_survives_json(space: Any) -> None:
    text = json.dumps(space_to_dict(space), allow_nan=False)
    again = space_from_dict(json.loads(text))
    assert again == space
    assert spaces_differ(space, again) is None


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Sequence(spaces.Discrete(2))])
def test_unsupported_space_is_refused(space: Any) -> None:
    with pytest.raises(ZooError, match="not supported"):
        space_to_dict(space)


@pytest.mark.parametrize(
    ("a", "b", "difference"),
    [
        (spaces.Discrete(2), spaces.Discrete(2, start=1), "Discrete(2) is not Discrete(2, start=1)"),
        (spaces.Box(0, 1, (2,)), spaces.Box(0, 1, (3,)), "Box(2,) float32 is not Box(3,) float32"),
        (spaces.Box(0, 1, (2,)), spaces.Box(0, 2, (2,)), "high[0] 1.0 is not 2.0"),
        (spaces.Box(-1, 1, ()), spaces.Box(-2, 1, ()), "low -1.0 is not -2.0"),
        (spaces.Box(0, 1, (2, 2)), spaces.Box(0, np.array([[1, 9], [1, 1]])), "high[0, 1] 1.0 is not 9.0"),
        (spaces.Box(0, 9e5, (1,)), spaces.Box(0, 9.001e5, (1,)), "high[0] 900000.0 is not 900100.0"),
        (spaces.Box(0, 1, (2,)), spaces.MultiBinary(2), "Box(2,) float32 is not MultiBinary(2)"),
        (spaces.Dict({"a": VECTOR}), spaces.Dict({"b": VECTOR}), "keys ['a'] are not ['b']"),
        (
            spaces.Dict({"a": spaces.Discrete(2)}),
            spaces.Dict({"a": spaces.Discrete(4)}),
            "a: Discrete(2) is not Discrete(4)",
        ),
        (
            spaces.Tuple((VECTOR, spaces.MultiBinary(2))),
            spaces.Tuple((VECTOR, spaces.MultiBinary(3))),
            "part 1: MultiBinary(2) is not MultiBinary(3)",
        ),
    ],
)
def test_difference_of_two_spaces_is_named(a: Any, b: Any, difference: str) -> None:
    assert spaces_differ(a, b) == difference


def test_choices_of_an_action_are_those_of_its_parts() -> None:
    parts = [spaces.MultiDiscrete([[2, 5], [3, 4]]), spaces.Box(-1, 1, (2,)), spaces.MultiBinary((1, 2))]
    space = spaces.Dict({"z": spaces.Discrete(3, start=4), "a": spaces.Tuple(parts)})
    assert choice_sizes(space) == [2, 5, 3, 4, 2, 2, 3]
    assert mask_size(space) == 21
    assert choice_sizes(parts[1]) == []
    assert mask_size(parts[1]) is None


def test_spaces_need_parts_with_distinct_names() -> None:
    observed, box = spaces.Discrete(2), spaces.Box(-1, 1, (2,))
    for space in (spaces.Dict({"a/0": box, "a": spaces.Tuple((box,))}), spaces.Tuple(()), spaces.Dict({})):
        with pytest.raises(ZooError, match="need parts, at least one, whose names joined by / differ"):
            check_supported(observed, space)


class Unsorted(gym.Env[Any, Any]):
    """Shows two numbers under keys that are not in alphabetical order."""

    observation_space = spaces.Dict(
        z=spaces.Box(-1.0, 1.0, (1,), np.float32), a=spaces.Box(-1.0, 1.0, (1,), np.float32)
    )
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return {"z": np.array([0.9], np.float32), "a": np.array([-0.9], np.float32)}, {}

    def step(self, action: Any) -> Any:
        return *self.reset()[:1], 0.0, False, True, {}


def test_agent_acts_after_loading_as_before(tmp_path: Path) -> None:
    model = zoo.SAC({"name": "MultiInputPolicy", "net_arch": [8]}, Unsorted(), seed=0, compile=False)
    model.save(tmp_path / "agent")
    seen = {"z": np.array([[0.9], [0.1]], np.float32), "a": np.array([[-0.9], [0.7]], np.float32)}
    before, _ = model.predict(seen, deterministic=True)
    after, _ = zoo.load(tmp_path / "agent").predict(seen, deterministic=True)
    assert np.array_equal(before, after)
    assert abs(float(before[0, 0] - before[1, 0])) > 1e-4
