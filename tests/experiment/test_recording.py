"""Whatever can be drawn is filmed: as many images as were asked for, of the right size, at the right pace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
from gymnasium import spaces

from zoo.envs.config import EnvConfig
from zoo.experiment.recording import VideoStyle, record


class Chance:
    """Acts at random."""

    def __init__(self, env: EnvConfig) -> None:
        from zoo.envs.vec_env import make_vec_env

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
    "toy text": ("FrozenLake-v1", None, (512, 512), 4),
    "Box2D": ("LunarLander-v3", "Box2D", (600, 400), 50),
    "Box2D, renewed": ("BipedalWalker-v3", "Box2D", (600, 400), 50),
    "MuJoCo": ("Hopper-v5", "mujoco", (480, 480), 125),
    "PyBullet": ("HopperBulletEnv-v0", "pybullet_envs_gymnasium", (320, 240), 60),
    "Atari": ("ALE/Pong-v5", "ale_py", (320, 420), 30),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind == "MuJoCo" else []) for kind in KINDS]
)
def test_every_kind_of_environment_is_filmed(kind: str, tmp_path: Path) -> None:
    env_id, package, size, rate = KINDS[kind]
    if package is not None:
        pytest.importorskip(package)
    env = EnvConfig(id=env_id)
    done = record(Chance(env), env, [tmp_path / "film.mp4"], length=4, seed=1)
    assert done.n_frames == 4
    images, facts = decoded(tmp_path / "film.mp4")
    assert (len(images), facts["size"], facts["fps"]) == (4, size, rate)
    assert all(image.std() > 1 for image in images), "an image is blank"


def test_size_pace_and_format_are_as_asked(tmp_path: Path) -> None:
    env = EnvConfig(id="CartPole-v1")
    paths = [tmp_path / "film.mp4", tmp_path / "film.gif"]
    done = record(
        Chance(env), env, paths, VideoStyle(size=(320, 200), frames_per_second=25), length=30, seed=1
    )
    assert done.paths == paths
    images, facts = decoded(tmp_path / "film.mp4")
    assert (len(images), facts["size"], facts["fps"]) == (30, (320, 200), 25)


def test_step_and_return_are_seen_in_the_film(tmp_path: Path) -> None:
    env = EnvConfig(id="CartPole-v1")
    films = []
    for name, overlay in (("with.mp4", True), ("without.mp4", False)):
        record(Chance(env), env, [tmp_path / name], VideoStyle(overlay=overlay), length=5, seed=1)
        films.append(decoded(tmp_path / name)[0].astype(int))
    difference = np.abs(films[0] - films[1]).mean(axis=(0, 3))
    assert difference[:20, :120].mean() > 50
    assert difference[100:].mean() < 1


def test_length_goes_over_episodes_and_episodes_end_a_film(tmp_path: Path) -> None:
    env = EnvConfig(id="CartPole-v1", max_episode_steps=5)
    episodes: list[int] = []
    long = record(Chance(env), env, [tmp_path / "a.mp4"], length=20, seed=1)
    two = record(
        *(Chance(env), env, [tmp_path / "b.mp4"]),
        n_episodes=2,
        seed=1,
        on_episode=lambda each: episodes.append(each.length),
    )
    whichever = record(Chance(env), env, [tmp_path / "c.mp4"], n_episodes=9, length=3, seed=1)
    assert (long.n_frames, two.n_frames, whichever.n_frames) == (20, 12, 3)
    assert episodes == [5, 5]


class Painted(gym.Env[Any, Any]):
    """Shows a picture whose left half is black and whose right half is white, until it breaks."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def __init__(
        self, white: Any = 1.0, breaks_at: int | None = None, render_mode: str | None = None
    ) -> None:
        self.white, self.breaks_at, self.render_mode = white, breaks_at, render_mode
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return 0, 1.0, False, self.steps == 6, {}

    def render(self) -> Any:
        if self.steps == self.breaks_at:
            raise ValueError("the picture tore")
        picture = np.zeros((64, 64, 3), np.asarray(self.white).dtype)
        picture[:, 32:] = self.white
        return picture


gym.register("Painted-v0", Painted)


@pytest.mark.parametrize("white", [np.uint8(255), np.float32(1), True])
def test_film_is_as_bright_as_the_pictures_are_meant(tmp_path: Path, white: Any) -> None:
    env = EnvConfig(id="Painted-v0", kwargs={"white": white})
    record(Chance(env), env, [tmp_path / "film.mp4"], VideoStyle(overlay=False))
    images, _ = decoded(tmp_path / "film.mp4")
    assert len(images) == 7
    assert images[:, :, :28].max() < 10
    assert images[:, :, 36:].min() > 245
