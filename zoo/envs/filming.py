"""Films: images become an mp4, a GIF or both as they come, whole or not at all. They are written by moviepy.

Memory holds one image at a time; for a GIF, whose colours are chosen from its first images, those.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.errors import ZooError, install_command
from zoo.files.atomic import atomic_file, remove_abandoned

FRAMES_PER_SECOND = 30
"""Where the environment does not say how fast it is."""

FASTEST_GIF = 50
"""Images a second, above which viewers slow a GIF down; images are left out there, and it keeps its pace."""

FILMS = r".+\.(?:mp4|gif)"

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
        for folder in {path.parent for path in self.paths}:
            remove_abandoned(folder, FILMS)
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
    files = contextlib.ExitStack()
    try:
        yield Film(paths, frames_per_second or FRAMES_PER_SECOND, files)
    except BaseException:
        with contextlib.suppress(GeneratorExit), files:
            raise GeneratorExit from None  # not the error itself, which the files would take for their own
        raise
    files.close()


def small_gif(video: Path) -> bytes:
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
    size = shape[1], shape[0]
    with _ctrl_c_stays_here():
        writer = FFMPEG_VideoWriter(file, size, rate, codec, preset="veryfast", ffmpeg_params=parameters)
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


@contextlib.contextmanager
def _ctrl_c_stays_here() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: it ends the episodes, not the writing of the file."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
