"""Knowing the user's own runs again: what these name as code, the user has run already.

A run is signed when it starts, with a key that stands in the user's own config folder and in no run's. Signed
is what decides which code is run: the run's whole config, where the run stands, and the working folder, from
which modules are imported. A run that was copied or edited is a stranger's.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.errors import ZooError
from zoo.files import atomic
from zoo.files.opening import TEXT_LIMIT, Folder
from zoo.files.plain_data import parse_yaml
from zoo.files.printing import one_line

logger = logging.getLogger(__name__)

CONFIG = "config.yaml"
SIGNATURE = ".signature"

NAMES_CODE = ("env", "policy")
"""Sections of an agent's config that may name code; they are those of its run."""

READ_BY_SPACE = ("name", "encoder", "features_dim")
"""What a policy makes of itself for dictionaries of observations; none of it names a class."""

_KEY_LENGTH = 32
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def sign(run: Path) -> None:
    """Sign a run that this user starts, by its config; where there can be no key, nothing happens."""
    key_file = _key_file()
    if key_file is None:
        return
    with contextlib.suppress(OSError, ZooError):
        _make_key(key_file)
        key, config = _read_key(key_file), Folder(run).read(CONFIG, TEXT_LIMIT)
        if key is not None and config is not None:
            atomic.write_text(run / SIGNATURE, _signature(key, run, config))


def is_own(agent: Path, config: Mapping[str, Any]) -> bool:
    """Tell whether an agent stands in a run of this user's own, and names no other code than that run."""
    signed = _signed_config(Path(os.path.realpath(agent)).parent)
    if signed is None:
        return False
    return all(_naming_code(config, section) == _naming_code(signed, section) for section in NAMES_CODE)


def is_own_run(run: Path, config: Mapping[str, Any]) -> bool:
    """Tell whether a run is of this user's own, and ``config`` the one that it was started with."""
    return _signed_config(Path(os.path.realpath(run))) == config


def _signed_config(run: Path) -> dict[str, Any] | None:
    """Return the config of a run if this user's key has signed it."""
    key_file = _key_file()
    if key_file is None:
        return None
    try:
        signature = Folder(run).read(SIGNATURE, TEXT_LIMIT)
        run_config = Folder(run).read(CONFIG, TEXT_LIMIT)
        if signature is None or run_config is None:
            return None
        key = _read_key(key_file)
        if key is None or not hmac.compare_digest(signature, _signature(key, run, run_config).encode()):
            return None
        return parse_yaml(run_config)
    except (OSError, ValueError, ZooError):
        return None


def signature_of(text: str) -> str | None:
    """Return what only this user can write beside a text, and know again; None where there can be no key."""
    key_file = _key_file()
    if key_file is None:
        return None
    with contextlib.suppress(OSError):
        _make_key(key_file)
    key = _read_key(key_file)
    return None if key is None else hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _naming_code(config: Mapping[str, Any], section: str) -> Any:
    """Return what of a section can name code; a policy's other values may be read as the spaces want it."""
    values = config.get(section)
    if section != "policy" or not isinstance(values, Mapping):
        return values
    return {key: value for key, value in values.items() if key not in READ_BY_SPACE}


def _signature(key: bytes, run: Path, config: bytes) -> str:
    parts = [b"zoo run", os.fsencode(os.getcwd()), os.fsencode(os.path.realpath(run)), config]
    return hmac.new(key, b"\0".join(parts), hashlib.sha256).hexdigest()


def _key_file() -> Path | None:
    try:
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "zoo", "key")
    except RuntimeError:  # this user has no home
        return None


def _make_key(path: Path) -> None:
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


def _read_key(path: Path) -> bytes | None:
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
