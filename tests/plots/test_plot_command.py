"""`zoo plot`: figures, tables and reports."""

from __future__ import annotations

import base64
import csv
import html
import re
import shlex
import subprocess
import sys
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest
from PIL import Image
from synthetic_runs import learning, make_run

import zoo
from zoo.cli import status_of
from zoo.experiment.run_folder import RunFolder


def plotted(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Path, str]:
    """Return the file that was written, and what was printed."""
    capsys.readouterr()
    status = status_of(["plot", *arguments])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    *_, last = printed.out.splitlines()
    assert last.startswith("wrote  ")
    return Path(last.removeprefix("wrote  ")), printed.out + printed.err


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert status_of(["plot", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def share_of_ink(path: Path) -> float:
    """Return how much of a picture is neither white nor grey."""
    pixels = np.asarray(Image.open(path).convert("RGB"), np.int64)
    return float((pixels.max(axis=2) - pixels.min(axis=2) > 40).mean())


def two_seeds() -> None:
    for seed in (1, 2):
        make_run(Path("runs"), seed=seed, returns=list(range(seed, 40)), evaluations=learning(seed))


def two_methods() -> None:
    for env in ("A-v1", "B-v1"):
        for seed in range(3):
            make_run(Path("runs"), "ppo2", env, seed, evaluations=learning(seed, 100 + seed))
            make_run(Path("runs"), "a2c", env, seed, evaluations=learning(seed, 60 + 20 * seed))


def test_one_run_is_a_page_of_panels(real_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = (real_runs / "ppo2" / "CartPole-v1").glob("*_s1")
    path, _ = plotted(capsys, str(run))
    assert path == Path("plots") / f"ppo2-CartPole-v1-{run.name}.png"
    assert share_of_ink(path) > 0.005
    drawn = re.findall(r"<!-- (.+?) -->", plotted(capsys, str(run), "out=page.svg", "x=hours")[0].read_text())
    assert {"Return in training", "Return in evaluation", "Episode length", "train/value_loss"} <= set(drawn)


def test_real_runs_and_peers_are_curves_in_one_picture(
    real_runs: Path, peers_runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, said = plotted(capsys, str(real_runs), str(peers_runs), "y=eval", "x=episodes", "out=all.svg")
    rows = {
        row.split("|")[1].strip(): row.split("|")[3].strip() for row in said.splitlines() if "CartPole" in row
    }
    assert rows == {"a2c": "1", "ppo2": "2", "sb3_ppo": "1"}
    for label in ("a2c (1 run)", "ppo2 (2 runs)", "sb3_ppo (1 run)"):
        assert f"<!-- {label} -->" in path.read_text()


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_same_runs_are_the_same_bytes(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    two_seeds()
    first, second = (
        plotted(capsys, "runs", f"out={name}.{kind}")[0].read_bytes() for name in ("first", "second")
    )
    assert first == second
    assert first.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind])


@pytest.mark.parametrize("figure", ["curves", "scores", "aggregates", "profile"])
def test_figures_of_groups_are_not_blank(figure: str, capsys: pytest.CaptureFixture[str]) -> None:
    two_methods()
    path, _ = plotted(capsys, "runs", f"figure={figure}")
    assert path == Path("plots") / f"{figure}.png"
    assert share_of_ink(path) > 0.004


@pytest.mark.parametrize(("figure", "kind"), [("scores", "md"), ("scores", "csv"), ("aggregates", "csv")])
def test_tables_hold_every_group(figure: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    two_seeds()
    make_run(Path("runs"), "a2c", evaluations=learning(3))
    path, said = plotted(capsys, "runs", f"figure={figure}", f"format={kind}")
    text = path.read_text()
    assert "ppo2" in text
    assert "a2c" in text
    assert kind == "csv" or text in said


def test_tables_of_evaluations_are_read_as_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for algo, last in (("ppo2", 9), ("a2c", 4)):
        table = Path("curves", algo, "CartPole-v1.csv")
        table.parent.mkdir(parents=True)
        rows = [f"{seed},{step},{step / 10 + seed}" for seed in (0, 3) for step in (10, 10 * last)]
        table.write_text("\n".join(["seed,timesteps,mean_return", *rows, ""]))
    Path("curves/notes.csv").write_text("a,b\n1,2\n")
    for paths in (["curves"], ["curves/*/CartPole-v1.csv"]):
        path, _ = plotted(capsys, *paths, "figure=scores", "format=csv")
        scores = {row["algo"]: row for row in csv.DictReader(path.read_text().splitlines())}
        assert {algo: float(row["mean"]) for algo, row in scores.items()} == {"ppo2": 10.5, "a2c": 5.5}
        assert (scores["a2c"]["runs"], float(scores["a2c"]["steps"])) == ("2", 40)
    path, _ = plotted(capsys, "curves", "y=eval", "out=curves.png")
    assert share_of_ink(path) > 0.004
    make_run(Path("runs"), "ppo2", evaluations=learning(3))
    path, _ = plotted(capsys, "runs", "curves/ppo2", "figure=scores", "format=csv")
    assert path.read_text().count("\nppo2,") == path.read_text().count('\n"ppo2, curves/ppo2",') == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [("", "'no rows'"), ("0,1,x\n", "'x'"), ("0,1\n", "column"), ("0,1,2\n0\n", "column")],
)
def test_damaged_table_is_named(rows: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("CartPole-v1.csv").write_text(f"seed,timesteps,mean_return\n{rows}")
    assert status_of(["plot", "CartPole-v1.csv", "report=true"]) == 2
    errors = capsys.readouterr().err
    assert "CartPole-v1.csv: " in errors
    assert message in errors


def test_title_of_curves_is_the_legends(capsys: pytest.CaptureFixture[str]) -> None:
    two_methods()
    path, _ = plotted(capsys, "runs", "out=curves.svg", "title=Mine")
    assert "<!-- Mine -->" in path.read_text().partition('id="legend_1"')[2]


def test_plot_reports_unfinished_and_damaged_runs(capsys: pytest.CaptureFixture[str]) -> None:
    two_seeds()
    make_run(Path("runs"), seed=3, status="failed", record={"error": "NaN\x1b[2J"}, name="f")
    make_run(Path("runs"), seed=4, status="running", name="k")
    (make_run(Path("runs"), seed=5, name="d") / "monitor" / "0.monitor.csv").write_bytes(b"\0\1")
    _, said = plotted(capsys, "runs")
    assert "did not finish  runs/ppo2/CartPole-v1/f: failed: NaN[2J" in said
    assert "did not finish  runs/ppo2/CartPole-v1/k: has not ended, or was killed" in said
    assert "damaged  runs/ppo2/CartPole-v1/d/monitor/0.monitor.csv: " in said


def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    assert "there is no run in empty" in refused(capsys, "empty")
    assert "nothing at runs" in refused(capsys)
    two_seeds()
    assert "did you mean 'train'?" in refused(capsys, "runs", "y=trian")
    assert "format=" in refused(capsys, "runs", "report=true", "format=png")
    assert "figure=" in refused(capsys, "runs", "report=true", "figure=scores")
    assert "figure=run shows one run" in refused(capsys, "runs", "figure=run")
    assert "is not one of" in refused(capsys, "runs", "x=days")
    assert "expected int or 'auto'" in refused(capsys, "runs", "smooth=much")
    assert "out of range" in refused(capsys, "runs", "smooth=0")
    assert "no format has the ending .jpg" in refused(capsys, "runs", "out=a.jpg")
    assert "name runs twice" in refused(capsys, "runs", "runs=[runs]")
    assert "did you mean `smooth`" in refused(capsys, "runs", "smoth=3")
    run = "runs/ppo2/CartPole-v1/s1"
    assert "figure=run shows one run" in refused(capsys, run, "figure=run", "y=eval")
    assert "writes a table" in refused(capsys, "runs", "figure=curves", "format=md")
    make_run(Path("bare"), returns=[], record={"seconds": None})
    assert "nothing to draw in bare/ppo2/CartPole-v1/s1" in refused(capsys, "bare")
    assert "no run has a score" in refused(capsys, "bare", "figure=scores")


def test_missing_matplotlib_error_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    two_seeds()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install matplotlib" in refused(capsys, "runs")


def test_tables_need_neither_matplotlib_nor_torch() -> None:
    two_seeds()
    code = (
        "import sys\nfrom zoo.cli import status_of\nassert status_of(['plot', 'runs', 'format=md']) == 0\n"
        "print(sorted({'matplotlib', 'torch', 'scipy', 'pandas'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def report(*arguments: str) -> tuple[str, list[str]]:
    """Return a page, which loads and runs nothing, and the pictures in it."""
    assert status_of(["plot", *arguments, "report=true", "out=report.html"]) == 0
    text = Path("report.html").read_text()
    links = re.findall(r"""\s(?:src|href)=["']([^"']*)["']""", text)
    assert links
    assert all(link.startswith("data:") for link in links)
    assert "<script" not in text
    assert "default-src 'none'" in text
    pictures = re.findall(r"data:image/svg\+xml;base64,([^\"]+)", text)
    return text, [base64.b64decode(picture).decode() for picture in pictures]


def test_report_of_run_has_curves_card_config_video(real_runs: Path) -> None:
    (run,) = (real_runs / "ppo2" / "CartPole-v1").glob("*_s1")
    (run / "videos").mkdir()
    frames = np.random.default_rng(0).integers(0, 255, (10, 64, 64, 3), np.uint8)
    imageio.imwrite(run / "videos" / "one.mp4", frames, fps=5, macro_block_size=16)
    text, (picture,) = report(str(run))
    assert "<!-- Return in training -->" in picture
    assert "<video" in text
    for words in ("ppo2 on CartPole-v1", "finished", "torch 2", "environment steps", "name: MlpPolicy"):
        assert words in text
    assert "best_agent/README.md" in text


def test_sweep_report_has_statistics_and_escapes_text() -> None:
    two_methods()
    make_run(Path("runs"), "a2c", "B-v1", 9, status="failed", record={"error": "<script>out of memory"})
    text, pictures = report("runs")
    assert len(pictures) >= 4
    for words in ("1 of 13 runs did not finish", "out of memory", "optimality gap", "IQM [95 % interval]"):
        assert words in text


def test_report_shows_commands_as_they_are_typed() -> None:
    typed = shlex.join(["zoo", "train", "job='x'", "policy.net_arch=[8]"])
    run = make_run(Path("runs"), record={"command": typed, "git_commit": None})
    table = html.unescape(report(str(run))[0].partition("<h2>Runs")[2].partition("</table>")[0])
    assert "zoo train \"job='x'\" 'policy.net_arch=[8]'" in table
    assert "None" not in table


def test_run_folder_is_plotted_and_compared() -> None:
    paths = [make_run(Path("runs"), seed=seed, evaluations=learning(seed)) for seed in (1, 2)]
    runs = [RunFolder(path) for path in paths]
    assert repr(runs[0]) == f"<RunFolder {paths[0]}>"
    assert [run.path.name for run in zoo.plot(*runs, figure="scores").runs] == [path.name for path in paths]
    assert zoo.compare(*runs).verdicts.keys() == zoo.compare(*map(str, paths)).verdicts.keys()


def test_report_of_a_run_that_did_not_finish_says_so() -> None:
    run = make_run(Path("runs"), status="failed", returns=[], record={"error": "ValueError: nan"})
    text, _ = report(str(run))
    assert "failed: ValueError: nan" in text
    assert "nothing to draw" in text
