"""Compiled code is kept where no other user can have put any."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from zoo.optim.compiled_cache import VARIABLE, private_folder, use_private_cache


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(VARIABLE, "")
    return tmp_path / "cache"


def test_folder_is_the_users_alone_and_stays_the_same(cache_home: Path) -> None:
    folder = private_folder()
    assert folder == cache_home / "zoo" / "inductor"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert private_folder() == folder


SPOILED: dict[str, Callable[[Path], object]] = {
    "open to others": lambda folder: folder.chmod(0o770),
    "readable": lambda folder: folder.chmod(0o755),
    "link": lambda folder: (folder.rename(folder.with_name("other")), folder.symlink_to("other")),
    "above open to others": lambda folder: folder.parent.chmod(0o777),
    "above exchangeable": lambda folder: folder.parent.parent.chmod(0o777),
    "file": lambda folder: (folder.rmdir(), folder.write_text("")),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_folder_that_others_can_change_is_not_used(
    spoil: Callable[[Path], object], cache_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    usual = private_folder()
    spoil(usual)
    other = private_folder()
    assert other != usual
    assert stat.S_IMODE(other.stat().st_mode) == 0o700
    assert len(caplog.messages) == 1
    other.rmdir()


def test_folder_of_another_user_is_not_used(cache_home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only the superuser can give a folder away")
    usual = private_folder()
    os.chown(usual, 65534, -1)
    other = private_folder()
    assert other != usual
    other.rmdir()


def test_folder_that_the_user_names_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine"))
    assert use_private_cache() == tmp_path / "mine"


@pytest.mark.usefixtures("needs_compiler")
def test_modules_of_the_working_folder_are_not_imported_to_look_for_vectors(tmp_path: Path) -> None:
    """Inductor starts a Python for that, which imports ``ctypes``, and that imports ``struct``."""
    for name in ("ctypes", "struct"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / name)!r}, 'w')\nraise ImportError")
    program = """
import sys
sys.path[:] = filter(None, sys.path)
from zoo.optim import tracing
from torch._inductor.cpu_vec_isa import pick_vec_isa
print(bool(pick_vec_isa()))
"""
    finished = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert finished.stdout.splitlines()[-1:] == ["True"], finished.stderr
    assert not (tmp_path / "ctypes").exists()
    assert not (tmp_path / "struct").exists()


@pytest.mark.usefixtures("needs_compiler")
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="needs a processor with vectors"
)
def test_vectors_that_damaged_files_hide_are_told(tmp_path: Path, cache_home: Path) -> None:
    program = "from zoo.optim import tracing\ntracing._tell_of_missing_vectors()"
    command = [sys.executable, "-c", program]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert first.stderr == ""
    for library in (cache_home / "zoo" / "inductor").rglob("*.so"):
        os.truncate(library, 1000)
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "none of the processor's vectors" in again.stderr


@pytest.mark.usefixtures("needs_compiler")
def test_nothing_is_compiled_in_a_place_of_everybody(tmp_path: Path, cache_home: Path) -> None:
    program = """
from test_program import Regression
compiled = Regression(compiled=True)
compiled.run(4)
assert compiled.program.runtime.compiles
"""
    shared = tmp_path / "everybody"
    shared.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **environment,
            "TMPDIR": str(shared),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert not list(shared.glob("torchinductor*"))
    assert list((cache_home / "zoo" / "inductor").rglob("*.so"))
