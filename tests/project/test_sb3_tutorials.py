"""Tutorials of Stable-Baselines3 in which only the imports are others: each runs, or says what to write."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent / "sb3_tutorials"
PAGE = (REPOSITORY / "docs" / "coming-from-stable-baselines.md").read_text()
TABLE = PAGE.partition("<!-- tutorials -->")[2].partition("<!-- end -->")[0]
ROWS = dict(re.findall(r"^\| \[`(\w+\.py)`\]\(.*?\) \| .*? \| (.*?) \|$", TABLE, re.MULTILINE))


def test_table_has_every_tutorial() -> None:
    assert sorted(ROWS) == sorted(path.name for path in SCRIPTS.glob("*.py"))


@pytest.mark.parametrize("name", ROWS)
def test_tutorial_does_what_the_table_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        runpy.run_path(str(SCRIPTS / name), run_name="__main__")
        answer = "runs"
    except Exception as error:
        answer = f"`{error}`"
    assert answer == ROWS[name]


BESIDE = re.findall(r"^([A-Z][^\n]*):\n\n```diff\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("lines", [pytest.param(lines, id=title) for title, lines in BESIDE])
def test_script_beside_stable_baselines3_runs(
    lines: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's lines that stay and Zoo's are a whole script, and so are those that stay and the other's."""
    monkeypatch.chdir(tmp_path)
    zoo = [line[1:] for line in lines.splitlines() if line[:1] != "-"]
    other = [line[1:] for line in lines.splitlines() if line[:1] != "+"]
    compile("\n".join(other), "other", "exec")
    assert not re.search("stable_baselines3|sb3_contrib", "\n".join(zoo))
    (tmp_path / "script.py").write_text("\n".join(zoo))
    subprocess.run([sys.executable, "script.py"], check=True, timeout=300)
