"""Videos of every kind of environment, and recordings of experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
from gymnasium import spaces

from zoo.algorithms.registry import algorithm_class
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError, ZooWarning
from zoo.experiment.evaluation import evaluate, reset_seeds
from zoo.experiment.expert_recording import record_expert
from zoo.experiment.recording import record
from zoo.imitation.expert_data import ExpertData


class Chance:
    """Acts at random."""

    def __init__(self, env: EnvConfig) -> None:
        from zoo.envs.make_env import make_vec_env

        envs = make_vec_env(env, 1, check=False)
        self.space = envs.single_action_space
        envs.close()
        self.space.seed(0)

    def predict(self, observations: Any, state: Any = None, **options: Any) -> tuple[Any, Any]:
        return np.array([self.space.sample()]), state


def decoded(video: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the images of a video and what it says of itself."""
    reader = imageio_ffmpeg.read_frames(str(video))
    facts = next(reader)
    width, height = facts["size"]
    images = [np.frombuffer(image, np.uint8).reshape(height, width, 3) for image in reader]
    return np.array(images), facts


KINDS = {
    "classic control": ("CartPole-v1", None, (600, 400), 50),
    "toy text": ("FrozenLake-v1", None, (256, 256), 4),
    "Box2D": ("LunarLander-v3", "Box2D", (600, 400), 50),
    "Box2D, renewed": ("BipedalWalker-v3", "Box2D", (600, 400), 50),
    "MuJoCo": ("Hopper-v5", "mujoco", (480, 480), 125),
    "PyBullet": ("HopperBulletEnv-v0", "pybullet_envs_gymnasium", (320, 240), 60),
    "Atari": ("ALE/Pong-v5", "ale_py", (160, 210), 30),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind == "MuJoCo" else []) for kind in KINDS]
)
def test_every_kind_of_environment_is_filmed(kind: str, tmp_path: Path) -> None:
    env_id, package, size, rate = KINDS[kind]
    if package is not None:
        pytest.importorskip(package)
    env = EnvConfig(id=env_id)
    n_frames = record(Chance(env), env, [tmp_path / "film.mp4"], length=4, seed=1)
    assert n_frames == 4
    images, facts = decoded(tmp_path / "film.mp4")
    assert (len(images), facts["size"], facts["fps"]) == (4, size, rate)
    assert all(image.std() > 1 for image in images), "an image is blank"


def test_film_ends_at_length_or_n_episodes(tmp_path: Path) -> None:
    env = EnvConfig(id="CartPole-v1", max_episode_steps=5)
    episodes: list[int] = []
    long = record(Chance(env), env, [tmp_path / "a.mp4"], length=20, seed=1)
    two_episodes = {"n_episodes": 2, "on_episode": lambda each: episodes.append(each.length)}
    two = record(Chance(env), env, [tmp_path / "b.mp4"], seed=1, **two_episodes)
    whichever = record(Chance(env), env, [tmp_path / "c.mp4"], n_episodes=9, length=3, seed=1)
    assert (long, two, whichever) == (20, 12, 3)
    assert episodes == [5, 5]


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
def test_first_episodes_are_not_the_shortest(mode: gym.vector.AutoresetMode) -> None:
    """The first of each environment come first, however long they take."""
    envs = gym.vector.SyncVectorEnv([Countdown] * 3, autoreset_mode=mode)
    data = record_expert(by_parity, envs, 12, seed=0)
    envs.close()
    assert_is_countdown(data)  # without the steps that merely reset
    alone = []
    for index in range(3):
        env = Countdown()
        env.reset(seed=reset_seeds(0, 3)[index])
        lengths = [env.first]
        for _ in range(3):
            env.reset()
            lengths.append(env.first)
        alone.append(lengths)
    expected = [lengths[turn] for turn in range(4) for lengths in alone]
    assert data.lengths.tolist() == expected
    assert expected[:3] != sorted(expected)[:3]


@pytest.mark.parametrize("vectorization", ["sync", "workers"])
def test_demonstrations_store_wrapped_rewards(vectorization: str) -> None:
    halved = {"_target_": "gymnasium.wrappers.ClipReward", "max_reward": 0.5}
    where = {"vectorization": vectorization, "start_method": "fork"}
    config = EnvConfig("CartPole-v1", wrappers=[halved], max_episode_steps=8, **where)

    def swing(observation: Any) -> int:
        return int(observation[2] + observation[3] > 0)

    data = record_expert(swing, config, 3, n_envs=2, seed=0, min_return=4)
    assert data.returns.tolist() == [4.0, 4.0, 4.0]
    assert data.rewards.tolist() == [0.5] * 24
    with pytest.raises(ZooError, match=r"min_return=5 leaves nothing of .* of 4"):
        record_expert(swing, config, 2, seed=0, min_return=5)


def test_only_good_episodes_are_kept() -> None:
    told: list[bool] = []
    options = {"successes_only": True, "on_episode": lambda _, kept: told.append(kept)}
    data = record_expert(by_parity, Countdown, 5, n_envs=2, seed=0, **options)
    assert (data.lengths % 2 == 1).all()
    assert data.n_episodes == told.count(True) == 5
    assert told.count(False) == data.card["n_played"] - 5 > 0
    data = record_expert(by_parity, Countdown, 5, n_envs=2, seed=0, min_return=14)
    assert data.returns.min() >= 14
    assert data.card["min_return"] == 14
    assert_is_countdown(data)


def test_expert_without_kept_episodes_is_refused() -> None:
    class Hopeless(Countdown):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], {"is_success": False})

    with pytest.raises(ZooError, match="successes_only leaves nothing of 20 episodes"):
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

    with pytest.warns(ZooWarning, match="2 episodes were wanted; 1 of 20 are good enough"):
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


@pytest.mark.parametrize("action", [0.99, 2, -1, float("nan"), "left", None])
def test_what_is_no_action_is_refused(action: Any) -> None:
    with pytest.raises(ZooError, match="expert"):
        record_expert(lambda _: action, "CartPole-v1", 1, seed=0)
