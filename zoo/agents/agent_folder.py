"""An agent's files: written whole or not at all, read without running anything that stands in them.

An agent is a folder, or a zip of one, of YAML, JSON and safetensors:

- ``config.yaml``: what is needed to build policy and environment again
- ``policy.safetensors``: the weights
- ``normalization.safetensors``: running statistics, where observations or rewards are normalised
- ``card.json`` and ``README.md``: scores, seed, versions, hyperparameters; for programs and for people
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from zoo.agents.card import complete_card, readme
from zoo.agents.find import path_of_agent, resolve_agent
from zoo.agents.trust import refuse_foreign_code, stands_in_own_runs, without_foreign_training
from zoo.config.environment_values import as_written
from zoo.config.schema import PRESET
from zoo.core.atomic import atomic_folder
from zoo.core.plain_data import parse_json, parse_yaml, plain, to_json, to_yaml, with_finite_numbers
from zoo.core.printing import one_line
from zoo.core.tensors import Arrays, parse_tensors, tensor_bytes
from zoo.core.zips import read_regular, read_zip, write_zip
from zoo.errors import ZooError

FORMAT = 1  # the version of the format that this Zoo writes; it reads this one and all before it

EPISODE_LIMITS: dict[Any, Any] = {None: "auto", 0: None}
"""What an environment's ``max_episode_steps`` in an agent's file is in a config of today."""

FORMAT_1_KEYS = {"memory": "replay"}
"""Sections under which an agent's file keeps what a config of today has under another name."""

CONFIG = "config.yaml"
POLICY = "policy.safetensors"
NORMALIZATION = "normalization.safetensors"
CARD = "card.json"
README = "README.md"
AGENT_FILES = (CONFIG, POLICY, NORMALIZATION, CARD, README)


@dataclass
class AgentFiles:
    """Content of an agent's files, as plain data and arrays."""

    config: dict[str, Any]
    """``format``, ``algo`` (``name`` and hyperparameters), ``policy``, ``replay`` (of off-policy algorithms),
    ``env`` (or null), ``n_envs``, ``observation_space`` and ``action_space``."""
    tensors: Arrays
    normalization: tuple[Arrays, dict[str, Any]] | None = None
    """Arrays and JSON values of the normaliser."""
    card: dict[str, Any] = field(default_factory=dict)
    is_trusted: bool = field(default=False, compare=False)
    """Whether environment and policy may name code: the user says so, or it stands in the user's own runs."""


def write_agent(path: str | os.PathLike[str], agent: AgentFiles) -> Path:
    """Write an agent to a folder, or to a zip if the path ends in ``.zip``; whole or not at all.

    An agent that stands there is replaced; files beside its own in the folder stay. Raises `ZooError` if
    something else stands there, or nothing can be written.
    """
    destination = path_of_agent(path)
    if destination.suffix == ".zip":
        if destination.exists() and not zipfile.is_zipfile(destination):
            raise ZooError(f"{one_line(destination)} is something else than an agent; choose another path")
        write_zip(destination, _contents(agent))
    else:
        _write_folder(destination, _contents(agent))
    return destination


def read_agent(path: str | os.PathLike[str], *, trust: bool = False, own_env: bool = False) -> AgentFiles:
    """Read an agent from a folder, a zip, or a run's folder (its best agent).

    Nothing in the files is run, unpickled or resolved: texts stay plain data. A config that names code
    outside Zoo is refused (`zoo.agents.trust`), unless ``trust`` is given or the agent stands in the user's
    own runs; with ``own_env`` its section ``env`` may name anything, because the caller brings an environment
    and builds none from it.

    Raises `ZooError` for a missing, damaged or untrusted agent.
    """
    folder = resolve_agent(path)
    return _read_agent(folder, trust=trust or stands_in_own_runs(folder), own_env=own_env)


def read_as_data(path: str | os.PathLike[str]) -> AgentFiles:
    """Read an agent to show it or to hand it on: nothing that it names is looked for. Raises `ZooError`."""
    files = _read_agent(resolve_agent(path), trust=True, own_env=True)
    files.is_trusted = False
    return files


def _read_agent(folder: Path, *, trust: bool, own_env: bool) -> AgentFiles:
    raw = _read_files(folder, (CONFIG, POLICY, NORMALIZATION, CARD))
    config, policy, statistics = _parse_config(folder, raw[CONFIG]), raw[POLICY], raw[NORMALIZATION]
    if policy is None:
        raise _missing_file(folder, POLICY)
    if not trust:
        config["algo"] = without_foreign_training(config.get("algo"), one_line(folder))
        checked = {key: value for key, value in config.items() if key != "env" or not own_env}
        refuse_foreign_code(checked, one_line(folder))
    config["env"] = _with_limit(config.get("env"), EPISODE_LIMITS)
    normalization = None
    if statistics is not None:
        with _damage_named(folder, NORMALIZATION):
            arrays, metadata = parse_tensors(statistics)
            normalization = arrays, parse_json(metadata.get("values", "{}"))
    with _damage_named(folder, POLICY):
        # Copies: views would keep the whole file in memory.
        tensors = {name: np.array(view) for name, view in parse_tensors(policy)[0].items()}
    return AgentFiles(config, tensors, normalization, _parse_card(folder, raw[CARD]), is_trusted=trust)


def read_card(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the card alone, for lists; empty where an agent has none. Raises `ZooError` if it is damaged."""
    folder = resolve_agent(path)
    return _parse_card(folder, _read_files(folder, (CARD,))[CARD])


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the config alone, as data: nothing that it names is looked for. Raises `ZooError`."""
    folder = resolve_agent(path)
    return _parse_config(folder, _read_files(folder, (CONFIG,))[CONFIG])


def fingerprint(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of all files by which an agent acts. Raises `ZooError`."""
    digest = hashlib.sha256()
    for name, content in _read_files(resolve_agent(path), (CONFIG, POLICY, NORMALIZATION)).items():
        digest.update(name.encode() + hashlib.sha256(content or b"").digest())
    return digest.hexdigest()


# Writing


def _contents(agent: AgentFiles) -> dict[str, bytes]:
    written = {"format": FORMAT, **as_written(plain(agent.config))}
    config = _renamed(written, {name: filed for filed, name in FORMAT_1_KEYS.items()})
    config["env"] = _with_limit(config.get("env"), {name: filed for filed, name in EPISODE_LIMITS.items()})
    card = with_finite_numbers(complete_card(agent.card, config))
    contents = {
        CONFIG: to_yaml(config).encode(),
        POLICY: tensor_bytes(agent.tensors),
        CARD: to_json(card).encode(),
        README: readme(card, written).encode(),
    }
    if agent.normalization is not None:
        arrays, values = agent.normalization
        contents[NORMALIZATION] = tensor_bytes(arrays, {"values": json.dumps(plain(values))})
    return contents


def _with_limit(env: dict[str, Any] | None, limits: Mapping[Any, Any]) -> dict[str, Any] | None:
    """Return a section ``env`` with its limit of an episode's steps as ``limits`` spells it."""
    if env is None or "max_episode_steps" not in env:
        return env
    limit = env["max_episode_steps"]
    return {**env, "max_episode_steps": limits.get(limit, limit)}


def _write_folder(destination: Path, contents: Mapping[str, bytes]) -> None:
    is_agent = all((destination / name).is_file() for name in (CONFIG, POLICY))
    if destination.is_dir() and not is_agent and any(destination.iterdir()):
        raise ZooError(f"{one_line(destination)} holds something else than an agent; choose another folder")
    with atomic_folder(destination) as new:
        if is_agent:
            shutil.copytree(destination, new, symlinks=True, dirs_exist_ok=True)
            for name in AGENT_FILES:
                (new / name).unlink(missing_ok=True)
        for name, content in contents.items():
            (new / name).write_bytes(content)


# Reading


def _read_files(path: Path, names: Iterable[str]) -> dict[str, bytes | None]:
    """Return each file's bytes, None for one that the agent does not have."""
    try:
        if path.is_file():
            contents = read_zip(path, names, main=CONFIG)
        else:
            contents = {name: read_regular(path / name) for name in names if (path / name).exists()}
    except ValueError as error:
        raise ZooError(f"{one_line(path)} is not an agent: {error}") from error
    except OSError as error:
        raise ZooError(f"can't read {one_line(path)}: {error.strerror or one_line(error)}") from error
    return {name: contents.get(name) for name in names}


def _parse_config(folder: Path, content: bytes | None) -> dict[str, Any]:
    if content is None:
        raise _missing_file(folder, CONFIG)
    with _damage_named(folder, CONFIG):
        config = parse_yaml(content)
        version = config.get("format")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise ValueError("`format` is missing")
        if version > FORMAT:
            raise ZooError(
                f"the agent in {one_line(folder)} has format {version}, but this Zoo reads formats up to"
                f" {FORMAT}; update Zoo"
            )
        for section in ("algo", "policy", "observation_space", "action_space"):
            if not isinstance(config.get(section), dict):
                raise ValueError(f"`{section}` is missing")
        if not isinstance(config.get("env"), dict | None):
            raise ValueError("`env` is no mapping")
        if not isinstance(config["algo"].get("name"), str):
            raise ValueError("`algo.name` is missing")
        if not PRESET.fullmatch(str(config["algo"].get("preset") or "none")):
            raise ValueError("`algo.preset` is no name")
    return _renamed(config, FORMAT_1_KEYS)


def _parse_card(folder: Path, content: bytes | None) -> dict[str, Any]:
    with _damage_named(folder, CARD):
        return {} if content is None else parse_json(content)


@contextlib.contextmanager
def _damage_named(folder: Path, name: str) -> Iterator[None]:
    """Name the agent and its file where the block finds that this is damaged."""
    try:
        yield
    except (ValueError, MemoryError) as error:
        problem = f"the agent in {one_line(folder)} is damaged: {name}: {one_line(error)}"
        raise ZooError(problem) from error


def _missing_file(path: Path, name: str) -> ZooError:
    """Return the error for an agent without one of its files: it may be of Stable-Baselines3."""
    sb3_files = ("data", "policy.pth")
    if path.is_file() and len(read_zip(path, sb3_files, main=CONFIG)) == len(sb3_files):
        return ZooError(f"{one_line(path)} is of Stable-Baselines3; first: zoo import {one_line(path)}")
    return ZooError(f"{one_line(path)} is not a whole agent: {name} is missing")


def _renamed(config: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in config.items()}
