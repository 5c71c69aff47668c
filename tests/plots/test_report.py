"""A report is one file: in a real browser it shows its curves, loads nothing else, and runs nothing."""

from __future__ import annotations

import html
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest
from browser import Page, open_page
from synthetic_runs import learning, make_run

from zoo.cli import status_of
from zoo.plots import report as report_module


def report(*arguments: str, out: str = "report.html") -> Path:
    assert status_of(["plot", *arguments, "report=true", f"out={out}"]) == 0
    return Path(out)


def assert_it_is_quiet(page: Page, path: Path) -> None:
    assert page.problems() == []
    assert page.requests() == [path.absolute().as_uri()]


def assert_pictures_are_seen(page: Page, at_least: int) -> None:
    sizes = page.evaluate(
        "[...document.images].map(i => [i.complete, i.naturalWidth, i.getBoundingClientRect().width])"
    )
    assert len(sizes) >= at_least
    assert all(complete and natural > 100 and shown > 100 for complete, natural, shown in sizes)
    first = page.evaluate(
        "(r => [r.x, r.y + scrollY, r.width, r.height])(document.images[0].getBoundingClientRect())"
    )
    x, y, width, height = map(int, first)
    picture = page.screenshot()[y : y + height, x : x + width]
    colored = picture.max(axis=2) - picture.min(axis=2) > 40
    assert 0.003 < colored.mean() < 0.9


def test_report_of_a_real_run_is_seen_in_a_browser(real_runs: Path, tmp_path: Path) -> None:
    (run,) = (real_runs / "ppo2" / "CartPole-v1").glob("*_s1")
    path = report(str(run))
    with open_page(path, tmp_path / "profile") as page:
        assert_it_is_quiet(page, path)
        assert_pictures_are_seen(page, 1)
        text = page.evaluate("document.body.innerText")
    for words in ("ppo2 on CartPole-v1, seed 1", "finished", "n_timesteps", "torch 2", "environment steps"):
        assert words in text + path.read_text()
    assert "policy: MlpPolicy" in path.read_text() or "name: MlpPolicy" in path.read_text()
    assert "best_agent/README.md" in text


def strange(text: str) -> dict[str, Any]:
    return {
        "config": {"env": {"id": text}, "algo": {"name": text, text: text}, "note": text},
        "record": {
            "command": text,
            "error": text,
            "host": text,
            "git_commit": text,
            "started": text,
            "versions": {text: text},
        },
    }


SCRIPT = "<script>document.title='ran'</script>"
ATTACK = f"</pre>{SCRIPT}<img src=http://127.0.0.1:9/x onerror=document.title='ran'>\"'"


def test_nothing_in_a_strangers_files_runs_or_is_loaded(tmp_path: Path) -> None:
    for seed in (1, 2):
        path = make_run(
            Path("runs"), seed=seed, evaluations=learning(seed), status="failed", **strange(ATTACK)
        )
        (path / "best_agent").mkdir()
        (path / "best_agent" / "README.md").write_text(ATTACK)
        (path / "progress.csv").write_text(f'time/total_timesteps,"train/{ATTACK}"\n1,2\n2,3\n')
        (path / "videos").mkdir()
        (path / "videos" / "<script>document.title=1<x>.mp4").touch()
    make_run(Path("runs"), "a2c", seed=3, evaluations=learning(3), name=ATTACK.replace("/", "_")[:150])
    for path in (report("runs/*/*/s1"), report("runs", out="all.html")):
        with open_page(path, tmp_path / "profile") as page:
            assert_it_is_quiet(page, path)
            assert page.evaluate("document.title") != "ran"
            assert page.evaluate("document.scripts.length") == 0
            assert page.evaluate("document.querySelectorAll('[onerror]').length") == 0
            assert SCRIPT in page.evaluate("document.body.textContent")


def two_methods() -> None:
    for env in ("A-v1", "B-v1"):
        for seed in range(3):
            make_run(Path("runs"), "ppo2", env, seed, evaluations=learning(seed, 100 + seed))
            make_run(Path("runs"), "a2c", env, seed, evaluations=learning(seed, 60 + 20 * seed))


def test_report_of_a_sweep_has_scores_curves_and_statistics(tmp_path: Path) -> None:
    two_methods()
    make_run(Path("runs"), "a2c", "B-v1", 9, status="failed", record={"error": "out of memory"})
    path = report("runs")
    with open_page(path, tmp_path / "profile") as page:
        assert_it_is_quiet(page, path)
        assert_pictures_are_seen(page, 6)
        text = page.evaluate("document.body.innerText")
    for words in ("1 of 13 runs did not finish", "out of memory", "optimality gap", "IQM [95 % interval]"):
        assert words in text
    assert "algo.name" in text


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.found += [value or "" for name, value in attributes if name in ("src", "href")]


def test_everything_is_inside_the_file() -> None:
    make_run(Path("runs"), evaluations=learning(1), **strange(ATTACK))
    links = Links()
    links.feed(report("runs").read_text())
    assert links.found
    assert all(link.startswith("data:") for link in links.found)
    assert "script" not in links.tags


def film(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    frames = np.random.default_rng(0).integers(0, 255, (10, 64, 64, 3), np.uint8)
    imageio.imwrite(path, frames, fps=5, macro_block_size=16)


def test_video_is_inside_and_a_large_one_is_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(Path("runs"))
    film(run / "videos" / "one.mp4")
    path = report(str(run))
    with open_page(path, tmp_path / "profile") as page:
        assert_it_is_quiet(page, path)
        assert page.evaluate("document.querySelectorAll('video').length") == 1
        assert page.evaluate("document.querySelector('video').error") is None
    monkeypatch.setattr(report_module, "VIDEO_LIMIT", 100)
    text = report(str(run), out="elsewhere/report.html").read_text()
    assert "<video" not in text
    assert 'href="../runs/ppo2/CartPole-v1/s1/videos/one.mp4"' in text


def test_run_that_did_not_finish_says_so_first() -> None:
    run = make_run(Path("runs"), status="failed", record={"error": "ValueError: nan"})
    text = report(str(run)).read_text()
    assert html.escape("This run is not complete: it failed: ValueError: nan.") in text
    empty = make_run(Path("bare"), returns=[], record={"seconds": None})
    assert "nothing to draw" in report(str(empty)).read_text()
