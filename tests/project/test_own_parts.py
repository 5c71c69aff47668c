"""The files of the page about one's own parts can be copied, and its commands run with them.

Trainings end after a few hundred steps: the test adds ``n_timesteps``, and shortens Python examples as much.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from zoo.cli import status_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-parts.md"
SHORT = ["n_timesteps=512", "seed=1", "compile=false", "threads=1", "progress_bar=false"]

SECTIONS = dict(
    re.findall(r"^## An? .*?: `(my_\w+)\.py`\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
)


@pytest.fixture(autouse=True)
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy each section's file, its first block of Python, into an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, section in SECTIONS.items():
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0])


def test_page_has_all_five() -> None:
    assert list(SECTIONS) == ["my_env", "my_wrapper", "my_encoder", "my_policy", "my_callback"]


@pytest.mark.parametrize("name", SECTIONS)
def test_commands_run(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    commands = [
        line
        for block in re.findall(r"```bash\n(.*?)```", SECTIONS[name], re.DOTALL)
        for line in block.splitlines()
    ]
    assert commands
    for command in commands:
        verb, *arguments = shlex.split(command)[1:]
        short = SHORT if verb == "train" else []
        assert status_of([verb, *arguments, *short]) == 0, f"{command}\n{capfd.readouterr().err}"


@pytest.mark.parametrize("name", [name for name in SECTIONS if name != "my_wrapper"])
def test_python_runs(name: str) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", SECTIONS[name], re.DOTALL)[1:]
    names: dict[str, object] = {}
    exec(compile(example.replace("10_000", "512"), "docs/own-parts.md", "exec"), names)
    assert names["model"].num_timesteps >= 512  # type: ignore[attr-defined]
