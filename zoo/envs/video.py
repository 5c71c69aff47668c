"""Videos of environments: images after every reset and step are written to mp4 and GIF files.

They are written by moviepy, whole or not at all. Memory holds one image at a time; for a GIF, whose colours
are chosen from its first images, those.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import math
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from zoo.core.atomic import atomic_file
from zoo.core.printing import decimal
from zoo.envs.spaces import Env, Info
from zoo.envs.wrappers import EpisodeStatistics, episode_so_far, statistics_of
from zoo.errors import ZooError, install_command

FRAMES_PER_SECOND = 30
"""For environments without ``render_fps``."""

FASTEST_GIF = 50
"""Images a second, above which viewers slow a GIF down; images are left out there, and it keeps its pace."""

READABLE = 320, 240
"""Width and height below which an image is enlarged where a text is written into it."""

_LARGEST_SIDE = 8192

_PALETTE_IMAGES = 300
"""Images from which the 256 colours of a GIF are chosen; the encoder keeps them until they have come."""

_SMALL, _SMALL_RATE = 320, 15
"""Pixels in a row and images a second of a GIF that is to be shown beside others."""

# The codec asks for even sides; the index at the front lets a browser begin before it has everything.
_EVEN = "pad=ceil(iw/2)*2:ceil(ih/2)*2"
_MP4 = ["-vf", _EVEN, "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4"]
_GIF = f"split[all][some];[some]trim=end_frame={_PALETTE_IMAGES},palettegen[colours];[all][colours]paletteuse"


class Film:
    """Files, by their endings mp4 or GIF, that grow image by image; see `filming`."""

    def __init__(self, paths: Sequence[Path], frames_per_second: float, files: contextlib.ExitStack) -> None:
        self.paths = list(paths)
        self.n_frames = 0
        self._rate = frames_per_second
        self._files = files
        self._shape: tuple[int, ...] = ()
        self._encoders: list[Any] = []

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Append an image, (height, width, 3). Raises `ZooError` if it can't be written."""
        if not self._encoders:
            self._start(frame.shape)
        if frame.shape != self._shape:
            raise ZooError(f"can't film: the image's shape changed from {self._shape} to {frame.shape}")
        for path, encoder in zip(self.paths, self._encoders, strict=True):
            try:
                encoder.write_frame(frame)
            except OSError as error:
                problems = str(error).rpartition(":\n\n")[2].strip().splitlines() or ["it ended"]
                raise ZooError(f"can't write {path}: ffmpeg: {problems[-1]}") from error
        self.n_frames += 1

    def _start(self, shape: tuple[int, ...]) -> None:
        files = [self._files.enter_context(atomic_file(path)) for path in self.paths]
        self._encoders = [
            self._files.enter_context(_encoder(path, file.name, shape, self._rate))
            for path, file in zip(self.paths, files, strict=True)
        ]
        self._shape = shape


@contextlib.contextmanager
def filming(paths: Path | Sequence[Path], frames_per_second: float | None) -> Iterator[Film]:
    """Give a film whose files get their names when the block ends; after an error in it there are none.

    Raises `ZooError` at once if there is nothing here that writes videos.
    """
    ffmpeg()
    paths = [paths] if isinstance(paths, Path) else paths
    with contextlib.ExitStack() as files:
        yield Film(paths, frames_per_second or FRAMES_PER_SECOND, files)


def make_small_gif(video: Path) -> bytes:
    """Return a video as a small GIF, to be shown beside curves. Raises `ZooError` if it can't be made."""
    ffmpeg()
    from moviepy import VideoFileClip

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "small.gif")
        try:
            with VideoFileClip(str(video), audio=False) as whole, filming(path, _SMALL_RATE) as film:
                small = whole.resized(width=_SMALL) if whole.w > _SMALL else whole
                for frame in small.iter_frames(fps=_SMALL_RATE, dtype="uint8"):
                    film.add(frame)
        except OSError as error:
            raise ZooError(f"can't read {video}: {str(error).strip().splitlines()[0]}") from error
        return path.read_bytes()


def ffmpeg() -> str:
    """Return the program by which moviepy encodes. Raises `ZooError` with the command that installs it."""
    try:
        import moviepy.config
    except (ImportError, RuntimeError, OSError) as error:
        raise ZooError(f"writing a video needs: {install_command('video')}") from error
    program: str = moviepy.config.FFMPEG_BINARY
    return program


@contextlib.contextmanager
def _encoder(path: Path, file: str, shape: tuple[int, ...], rate: float) -> Iterator[Any]:
    """Give what writes images into ``file``, which becomes ``path``, and has finished when the block ends."""
    from moviepy.video.io.ffmpeg_writer import FFMPEG_VideoWriter

    if path.suffix == ".mp4":
        codec, parameters = "libx264", _MP4
    else:
        slower = f"fps={FASTEST_GIF}," if rate > FASTEST_GIF else ""
        codec, parameters = "gif", ["-vf", f"{slower}{_GIF}", "-f", "gif"]
    # A child inherits the mask: Ctrl-C ends the episodes, not the writing of the file.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        writer = FFMPEG_VideoWriter(
            file, shape[1::-1], rate, codec, preset="veryfast", ffmpeg_params=parameters
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    process = writer.proc
    try:
        yield writer
        writer.close()
    except BaseException:
        process.kill()
        with contextlib.suppress(OSError):
            writer.close()
        raise
    if process.returncode != 0:
        raise ZooError(f"can't write {path}: ffmpeg ended with status {process.returncode}")


class Canvas:
    """Brings images to one size and writes into them.

    ``size`` is (width, height) in pixels, a None among them whatever keeps the proportions. Where there is
    none, images stay as they are, unless a text is to be read in them: then small ones are enlarged.
    """

    def __init__(self, size: tuple[int | None, int] | None = None, *, overlay: bool = True) -> None:
        if (overlay or size is not None) and importlib.util.find_spec("PIL") is None:
            raise ZooError(f"drawing on images needs: {install_command('video')} (or overlay=false)")
        self.size, self.overlay = size, overlay

    def draw(self, image: NDArray[np.uint8], text: str) -> NDArray[np.uint8]:
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


def _write(picture: Any, text: str) -> None:
    """Write white on a darkened strip at the top: it can be read on any image."""
    from PIL import Image, ImageDraw

    size = max(11, picture.height // 24)
    left, top, right, bottom = map(round, _font(size).getbbox(text))
    while size > 8 and right - left + size > picture.width:
        size -= 1
        left, top, right, bottom = map(round, _font(size).getbbox(text))
    margin = max(2, (bottom - top) // 3)
    box = (0, 0, min(picture.width, right - left + 4 * margin), bottom - top + 2 * margin)
    picture.paste(Image.blend(picture.crop(box), Image.new("RGB", box[2:], "black"), 0.65), box)
    ImageDraw.Draw(picture).text((2 * margin - left, margin - top), text, "white", _font(size))


@functools.cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


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


def to_rgb(rendered: Any, name: str) -> NDArray[np.uint8]:
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


class RecordFrames(gym.Wrapper[Any, Any, Any, Any]):
    """Adds an image of the environment to a film after every reset and step, ``length`` of them at most.

    An episode that is only begun, because the one before has ended, is seen from its first step on.
    """

    def __init__(self, env: Env, film: Film, canvas: Canvas | None = None, length: int | None = None) -> None:
        super().__init__(env if statistics_of(env) else EpisodeStatistics(env))
        self.film, self.length = film, length
        self.canvas = Canvas(overlay=False) if canvas is None else canvas
        self._waiting: NDArray[np.uint8] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the film has its length."""
        return self.length is not None and self.film.n_frames >= self.length

    def reset(self, **options: Any) -> tuple[Any, Info]:
        """Reset and film."""
        result = self.env.reset(**options)
        if not self.is_complete:
            self._waiting = self._image()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        """Step and film."""
        if self._waiting is not None and not self.is_complete:
            self.film.add(self._waiting)
        self._waiting = None
        result = self.env.step(action)
        if not self.is_complete:
            self.film.add(self._image())
        return result

    def _image(self) -> NDArray[np.uint8]:
        name = self.env.spec.id if self.env.spec is not None else type(self.env.unwrapped).__name__
        statistics = statistics_of(self.env)
        assert statistics is not None
        episode_return, n_steps = episode_so_far(statistics)
        text = f"step {n_steps:,}   return {decimal(episode_return)}"
        return self.canvas.draw(to_rgb(self.env.render(), name), text)


def has_display() -> bool:
    """Tell whether a window can be opened here."""
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def render_offscreen() -> None:
    """Let environments draw without a display, MuJoCo by EGL unless ``MUJOCO_GL`` says otherwise."""
    if not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("MUJOCO_GL", "egl")
