"""Frames become a film that is whole, or an error that says why not; an environment is seen on it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

from zoo.envs.make_env import make_vec_env
from zoo.envs.video import Film, RecordFrames, filming, make_small_gif, parse_size, to_rgb
from zoo.errors import ZooError


def frames(n: int, height: int = 210, width: int = 160) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, height, width, 3), dtype=np.uint8)


def facts(video: Path) -> tuple[int, float, tuple[int, int]]:
    """Return number of frames, frames per second and size."""
    meta = next(imageio_ffmpeg.read_frames(str(video)))
    return imageio_ffmpeg.count_frames_and_secs(str(video))[0], meta["fps"], meta["size"]


def test_every_frame_is_in_the_film(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "film.mp4"
    with filming(path, 25) as film:
        for frame in frames(40):
            film.add(frame)
        assert not path.exists()
    assert facts(path) == (40, 25.0, (160, 210))
    assert [file.name for file in path.parent.iterdir()] == ["film.mp4"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_error_leaves_no_film_and_keeps_an_older_one(tmp_path: Path, error: type[BaseException]) -> None:
    names = ["film.mp4", "film.gif"]

    def play() -> None:
        with filming([tmp_path / name for name in names], 10) as film:
            for frame in frames(4, 48, 64):
                film.add(frame)
            raise error("the environment broke")

    with pytest.raises(error):
        play()
    assert not list(tmp_path.iterdir())
    (tmp_path / names[0]).write_text("older")
    with pytest.raises(error):
        play()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(names[0], "older")]


def test_full_disk_is_told_and_leaves_no_half_film(tmp_path: Path, no_larger_files: Any) -> None:
    def record() -> None:
        with filming(tmp_path / "film.mp4", 10) as film:
            for frame in frames(50):
                film.add(frame)

    with no_larger_files(50_000), pytest.raises(ZooError, match=r"can't write .*film\.mp4: ffmpeg"):
        record()
    assert not list(tmp_path.iterdir())


def test_gif_has_every_frame_and_keeps_the_pace(tmp_path: Path) -> None:
    with filming([tmp_path / "film.mp4", tmp_path / "film.gif"], 30) as film:
        for frame in frames(12, 48, 64):
            film.add(frame)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["film.gif", "film.mp4"]
    assert facts(tmp_path / "film.mp4") == (12, 30, (64, 48))
    n_images, size, milliseconds = gif_facts(tmp_path / "film.gif")
    assert (n_images, size) == (12, (64, 48))
    assert milliseconds == pytest.approx(12 * 1000 / 30, abs=20)


def test_small_gif_keeps_length_and_limits_size(tmp_path: Path) -> None:
    with filming(tmp_path / "film.mp4", 30) as film:
        for frame in np.repeat(frames(3, 90, 400), 10, axis=0):
            film.add(frame)
    (tmp_path / "small.gif").write_bytes(make_small_gif(tmp_path / "film.mp4"))
    n_images, size, milliseconds = gif_facts(tmp_path / "small.gif")
    assert (n_images, size) == (15, (320, 72))
    assert milliseconds == pytest.approx(1000, abs=70)
    (tmp_path / "broken.mp4").write_text("no video")
    with pytest.raises(ZooError, match=r"broken\.mp4"):
        make_small_gif(tmp_path / "broken.mp4")


def gif_facts(gif: Path) -> tuple[int, tuple[int, int], float]:
    """Return number of images, size, and for how many milliseconds all are shown together."""
    with Image.open(gif) as image:
        durations = []
        for n in range(image.n_frames):
            image.seek(n)
            durations.append(image.info["duration"])
        return image.n_frames, image.size, sum(durations)


@pytest.mark.parametrize(("text", "size"), [("320x200", (320, 200)), ("200", (300, 200)), (None, (600, 400))])
def test_size_is_exact_or_a_height(tmp_path: Path, text: Any, size: tuple[int, int]) -> None:
    with filming(tmp_path / "film.mp4", 10, parse_size(text)) as film:
        film.add(frames(1, 400, 600)[0])
    assert facts(tmp_path / "film.mp4")[2] == size


@pytest.mark.parametrize("text", ["big", "640x", "641x480", "100000x2"])
def test_wrong_size_is_one_message(text: Any) -> None:
    with pytest.raises(ZooError, match="`size="):
        parse_size(text)


class Counting(gym.Env[Any, Any]):
    """Shows its own steps as brightness."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)
    steps = 0

    def reset(self, **options: Any) -> tuple[int, dict[str, Any]]:
        self.steps = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return 0, 1.0, self.steps == 3, False, {}

    def render(self) -> Any:
        return np.full((32, 32, 3), 20 * self.steps, np.uint8)


class Kept(Film):
    """Keeps images instead of writing them."""

    def __init__(self) -> None:
        super().__init__([], 1, None, contextlib.ExitStack())
        self.images: list[int] = []

    def add(self, frame: np.ndarray) -> None:
        self.images.append(int(frame[0, 0, 0]) // 20)
        self.n_frames += 1


def test_film_shows_only_whole_episodes() -> None:
    film = Kept()
    env = RecordFrames(Counting(), film)
    for _ in range(2):
        env.reset()
        for _ in range(3):
            env.step(0)
    env.reset()
    assert film.images == [0, 1, 2, 3, 0, 1, 2, 3]


def test_film_stops_at_the_requested_length() -> None:
    film = Kept()
    env = RecordFrames(Counting(), film, length=3)
    env.reset()
    for _ in range(3):
        env.step(0)
    assert film.images == [0, 1, 2]
    assert env.is_complete


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize(("white", "grey"), [(np.uint8(255), np.uint8(51)), (1.0, 0.2)])
def test_to_rgb_keeps_brightness_for_every_dtype(white: Any, grey: Any, channels: int) -> None:
    shown = to_rgb(np.array([[[white] * channels, [grey] * channels]]), "Mine-v0")
    assert shown.dtype == np.uint8
    assert shown.tolist() == [[[255] * 3, [51] * 3]]


@pytest.mark.parametrize("value", [256, -0.5, np.nan])
def test_numbers_that_are_no_brightness_are_refused(value: float) -> None:
    picture = np.zeros((4, 4, 3), np.asarray(value).dtype)
    picture[1, 2, 0] = value
    with pytest.raises(ZooError, match="Mine-v0") as caught:
        to_rgb(picture, "Mine-v0")
    assert "\n" not in str(caught.value)


def test_highway_env_renders_without_a_display() -> None:
    """highway-env draws nothing where SDL is told to be its dummy."""
    pytest.importorskip("highway_env")
    code = """
from zoo import make_vec_env
from zoo.envs.video import render_offscreen
render_offscreen()
envs = make_vec_env("parking-v0", 1, render_mode="rgb_array", check=False)
envs.reset(seed=0)
print(envs.render()[0].max())
"""
    no_display = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=no_display)
    assert int(done.stdout.split()[-1]) > 100


def test_the_camera_goes_along_with_robots_of_mujoco() -> None:
    pytest.importorskip("mujoco")

    def camera(**options: Any) -> int:
        env: Any = make_vec_env("HalfCheetah-v5", 1, render_mode="rgb_array", **options).envs[0]
        return env.unwrapped.mujoco_renderer.camera_id

    assert camera() == 0  # the model's own, which follows its body
    assert camera(kwargs={"camera_id": -1}) == -1


def test_egl_is_chosen_only_where_there_is_no_display() -> None:
    code = """
import os
from zoo.envs.video import render_offscreen
render_offscreen()
print(os.environ.get("MUJOCO_GL"))
"""

    def chosen(**variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=variables
        )
        return done.stdout.strip()

    path = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    assert chosen(**path) == "egl"
    assert chosen(**path, DISPLAY=":0") == "None"
    assert chosen(**path, MUJOCO_GL="glfw") == "glfw"
