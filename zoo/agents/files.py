"""An agent's files: written whole or not at all, read without running anything that stands in them.

An agent is a folder, or a zip of one, of YAML, JSON and safetensors:

- ``config.yaml``: what is needed to build policy and environment again
- ``policy.safetensors``: the weights
- ``normalization.safetensors``: running statistics, where observations or rewards are normalised
- ``card.json`` and ``README.md``: scores, seed, versions, hyperparameters; for programs and for people
"""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
import yaml

from zoo.agents.card import complete_card, readme
from zoo.agents.finding import resolve_agent
from zoo.agents.printing import one_line
from zoo.agents.trust import refuse_foreign_code
from zoo.errors import ZooError
from zoo.files.atomic import atomic_file, atomic_folder

Arrays = dict[str, npt.NDArray[Any]]

FORMAT = 1
"""The version of the format that this Zoo writes; it reads this one and all before it."""

CONFIG = "config.yaml"
POLICY = "policy.safetensors"
NORMALIZATION = "normalization.safetensors"
CARD = "card.json"
README = "README.md"
AGENT_FILES = (CONFIG, POLICY, NORMALIZATION, CARD, README)

TEXT_LIMIT = 16 * 2**20
"""Bytes that a config or card may have; real ones have some kilobytes."""
TENSOR_LIMIT = 16 * 2**30
"""Bytes that a tensor file may have."""
ZIP_RATIO_LIMIT = 100
"""How much smaller than its content a zip's entry may be, if the content is larger than `TEXT_LIMIT`; weights
don't compress, so more than this is a bomb."""
ZIP_ENTRIES_LIMIT = 1000


@dataclass
class AgentFiles:
    """What an agent's files say, as plain data and arrays."""

    config: dict[str, Any]
    """``format``, ``algo`` (``name`` and hyperparameters), ``policy``, ``env`` (or null), ``n_envs``,
    ``observation_space`` and ``action_space``."""
    tensors: Arrays
    normalization: tuple[Arrays, dict[str, Any]] | None = None
    """Arrays and JSON values of the normaliser."""
    card: dict[str, Any] = field(default_factory=dict)


def write_agent(path: str | os.PathLike[str], agent: AgentFiles) -> Path:
    """Write an agent to a folder, or to a zip if the path ends in ``.zip``; whole or not at all.

    An agent that stands there is replaced; files beside its own in the folder stay. Raises `ZooError` if
    something else stands there, or nothing can be written.
    """
    destination = Path(path)
    if destination.suffix == ".zip":
        _write_zip(destination, _contents(agent))
    else:
        _write_folder(destination, _contents(agent))
    return destination


def read_agent(path: str | os.PathLike[str], *, trust: bool = False, own_env: bool = False) -> AgentFiles:
    """Read an agent from a folder, a zip, or a run's folder (its best agent).

    Nothing in the files is run, unpickled or resolved: texts stay plain data. A config that names code
    outside Zoo is refused (`zoo.agents.trust`), unless ``trust``; with ``own_env`` its section ``env`` may
    name anything, because the caller brings an environment and builds none from it.

    Raises `ZooError` for a missing, damaged or untrusted agent.
    """
    folder = resolve_agent(path)
    origin = one_line(folder)
    raw = _read_files(folder, (CONFIG, POLICY, NORMALIZATION, CARD), origin, trust)
    for name in (CONFIG, POLICY):
        if raw[name] is None:
            raise ZooError(f"{origin} is not a whole agent: {name} is missing")
    config = _parse_config(raw[CONFIG] or b"", origin)
    if not trust:
        refuse_foreign_code(config, origin, own_env=own_env)
    card_text, statistics = raw[CARD], raw[NORMALIZATION]
    return AgentFiles(
        config=config,
        tensors=_parse_tensors(raw[POLICY] or b"", POLICY, origin)[0],
        normalization=_parse_normalization(statistics, origin) if statistics is not None else None,
        card=_parse_card(card_text, origin) if card_text is not None else {},
    )


def read_card(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the card alone, for lists; empty where an agent has none. Raises `ZooError` if it is damaged."""
    folder = resolve_agent(path)
    origin = one_line(folder)
    content = _read_files(folder, (CARD,), origin, trust=False)[CARD]
    return _parse_card(content, origin) if content is not None else {}


def check_tensors(expected: Mapping[str, tuple[int, ...]], tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise `ZooError` if an agent's tensors are not those that its policy expects, by name and shape."""
    problems = [
        f"{name} is missing" if name not in tensors else _shape_problem(name, shape, tensors[name].shape)
        for name, shape in expected.items()
        if name not in tensors or tuple(tensors[name].shape) != tuple(shape)
    ]
    problems += [f"{one_line(name)} is not part of the policy" for name in tensors if name not in expected]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise ZooError(
            f"the agent's tensors don't fit the policy of its config.yaml: {'; '.join(problems[:3])}{more}"
        )


def _shape_problem(name: str, expected: tuple[int, ...], found: tuple[int, ...]) -> str:
    return f"{name} has shape {list(found)}, expected {list(expected)}"


# Writing


def _contents(agent: AgentFiles) -> dict[str, bytes]:
    config = {"format": FORMAT, **_plain(agent.config)}
    card = _plain(complete_card(agent.card, config))
    contents = {
        CONFIG: yaml.dump(config, Dumper=_Dumper, sort_keys=False, allow_unicode=True).encode(),
        POLICY: _tensor_bytes(agent.tensors),
        CARD: (json.dumps(card, indent=2) + "\n").encode(),
        README: readme(card, config).encode(),
    }
    if agent.normalization is not None:
        arrays, values = agent.normalization
        contents[NORMALIZATION] = _tensor_bytes(arrays, {"values": json.dumps(_plain(values))})
    return contents


def _tensor_bytes(arrays: Mapping[str, npt.NDArray[Any]], metadata: dict[str, str] | None = None) -> bytes:
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return safetensors.numpy.save(contiguous, metadata)


class _Dumper(yaml.SafeDumper):
    """Writes a value that occurs twice in full each time: an agent's YAML has no references."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _plain(value: Any) -> Any:
    """Return the value with NumPy's scalars and arrays, tuples and paths as plain YAML and JSON data."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return str(value) if isinstance(value, os.PathLike) else value


def _write_folder(destination: Path, contents: Mapping[str, bytes]) -> None:
    others = [entry for entry in _entries(destination) if entry.name not in AGENT_FILES]
    if others and not (destination / CONFIG).is_file():
        raise ZooError(f"{one_line(destination)} holds something else than an agent; choose another folder")
    with atomic_folder(destination) as new:
        for name, content in contents.items():
            (new / name).write_bytes(content)
        for entry in others:
            if entry.is_dir() and not entry.is_symlink():
                shutil.copytree(entry, new / entry.name, symlinks=True)
            else:
                shutil.copy2(entry, new / entry.name, follow_symlinks=False)


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _write_zip(destination: Path, contents: Mapping[str, bytes]) -> None:
    if destination.exists() and not zipfile.is_zipfile(destination):
        raise ZooError(f"{one_line(destination)} is something else than an agent; choose another path")
    with atomic_file(destination) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


# Reading


def _read_files(path: Path, names: Iterable[str], origin: str, trust: bool) -> dict[str, bytes | None]:
    """Return each file's bytes, None for one that the agent does not have."""
    source = _ZipSource(path, origin) if path.is_file() else _FolderSource(path, origin, trust)
    contents = {}
    for name in names:
        try:
            contents[name] = source.read(name)
        except OSError as error:
            raise ZooError(f"can't read {name} of {origin}: {error.strerror or one_line(error)}") from error
    return contents


class _FolderSource:
    """The files of a folder; links that leave it are followed only where the agent is trusted."""

    def __init__(self, folder: Path, origin: str, trust: bool) -> None:
        self.folder, self.origin, self.trust = folder, origin, trust

    def read(self, name: str) -> bytes | None:
        path = self.folder / name
        if not os.path.lexists(path):
            return None
        real_path, real_folder = Path(os.path.realpath(path)), os.path.realpath(self.folder)
        if not self.trust and not real_path.is_relative_to(real_folder):
            raise ZooError(
                f"the agent in {self.origin} is refused: {name} is a link to a file elsewhere;"
                " if you know where the agent comes from, load it with trust=true"
            )
        # Opening without waiting: a named pipe would hold the reader for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _damaged(self.origin, name, "it is not a regular file")
            if status.st_size > _limit(name):
                raise _damaged(self.origin, name, f"it has {status.st_size:,} bytes")
            with open(descriptor, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(descriptor)


class _ZipSource:
    """The files of a zip, read in memory: nothing is ever unpacked to a disk."""

    def __init__(self, path: Path, origin: str) -> None:
        self.path, self.origin = path, origin
        try:
            with zipfile.ZipFile(path) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
            raise ZooError(f"{origin} is not an agent: no readable zip ({one_line(error)})") from error
        if len(entries) > ZIP_ENTRIES_LIMIT:
            raise ZooError(f"{origin} is not an agent: the zip has {len(entries):,} entries")
        self.entries = self._checked(entries)

    def _checked(self, entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        """Return the files by name, without the one folder in which all may stand."""
        files: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            name = entry.filename
            parts = PurePosixPath(name).parts
            if name.startswith("/") or ".." in parts or "\\" in name or re.match(r"[A-Za-z]:", name):
                raise self._refused(name, "would lie outside of it")
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise self._refused(name, "is a link")
            if name in files:
                raise self._refused(name, "stands in it twice")
            if not entry.is_dir():
                files[name] = entry
        top = {PurePosixPath(name).parts[0] for name in files if name}
        if CONFIG not in files and len(top) == 1:
            folder = f"{top.pop()}/"
            return {name.removeprefix(folder): entry for name, entry in files.items()}
        return files

    def _refused(self, name: str, problem: str) -> ZooError:
        return ZooError(f"the zip {self.origin} is refused: `{one_line(name)}` {problem}")

    def read(self, name: str) -> bytes | None:
        entry = self.entries.get(name)
        if entry is None:
            return None
        compressed = max(entry.compress_size, 1)
        if entry.file_size > _limit(name) or (
            entry.file_size > TEXT_LIMIT and entry.file_size > ZIP_RATIO_LIMIT * compressed
        ):
            raise _damaged(self.origin, name, f"{compressed:,} bytes that unpack to {entry.file_size:,}")
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(entry) as file:
                content = file.read(entry.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError) as error:
            # RuntimeError: encrypted; its kind NotImplementedError: an unknown compression.
            raise _damaged(self.origin, name, one_line(error)) from error
        if len(content) != entry.file_size:
            raise _damaged(self.origin, name, "it does not have the size that the zip states")
        return content


def _limit(name: str) -> int:
    return TENSOR_LIMIT if name.endswith(".safetensors") else TEXT_LIMIT


class _Loader(yaml.SafeLoader):
    """YAML for plain data: no tags that make objects, and no references, which a few bytes can blow up."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "a reference (*name)", event.start_mark)
        return super().compose_node(parent, index)


def _parse_config(content: bytes, origin: str) -> dict[str, Any]:
    try:
        config = yaml.load(content.decode(), Loader=_Loader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise _damaged(origin, CONFIG, f"{line}{one_line(error.problem)}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _damaged(origin, CONFIG, one_line(error)) from error
    if not isinstance(config, dict):
        raise _damaged(origin, CONFIG, "it holds no mapping")
    _refuse_objects(config, "", origin)
    found = config.get("format")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise _damaged(origin, CONFIG, "`format` is missing")
    if found > FORMAT:
        raise ZooError(
            f"the agent in {origin} has format {found}, but this Zoo reads formats up to {FORMAT}; update Zoo"
        )
    for section in ("algo", "policy", "observation_space", "action_space"):
        if not isinstance(config.get(section), dict):
            raise _damaged(origin, CONFIG, f"`{section}` is missing")
    if not isinstance(config["algo"].get("name"), str):
        raise _damaged(origin, CONFIG, "`algo.name` is missing")
    if not isinstance(config.get("env"), dict | None):
        raise _damaged(origin, CONFIG, "`env` is not a mapping")
    if not isinstance(config.get("n_envs", 1), int) or config.get("n_envs", 1) < 1:
        raise _damaged(origin, CONFIG, "`n_envs` is not a number of environments")
    return config


def _refuse_objects(value: Any, path: str, origin: str) -> None:
    """Refuse what plain YAML can hold beside data: dates, bytes, sets, keys that are not names or numbers."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str | int):
                raise _damaged(origin, CONFIG, f"the key `{one_line(key)}` in `{one_line(path)}` is no name")
            _refuse_objects(item, f"{path}.{key}" if path else str(key), origin)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_objects(item, f"{path}[{index}]", origin)
    elif not isinstance(value, str | int | float | None):
        raise _damaged(origin, CONFIG, f"`{one_line(path)}` is a {type(value).__name__}")


def _parse_card(content: bytes, origin: str) -> dict[str, Any]:
    card = _parse_json(content, CARD, origin)
    for name in ("seed", "timesteps", "n_eval_episodes"):
        if not isinstance(card.get(name), int | None):
            raise _damaged(origin, CARD, f"`{name}` is not a whole number")
    for name in ("mean_return", "std_return"):
        if not isinstance(card.get(name), int | float | None):
            raise _damaged(origin, CARD, f"`{name}` is not a number")
    for name in ("versions", "hyperparameters"):
        if not isinstance(card.get(name), dict | None):
            raise _damaged(origin, CARD, f"`{name}` is not a mapping")
    return card


def _parse_json(content: bytes | str, name: str, origin: str) -> dict[str, Any]:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _damaged(origin, name, one_line(error)) from error
    if not isinstance(values, dict):
        raise _damaged(origin, name, "it holds no mapping")
    return values


def _parse_tensors(content: bytes, name: str, origin: str) -> tuple[Arrays, dict[str, str]]:
    """Return tensors and metadata; safetensors itself checks that header and data agree."""
    try:
        views = safetensors.numpy.load(content)
        header_size = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + header_size]).get("__metadata__") or {}
        # The views are read-only and keep the whole file in memory.
        return {tensor: np.array(view) for tensor, view in views.items()}, metadata
    except safetensors.SafetensorError as error:
        problem = f"it is truncated or no safetensors file ({one_line(error)})"
        raise _damaged(origin, name, problem) from error
    except (KeyError, ValueError, TypeError, MemoryError) as error:
        raise _damaged(origin, name, one_line(repr(error))) from error


def _parse_normalization(content: bytes, origin: str) -> tuple[Arrays, dict[str, Any]]:
    arrays, metadata = _parse_tensors(content, NORMALIZATION, origin)
    return arrays, _parse_json(metadata.get("values", "{}"), NORMALIZATION, origin)


def _damaged(origin: str, name: str, problem: str) -> ZooError:
    return ZooError(f"the agent in {origin} is damaged: {name}: {problem}")
