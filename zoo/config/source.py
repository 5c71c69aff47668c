"""Where Hydra finds configs: a group's option is looked for in ``./conf``, then in Zoo's own files.

Any environment's id is an option of ``env``, with or without a file; ``tuned`` and ``experiment`` also take
the path of a file, such as the ``config.yaml`` of a run, to run it once more.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from zoo.config.keys import COMMAND_SECTIONS
from zoo.config.schema import SETTINGS, NoSettings
from zoo.config.sections import algorithm_class, is_algorithm
from zoo.config.user_files import search_folders, shown
from zoo.core.printing import one_line
from zoo.errors import ZooError

SCHEME = "zoo"

SEARCH_GROUPS = ("sampler", "pruner", "space")
"""Groups of `zoo tune`, whose files stand in ``conf/tune/``."""

GROUPS_OF_PATHS = ("tuned", "experiment")
"""Groups whose option may be the path of a file; all are of the whole config."""


# -- files ------------------------------------------------------------------------------------------------


def find_file(config_path: str) -> Path | None:
    """Return the file of a command (``train``) or of a group's option (``algo/ppo``), None without one."""
    group, _, name = config_path.partition("/")
    path = config_path if config_path.endswith(".yaml") else f"{config_path}.yaml"
    folders = search_folders("conf")
    if not name:
        folders.reverse()  # a command's own file is always ours
    candidates = [folder / _place(path) for folder in folders]
    if group in GROUPS_OF_PATHS:
        candidates.append(Path.cwd() / path.removeprefix(f"{group}/"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _place(config_path: str) -> str:
    """Return where below ``conf/`` the files of a group stand."""
    return f"tune/{config_path}" if config_path.partition("/")[0] in SEARCH_GROUPS else config_path


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    """Parse YAML to plain values that callers must not change; cached, since files are read often."""
    return OmegaConf.to_container(OmegaConf.create(text))


def read_yaml(file: Path) -> tuple[DictConfig, str | None]:
    """Read a YAML file and the package that its comments name. Raises `ZooError`."""
    try:
        text = file.read_text(encoding="utf-8")
        config = OmegaConf.create(_parsed(text))
        if not isinstance(config, DictConfig):
            raise ValueError("it holds no keys and values")
        if not isinstance(config.get("defaults") or [], list | ListConfig):
            raise ValueError("`defaults` is not a list of the options that the file builds on")
    except (OSError, ValueError, AssertionError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise ZooError(f"can't read {shown(file)}: {one_line(error)}") from error
    package = re.match(r"(?:\s*(?:#.*)?\n)*?\s*#\s*@package\s+(\S+)", text)
    return config, package[1] if package else None


def header(config_path: str) -> str:
    """Return the comment at the top of a file, which describes it, or ""."""
    file = find_file(config_path)
    lines = [] if file is None else file.read_text(encoding="utf-8").splitlines()
    comments = itertools.takewhile(lambda line: line.startswith("#"), lines)
    return "\n".join(line[1:].removeprefix(" ") for line in comments if not line.startswith("# @"))


def bases(config: DictConfig) -> list[str]:
    """Return the options of the same group that a file builds on."""
    entries = config.get("defaults") or []
    return [name for name in entries if isinstance(name, str) and name[0] not in "_/"]


def choices_in(config: DictConfig) -> dict[str, Any]:
    """Return the options that a file's defaults list chooses by ``override /GROUP: OPTION``."""
    entries: Any = OmegaConf.to_container(OmegaConf.create(config.get("defaults") or []))
    choices = [choice for entry in entries if isinstance(entry, dict) for choice in entry.items()]
    prefix = "override "
    return {k.removeprefix(prefix).lstrip("/"): option for k, option in choices if k.startswith(prefix)}


# -- Hydra ------------------------------------------------------------------------------------------------


class SearchPath(SearchPathPlugin):
    """Lets Hydra look for the configs of a command in `ZooConfigSource`."""

    command: str | None = None
    """The command whose configs are composed now, None for those of another program."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if self.command is not None:
            search_path.prepend("zoo", f"{SCHEME}://{self.command}", SearchPathQuery(provider="main"))


class _WholeConfig(ConfigResult):
    """A config that Hydra 1.3 merges with no schema: a plug-in's may have the name of a file of Zoo's."""

    is_schema_source = property(lambda self: True, lambda self, value: None)


class ZooConfigSource(ConfigSource):
    """The source ``zoo://<command>``; a group named like a plain value of that command's config is hidden."""

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider=provider, path=path)
        self.fit: Callable[[str, Path, DictConfig], None] = lambda group, file, config: None
        """Takes out of a tuned file, or an experiment, what is not for this command line."""
        self.read: dict[Path, str] = {}
        """The files that a config is composed of, each with its section, "" for the whole."""
        self.plain_keys = {field.name for field in dataclasses.fields(SETTINGS.get(self.path, NoSettings))}
        self.plain_keys -= {*COMMAND_SECTIONS.get(self.path, ())}

    def __deepcopy__(self, memo: object) -> ZooConfigSource:
        return self  # Hydra composes with a copy, which is to say to us what it has read

    @staticmethod
    def scheme() -> str:
        return SCHEME

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        places = (folder / _place(config_path) for folder in search_folders("conf"))
        return config_path not in self.plain_keys and (config_path == "env" or any(map(Path.is_dir, places)))

    def is_config(self, config_path: str) -> bool:
        group, _, name = config_path.partition("/")
        is_own = group in ("algo", "space") and is_algorithm(name)
        return (group == "env" and bool(name)) or is_own or find_file(config_path) is not None

    def load_config(self, config_path: str) -> ConfigResult:
        file, group = find_file(config_path), config_path.rpartition("/")[0].partition("/")[0]
        if file is None and group not in ("algo", "env", "space"):
            raise ConfigLoadError(f"no {config_path}.yaml in {', '.join(map(shown, search_folders('conf')))}")
        config, package = (OmegaConf.create(), None) if file is None else read_yaml(file)
        if config_path != self.path and "defaults" in config:  # choices are on the command line by now
            config.defaults = [e for e in config.defaults if not str(e).startswith("{'override ")]
        if file is None and group == "space":
            config = DictConfig(algorithm_class(config_path.removeprefix("space/")).searched_space())
        if file is not None:
            is_whole = group in GROUPS_OF_PATHS
            self.read[file] = "" if is_whole else group
            package = "_global_" if is_whole else package
            self.fit(group, file, config)
        return _WholeConfig(
            provider=self.provider, path=self.full_path(), config=config, header={"package": package}
        )

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        places = [folder / _place(config_path) for folder in search_folders("conf")]
        entries = [entry for place in places if place.is_dir() for entry in place.iterdir()]
        files = {entry.stem for entry in entries if entry.suffix == ".yaml"}
        groups = {entry.name for entry in entries if entry.is_dir()}
        names = {ObjectType.CONFIG: files, ObjectType.GROUP: groups}
        return sorted(files | groups if results_filter is None else names[results_filter])
