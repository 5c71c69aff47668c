"""An image on its way into a film: its size, and what is written into it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from zoo.envs.video import Canvas, Film, Filmed, parse_size, rgb_image
from zoo.errors import ZooError


def image(height: int = 400, width: int = 600) -> np.ndarray:
    return np.full((height, width, 3), 128, np.uint8)


def test_text_is_seen_in_the_corner_and_nowhere_else() -> None:
    drawn = Canvas().drawn(image(), "step 12   return 3.0")
    changed = (drawn != image()).any(axis=2)
    rows, columns = np.nonzero(changed)
    assert changed.any()
    assert rows.max() < 40
    assert columns.max() < 300
    assert drawn.max() == 255  # white letters
    other = Canvas().drawn(image(), "step 13   return 3.0")
    assert (drawn != other).any()


def test_small_image_is_enlarged_by_a_whole_number_where_a_text_is_to_be_read() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (84, 84, 3), np.uint8)
    drawn = Canvas().drawn(pixels, "step 1,000   return -12.0")
    assert drawn.shape == (336, 336, 3)
    assert np.array_equal(drawn[200:], pixels.repeat(4, axis=0).repeat(4, axis=1)[200:])  # below the text
    assert np.array_equal(Canvas(overlay=False).drawn(pixels, ""), pixels)


@pytest.mark.parametrize(
    ("text", "shape"), [("320x200", (200, 320)), ("200", (200, 300)), (100, (100, 150)), (None, (400, 600))]
)
def test_size_is_exact_or_a_height(text: Any, shape: tuple[int, int]) -> None:
    assert Canvas(parse_size(text)).drawn(image(), "step 1   return 0.0").shape[:2] == shape


@pytest.mark.parametrize("text", ["big", "640*480", "640x", "0x10", "641x480", "-4x4", "100000x2", 7])
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
        super().__init__([], 1, contextlib.ExitStack())
        self.images: list[int] = []

    def add(self, frame: np.ndarray) -> None:
        self.images.append(int(frame[0, 0, 0]) // 20)
        self.n_frames += 1


def test_episode_is_seen_from_its_reset_to_its_last_step_and_a_merely_begun_one_is_not() -> None:
    film = Kept()
    env = Filmed(Counting(), film)
    for _ in range(2):
        env.reset()
        for _ in range(3):
            env.step(0)
    env.reset()
    assert film.images == [0, 1, 2, 3, 0, 1, 2, 3]


def test_film_has_the_length_that_was_asked_for_at_most() -> None:
    film = Kept()
    env = Filmed(Counting(), film, length=3)
    env.reset()
    for _ in range(3):
        env.step(0)
    assert film.images == [0, 1, 2]
    assert env.is_complete


@pytest.mark.parametrize("rendered", [None, "text", [np.zeros((4, 4, 3))], np.zeros((4, 4))])
def test_what_is_no_image_is_named(rendered: Any) -> None:
    class Other(Counting):
        def render(self) -> Any:
            return rendered

    with pytest.raises(ZooError, match="can't film Other: it renders no images"):
        Filmed(Other(), Kept()).reset()


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize(
    ("white", "grey"),
    [
        (np.uint8(255), np.uint8(51)),
        (np.int64(255), np.int64(51)),
        (np.float32(1), np.float32(0.2)),
        (1.0, 0.2),
        (True, True),
    ],
)
def test_pictures_of_every_type_are_shown_as_bright_as_they_are_meant(
    white: Any, grey: Any, channels: int
) -> None:
    shown = rgb_image(np.array([[[white] * channels, [grey] * channels]]), "Mine-v0")
    assert shown.dtype == np.uint8
    assert shown.tolist() == [[[255] * 3, [255 if grey is True else 51] * 3]]


@pytest.mark.parametrize("value", [256, -1, 1.5, -0.5, np.nan, np.inf])
def test_numbers_that_are_no_brightness_are_refused(value: float) -> None:
    picture = np.zeros((4, 4, 3), np.asarray(value).dtype)
    picture[1, 2, 0] = value
    with pytest.raises(ZooError, match="Mine-v0") as caught:
        rgb_image(picture, "Mine-v0")
    assert "\n" not in str(caught.value)


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
