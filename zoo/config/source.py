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

import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from zoo.config.fields import common_class, defaults
from zoo.config.schema import preset_or_name
from zoo.config.sections import ALGORITHMS, SUMMARIES, algorithm_class, is_algorithm, section_class
from zoo.config.user_files import search_folders, shown
from zoo.core.printing import one_line
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

CHOICES_OF_PRESETS = tuple(f"override /{group}" for group in GROUPS_OF_PRESETS)

USUAL_POLICY = "MlpPolicy"

RUN_CONFIG = "config.yaml"
"""The name by which the config of a run is told from other experiments."""


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    """Return what YAML says, as plain values that nobody changes: a command's own file is read often."""
    return OmegaConf.to_container(OmegaConf.create(text))


def read_yaml(file: Path) -> Loaded:
    """Return what a file of the user's own holds, and what it says to Hydra. Raises `ZooError`."""
    try:
        text = file.read_text(encoding="utf-8")
        config = OmegaConf.create(_parsed(text))
        if not isinstance(config, DictConfig):
            raise ValueError("it holds no keys and values")
        if not isinstance(config.get("defaults") or [], list | ListConfig):
            raise ValueError("its `defaults` are no list of what the file builds on")
    except (OSError, ValueError, AssertionError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise ZooError(f"can't read {shown(file)}: {one_line(error)}") from error
    package = re.match(r"(?:\s*(?:#.*)?\n)*?\s*#\s*@package\s+(\S+)", text)
    return config, {"package": package[1] if package else None}


def chosen_groups(command: DictConfig) -> list[str]:
    """Return the groups that a command's defaults list chooses from."""
    return [key.split()[-1] for key in _choices(command)]


def overridden_groups(config: DictConfig) -> dict[str, Any]:
    """Return what the defaults list of a file chooses of groups by ``override /GROUP: OPTION``."""
    choices = _choices(config).items()
    return {key.rpartition("/")[2]: option for key, option in choices if key.startswith("override /")}


def bases(config: DictConfig) -> list[str]:
    """Return the options of the same group that a file builds on."""
    return [each for each in config.get("defaults") or [] if isinstance(each, str) and each != "_self_"]


def _choices(config: DictConfig) -> dict[str, Any]:
    """Return the entries ``GROUP: OPTION`` of a defaults list."""
    entries = (each for each in config.get("defaults") or [] if isinstance(each, DictConfig))
    return {str(key): option for each in entries for key, option in each.items()}


def algorithm_options() -> list[str]:
    """Return what ``algo=`` takes: algorithms, and presets of theirs."""
    presets = {file.stem for folder in search_folders("conf") for file in (folder / "algo").glob("*.yaml")}
    return sorted(presets | set(ALGORITHMS))


class _WholeConfig(ConfigResult):
    """A config that Hydra 1.3 merges with no schema: a plug-in's may have the name of a file of Zoo's."""

    is_schema_source = property(lambda self: True, lambda self, value: None)


class SearchPath(SearchPathPlugin):
    """Lets Hydra look for the configs of a command in `ZooConfigSource`."""

    command: str | None = None
    """The command whose configs are composed now, None for those of another program."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if self.command is not None:
            search_path.prepend("zoo", f"{SCHEME}://{self.command}", SearchPathQuery(provider="main"))


class ZooConfigSource(ConfigSource):
    """The source ``zoo://<command>``; a group named like a plain value of that command's config is hidden."""

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider=provider, path=path)
        self.folders = search_folders("conf")
        self.chosen: Mapping[str, Any] = {}
        """What the command line sets, None for several values; set before a config is composed."""
        self.read: dict[Path, str] = {}
        """The files that a config is composed of, each with its section, "" for the whole."""
        self.plain_keys: set[str] = set()
        if self._file(self.path) is not None:
            command = self._command(self.path)[0]
            self.plain_keys = {str(key) for key in command} - set(chosen_groups(command))

    def __deepcopy__(self, memo: object) -> ZooConfigSource:
        return self  # Hydra composes with a copy, which is to say to us what it has read

    @staticmethod
    def scheme() -> str:
        return SCHEME

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        if config_path in self.plain_keys:
            return False
        return config_path in GROUPS_WITHOUT_FILES or any(
            (folder / _place(config_path)).is_dir() for folder in self.folders
        )

    def is_config(self, config_path: str) -> bool:
        group, _, name = config_path.partition("/")
        if name and group == "tuned":
            return name != USUAL or self._tuned_file() is not None
        if name and (group == "env" or name in self._without_file(group)):
            return True
        is_chosen_here = name == USUAL and group in (*GROUPS_OF_PRESETS, "space")
        return is_chosen_here or (group == "algo" and is_algorithm(name)) or bool(self._file(config_path))

    def file_setting(self, path: str, value: Any) -> Path | None:
        """Return the file that sets a key, such as ``algo.gamma``, to this value, or None."""
        for file, section in reversed(self.read.items()):
            if not section or path.startswith(f"{section}."):
                said = OmegaConf.select(read_yaml(file)[0], path.removeprefix(f"{section}."))
                if said is not None and said == value:
                    return file
        return None

    def load_config(self, config_path: str) -> ConfigResult:
        config, header = self._load(config_path)
        return _WholeConfig(provider=self.provider, path=self.full_path(), config=config, header=header)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        places = [folder / _place(config_path) for folder in self.folders]
        entries = [entry for place in places if place.is_dir() for entry in place.iterdir()]
        names: set[str] = set()
        if results_filter != ObjectType.GROUP:
            names |= {
                *self._without_file(config_path),
                *(each.stem for each in entries if each.suffix == ".yaml"),
            }
        if results_filter != ObjectType.CONFIG:
            names |= {each.name for each in entries if each.is_dir()}
        return sorted(names)

    def header(self, config_path: str) -> str:
        """Return the comment at the top of a file, which says what it is; empty if it says nothing."""
        file = self._file(config_path)
        group, _, name = config_path.partition("/")
        if file is None:
            return SUMMARIES.get(name, "") if group == "algo" else ""
        lines = file.read_text(encoding="utf-8").splitlines()
        comments = itertools.takewhile(lambda line: line.startswith("#"), lines)
        return "\n".join(line[1:].removeprefix(" ") for line in comments if not line.startswith("# @"))

    def _without_file(self, group: str) -> Iterable[str]:
        """Return the options of a group that need no file; an environment's ids are too many to list."""
        if group == "algo":
            return ALGORITHMS
        return (NO_TUNED,) if group == "tuned" else ()

    def _load(self, config_path: str) -> Loaded:
        group, _, name = config_path.partition("/")
        if not name:
            return self._command(group)
        if group == "tuned":
            return self._tuned(name), {**GLOBAL}
        if group == "experiment":
            return self._experiment(config_path)
        if group == "space" and name == USUAL:
            return self._space()
        if group in GROUPS_OF_PRESETS and name == USUAL:
            options = [self._load(f"{group}/{each}")[0] for each in self._default_options(group)]
            return OmegaConf.merge({}, *options), {**LOCAL}  # type: ignore[return-value]
        if group == "algo" and is_algorithm(name) and (name in ALGORITHMS or not self._file(config_path)):
            declared = defaults(common_class(algorithm_class(name).config_class))
            return self._with_defaults(config_path, {"name": name, **declared})
        if group == "algo":
            config, header = self._read(config_path)
            return OmegaConf.merge({"preset": name}, _without_choices(config)), header  # type: ignore[return-value]
        if group in ("env", "policy"):
            own_name = {"env": "id", "policy": "name"}[group]
            return self._with_defaults(config_path, {**defaults(section_class(group)), own_name: name})
        return self._read(config_path)

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
        config = _read_experiment(file)[0]
        found = [self._of_experiment(each) for each in bases(config) if not each.startswith("/")]
        return {key: value for each in [*found, overridden_groups(config)] for key, value in each.items()}

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
        names = [*self._lineage(self.choice("algo"))]
        if names and is_algorithm(names[-1]):
            algorithm: Any = algorithm_class(names[-1])
            if algorithm.search_space:
                return DictConfig(algorithm.search_space), {**LOCAL}
            names += [vars(base)["name"] for base in algorithm.__mro__[1:] if "name" in vars(base)]
        found = next((f"space/{name}" for name in names if self._file(f"space/{name}") is not None), None)
        return (OmegaConf.create({}), {**LOCAL}) if found is None else self._read(found)

    def base_of(self, algo: str) -> str:
        """Return the algorithm that a preset builds on, over any number of presets; itself for any other."""
        lineage = self._lineage(algo)
        return next((each for each in lineage if is_algorithm(each)), lineage[-1])

    def _lineage(self, algo: str | None) -> Sequence[str]:
        """Return a preset, what it builds on, and so on, down to an algorithm."""
        if algo is None:
            return []
        file = self._file(f"algo/{algo}")
        below = [] if file is None else bases(read_yaml(file)[0])
        return [algo, *self._lineage(below[0])] if below else [algo]

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
            files = [each for folder in search_folders("hyperparams") for each in folder.glob("*/*.yaml")]
            names = [f"{each.parent.name}/{each.stem}" for each in files]
            if name.endswith(".yaml"):
                names = [*map(str, Path(name).expanduser().parent.glob("*.yaml")), *map(shown, files)]
            raise ZooError(
                f"there is no tuned file {name}{nearest(name, names)} (tuned=none leaves tuned values out)"
            )
        config = _without_choices(read_yaml(file)[0])
        self.read[file] = ""
        config.tuned = shown(file)
        tuned = config.get("algo")
        if "algo.generator" in self.chosen and isinstance(tuned, DictConfig):
            # What the file says of another generator of gail is not for this one.
            common = defaults(common_class(algorithm_class("gail").config_class))
            if tuned.get("generator", common["generator"]) != self.chosen["algo.generator"]:
                config.algo = {key: tuned[key] for key in tuned if key in common}
        if "replay" in self.chosen:
            config.pop("replay", None)
        return config

    def _tuned_file(self) -> Path | None:
        """Return the file of tuned values: the chosen one, else the environment's, else that for Atari."""
        option = self.choice("tuned")
        algo, env = self.choice("algo"), self.choice("env")
        if option == NO_TUNED:
            return None
        if option is not None and option.endswith(".yaml"):
            path = Path(option).expanduser()
            return path.absolute() if path.is_file() else None
        if option not in (None, USUAL):
            algo, _, env = str(option).partition("/")
        if algo is None or env is None:
            return None
        names = section_class("env")(id=env).tuned_names
        folders = search_folders("hyperparams")
        files = (folder / algo / f"{name}.yaml" for name in names for folder in folders)
        return next((file for file in files if file.is_file()), None)

    def _default_options(self, group: str) -> Sequence[str]:
        """Return what the tuned file, the preset or the algorithm chooses of a group; most choose nothing."""
        tuned, lineage = self._tuned_file(), self._lineage(self.choice("algo"))
        for file in (tuned, *(self._file(f"algo/{algo}") for algo in lineage)):
            option = None if file is None else overridden_groups(read_yaml(file)[0]).get(group)
            if option is not None:
                usual = list(map(str, option)) if isinstance(option, ListConfig) else [str(option)]
                if file is tuned:
                    return usual
                break
        else:
            is_known = lineage and is_algorithm(lineage[-1])
            policy = algorithm_class(lineage[-1]).usual_policy if is_known else USUAL_POLICY
            usual = [policy] if group == "policy" else []
        env = self.choice("env")
        if group == "policy" and env is not None and section_class("env")(id=env).is_atari:
            return [name.replace("Mlp", "Cnn", 1) for name in usual]
        return usual

    def _experiment(self, config_path: str) -> Loaded:
        file = self._file(config_path)
        if file is None:
            raise ConfigLoadError(f"no {config_path}")
        config, header = _read_experiment(file)
        self.read[file] = ""
        for section in self.chosen.keys() & {"replay", "callbacks", "logger"}:  # others are chosen
            if section == "replay" or file.name == RUN_CONFIG or self.chosen[section] == "none":
                config.pop(section, None)
        return config, {**header, **GLOBAL}

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


def _group(default: Any) -> str:
    """Return what an entry of a defaults list chooses; ``_self_`` is the whole entry."""
    return str(next(iter(default))) if isinstance(default, DictConfig) else str(default)


def _place(config_path: str) -> str:
    """Return where below ``conf/`` the files of a group stand."""
    return f"tune/{config_path}" if config_path.partition("/")[0] in SEARCH_GROUPS else config_path


def _without_choices(config: DictConfig) -> DictConfig:
    """Take out of a defaults list what `ZooConfigSource` chooses as the usual option of a group."""
    if "defaults" in config:
        kept = [each for each in config.defaults if _group(each) not in CHOICES_OF_PRESETS]
        del config["defaults"]
        if kept:
            config.defaults = kept
    return config


def _read_experiment(file: Path) -> Loaded:
    """Return an experiment; for the config of a run, with the defaults list that this stands for."""
    config, header = read_yaml(file)
    if file.name == RUN_CONFIG:
        choices = {"algo": preset_or_name(config.algo), "env": config.env.id}
        if "generator" in config.algo:  # the tuned file may be for another
            choices["tuned"] = NO_TUNED
        config.pop("job", None)  # the run that is made belongs to no job, nor to the sweep of one
        if (file.absolute().parent.parent.parent.parent / "sweep.yaml").is_file():
            config.pop("runs_dir", None)
        config.defaults = ["_self_", *({f"override /{group}": name} for group, name in choices.items())]
    return config, header
