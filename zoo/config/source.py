"""Where Hydra finds configs: in the user's files, in Zoo's files, and made from declarations without a file.

A config group's option is looked for in ``./conf``, then in Zoo's own. Beyond files this source answers for

- ``algo/<name>``: the defaults that the algorithm's dataclass declares, with the file's values over them;
- ``env/<id>``: any environment, whether or not a file says something about it;
- ``tuned/<path>.yaml``, ``tuned/<algo>/<env>``: those that the user names; ``tuned/none``: none;
- ``experiment/<path>.yaml``: a file anywhere, such as the ``config.yaml`` of a run, to run it once more;
- ``<group>/usual``, the option of a group that the user does not choose: for ``tuned`` the values for the
  algorithm and the environment, if there are any; for ``policy`` that of the tuned file, of the preset or of
  the algorithm; for ``replay`` that of the preset; for ``space`` what `zoo tune` searches for the algorithm.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from zoo.config import schema
from zoo.config.fields import common_class, defaults
from zoo.config.paths import search_folders, shown
from zoo.errors import ZooError, nearest

NO_TUNED = "none"
USUAL = "usual"
"""The option of a group that stands for the default of the tuned file, the preset or the algorithm."""

SCHEME = "zoo"

Loaded = tuple[DictConfig, dict[str, str | None]]
"""A config, and what the comments at its top say to Hydra."""

GLOBAL: dict[str, str | None] = {"package": "_global_"}
LOCAL: dict[str, str | None] = {"package": None}

GROUPS_WITHOUT_FILES = ("algo", "env", "policy", "tuned")
"""Groups of which there are options without a file."""

SEARCH_GROUPS = ("sampler", "pruner", "space")
"""Groups of `zoo tune`, whose files stand in ``conf/tune/``."""

GROUPS_OF_PRESETS = ("policy", "replay")
"""Groups from which a preset, and a tuned file, may choose."""


def tuned_file(algo: str, env: str) -> Path | None:
    """Return the file of tuned values for ``algo`` on ``env``: its own, else that for Atari games, else None.

    ``./hyperparams`` is looked at before Zoo's own.
    """
    names = [env, schema.env_file_name(env), schema.env_file_name(env.rpartition(":")[2])]
    if schema.is_atari(env):
        names.append("atari")
    folders = search_folders("hyperparams")
    candidates = (folder / algo / f"{name}.yaml" for name in names for folder in folders)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def no_tuned_file_message(option: str) -> str:
    """Return the message for an option that means no file, with the nearest that there is."""
    files = [file for folder in search_folders("hyperparams") for file in folder.glob("*/*.yaml")]
    if option.endswith(".yaml"):
        names = [*map(str, Path(option).expanduser().parent.glob("*.yaml")), *map(shown, files)]
    else:
        names = [f"{file.parent.name}/{file.stem}" for file in files]
    return f"there is no tuned file {option}{nearest(option, names)} (tuned=none leaves tuned values out)"


def group_overrides(config: DictConfig) -> dict[str, Any]:
    """Return what the defaults list of a file chooses of groups by ``override /GROUP: OPTION``."""
    entries = (each.items() for each in config.get("defaults") or [] if isinstance(each, DictConfig))
    words = ((str(key).split(), option) for entry in entries for key, option in entry)
    return {key[1].removeprefix("/"): option for key, option in words if key[0] == "override" and key[1:]}


def read_yaml(file: Path) -> Loaded:
    """Return what a file of the user's own holds, and what it says to Hydra. Raises `ZooError`."""
    try:
        text = file.read_text(encoding="utf-8")
        config = OmegaConf.create(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise ZooError(f"can't read {shown(file)}: {' '.join(str(error).split())}") from error
    if not isinstance(config, DictConfig):
        raise ZooError(f"{shown(file)} holds {type(config).__name__}, expected keys and values")
    package = re.match(r"(?:\s*(?:#.*)?\n)*?\s*#\s*@package\s+(\S+)", text)
    return config, {"package": package[1] if package else None}


class SearchPath(SearchPathPlugin):
    """Lets Hydra look for the configs of a command in `ZooConfigSource`."""

    command: str | None = None
    """The command whose configs are composed now, None for those of another program."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if self.command is not None:
            search_path.prepend("zoo", f"{SCHEME}://{self.command}", SearchPathQuery(provider="main"))


class SharedFiles(dict[Path, str]):
    """The files that a config is composed of, each with its section, "" for the whole.

    Hydra makes deep copies of a source; all of them share this one.
    """

    def __deepcopy__(self, memo: object) -> SharedFiles:
        return self


class ZooConfigSource(ConfigSource):
    """The source ``zoo://<command>``; a group named like a plain value of that command's config is hidden."""

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider=provider, path=path)
        self.folders = search_folders("conf")
        self.chosen: Mapping[str, Any] = {}
        """What the command line sets; replay, a generator, callbacks or a logger replace those of files."""
        self.read = SharedFiles()
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
        return config_path in GROUPS_WITHOUT_FILES or any(
            (folder / place).is_dir() for folder in self.folders
        )

    def is_config(self, config_path: str) -> bool:
        group, _, name = config_path.partition("/")
        if not name:
            return self._file(config_path) is not None
        if group == "env":
            return True
        if group == "algo" and name in schema.algorithm_names():
            return True
        if group == "policy" and name in schema.policy_names():
            return True
        if group == "tuned":
            return name != USUAL or self._tuned_file() is not None
        if name == USUAL and group in ("policy", "replay", "space"):
            return True
        return self._file(config_path) is not None

    def file_setting(self, path: str, value: Any) -> Path | None:
        """Return the file that sets a value, such as ``algo.gamma``, or None.

        Of several files it is the one whose value the config has; the order in which they were read does not
        say which one wins.
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
        if file is None and group == "algo" and name in schema.algorithm_names():
            return schema.algorithm_summary(name)
        lines = file.read_text(encoding="utf-8").splitlines() if file is not None else []
        comments = itertools.takewhile(lambda line: line.startswith("#"), lines)
        return "\n".join(line[1:].removeprefix(" ") for line in comments if not line.startswith("# @"))

    def _without_file(self, group: str) -> Iterable[str]:
        """Return the options of a group that need no file; an environment's ids are too many to list."""
        if group == "algo":
            return schema.algorithm_names()
        if group == "tuned":
            return (NO_TUNED,)
        return schema.policy_names() if group == "policy" else ()

    def _load(self, config_path: str) -> Loaded:
        group, _, name = config_path.partition("/")
        if not name:
            return self._command(group)
        if group == "tuned":
            return self._tuned(name), {**GLOBAL}
        if group == "experiment":
            return self._experiment(config_path)
        if group == "algo":
            return self._algorithm(name)
        if group == "env":
            return self._with_defaults(config_path, {**defaults(schema.section_class("env")), "id": name})
        if name == USUAL and group == "space":
            return self._space()
        if name == USUAL and group in GROUPS_OF_PRESETS:
            loaded = [self._load(f"{group}/{each}") for each in self._default_options(group)]
            merged = OmegaConf.merge({}, *(config for config, _ in loaded))
            return merged, {**LOCAL}  # type: ignore[return-value]
        if group == "policy":
            return self._with_defaults(
                config_path, {**defaults(schema.section_class("policy")), "name": name}
            )
        return self._read(config_path)

    def choose(self, overrides: Iterable[Override]) -> None:
        """Set what the command line chooses, before a config is composed."""
        self.read.clear()
        self.chosen = {
            each.key_or_group: None if each.is_sweep_override() else each.value() for each in overrides
        }

    def choice(self, group: str) -> str | None:
        """Return the option of a group that the command line or an experiment chooses; None if none does."""
        if group in self.chosen:
            chosen = self.chosen[group]
            return chosen if isinstance(chosen, str) else None
        experiments = self.chosen.get("experiment")
        names = experiments if isinstance(experiments, list) else [experiments]
        found = [self._of_experiment(str(name)).get(group) for name in names if name is not None]
        return next((str(each) for each in reversed(found) if each is not None), None)

    def _of_experiment(self, name: str) -> dict[str, Any]:
        """Return what an experiment, or one that it builds on, chooses of groups."""
        file = self._file(f"experiment/{name}")
        if file is None:
            return {}
        config = read_yaml(file)[0]
        if file.name == "config.yaml":
            config.defaults = _choices_of_run(config, file)
        bases = [each for each in config.get("defaults") or [] if isinstance(each, str) and each != "_self_"]
        found = [self._of_experiment(each) for each in bases if not each.startswith("/")]
        return {key: value for each in [*found, group_overrides(config)] for key, value in each.items()}

    def _command(self, name: str) -> Loaded:
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

    def _space(self) -> Loaded:
        """Return the search space of the algorithm, for a preset without one that of what it builds on."""
        algo = self.choice("algo")
        while algo is not None:
            if self._file(f"space/{algo}") is not None:
                return self._read(f"space/{algo}")
            algo = self._built_on(algo)
        return OmegaConf.create({}), {**LOCAL}

    def base_of(self, algo: str) -> str:
        """Return the algorithm that a preset builds on, over any number of presets; itself for any other."""
        base = self._built_on(algo)
        return algo if base is None or algo in schema.algorithm_names() else self.base_of(base)

    def _built_on(self, algo: str) -> str | None:
        preset = self._file(f"algo/{algo}")
        bases = [] if preset is None else read_yaml(preset)[0].get("defaults", [])
        return next((each for each in bases if isinstance(each, str) and each != "_self_"), None)

    def _algorithm(self, name: str) -> Loaded:
        if name in schema.algorithm_names():
            values = defaults(common_class(schema.algorithm_config_class(name)))
            return self._with_defaults(f"algo/{name}", {"name": name, **values})
        config, header = self._read(f"algo/{name}")
        _drop_default_choices(config)
        return OmegaConf.merge({"preset": name}, config), header  # type: ignore[return-value]

    def _with_defaults(self, config_path: str, declared: dict[str, Any]) -> Loaded:
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
        file = self._tuned_file()
        if file is None:
            raise ZooError(no_tuned_file_message(name))
        config = read_yaml(file)[0]
        self.read[file] = ""
        _drop_default_choices(config)
        config.tuned = shown(file)
        return self._without_replaced_generator(self._without_replaced_replay(config))

    def _without_replaced_replay(self, config: DictConfig) -> DictConfig:
        if "replay" in self.chosen:
            config.pop("replay", None)
        return config

    def _without_replaced_generator(self, config: DictConfig) -> DictConfig:
        """Leave out what a tuned file says of a generator of gail in whose place another one is chosen."""
        tuned = config.get("algo")
        if "algo.generator" not in self.chosen or not isinstance(tuned, DictConfig):
            return config
        common = defaults(common_class(schema.algorithm_config_class("gail")))
        if tuned.get("generator", common["generator"]) != self.chosen["algo.generator"]:
            config.algo = {key: tuned[key] for key in tuned if key in common}
        return config

    def _tuned_file(self) -> Path | None:
        """Return the file of tuned values that is chosen, or the usual one; None if there is none."""
        option = self.choice("tuned")
        algo, env = self.choice("algo"), self.choice("env")
        if option == NO_TUNED:
            return None
        if option is not None and option.endswith(".yaml"):
            path = Path(option).expanduser()
            return path.absolute() if path.is_file() else None
        if option not in (None, USUAL):
            algo, _, env = str(option).partition("/")
        return None if algo is None or env is None else tuned_file(algo, env)

    def _default_options(self, group: str) -> Sequence[str]:
        """Return what the tuned file, the preset or the algorithm chooses of a group; most choose nothing."""
        algo, env = self.choice("algo"), self.choice("env")
        tuned, presets = self._tuned_file(), []
        while algo is not None and (preset := self._file(f"algo/{algo}")) is not None:
            presets.append(preset)
            algo = self._built_on(algo)
        usual = [schema.usual_policy(algo or "")] if group == "policy" else []
        for file in (*([] if tuned is None else [tuned]), *presets):
            option = group_overrides(read_yaml(file)[0]).get(group)
            if option is not None:
                usual = list(map(str, option)) if isinstance(option, ListConfig) else [str(option)]
                if file is tuned:
                    return usual
                break
        if group == "policy" and env is not None and schema.is_atari(env):
            return [name.replace("Mlp", "Cnn", 1) for name in usual]
        return usual

    def _experiment(self, config_path: str) -> Loaded:
        file = self._file(config_path)
        if file is None:
            raise ConfigLoadError(f"no {config_path}")
        config, header = read_yaml(file)
        self.read[file] = ""
        if file.name == "config.yaml":
            config.defaults = _choices_of_run(config, file)
        return self._without_replaced_sections(config, file), {**header, **GLOBAL}

    def _without_replaced_sections(self, config: DictConfig, file: Path) -> DictConfig:
        """Leave out the callbacks and the logger of a run for which the command line chooses others."""
        for section in ("callbacks", "logger"):
            if section in self.chosen and (file.name == "config.yaml" or self.chosen[section] == "none"):
                config.pop(section, None)
        return self._without_replaced_replay(config)

    def _file(self, config_path: str) -> Path | None:
        path = config_path if config_path.endswith(".yaml") else f"{config_path}.yaml"
        group, _, name = path.partition("/")
        folders = self.folders if name else self.folders[::-1]  # a command's own file is always ours
        candidates = [folder / _place(path) for folder in folders]
        if group == "experiment":
            candidates.append(Path.cwd() / name)
        return next((candidate for candidate in candidates if candidate.is_file()), None)

    def _read(self, config_path: str) -> Loaded:
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
    return sorted(presets | set(schema.algorithm_names()))


def _group(default: Any) -> str:
    """Return what an entry of a defaults list chooses; ``_self_`` is the whole entry."""
    return str(next(iter(default))) if isinstance(default, DictConfig) else str(default)


def _place(config_path: str) -> str:
    """Return where below ``conf/`` the files of a group stand."""
    return f"tune/{config_path}" if config_path.partition("/")[0] in SEARCH_GROUPS else config_path


def _drop_default_choices(config: DictConfig) -> None:
    """Take out of a defaults list what `ZooConfigSource` chooses as the usual option of a group."""
    if "defaults" in config:
        config.defaults = [each for each in config.defaults if not _is_default_choice(each)]
        if not config.defaults:
            del config["defaults"]


def _is_default_choice(default: Any) -> bool:
    keys = [str(key).split() for key in default] if isinstance(default, DictConfig) else []
    return any(key in (["override", f"/{group}"] for group in GROUPS_OF_PRESETS) for key in keys)


def _choices_of_run(config: DictConfig, file: Path) -> ListConfig:
    """Return the defaults list that a run's own config stands for."""
    try:
        choices = {"algo": config.algo.get("preset") or config.algo.name, "env": config.env.id}
        choices |= {"tuned": NO_TUNED} if "generator" in config.algo else {}  # the file may be for another
    except AttributeError as error:
        raise ZooError(f"{shown(file)} is not the config of a run: {error}") from error
    return OmegaConf.create(["_self_", *({f"override /{group}": name} for group, name in choices.items())])
