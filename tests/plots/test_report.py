"""A report is one file that shows its curves, loads nothing else, and runs nothing."""

from __future__ import annotations

import base64
import html
from html.parser import HTMLParser
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest
from synthetic_runs import learning, make_run

from zoo.cli import status_of
from zoo.plots import report as report_module


class Page(HTMLParser):
    """What a report holds."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def links(self) -> list[str]:
        return [value for name, value in self.attributes if name in ("src", "href")]

    @property
    def pictures(self) -> list[str]:
        data = "data:image/svg+xml;base64,"
        return [base64.b64decode(link[len(data) :]).decode() for link in self.links if link.startswith(data)]

    def assert_quiet(self) -> None:
        assert self.links
        assert all(link.startswith("data:") or ":" not in link for link in self.links)
        assert "script" not in self.tags
        assert not [name for name, _ in self.attributes if name.startswith("on")]


def report(*arguments: str, out: str = "report.html") -> Page:
    assert status_of(["plot", *arguments, "report=true", f"out={out}"]) == 0
    return Page(Path(out))


def test_report_of_a_real_run_has_curves_card_and_config(real_runs: Path) -> None:
    (run,) = (real_runs / "ppo2" / "CartPole-v1").glob("*_s1")
    page = report(str(run))
    page.assert_quiet()
    (picture,) = page.pictures
    assert "<!-- Return in training -->" in picture
    for words in ("ppo2 on CartPole-v1, seed 1", "finished", "n_timesteps", "torch 2", "environment steps"):
        assert words in page.text
    assert "name: MlpPolicy" in page.text
    assert "best_agent/README.md" in page.text


def test_report_of_a_sweep_has_scores_curves_and_statistics() -> None:
    for env in ("A-v1", "B-v1"):
        for seed in range(3):
            make_run(Path("runs"), "ppo2", env, seed, evaluations=learning(seed, 100 + seed))
            make_run(Path("runs"), "a2c", env, seed, evaluations=learning(seed, 60 + 20 * seed))
    make_run(Path("runs"), "a2c", "B-v1", 9, status="failed", record={"error": "out of memory"})
    page = report("runs")
    page.assert_quiet()
    assert len(page.pictures) >= 6
    for words in ("1 of 13 runs did not finish", "out of memory", "optimality gap", "IQM [95 % interval]"):
        assert words in page.text
    assert "algo.name" in page.text


def test_video_is_inside_and_a_large_one_is_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(Path("runs"))
    (run / "videos").mkdir()
    frames = np.random.default_rng(0).integers(0, 255, (10, 64, 64, 3), np.uint8)
    imageio.imwrite(run / "videos" / "one.mp4", frames, fps=5, macro_block_size=16)
    assert "video" in report(str(run)).tags
    monkeypatch.setattr(report_module, "VIDEO_LIMIT", 100)
    page = report(str(run), out="elsewhere/report.html")
    assert "video" not in page.tags
    assert "../runs/ppo2/CartPole-v1/s1/videos/one.mp4" in page.links


def test_run_that_did_not_finish_says_so_first() -> None:
    run = make_run(Path("runs"), status="failed", record={"error": "ValueError: nan"})
    report(str(run))
    assert (
        html.escape("This run is not complete: it failed: ValueError: nan.")
        in Path("report.html").read_text()
    )
    empty = make_run(Path("bare"), returns=[], record={"seconds": None})
    assert "nothing to draw" in report(str(empty)).text
