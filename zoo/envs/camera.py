"""An environment before a camera: drawn after every reset and step, with or without a display.

Images are brought to the size that was asked for, and say in their corner how far the episode is.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import os
import sys
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from zoo.envs.filming import Film
from zoo.envs.wrappers import EpisodeStatistics, episode_so_far, statistics_of
from zoo.errors import ZooError, install_command
from zoo.files.printing import decimal

if TYPE_CHECKING:
    from PIL import Image

READABLE = 320, 240
"""Width and height below which an image is enlarged where a text is written into it."""

_LARGEST_SIDE = 8192


class Canvas:
    """Brings images to one size and writes into them.

    ``size`` is (width, height) in pixels, a None among them whatever keeps the proportions. Where there is
    none, images stay as they are, unless a text is to be read in them: then small ones are enlarged.
    """

    def __init__(self, size: tuple[int | None, int] | None = None, *, overlay: bool = True) -> None:
        if (overlay or size is not None) and importlib.util.find_spec("PIL") is None:
            raise ZooError(f"drawing on images needs: {install_command('video')} (or overlay=false)")
        self.size, self.overlay = size, overlay

    def drawn(self, image: NDArray[np.uint8], text: str) -> NDArray[np.uint8]:
        """Return an image, (height, width, 3), in its size, with the text in its corner."""
        width, height = self._size(image.shape[1], image.shape[0])
        if not self.overlay and (height, width) == image.shape[:2]:
            return image
        from PIL import Image

        picture = Image.fromarray(image)
        if picture.size != (width, height):
            enlarged = width % picture.width == 0 and height % picture.height == 0
            how = Image.Resampling.NEAREST if enlarged else Image.Resampling.LANCZOS
            picture = picture.resize((width, height), how)
        if self.overlay:
            _write(picture, text)
        return np.asarray(picture)

    def _size(self, width: int, height: int) -> tuple[int, int]:
        if self.size is None:
            times = math.ceil(max(READABLE[0] / width, READABLE[1] / height)) if self.overlay else 1
            return width * times, height * times
        wanted_width, wanted_height = self.size
        return wanted_width or 2 * round(width * wanted_height / height / 2), wanted_height


def parse_size(text: str | int | None) -> tuple[int | None, int] | None:
    """Return the size that ``640x480``, or a height alone, stands for. Raises `ZooError` for anything else.

    Sides are even, because that is what videos have.
    """
    if text is None:
        return None
    width, cross, height = str(text).lower().partition("x")
    sides = [width, height] if cross else [width]
    if not all(side.isascii() and side.isdigit() for side in sides):
        raise ZooError(
            f"`size={text}` is no size; expected WIDTHxHEIGHT in pixels such as 640x480, or a height"
        )
    numbers = [int(side) for side in sides]
    if any(number % 2 or not 16 <= number <= _LARGEST_SIDE for number in numbers):
        raise ZooError(f"`size={text}`: the sides of a video are even, from 16 to {_LARGEST_SIDE:,} pixels")
    return (numbers[0], numbers[1]) if cross else (None, numbers[0])


def rgb_image(rendered: Any, name: str) -> NDArray[np.uint8]:
    """Return what an environment rendered as bytes, (height, width, 3); transparency is left out.

    Whole numbers are from 0 to 255, floats from 0 to 1. Raises `ZooError` for anything else.
    """
    if not isinstance(rendered, np.ndarray) or rendered.ndim != 3 or rendered.shape[2] not in (3, 4):
        raise ZooError(f"can't film {name}: it renders no images (render_mode='rgb_array')")
    image = rendered[:, :, :3]
    if image.dtype == np.uint8:
        return image
    white = 255 if np.issubdtype(image.dtype, np.integer) else 1
    low, high = image.min(), image.max()
    if not 0 <= low <= high <= white:
        raise ZooError(
            f"can't film {name}: render() gave {image.dtype} from {low:g} to {high:g};"
            " expected uint8 (0 to 255), or floats from 0 to 1"
        )
    return np.rint(image * (255.0 / white)).astype(np.uint8)


class Filmed(gym.Wrapper[Any, Any, Any, Any]):
    """Adds an image of the environment to a film after every reset and step, ``length`` of them at most.

    An episode that is only begun, because the one before has ended, is seen from its first step on.
    """

    def __init__(
        self, env: gym.Env[Any, Any], film: Film, canvas: Canvas | None = None, length: int | None = None
    ) -> None:
        super().__init__(env if statistics_of(env) else EpisodeStatistics(env))
        self.film, self.length = film, length
        self.canvas = Canvas(overlay=False) if canvas is None else canvas
        self._waiting: NDArray[np.uint8] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the film has its length."""
        return self.length is not None and self.film.n_frames >= self.length

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Reset and film."""
        result = self.env.reset(**options)
        if not self.is_complete:
            self._waiting = self._image()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and film."""
        if self._waiting is not None:
            self._add(self._waiting)
            self._waiting = None
        result = self.env.step(action)
        if not self.is_complete:
            self._add(self._image())
        return result

    def _image(self) -> NDArray[np.uint8]:
        name = self.env.spec.id if self.env.spec is not None else type(self.env.unwrapped).__name__
        return self.canvas.drawn(rgb_image(self.env.render(), name), self._text())

    def _add(self, image: NDArray[np.uint8]) -> None:
        if not self.is_complete:
            self.film.add(image)

    def _text(self) -> str:
        statistics = statistics_of(self.env)
        assert statistics is not None
        episode_return, n_steps = episode_so_far(statistics)
        return f"step {n_steps:,}   return {decimal(episode_return)}"


def has_display() -> bool:
    """Tell whether a window can be opened here."""
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def render_offscreen() -> None:
    """Let environments draw without a display: MuJoCo by EGL or by OSMesa, as its own choice needs one."""
    if has_display():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if "MUJOCO_GL" not in os.environ:
        os.environ["MUJOCO_GL"] = "osmesa" if not _has_egl() and _loads("libOSMesa.so") else "egl"


@functools.cache
def _has_egl() -> bool:
    """Tell whether EGL finds something here that it can draw with."""
    for name in ("libEGL.so.1", "libEGL.so"):
        try:
            egl = ctypes.CDLL(name)
        except OSError:
            continue
        egl.eglGetProcAddress.restype = ctypes.c_void_p
        query = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
        if not query:
            return False
        count = ctypes.c_int(0)
        devices = (ctypes.c_void_p * 16)()
        found = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(query)(
            len(devices), ctypes.cast(devices, ctypes.c_void_p), ctypes.addressof(count)
        )
        return bool(found) and count.value > 0
    return False


def _loads(library: str) -> bool:
    for name in (library, f"{library}.8", f"{library}.6"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


def _write(picture: Image.Image, text: str) -> None:
    """Write white on a darkened strip at the top: it can be read on any image."""
    from PIL import Image, ImageDraw

    font, (left, top, right, bottom) = _fitting(text, picture.width, max(11, picture.height // 24))
    margin = max(2, (bottom - top) // 3)
    box = (0, 0, min(picture.width, right - left + 4 * margin), bottom - top + 2 * margin)
    picture.paste(Image.blend(picture.crop(box), Image.new("RGB", box[2:], "black"), 0.65), box)
    ImageDraw.Draw(picture).text((2 * margin - left, margin - top), text, "white", font)


def _fitting(text: str, width: int, size: int) -> tuple[Any, tuple[int, int, int, int]]:
    """Return a font in which the text fits, no larger than ``size``, and the text's box."""
    while True:
        font = _font(size)
        left, top, right, bottom = map(round, font.getbbox(text))
        if size <= 8 or right - left + size <= width:
            return font, (left, top, right, bottom)
        size -= 1


@functools.cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)
