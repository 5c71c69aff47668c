"""The machine and the checkout that a run takes place in, as far as numbers can depend on them."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any


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


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
