"""Films: images become an mp4, a GIF or both as they come, whole or not at all; memory holds one at a time.

The encoder is ffmpeg, the one that moviepy brings along. A GIF, whose colours are chosen from all of its
images, is made from the finished film.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from zoo.errors import ZooError
from zoo.files import atomic
from zoo.files.begun import Begun, remove_abandoned

FRAMES_PER_SECOND = 30
"""Where the environment does not say how fast it is."""

FASTEST_GIF = 50
"""Images a second, above which viewers slow a GIF down; images are left out there, and it keeps its pace."""

INSTALL = 'pip install "zoo[video]"'

FILMS = r".+\.(?:mp4|gif)"

_SMALL, _SMALL_RATE = 320, 15
"""Pixels in a row and images a second of a GIF that is to be shown beside others."""

# The codec asks for even sides; the index at the front lets a browser begin before it has everything.
_MP4 = (
    "-vf pad=ceil(iw/2)*2:ceil(ih/2)*2 -c:v libx264 -preset veryfast -pix_fmt yuv420p -movflags +faststart"
    " -f mp4"
)
_LOSSLESS = "-c:v libx264rgb -preset ultrafast -qp 0 -f mp4"


class FilmError(ZooError):
    """A film can't be made: that is not the environment's fault."""


class Film:
    """Files, by their endings mp4 or GIF, that grow image by image; they get their names when complete."""

    def __init__(self, paths: Sequence[Path], frames_per_second: float) -> None:
        self.paths = list(paths)
        self.n_frames = 0
        self._rate = frames_per_second
        self._shape: tuple[int, ...] = ()
        self._encoder: subprocess.Popen[bytes] | None = None
        self._mp4 = next((path for path in self.paths if path.suffix == ".mp4"), None)
        self._begun: Begun | None = None

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Append an image, (height, width, 3). Raises `ZooError` if it can't be written."""
        if self._encoder is None:
            self._shape = frame.shape
            self._encoder = self._started()
        if frame.shape != self._shape:
            raise FilmError(f"can't film: the image's shape changed from {self._shape} to {frame.shape}")
        assert self._encoder.stdin is not None
        try:
            self._encoder.stdin.write(np.ascontiguousarray(frame, dtype=np.uint8).data)
        except BrokenPipeError:
            self._finish_encoding()
        self.n_frames += 1

    def close(self) -> None:
        """Finish the files, if there was anything to film. Raises `ZooError` if they can't be written."""
        if self._encoder is None or self._begun is None:
            self.discard()
            return
        done = []
        try:
            self._finish_encoding()
            for path in self.paths:
                slower = [f"fps={FASTEST_GIF}"] if self._rate > FASTEST_GIF else []
                done.append(self._begun if path == self._mp4 else _gif_of(self._begun.path, path, slower))
            for each in done:
                _finish(each)
        finally:
            for each in (self._begun, *done):
                each.discard()

    def discard(self) -> None:
        """Leave nothing behind."""
        try:
            if self._encoder is not None:
                encoder, self._encoder = self._encoder, None
                _end(encoder)
        finally:
            if self._begun is not None:
                self._begun.discard()

    def _started(self) -> subprocess.Popen[bytes]:
        with _explained(self.paths[0]):
            atomic.make_folder(self.paths[0].parent)
            for folder in {path.parent for path in self.paths}:
                remove_abandoned(folder, FILMS)
            self._begun = Begun(self.paths[0] if self._mp4 is None else self._mp4)
        height, width = self._shape[:2]
        raw = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {self._rate:g} -i -"
        write = _LOSSLESS if self._mp4 is None else _MP4
        # A session of its own: Ctrl-C on the terminal ends the episodes, not the writing of the file.
        return subprocess.Popen(
            [ffmpeg(), *f"-y -nostdin -loglevel error {raw} {write}".split(), str(self._begun.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def _finish_encoding(self) -> None:
        assert self._encoder is not None
        encoder, self._encoder = self._encoder, None
        try:
            _, problems = encoder.communicate()
        except BaseException:
            _end(encoder)
            raise
        if encoder.returncode != 0:
            self.discard()
            raise _failed(self.paths[0], encoder.returncode, problems)


def _end(encoder: subprocess.Popen[bytes]) -> None:
    encoder.kill()
    encoder.communicate()


@contextlib.contextmanager
def filming(
    paths: Path | Sequence[Path], frames_per_second: float | None, *, whole_only: bool = False
) -> Iterator[Film]:
    """Give a film that is finished when the block ends, even by an error or Ctrl-C.

    With ``whole_only`` an error leaves no film behind. Raises `ZooError` at once if there is nothing here
    that writes videos.
    """
    ffmpeg()
    paths = [paths] if isinstance(paths, Path) else paths
    film = Film(paths, frames_per_second or FRAMES_PER_SECOND)
    try:
        yield film
    except BaseException:
        if whole_only:
            film.discard()
        else:
            film.close()
        raise
    film.close()


def small_gif(video: Path) -> bytes:
    """Return a video as a small GIF, to be shown beside curves. Raises `ZooError` if it can't be made."""
    with tempfile.TemporaryDirectory() as folder:
        filters = [f"fps={_SMALL_RATE}", f"scale=min({_SMALL}\\,iw):-2"]
        gif = _gif_of(video, Path(folder, "small.gif"), filters)
        try:
            return gif.path.read_bytes()
        finally:
            gif.discard()


def ffmpeg() -> str:
    """Return the program that encodes videos. Raises `ZooError` with the command that installs it."""
    try:
        import imageio_ffmpeg  # type: ignore[import-untyped]

        program: str = imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise FilmError(f"writing a video needs: {INSTALL}") from error
    return program


def _gif_of(video: Path, path: Path, filters: Sequence[str]) -> Begun:
    """Make a GIF of a video beside ``path``, through these filters, and return it without its name.

    In two passes, the first of which chooses the colours: one alone would hold all images at once.
    """
    gif, palette = _begun(path), _begun(path)
    to_palette = ",".join([*filters, "palettegen"])
    to_gif = f"[0:v]{','.join([*filters, 'setsar=1'])}[shown];[shown][1:v]paletteuse"
    try:
        read: list[str | Path] = ["-i", video]
        as_image = ["-frames:v", "1", "-c:v", "png", "-f", "image2"]
        as_gif = ["-fps_mode", "passthrough", "-f", "gif"]
        _convert(path, *read, "-vf", to_palette, *as_image, palette.path)
        _convert(path, *read, "-i", palette.path, "-lavfi", to_gif, *as_gif, gif.path)
    except BaseException:
        gif.discard()
        raise
    finally:
        palette.discard()
    return gif


def _convert(path: Path, *arguments: str | Path) -> None:
    command = [ffmpeg(), "-y", "-nostdin", "-loglevel", "error", *map(str, arguments)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True, check=False
    )
    if done.returncode != 0:
        raise _failed(path, done.returncode, done.stderr)


def _failed(path: Path, status: int, problems: bytes) -> FilmError:
    lines = problems.decode(errors="replace").strip().splitlines() or [f"status {status}"]
    return FilmError(f"can't write {path}: ffmpeg: {lines[-1]}")


def _begun(path: Path) -> Begun:
    with _explained(path):
        return Begun(path)


def _finish(begun: Begun) -> None:
    """Give a complete file its name, once it is on the disk."""
    with _explained(begun.target):
        atomic.sync(begun.path)
        os.replace(begun.path, begun.target)
        atomic.sync(begun.target.parent)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FilmError(f"can't write {path}: {error.strerror}") from error
