"""What git says of the working folder, without letting a foreign repository run anything."""

from __future__ import annotations

import subprocess
from typing import Any


def git_state() -> dict[str, Any]:
    """Return the commit checked out in the working folder, and whether files differ from it.

    A repository can have git run programs of its own choice when it is asked for changes: its monitor is
    switched off, and one with filters of its own is not asked (``git_changed`` is None).
    """
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return {"git_commit": None}
    changed = None
    if not _has_filters_of_its_own():
        changed = bool(_git("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"))
    return {"git_commit": commit, "git_changed": changed}


def _has_filters_of_its_own() -> bool:
    """Tell whether the repository itself, and not the user, has set a program to read files through."""
    found = _git("config", "--show-scope", "--includes", "--name-only", "--get-regexp", r"^(filter|diff)\.")
    scopes = {line.partition("\t")[0] for line in (found or "").splitlines()}
    return not scopes <= {"global", "system"}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
