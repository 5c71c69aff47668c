"""Filming an environment while an agent acts in it, with or without a display."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from zoo.errors import ZooError

FRAMES_PER_SECOND = 30
"""Where the environment does not say how fast it is."""


class Film:
    """An mp4 that grows frame by frame; it gets its name when it is complete."""

    def __init__(self, path: Path, frames_per_second: float) -> None:
        self.path = path
        self._frames_per_second = frames_per_second
        self._partial = path.with_name(f".{path.stem}.partial{path.suffix}")
        self._encoder: subprocess.Popen[bytes] | None = None
        self._shape: tuple[int, ...] = ()

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Append an image, (height, width, 3). Raises `ZooError` if it can't be written."""
        if self._encoder is None:
            self._shape = frame.shape
            self._encoder = self._started()
        if frame.shape != self._shape:
            raise ZooError(f"can't film: the image's shape changed from {self._shape} to {frame.shape}")
        assert self._encoder.stdin is not None
        try:
            self._encoder.stdin.write(np.ascontiguousarray(frame, dtype=np.uint8).data)
        except BrokenPipeError:
            self._finish()

    def close(self) -> None:
        """Finish the file, if there was anything to film."""
        if self._encoder is not None:
            self._finish()

    def _started(self) -> subprocess.Popen[bytes]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ZooError(f"can't write {self.path}: {error.strerror}") from error
        height, width = self._shape[:2]
        raw = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {self._frames_per_second}"
        # The codec asks for even sides.
        write = "-vf pad=ceil(iw/2)*2:ceil(ih/2)*2 -c:v libx264 -preset veryfast -pix_fmt yuv420p -f mp4"
        # A session of its own: Ctrl-C on the terminal ends the episodes, not the writing of the file.
        return subprocess.Popen(
            [_ffmpeg(), *f"-y -nostdin -loglevel error {raw} -i - {write}".split(), str(self._partial)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def _finish(self) -> None:
        assert self._encoder is not None
        encoder, self._encoder = self._encoder, None
        _, problems = encoder.communicate()
        if encoder.returncode != 0:
            with contextlib.suppress(OSError):
                self._partial.unlink()
            lines = problems.decode(errors="replace").strip().splitlines() or [f"status {encoder.returncode}"]
            raise ZooError(f"can't write {self.path}: ffmpeg: {lines[-1]}")
        os.replace(self._partial, self.path)


class Filmed(gym.Wrapper[Any, Any, Any, Any]):
    """Adds an image of the environment to a film after every reset and step."""

    def __init__(self, env: gym.Env[Any, Any], film: Film) -> None:
        super().__init__(env)
        self.film = film

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Reset and film."""
        result = self.env.reset(**options)
        self._film()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and film."""
        result = self.env.step(action)
        self._film()
        return result

    def _film(self) -> None:
        frame = self.env.render()
        if not isinstance(frame, np.ndarray):
            name = self.env.spec.id if self.env.spec is not None else type(self.env.unwrapped).__name__
            raise ZooError(f"can't film {name}: it renders no images (render_mode='rgb_array')")
        self.film.add(frame)


@contextlib.contextmanager
def filming(path: Path, frames_per_second: float | None) -> Iterator[Film]:
    """Give a film that is finished when the block ends, even by an error or Ctrl-C.

    Raises `ZooError` at once if there is nothing here that writes videos.
    """
    _ffmpeg()
    film = Film(path, frames_per_second or FRAMES_PER_SECOND)
    try:
        yield film
    finally:
        film.close()


def has_display() -> bool:
    """Tell whether a window can be opened here."""
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def render_offscreen() -> None:
    """Let MuJoCo draw without a display; its own choice needs one."""
    if not has_display():
        os.environ.setdefault("MUJOCO_GL", "egl")


def _ffmpeg() -> str:
    """Return the program that encodes videos. Raises `ZooError` with the command that installs it."""
    try:
        import imageio_ffmpeg  # type: ignore[import-untyped]

        program: str = imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise ZooError('writing a video needs: pip install "zoo[video]"') from error
    return program
