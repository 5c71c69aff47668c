"""Frames become a film that is whole, or an error that says why not."""

from __future__ import annotations

from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from zoo.envs.filming import filming
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


def test_odd_sides_are_padded(tmp_path: Path) -> None:
    with filming(tmp_path / "film.mp4", None) as film:
        for frame in frames(3, 51, 33):
            film.add(frame)
    assert facts(tmp_path / "film.mp4") == (3, 30.0, (34, 52))


def test_colours_and_orientation_stay(tmp_path: Path) -> None:
    picture = np.zeros((64, 96, 3), dtype=np.uint8)
    picture[:32, :48, 0], picture[32:, 48:, 2] = 255, 255
    with filming(tmp_path / "film.mp4", 10) as film:
        for _ in range(5):
            film.add(picture)
    reader = imageio_ffmpeg.read_frames(str(tmp_path / "film.mp4"))
    next(reader)
    shown = np.frombuffer(next(reader), dtype=np.uint8).reshape(64, 96, 3).astype(int)
    reader.close()
    assert np.abs(shown - picture).mean() < 10


def test_error_in_an_episode_leaves_the_film_so_far(tmp_path: Path) -> None:
    def play() -> None:
        with filming(tmp_path / "film.mp4", 10) as film:
            for frame in frames(4):
                film.add(frame)
            raise RuntimeError("the environment broke")

    with pytest.raises(RuntimeError):
        play()
    assert facts(tmp_path / "film.mp4")[0] == 4


def test_no_frame_is_no_film(tmp_path: Path) -> None:
    with filming(tmp_path / "film.mp4", 10):
        pass
    assert not list(tmp_path.glob("*film*"))


def test_image_that_changes_its_size_is_refused(tmp_path: Path) -> None:
    with filming(tmp_path / "film.mp4", 10) as film:
        film.add(frames(1)[0])
        with pytest.raises(ZooError, match="the image's shape changed"):
            film.add(frames(1, 64, 64)[0])


def test_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with filming(tmp_path / "file" / "film.mp4", 10) as film, pytest.raises(ZooError, match="can't write"):
        film.add(frames(1)[0])

    (tmp_path / ".film.partial.mp4").mkdir()  # ffmpeg itself fails here

    def record() -> None:
        with filming(tmp_path / "film.mp4", 10) as film:
            for frame in frames(50):
                film.add(frame)

    with pytest.raises(ZooError, match=r"can't write .*film\.mp4: ffmpeg: "):
        record()
