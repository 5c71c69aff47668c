"""Knowing the user's own runs again: what these name as code, the user has run already.

A run is signed when it starts, with a key that stands in the user's own config folder and in no run's. Signed
is what decides which code is run: the run's whole config, where the run stands, and the working folder, from
which modules are imported. A run that was copied or edited is a stranger's.
"""

from __future__ import annotations

import contextlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.agents.finding import KEPT
from zoo.agents.trust import NAMES_CODE
from zoo.errors import ZooError
from zoo.files import atomic
from zoo.files.opening import TEXT_LIMIT, Folder
from zoo.files.own_key import digest, key_file_of_user, make_key, read_key
from zoo.files.plain_data import parse_yaml
from zoo.files.printing import one_line

CONFIG = "config.yaml"
SIGNATURE = ".signature"
PURPOSE = b"zoo run"
"""What the key signs here, and not a sweep."""

READ_BY_SPACE = ("name", "encoder", "features_dim")
"""What a policy makes of itself for dictionaries of observations; of these a mapping names a class."""


def sign(run: Path, config: bytes) -> None:
    """Sign a run that this user starts, by the config that was written into it.

    Where there can be no key, nothing happens.
    """
    key_file = key_file_of_user()
    if key_file is None:
        return
    with contextlib.suppress(OSError, ZooError):
        make_key(key_file)
        key = read_key(key_file)
        if key is not None:
            atomic.write_text(run / SIGNATURE, _signature(key, run, config))


def config_of_own_run(run: Path) -> bytes | None:
    """Return the config of a run of this user's own: the bytes that were signed. None for any other run.

    Whoever trusts the run reads these, and not the file again, which may be another by then.
    """
    key_file = key_file_of_user()
    if key_file is None:
        return None
    run = Path(os.path.realpath(run))
    try:
        signature = Folder(run).read(SIGNATURE, TEXT_LIMIT)
        config = Folder(run).read(CONFIG, TEXT_LIMIT)
        if signature is None or config is None:
            return None
        key = read_key(key_file)
        if key is None or not hmac.compare_digest(signature, _signature(key, run, config).encode()):
            return None
    except (OSError, ValueError, ZooError):
        return None
    return config


def is_own_run(run: Path) -> bool:
    """Tell whether a run is of this user's own, with the config that it was started with."""
    return config_of_own_run(run) is not None


def refuse_link_of_others(folder: Path) -> None:
    """Raise `ZooError` if a folder, to be written to, is a link in a run that is not this user's own."""
    run = folder.parent
    if folder.is_symlink() and (run / "run.json").is_file() and not is_own_run(run):
        raise ZooError(
            f"{one_line(folder)} is a link, which is not followed out of a run that is not your own:"
            " remove it"
        )


def own_run_of(agent: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the config of the run of this user's own in which an agent stands that names no other code.

    None for any other agent; ``config`` is the agent's.
    """
    folder = Path(os.path.realpath(agent)).parent
    content = config_of_own_run(folder.parent if folder.name == KEPT else folder)
    if content is None:
        return None
    try:
        of_run = parse_yaml(content)
    except ValueError:
        return None
    same = all(_naming_code(config, section) == _naming_code(of_run, section) for section in NAMES_CODE)
    return of_run if same else None


def _naming_code(config: Mapping[str, Any], section: str) -> Any:
    """Return what of a section can name code; a policy's other values may be read as the spaces want it."""
    values = config.get(section)
    if section != "policy" or not isinstance(values, Mapping):
        return values
    return {
        key: value for key, value in values.items() if key not in READ_BY_SPACE or isinstance(value, Mapping)
    }


def _signature(key: bytes, run: Path, config: bytes) -> str:
    return digest(key, PURPOSE, os.fsencode(os.getcwd()), os.fsencode(os.path.realpath(run)), config)
