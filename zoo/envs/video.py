"""Videos of environments: images after every reset and step are written to mp4 and GIF files.

They are written by moviepy, whole or not at all. Memory holds one image at a time; for a GIF, whose colours
are chosen from its first images, those.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from zoo.core.atomic import atomic_file
from zoo.envs.spaces import Env, Info
from zoo.errors import ZooError, install_command

FRAMES_PER_SECOND = 30
"""For environments without ``render_fps``."""

FASTEST_GIF = 50
"""Images a second, above which viewers slow a GIF down; images are left out there, and it keeps its pace."""

_LARGEST_SIDE = 8192

# The codec asks for even sides; the index at the front lets a browser begin before it has everything.
_EVEN = "pad=ceil(iw/2)*2:ceil(ih/2)*2"
_MP4 = ["-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4"]
# The encoder keeps the images from which the 256 colours are chosen until they have come.
_GIF = "split[all][some];[some]trim=end_frame=300,palettegen[colours];[all][colours]paletteuse"
_SMALL_GIF = f"fps=15,scale='min(320,iw)':-2:flags=lanczos,{_GIF}"

Size = tuple[int | None, int]
"""Width and height in pixels; a width of None keeps the proportions."""


@dataclass
class Film:
    """Files, by their endings mp4 or GIF, that grow image by image; see `filming`."""

    paths: Sequence[Path]
    rate: float
    size: Size | None
    files: contextlib.ExitStack
    n_frames: int = 0
    writers: list[Any] = field(default_factory=list)

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Append an image, (height, width, 3). Raises `ZooError` if it can't be written."""
        if not self.writers:
            for path in self.paths:
                file = self.files.enter_context(atomic_file(path))
                writer = _writer(path, file.name, frame.shape, self.rate, self.size)
                self.writers.append(self.files.enter_context(writer))
        for path, writer in zip(self.paths, self.writers, strict=True):
            try:
                writer.write_frame(frame)
            except OSError as error:
                problems = str(error).rpartition(":\n\n")[2].strip().splitlines() or ["it ended"]
                raise ZooError(f"can't write {path}: ffmpeg: {problems[-1]}") from error
        self.n_frames += 1


@contextlib.contextmanager
def filming(
    paths: Path | Sequence[Path], frames_per_second: float | None, size: Size | None = None
) -> Iterator[Film]:
    """Give a film whose files get their names when the block ends; after an error in it there are none."""
    ffmpeg()
    paths = [path.absolute() for path in ([paths] if isinstance(paths, Path) else paths)]
    with contextlib.ExitStack() as files:
        yield Film(paths, float(frames_per_second or FRAMES_PER_SECOND), size, files)


@contextlib.contextmanager
def _writer(path: Path, file: str, shape: tuple[int, ...], rate: float, size: Size | None) -> Iterator[Any]:
    """Give moviepy's writer of ``file``, which becomes ``path``; it has finished when the block ends."""
    from moviepy.video.io.ffmpeg_writer import FFMPEG_VideoWriter

    filters = [] if size is None else [f"scale={size[0] or -2}:{size[1]}:flags=lanczos"]
    if path.suffix == ".mp4":
        codec, parameters = "libx264", ["-vf", ",".join([*filters, _EVEN]), *_MP4]
    else:
        slower = [f"fps={FASTEST_GIF}"] if rate > FASTEST_GIF else []
        codec, parameters = "gif", ["-vf", ",".join([*slower, *filters, _GIF]), "-f", "gif"]
    # A child inherits the mask: Ctrl-C ends the episodes, not the writing of the file.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        options: dict[str, Any] = {"preset": "veryfast", "ffmpeg_params": parameters}
        writer = FFMPEG_VideoWriter(file, shape[1::-1], rate, codec, **options)
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


def make_small_gif(video: Path) -> bytes:
    """Return a video as a small GIF, to be shown beside curves. Raises `ZooError` if it can't be made."""
    command = [ffmpeg(), "-v", "error", "-i", str(video), "-vf", _SMALL_GIF, "-f", "gif", "-"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        problems = done.stderr.decode(errors="replace").strip().splitlines() or ["ffmpeg ended"]
        raise ZooError(f"can't read {video}: {problems[-1]}")
    return done.stdout


def ffmpeg() -> str:
    """Return the program by which moviepy encodes. Raises `ZooError` with the command that installs it."""
    try:
        import moviepy.config
    except (ImportError, RuntimeError, OSError) as error:
        raise ZooError(f"writing a video needs: {install_command('video')}") from error
    program: str = moviepy.config.FFMPEG_BINARY
    return program


def parse_size(text: str | int | None) -> Size | None:
    """Return the size that ``640x480``, or a height alone, stands for. Raises `ZooError`."""
    if text is None:
        return None
    sides = str(text).lower().split("x")
    if not all(side.isascii() and side.isdigit() for side in sides) or len(sides) > 2:
        raise ZooError(f"`size={text}` is no size; expected WIDTHxHEIGHT in pixels, or a height")
    numbers = [int(side) for side in sides]
    if any(number % 2 or not 16 <= number <= _LARGEST_SIDE for number in numbers):
        raise ZooError(f"`size={text}`: the sides of a video are even, from 16 to {_LARGEST_SIDE:,} pixels")
    return (numbers[0] if len(numbers) == 2 else None), numbers[-1]


def to_rgb(rendered: Any, name: str) -> NDArray[np.uint8]:
    """Return a rendered image as bytes, (height, width, 3). Raises `ZooError` for no image."""
    if not isinstance(rendered, np.ndarray) or rendered.ndim != 3 or rendered.shape[2] not in (3, 4):
        raise ZooError(f"can't film {name}: render_mode='rgb_array' gave no image: {type(rendered).__name__}")
    image = rendered[:, :, :3]
    if image.dtype == np.uint8:
        return image
    white = 255 if np.issubdtype(image.dtype, np.integer) else 1
    low, high = image.min(), image.max()
    if not 0 <= low <= high <= white:
        raise ZooError(
            f"can't film {name}: render() gave {image.dtype} from {low:g} to {high:g}; "
            "expected uint8 (0 to 255), or floats from 0 to 1"
        )
    return np.rint(image * (255.0 / white)).astype(np.uint8)


class RecordFrames(gym.Wrapper[Any, Any, Any, Any]):
    """Adds images of the environment, ``length`` at most, to a film; each episode from its first step on."""

    def __init__(self, env: Env, film: Film, length: int | None = None) -> None:
        super().__init__(env)
        self.film, self.length = film, length
        self._first_image: NDArray[np.uint8] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the film has its length."""
        return self.length is not None and self.film.n_frames >= self.length

    def reset(self, **options: Any) -> tuple[Any, Info]:
        result = self.env.reset(**options)
        self._first_image = None if self.is_complete else self._image()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        if self._first_image is not None and not self.is_complete:
            self.film.add(self._first_image)
        self._first_image = None
        result = self.env.step(action)
        if not self.is_complete:
            self.film.add(self._image())
        return result

    def _image(self) -> NDArray[np.uint8]:
        name = self.env.spec.id if self.env.spec is not None else type(self.env.unwrapped).__name__
        return to_rgb(self.env.render(), name)


def has_display() -> bool:
    """Tell whether a window can be opened here."""
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def render_offscreen() -> None:
    """Let environments draw without a display, MuJoCo by EGL unless ``MUJOCO_GL`` says otherwise."""
    if not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "offscreen")  # some draw nothing for its dummy
        os.environ.setdefault("MUJOCO_GL", "egl")
