"""What Hydra finds under each name: files of the user, files of Zoo, and what needs no file.

A config group's option is looked for in ``./conf``, then in Zoo's own. Beyond files this source answers for

- ``algo/<name>``: the defaults that the algorithm's dataclass declares, with the file's values over them;
- ``env/<id>``: any environment, whether or not a file says something about it;
- ``tuned/usual/<algo>/<env>``: the tuned values for these, if there are any (see `tuned_file`);
- ``tuned/<path>.yaml``, ``tuned/<algo>/<env>``: those that the user names; ``tuned/none``: none;
- ``policy/tuned/<algo>/<env>/from/<option of tuned>``: the policy that the tuned file chooses, or the usual;
- ``memory/usual``: whatever the algorithm has where nobody chooses one
- ``space/of/<algo>``: what `zoo tune` searches for an algorithm, or a preset of one
- ``experiment/<path>.yaml``: a file anywhere, such as the ``config.yaml`` of a run, to run it once more.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import DictConfig, ListConfig, OmegaConf

from zoo.config import sections
from zoo.config.fields import common_class, defaults
from zoo.config.hydra_internals import ObjectType
from zoo.config.paths import search_folders, shown
from zoo.config.tuned_files import (
    NO_TUNED,
    USUAL_TUNED,
    chosen_policy,
    chosen_tuned_file,
    no_tuned_file,
    read_yaml,
)
from zoo.errors import ZooError

SCHEME = "zoo"

USUAL_MEMORY = "memory/usual"

GLOBAL = {"package": "_global_"}
WITHOUT_FILES = ("algo", "env", "policy", "tuned")
"""Groups of which there are options without a file."""

LOCAL: dict[str, str | None] = {"package": None}

SEARCH_GROUPS = ("sampler", "pruner", "space")
"""Groups of `zoo tune`, whose files stand in ``conf/tune/``."""

USUAL_SPACE = "of/"


class FilesRead(dict[Path, str]):
    """Files that a config was put together from, and the section that each is for; "" for all.

    The copies that Hydra makes of a source share it.
    """

    def __deepcopy__(self, memo: object) -> FilesRead:
        return self


class ZooConfigSource(ConfigSource):
    """The source ``zoo://<command>``; a group named like a plain value of that command's config is hidden."""

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider=provider, path=path)
        self.folders = search_folders("conf")
        self.chosen: Mapping[str, Any] = {}
        """What the command line sets; a memory, a generator, callbacks or a logger replace those of files."""
        self.read = FilesRead()
        self.plain_keys: set[str] = set()
        if self._file(self.path) is not None:
            command = self._command(self.path)[0]
            self.plain_keys = {str(key) for key in command} - set(chosen_groups(command))

    @staticmethod
    def scheme() -> str:
        return SCHEME

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        if config_path in self.plain_keys:
            return False
        place = _place(config_path)
        return config_path in WITHOUT_FILES or any((folder / place).is_dir() for folder in self.folders)

    def is_config(self, config_path: str) -> bool:
        group, _, name = config_path.partition("/")
        if not name:
            return self._file(config_path) is not None
        if group == "env":
            return True
        if group == "algo" and name in sections.algorithm_names():
            return True
        if group == "policy" and (name in sections.policy_names() or name.startswith("tuned/")):
            return True
        if config_path == USUAL_MEMORY or config_path.startswith(f"space/{USUAL_SPACE}"):
            return True
        if group == "tuned" and name.startswith(USUAL_TUNED):
            return chosen_tuned_file(name) is not None
        if group == "tuned":
            return True
        return self._file(config_path) is not None

    def file_setting(self, path: str, value: Any) -> Path | None:
        """Return that of the files read which sets a value, such as ``algo.gamma``, or None.

        Of several the one with the value that the config has come to; in which order they were read says
        nothing of which one counts.
        """
        found = []
        for file, section in reversed(self.read.items()):
            if section and not path.startswith(f"{section}."):
                continue
            config, _ = read_yaml(file)
            said = OmegaConf.select(config, path.removeprefix(f"{section}."))
            if said is not None:
                plain = OmegaConf.to_container(said) if OmegaConf.is_config(said) else said
                found.append((file, plain == value and type(plain) is type(value)))
        return next((file for file, is_same in found if is_same), found[0][0] if found else None)

    def load_config(self, config_path: str) -> ConfigResult:
        config, header = self._load(config_path)
        return ConfigResult(provider=self.provider, path=self.full_path(), config=config, header=header)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        names: set[str] = set()
        for folder in self.folders:
            place = folder / _place(config_path)
            if not place.is_dir():
                continue
            for entry in place.iterdir():
                is_wanted_file = results_filter != ObjectType.GROUP and entry.suffix == ".yaml"
                is_wanted_folder = results_filter != ObjectType.CONFIG and entry.is_dir()
                if is_wanted_file or is_wanted_folder:
                    names.add(entry.stem if entry.is_file() else entry.name)
        if results_filter != ObjectType.GROUP:
            names.update(self._without_file(config_path))
        return sorted(names)

    def header(self, config_path: str) -> str:
        """Return the comment at the top of a file, which says what it is; empty if it says nothing."""
        file = self._file(config_path)
        group, _, name = config_path.partition("/")
        if file is None and group == "algo" and name in sections.algorithm_names():
            return sections.algorithm_summary(name)
        lines = file.read_text(encoding="utf-8").splitlines() if file is not None else []
        comments = itertools.takewhile(lambda line: line.startswith("#"), lines)
        return "\n".join(line[1:].removeprefix(" ") for line in comments if not line.startswith("# @"))

    def _without_file(self, group: str) -> Iterable[str]:
        """Return the options of a group that need no file; an environment's ids are too many to list."""
        if group == "algo":
            return sections.algorithm_names()
        if group == "tuned":
            return (NO_TUNED,)
        return sections.policy_names() if group == "policy" else ()

    def _load(self, config_path: str) -> tuple[DictConfig, dict[str, str | None]]:
        group, _, name = config_path.partition("/")
        if not name:
            return self._command(group)
        if group == "tuned":
            return self._tuned(name), {**GLOBAL}
        if group == "space" and name.startswith(USUAL_SPACE):
            return self._space(name.removeprefix(USUAL_SPACE))
        if config_path == USUAL_MEMORY:
            return OmegaConf.create({}), {**LOCAL}
        if group == "experiment" and name:
            return self._experiment(config_path)
        if group == "policy" and name.startswith("tuned/"):
            return self._load(f"policy/{self._tuned_policy(name.removeprefix('tuned/'))}")
        if group == "algo" and name:
            return self._algorithm(name)
        if group == "env" and name:
            return self._with_defaults(config_path, {**defaults(sections.section_class("env")), "id": name})
        if group == "policy" and name:
            return self._with_defaults(
                config_path, {**defaults(sections.section_class("policy")), "name": name}
            )
        return self._read(config_path)

    def _command(self, name: str) -> tuple[DictConfig, dict[str, str | None]]:
        """Return a command's config; one whose first default is another command has all that this one has."""
        config, header = self._read(name)
        first, *others = config.get("defaults") or ["_self_"]
        if not isinstance(first, str) or first == "_self_":
            return config, header
        base, _ = self._command(first)
        own = {_group(each): each for each in others}
        defaults = [own.pop(_group(each), each) for each in base.defaults]
        after_self = defaults.index("_self_") + 1
        merged = OmegaConf.merge(base, config)
        assert isinstance(merged, DictConfig)
        merged.defaults = [*defaults[:after_self], *own.values(), *defaults[after_self:]]
        return merged, header

    def _space(self, algo: str) -> tuple[DictConfig, dict[str, str | None]]:
        """Return the search space of an algorithm, for a preset without one that of what it builds on."""
        while self._file(f"space/{algo}") is None:
            base = self._built_on(algo)
            if base is None:
                return OmegaConf.create({}), {**LOCAL}
            algo = base
        return self._read(f"space/{algo}")

    def base_of(self, algo: str) -> str:
        """Return the algorithm that a preset builds on, over any number of presets; itself for any other."""
        base = self._built_on(algo)
        return algo if base is None or algo in sections.algorithm_names() else self.base_of(base)

    def _built_on(self, algo: str) -> str | None:
        preset = self._file(f"algo/{algo}")
        bases = [] if preset is None else read_yaml(preset)[0].get("defaults", [])
        return next((each for each in bases if isinstance(each, str) and each != "_self_"), None)

    def _algorithm(self, name: str) -> tuple[DictConfig, dict[str, str | None]]:
        if name in sections.algorithm_names():
            values = defaults(common_class(sections.algorithm_config_class(name)))
            return self._with_defaults(f"algo/{name}", {"name": name, **values})
        config, header = self._read(f"algo/{name}")
        if "defaults" in config:
            others = (each for each in config.defaults if chosen_policy(each) is None)
            config.defaults = [_of_the_whole_config(each) for each in others]
        return OmegaConf.merge({"preset": name}, config), header  # type: ignore[return-value]

    def _with_defaults(
        self, config_path: str, declared: dict[str, Any]
    ) -> tuple[DictConfig, dict[str, str | None]]:
        """Lay a file's values over the declared ones; a file that builds on another one stays as it is."""
        if self._file(config_path) is None:
            return OmegaConf.create(declared), {**LOCAL}
        config, header = self._read(config_path)
        if "defaults" in config:
            return config, header
        return OmegaConf.merge(declared, config), header  # type: ignore[return-value]

    def _tuned(self, name: str) -> DictConfig:
        if name == NO_TUNED:
            return OmegaConf.create({"tuned": NO_TUNED})
        file = chosen_tuned_file(name)
        if file is None:
            raise ZooError(no_tuned_file(name))
        config = read_yaml(file)[0]
        self.read[file] = ""
        if "defaults" in config:
            config.defaults = [each for each in config.defaults if chosen_policy(each) is None]
            if not config.defaults:
                del config["defaults"]
        config.tuned = shown(file)
        return self._without_replaced_generator(self._without_replaced_memory(config))

    def _without_replaced_memory(self, config: DictConfig) -> DictConfig:
        if "memory" in self.chosen:
            config.pop("memory", None)
        return config

    def _without_replaced_generator(self, config: DictConfig) -> DictConfig:
        """Leave out what a tuned file says of a generator of gail in whose place another one is chosen."""
        tuned = config.get("algo")
        if "algo.generator" not in self.chosen or not isinstance(tuned, DictConfig):
            return config
        common = defaults(common_class(sections.algorithm_config_class("gail")))
        if tuned.get("generator", common["generator"]) != self.chosen["algo.generator"]:
            config.algo = {key: tuned[key] for key in tuned if key in common}
        return config

    def _tuned_policy(self, name: str) -> str:
        pair, _, tuned = name.partition("/from/")
        algo, _, env = pair.partition("/")
        file = chosen_tuned_file(f"{USUAL_TUNED}{pair}" if tuned == "usual" else tuned)
        choices = [] if file is None else map(chosen_policy, read_yaml(file)[0].get("defaults", []))
        usual = self._usual_policy(algo)
        if sections.is_atari(env):
            usual = usual.replace("Mlp", "Cnn", 1)
        return next((choice for choice in choices if choice is not None), usual)

    def _usual_policy(self, algo: str) -> str:
        """Return the policy that a preset chooses, or the usual one."""
        preset = self._file(f"algo/{algo}")
        choices = [] if preset is None else map(chosen_policy, read_yaml(preset)[0].get("defaults", []))
        return next((choice for choice in choices if choice is not None), sections.usual_policy(algo))

    def _experiment(self, config_path: str) -> tuple[DictConfig, dict[str, str | None]]:
        file = self._file(config_path)
        if file is None:
            raise ConfigLoadError(f"no {config_path}")
        config, header = read_yaml(file)
        self.read[file] = ""
        if file.name == "config.yaml":
            config.defaults = _choices_of_run(config, file)
        return self._without_replaced_sections(config, file), {**header, **GLOBAL}

    def _without_replaced_sections(self, config: DictConfig, file: Path) -> DictConfig:
        """Leave out what is chosen on the command line: all that a run had of it, where that is complete."""
        for section in ("callbacks", "logger"):
            if section in self.chosen and (file.name == "config.yaml" or self.chosen[section] == "none"):
                config.pop(section, None)
        return self._without_replaced_memory(config)

    def _file(self, config_path: str) -> Path | None:
        path = config_path if config_path.endswith(".yaml") else f"{config_path}.yaml"
        group, _, name = path.partition("/")
        folders = self.folders if name else self.folders[::-1]  # a command's own file is always ours
        candidates = [folder / _place(path) for folder in folders]
        if group == "experiment":
            candidates.append(Path.cwd() / name)
        return next((candidate for candidate in candidates if candidate.is_file()), None)

    def _read(self, config_path: str) -> tuple[DictConfig, dict[str, str | None]]:
        file = self._file(config_path)
        if file is None:
            raise ConfigLoadError(f"no {config_path}.yaml in {', '.join(map(str, self.folders))}")
        self.read[file] = config_path.partition("/")[0] if "/" in config_path else ""
        return read_yaml(file)


def chosen_groups(command: DictConfig) -> list[str]:
    """Return the groups that a command's defaults list chooses from."""
    defaults = command.get("defaults", [])
    return [str(key).split()[-1] for each in defaults if isinstance(each, DictConfig) for key in each]


def algorithm_options() -> list[str]:
    """Return what ``algo=`` takes: algorithms, and presets of theirs."""
    presets = {file.stem for folder in search_folders("conf") for file in (folder / "algo").glob("*.yaml")}
    return sorted(presets | set(sections.algorithm_names()))


def _group(default: Any) -> str:
    """Return what an entry of a defaults list chooses; ``_self_`` is the whole entry."""
    return str(next(iter(default))) if isinstance(default, DictConfig) else str(default)


def _place(config_path: str) -> str:
    """Return where below ``conf/`` the files of a group stand."""
    return f"tune/{config_path}" if config_path.partition("/")[0] in SEARCH_GROUPS else config_path


def _of_the_whole_config(default: Any) -> Any:
    """Return ``override /GROUP`` of a preset so that it means the group beside ``algo``, not one within."""
    if not isinstance(default, DictConfig):
        return default
    return {
        re.sub(r"^override\s+/(\w+)$", r"override /\1@_global_.\1", str(key)): default[key] for key in default
    }


def _choices_of_run(config: DictConfig, file: Path) -> ListConfig:
    """Return the defaults list that a run's own config stands for."""
    try:
        choices = {"algo": config.algo.get("preset") or config.algo.name, "env": config.env.id}
        choices |= {"tuned": NO_TUNED} if "generator" in config.algo else {}  # the file may be for another
    except AttributeError as error:
        raise ZooError(f"{shown(file)} is not the config of a run: {error}") from error
    return OmegaConf.create(["_self_", *({f"override /{group}": name} for group, name in choices.items())])
