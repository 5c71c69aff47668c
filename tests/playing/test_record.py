"""`zoo record` writes what was asked for, where it was asked for, and says where that is."""

from __future__ import annotations

import re
from pathlib import Path

import imageio_ffmpeg
import pytest
from PIL import Image

from zoo.commands import record
from zoo.config.compose import compose
from zoo.errors import ZooError


def film(*overrides: str) -> None:
    record.run(compose("record", ["seed=1", *overrides]))


def refusal(*overrides: str) -> str:
    with pytest.raises(ZooError) as caught:
        film(*overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def frames(video: Path) -> int:
    count: int = imageio_ffmpeg.count_frames_and_secs(str(video))[0]
    return count


def test_one_episode_is_filmed_into_the_run(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    film(f"agent={run_folder}")
    out = capsys.readouterr().out
    (video,) = (run_folder / "videos").iterdir()
    (length,) = (int(number) for number in re.findall(r"in (\d+) steps", out))
    assert frames(video) == length + 1
    assert f"video  {video}  {length + 1} images" in out


def test_mp4_and_gif_of_a_length_stand_where_they_shall(run_folder: Path) -> None:
    film(f"agent={run_folder}", "length=7", "format=both", "size=100", "fps=20", "out=films/first.mp4")
    assert sorted(path.name for path in Path("films").iterdir()) == ["first.gif", "first.mp4"]
    assert frames(Path("films/first.mp4")) == 7
    with Image.open("films/first.gif") as gif:
        assert (gif.n_frames, gif.size, gif.info["duration"]) == (7, (150, 100), 50)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("format=avi", "`format=avi` is not one of mp4, gif, both"),
        ("out=film.avi", "`out=film.avi` is neither an mp4, a GIF nor a folder"),
        ("out=film.gif", "`out=film.gif` is no mp4: give format=gif too"),
        ("size=641x480", "the sides of a video are even"),
        ("fps=0", "`fps=0` is out of range"),
        ("length=0", "`length=0` is out of range"),
        ("env=Acrobot-v1", "can't act in Acrobot-v1"),
    ],
)
def test_wrong_choice_is_one_message_and_no_file(run_folder: Path, override: str, message: str) -> None:
    assert message in refusal(f"agent={run_folder}", override)
    assert not list(Path().rglob("*.mp4"))
