"""Compiled code is kept in the user's own cache, and what is private in PyTorch can be done without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPILING = """
import sys
from test_update_runner import Regression
{before}
eager, compiled = Regression(), Regression(compiled=True)
for _ in range(2):
    eager.run(4), compiled.run(4)
assert compiled.runner.runtime.compiles == {compiles}
assert eager.runner.state["net"].allclose(compiled.runner.state["net"], rtol=1e-3, atol=1e-5)
"""


def run(tmp_path: Path, compiles: bool, before: str = "", **environment: str) -> str:
    """Train in a process of its own; return what it says."""
    inherited = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    finished = subprocess.run(
        [sys.executable, "-c", COMPILING.format(before=before, compiles=compiles)],
        env={
            **inherited,
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stderr


@pytest.mark.usefixtures("needs_compiler")
def test_compiled_code_lies_in_the_users_cache(tmp_path: Path) -> None:
    run(tmp_path, compiles=True)
    folder = tmp_path / "cache" / "zoo" / "inductor"
    assert folder.stat().st_mode & 0o077 == 0, "others can't put anything there"
    assert list(folder.rglob("*.so"))


def test_without_a_compiler_a_run_goes_on_eagerly_and_says_so_once(tmp_path: Path) -> None:
    (line,) = run(tmp_path, compiles=False, CXX="/nonexistent").splitlines()
    assert "going on without" in line
    assert "No working C++ compiler" in line


def test_without_what_is_private_in_pytorch_a_run_goes_on_eagerly(tmp_path: Path) -> None:
    """As with a release of PyTorch in which it is no more."""
    said = run(tmp_path, compiles=False, before="sys.modules['torch._inductor'] = None")
    assert "going on without" in said
