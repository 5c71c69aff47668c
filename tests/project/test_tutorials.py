"""Tutorials are carried out with small budgets, in an empty folder; notebooks are made from them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from zoo.cli import status_of

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "scripts"))

from make_notebooks import NAMES, NOTEBOOKS, TUTORIALS, Block, address_of, blocks, notebook  # noqa: E402

PAGES = sorted(TUTORIALS.glob("*.md"))
SLOW = ("continuous-control", "hyperparameter-search", "paper-figures")
"""Tutorials with large networks, or with many processes."""
CUTS = {
    r"\bn_timesteps=[\d_.e]+": "n_timesteps=200",
    r"\blearn\([\d_]+\)": "learn(200)",
    r"\bn_(eval_)?episodes=\d+": r"n_\1episodes=2",
    r"\bn_trials=\d+": "n_trials=2",
    r"\bcallbacks.eval.every=\d+": "callbacks.eval.every=100",
    r"\brange\(5\)": "range(2)",
    r"\balgo=(her_)?dqn\b": r"algo=\1dqn algo.learning_starts=100",
    r"\btop_(k|seeds)=[1-9]": r"top_\1=1",
}
"""What budgets are replaced by, in commands and in Python."""
SMALL = {
    "train": ("n_timesteps=200", "compile=false", "callbacks.eval.n_episodes=1", "callbacks.eval.every=100"),
    "tune": ("compile=false", "callbacks.eval.n_episodes=1"),
    "evaluate": ("n_episodes=2",),
}
"""What is added to commands, unless they say it themselves."""
SHOWN = ("first-agent", "paper-figures")
"""Notebooks in which a figure is the value of a cell."""


def cut(text: str) -> str:
    for old, new in CUTS.items():
        text = re.sub(old, new, text)
    return text


def cut_command(line: str) -> str:
    """Return a command with small budgets; other lines and comments stay."""
    line = cut(line)
    if not (command := re.match(r"!?zoo (\w+)", line)):
        return line
    command_line, *comment = line.split("  #")
    added = [word for word in SMALL.get(command[1], ()) if f" {word.split('=')[0]}=" not in command_line]
    return " ".join([command_line.rstrip(), *added]) + "".join(f"  #{text}" for text in comment)


def carry_out(block: Block, names: dict[str, object]) -> None:
    """Write the block's file, execute its Python, or give its commands."""
    if block.file:
        Path(block.file).parent.mkdir(parents=True, exist_ok=True)
        Path(block.file).write_text(block.text)
    elif block.language == "python":
        exec(compile(cut(block.text), "<block>", "exec"), names)
    elif block.language == "bash":
        for line in block.text.splitlines():
            program, *words = shlex.split(cut_command(line), comments=True)
            assert program == "zoo", f"not run, without a reason: {line}"
            assert status_of(words) == 0, line


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in SLOW)) for page in PAGES],
)
def test_tutorial_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text, names = page.read_text(), {"__name__": "__main__"}
    unrun = [block for block in blocks(text) if block.not_run]
    assert len(unrun) == text.count("<!-- not run")  # each reason stands before a block
    for block in blocks(text):
        if not block.not_run:
            carry_out(block, names)
    assert list(tmp_path.iterdir())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tutorial_is_short(page: Path) -> None:
    words = [
        word for block in blocks(page.read_text()) if block.language is None for word in block.text.split()
    ]
    assert 350 <= len(words) <= 900


@pytest.mark.parametrize(
    ("block", "error"),
    [
        (Block("zoo train algo=nothing env=CartPole-v1\n", "bash"), "nothing"),
        (Block("curl http://127.0.0.1\n", "bash"), "without a reason"),
        (Block("import zoo\nzoo.ppo3\n", "python"), "ppo3"),
    ],
)
def test_planted_error_fails(block: Block, error: str) -> None:
    with pytest.raises((AssertionError, AttributeError), match=error):
        carry_out(block, {})


def test_notebooks_are_current() -> None:
    command = [sys.executable, str(REPOSITORY / "scripts" / "make_notebooks.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert sorted(path.stem for path in NOTEBOOKS.iterdir()) == sorted(NAMES)


MARKDOWN = """# Title
<!-- notebook -->
link
<!-- end -->
[next](next.md) and [plots](../plots.md)
```python
# folder/part.py
x = 1
```
```python
print(1)
```
```
1
```
```bash
zoo status
```
<!-- not run: why -->
```bash
zoo train resume=RUN
```
text
<!-- not run: also why -->
```bash
curl x
```
"""


@pytest.mark.parametrize("address", [None, "https://github.com/somebody/zoo"])
def test_notebook_has_cells_of_page(address: str | None) -> None:
    page = nbformat.reads(notebook("name", MARKDOWN, address), as_version=4)
    nbformat.validate(page)
    top, *cells = page.cells
    if address is not None:
        assert f"git+{address}" in cells.pop(0).source
    assert ("github/somebody/zoo/blob/main/docs/notebooks/name.ipynb" in top.source) == (address is not None)
    assert "[next](../tutorials/next.md) and [plots](../plots.md)" in top.source
    assert [cell.source for cell in cells] == [
        "!mkdir -p folder",
        "%%writefile folder/part.py\n# folder/part.py\nx = 1",
        "print(1)",
        "!zoo status",
        "```bash\nzoo train resume=RUN\n```",
        "text",
        "```bash\ncurl x\n```",
    ]
    assert address_of(f'[project.urls]\nDocs = "x"\nRepository = "{address}/"\n') == str(address)
    assert address_of("[project]\n") is None


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_notebook_runs(name: str, tmp_path: Path) -> None:
    page = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    for cell in page.cells:
        if cell.cell_type == "code" and not cell.source.startswith("%%writefile"):
            lines = map(cut_command, cell.source.splitlines())
            cell.source = "\n".join(f"{x}\nassert not _exit_code" if x[0:1] == "!" else x for x in lines)
    environment = {
        **os.environ,
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
    }
    client = NotebookClient(page, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=environment)
    outputs = [output for cell in page.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs) == (name in SHOWN)
    films = [output for output in outputs if "<video" in str(output.get("data", {}).get("text/html"))]
    assert len(films) == (name == "first-agent")
