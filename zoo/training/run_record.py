"""A run's record, ``run.json``: the machine and checkout that it names, and how a record is read."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

from zoo.files.free_memory import usable_cores
from zoo.files.plain_data import parse_json
from zoo.files.printing import one_line

KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("status", "job", "started", "ended", "stop_reason"), (str,)),
    **dict.fromkeys(("timesteps", "seed"), (int, float)),
    **dict.fromkeys(("evaluation", "versions", "machine"), (dict,)),
    "resumed": (list,),
}
"""What those values are that somebody reads; each may be missing, or null."""


def parse_record(content: bytes) -> dict[str, Any]:
    """Return what a record holds. Raises `ValueError` in one line where a value is none of its kind."""
    record = parse_json(content)
    for name, kinds in KINDS.items():
        value = record.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
            raise ValueError(f"`{name}` in it is {one_line(repr(value), 40)}")
    return record


def machine() -> dict[str, Any]:
    """Return system, processor and number of cores."""
    return {"system": platform.platform(), "cpu": cpu_name(), "cores": usable_cores()}


def cpu_name() -> str:
    """Return what the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def git_state() -> dict[str, Any]:
    """Return the commit checked out in the working folder, and whether files differ from it."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return {"git_commit": None}
    return {"git_commit": commit, "git_changed": bool(_git("status", "--porcelain", "--untracked-files=no"))}


def _git(*arguments: str) -> str | None:
    """Return what git prints, or None where it can't answer."""
    command = ["git", "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()
