"""Atari games: preprocessing as SB3 does it, records of whole games."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import zoo
from zoo.envs import VecEnvAdapter, make_vec_env
from zoo.envs.atari import LifeLoss
from zoo.errors import ZooError

pytest.importorskip("ale_py")
pytest.importorskip("cv2")

BREAKOUT = "BreakoutNoFrameskip-v4"


def played(env: Any, n_steps: int) -> tuple[list[Any], VecEnvAdapter]:
    stepper = VecEnvAdapter(env)
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


def test_a_seed_starts_a_new_game_even_after_a_lost_life() -> None:
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


def test_time_limit_counts_steps_and_not_frames() -> None:
    options = {"max_episode_steps": 30, "atari": {"fire_on_reset": False}}
    steps, _ = played(make_vec_env("ALE/Pong-v5", 1, **options), 60)
    assert [i for i, step in enumerate(steps) if step.truncated[0]] == [29, 59]


@pytest.mark.parametrize(
    ("env", "repeat_probability"),
    [
        ("ALE/Breakout-v5", 0.25),
        ("ale_py:ALE/Breakout-v5", 0.25),
        ("Breakout-v4", 0.0),
        ("Breakout-v0", 0.25),
        ("ale_py:Breakout-v4", 0.0),
        ("ale_py:BreakoutNoFrameskip-v4", 0.0),
    ],
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


@pytest.mark.parametrize("where", [{}, {"vectorization": "native"}])
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kwargs": {"frameskip": 8}}, r"env\.kwargs\.frameskip=8.*env\.atari\.frame_skip"),
        ({"kwargs": {"obs_type": "rgb"}}, r"env\.kwargs\.obs_type=rgb"),
        (
            {"kwargs": {"repeat_action_probability": 0.1}, "atari": {"action_repeat_probability": 0.5}},
            r"env\.kwargs\.repeat_action_probability=0.1",
        ),
    ],
)
def test_argument_that_the_preprocessing_decides_is_refused_by_name(
    options: dict[str, Any], named: str, where: dict[str, Any]
) -> None:
    with pytest.raises(ZooError, match=named):
        make_vec_env("ALE/Pong-v5", 1, **options, **where)


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
