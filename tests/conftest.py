"""Every test has one thread a process, signals as in a terminal, and leaves no process behind."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import logging
import os
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import toy_envs  # noqa: F401  # registers them

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that starts a command in the background lets it ignore SIGINT, and so would what tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile(
    "tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tests")

SECONDS_TO_END = 5.0
PERMANENT = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "wandb-core")
"""Processes of Python and W&B that live as long as the one that started them."""

BECOME_SUBREAPER = 36
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(BECOME_SUBREAPER, 1)  # orphans of a killed child become ours


SLOW = frozenset((Path(__file__).parent / "slow.txt").read_text(encoding="utf-8").splitlines())


@pytest.hookimpl(tryfirst=True)  # before -m deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `slow.txt`."""
    for item in items:
        if item.nodeid in SLOW or item.nodeid.partition("[")[0] in SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def _own_config_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep a user's own settings out of the tests."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Remove the handlers that a command added: they write to the streams that its test captured."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler and handler not in before:
            root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _no_process_left_behind() -> Iterator[None]:
    """Fail a test whose processes don't end by themselves in a few seconds, and kill them."""
    before = _children()
    yield
    deadline = time.monotonic() + SECONDS_TO_END
    while (left := _children() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    commands = [_command(pid) for pid in left]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"left behind: {commands}"


def _children() -> set[int]:
    """Return the living children of this process."""
    pids: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended since
            pids |= set(map(int, path.read_text(encoding="ascii").split()))
    return {
        pid for pid in pids if (command := _command(pid)) and not any(part in command for part in PERMANENT)
    }


def _command(pid: int) -> str:
    """Return the command of a process, "" for one that has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


@pytest.fixture(autouse=True)
def _skip_without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip a test once it compiles, where PyTorch can't."""
    reason = _why_not_compiled()
    if reason is None:
        return
    from zoo.optim.update_runner import UpdateRunner

    def skip(*arguments: object) -> None:
        pytest.skip(reason)

    for name in ("_compile_step", "_compile_function"):
        monkeypatch.setattr(UpdateRunner, name, skip)


@pytest.fixture
def needs_compiler() -> None:
    """Skip a test that compiles in a process of its own, where PyTorch can't."""
    reason = _why_not_compiled()
    if reason is not None:
        pytest.skip(reason)


@functools.cache
def _why_not_compiled() -> str | None:
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin is not None and re.search(r"\s", torch.origin):
        return "PyTorch can't compile from a path with spaces"
    compiler = os.environ.get("CXX", "g++")
    return None if shutil.which(compiler) else f"PyTorch can't compile without a C++ compiler ({compiler})"


@pytest.fixture
def no_larger_files() -> Callable[[int], contextlib.AbstractContextManager[None]]:
    """Make the system refuse to write any file beyond a size, as a full disk does."""

    @contextlib.contextmanager
    def limit(size: int) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limit
