"""The user's key, by which what this user wrote is known again; it stands in no folder that is sent."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import stat
from pathlib import Path

from zoo.files.printing import one_line

logger = logging.getLogger(__name__)

_KEY_LENGTH = 32
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def signature_of(purpose: str, text: str) -> str | None:
    """Return what only this user can write beside a text, and know again; None where there can be no key.

    ``purpose`` says what for: a signature is none for any other.
    """
    key_file = key_file_of_user()
    if key_file is None:
        return None
    with contextlib.suppress(OSError):
        make_key(key_file)
    key = read_key(key_file)
    return None if key is None else digest(key, purpose.encode(), text.encode())


def is_signed(purpose: str, text: str, signature: object) -> bool:
    """Tell whether this user has written ``signature`` beside the text; no key is made for that."""
    key_file = key_file_of_user()
    if key_file is None or not isinstance(signature, str):
        return False
    key = read_key(key_file)
    given = signature.encode(errors="replace")
    return key is not None and hmac.compare_digest(
        given, digest(key, purpose.encode(), text.encode()).encode()
    )


def digest(key: bytes, purpose: bytes, *parts: bytes) -> str:
    """Return what the key makes of the parts, for one purpose; neither has a zero byte, but the last part."""
    return hmac.new(key, b"\0".join([purpose, *parts]), hashlib.sha256).hexdigest()


def key_file_of_user() -> Path | None:
    """Return where the key stands, or would; None for a user without a home."""
    try:
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "zoo", "key")
    except RuntimeError:  # this user has no home
        return None


def make_key(path: Path) -> None:
    """Make the key if there is none yet; of two processes that do so at a time, one does."""
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_LENGTH))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)


def read_key(path: Path) -> bytes | None:
    """Return the key; None if there is none, or, as a line tells, it can't be trusted."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            status, key = os.fstat(descriptor), file.read(_KEY_LENGTH + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        _tell_unused(path, f"it can't be read ({error.strerror or error})")
        return None
    if status.st_uid != os.geteuid():
        _tell_unused(path, "it belongs to another user")
    elif status.st_mode & _OTHERS:
        _tell_unused(path, "other users may read or change it (chmod 600, if none has)")
    elif len(key) != _KEY_LENGTH:
        _tell_unused(path, "it is not what Zoo wrote")
    else:
        return key
    return None


def _tell_unused(path: Path, reason: str) -> None:
    logger.warning(
        "your own runs are not recognised as yours: the key %s is not used, as %s; once it is removed, the"
        " next run makes another",
        one_line(path),
        reason,
    )
