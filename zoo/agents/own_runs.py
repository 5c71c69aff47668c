"""Knowing the user's own runs again: what these name as code, the user has run already.

A run is signed when it starts, with a key that stands in the user's own config folder and in no run's. Signed
is what decides which code is run: the run's whole config, where the run stands, and the working folder, from
which modules are imported. A run that was copied or edited is a stranger's.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.agents.finding import KEPT
from zoo.errors import ZooError
from zoo.files import atomic
from zoo.files.opening import TEXT_LIMIT, Folder
from zoo.files.own_key import key_file_of_user, make_key, read_key
from zoo.files.plain_data import parse_yaml

CONFIG = "config.yaml"
SIGNATURE = ".signature"

NAMES_CODE = ("env", "policy")
"""Sections of an agent's config that may name code; they are those of its run."""

READ_BY_SPACE = ("name", "encoder", "features_dim")
"""What a policy makes of itself for dictionaries of observations; none of it names a class."""


def sign(run: Path) -> None:
    """Sign a run that this user starts, by its config; where there can be no key, nothing happens."""
    key_file = key_file_of_user()
    if key_file is None:
        return
    with contextlib.suppress(OSError, ZooError):
        make_key(key_file)
        key, config = read_key(key_file), Folder(run).read(CONFIG, TEXT_LIMIT)
        if key is not None and config is not None:
            atomic.write_text(run / SIGNATURE, _signature(key, run, config))


def is_own(agent: Path, config: Mapping[str, Any]) -> bool:
    """Tell whether an agent stands in a run of this user's own, and names no other code than that run."""
    folder = Path(os.path.realpath(agent)).parent
    signed = _signed_config(folder.parent if folder.name == KEPT else folder)
    if signed is None:
        return False
    return all(_naming_code(config, section) == _naming_code(signed, section) for section in NAMES_CODE)


def is_own_run(run: Path, config: Mapping[str, Any]) -> bool:
    """Tell whether a run is of this user's own, and ``config`` the one that it was started with."""
    return _signed_config(Path(os.path.realpath(run))) == config


def is_own_as_it_stands(run: Path) -> bool:
    """Tell whether a run is of this user's own, with the config that it was started with."""
    return _signed_config(Path(os.path.realpath(run))) is not None


def _signed_config(run: Path) -> dict[str, Any] | None:
    """Return the config of a run if this user's key has signed it."""
    key_file = key_file_of_user()
    if key_file is None:
        return None
    try:
        signature = Folder(run).read(SIGNATURE, TEXT_LIMIT)
        run_config = Folder(run).read(CONFIG, TEXT_LIMIT)
        if signature is None or run_config is None:
            return None
        key = read_key(key_file)
        if key is None or not hmac.compare_digest(signature, _signature(key, run, run_config).encode()):
            return None
        return parse_yaml(run_config)
    except (OSError, ValueError, ZooError):
        return None


def _naming_code(config: Mapping[str, Any], section: str) -> Any:
    """Return what of a section can name code; a policy's other values may be read as the spaces want it."""
    values = config.get(section)
    if section != "policy" or not isinstance(values, Mapping):
        return values
    return {key: value for key, value in values.items() if key not in READ_BY_SPACE}


def _signature(key: bytes, run: Path, config: bytes) -> str:
    parts = [b"zoo run", os.fsencode(os.getcwd()), os.fsencode(os.path.realpath(run)), config]
    return hmac.new(key, b"\0".join(parts), hashlib.sha256).hexdigest()
