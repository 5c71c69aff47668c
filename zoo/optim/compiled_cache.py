"""Where PyTorch keeps what it has compiled: in a folder of this user's alone.

Its own place is a fixed name in the system's temporary folder, where anybody may have put libraries before,
and what stands there is loaded.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import shutil
import stat
import tempfile
from pathlib import Path

from zoo.files.printing import one_line

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"

logger = logging.getLogger(__name__)


def version_of(file: str) -> str:
    """Return what the name of an operation holds whose kernels ``file`` writes: of another file, another.

    Compiled graphs are kept by the names of their operations, whatever these become.
    """
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:8]


def use_private_cache() -> Path:
    """Let PyTorch keep compiled code in the folder that this returns; one that the user has named stays.

    It is the same in every process of the user's, so that nothing is compiled twice.
    """
    given = os.environ.get(VARIABLE)
    folder = Path(given) if given else private_folder()
    os.environ[VARIABLE] = str(folder)
    return folder


def private_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/zoo/inductor``, made if need be; where others could write to it, a new one."""
    try:
        folder = Path(
            os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "zoo", "inductor"
        ).absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        problem = _problem(folder)
    except (OSError, RuntimeError) as error:  # RuntimeError: this user has no home
        folder, problem = Path("~/.cache/zoo/inductor"), f"it can't be made ({error})"
    if problem is None:
        return folder
    logger.warning(
        "compiled updates are not kept: %s is not used, as %s; where that is mended, remove what is in it",
        one_line(folder, 1000),
        problem,
    )
    folder = Path(tempfile.mkdtemp(prefix="zoo-compiled-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _problem(folder: Path) -> str | None:
    for each in (folder, folder.parent):
        status = each.lstat()
        if not stat.S_ISDIR(status.st_mode):
            return "it is a link" if stat.S_ISLNK(status.st_mode) else "it is no folder"
        if status.st_uid != os.geteuid():
            return "it belongs to another user"
    if folder.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return "other users may read or change it"
    if folder.parent.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users may change the folder above it"
    above = folder.parent.parent.stat()
    is_open = above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX
    if is_open or above.st_uid not in (os.geteuid(), 0):
        return "other users may exchange the folder above it"
    return None
