"""What git says of the working folder, without letting a foreign repository run anything."""

from __future__ import annotations

import subprocess
from typing import Any

NOTHING_SET = 1
"""The exit status of ``git config`` where no setting is of the name asked for."""


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
    """Tell whether the repository itself, and not the user, has set a program to read files through.

    So it is taken to be where git can't say: versions before 2.26 have no scopes.
    """
    pattern = r"^(filter|diff)\."
    status, found = _asked("config", "--show-scope", "--includes", "--name-only", "--get-regexp", pattern)
    if status == NOTHING_SET:
        return False
    scopes = {line.partition("\t")[0] for line in found.splitlines()}
    return status != 0 or not scopes <= {"global", "system"}


def _git(*arguments: str) -> str | None:
    status, found = _asked(*arguments)
    return found.strip() if status == 0 else None


def _asked(*arguments: str) -> tuple[int | None, str]:
    """Return git's exit status, None where it could not answer, and what it printed."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None, ""
    return done.returncode, done.stdout
