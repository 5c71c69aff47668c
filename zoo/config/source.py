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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from zoo.config import sections
from zoo.config.fields import defaults
from zoo.config.foreign_files import (
    read_of_others,
    read_tuned,
    refuse_choices_of_others,
    refuse_places_of_others,
)
from zoo.config.hydra_internals import ObjectType, header_of
from zoo.config.paths import search_folders, shown
from zoo.errors import ZooError, nearest

SCHEME = "zoo"

USUAL_MEMORY = "memory/usual"

NO_TUNED = "none"
USUAL_TUNED = "usual/"
"""What the option of ``tuned`` begins with that the user did not choose, and that may be missing."""

GLOBAL = {"package": "_global_"}
WITHOUT_FILES = ("algo", "env", "policy", "tuned")
"""Groups of which there are options without a file."""

LOCAL: dict[str, str | None] = {"package": None}

SEARCH_GROUPS = ("sampler", "pruner", "space")
"""Groups of `zoo tune`, whose files stand in ``conf/tune/``."""

USUAL_SPACE = "of/"


class ZooConfigSource(ConfigSource):
    """The source ``zoo://<command>``; a group named like a plain value of that command's config is hidden."""

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider=provider, path=path)
        self.folders = search_folders("conf")
        self.is_trusted = False
        """Whether the user vouches for the files that an experiment names."""
        self.chosen: set[str] = set()
        """What the command line sets; a whole memory that it chooses replaces that of other files."""
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
            return _chosen_tuned_file(name) is not None
        if group == "tuned":
            return True
        return self._file(config_path) is not None

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
            preset = self._file(f"algo/{algo}")
            bases = [] if preset is None else _read_yaml(preset)[0].get("defaults", [])
            base = next((each for each in bases if isinstance(each, str) and each != "_self_"), None)
            if base is None:
                return OmegaConf.create({}), {**LOCAL}
            algo = base
        return self._read(f"space/{algo}")

    def _algorithm(self, name: str) -> tuple[DictConfig, dict[str, str | None]]:
        if name in sections.algorithm_names():
            values = defaults(sections.algorithm_config_class(name))
            return self._with_defaults(f"algo/{name}", {"name": name, **values})
        config, header = self._read(f"algo/{name}")
        if "defaults" in config:
            others = (each for each in config.defaults if _chosen_policy(each) is None)
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
        file = _chosen_tuned_file(name)
        if file is None:
            raise ZooError(_no_tuned_file(name))
        config = read_tuned(file)
        if not self.is_trusted and not any(
            file.is_relative_to(each.absolute()) for each in search_folders("hyperparams")
        ):
            values: Any = OmegaConf.to_container(config, resolve=False)
            settings = {key: each for key, each in values.items() if key != "defaults"}
            sections.refuse_foreign_run(settings, f"the tuned file {shown(file)}")
        if "defaults" in config:
            config.defaults = [each for each in config.defaults if _chosen_policy(each) is None]
            if not config.defaults:
                del config["defaults"]
        config.tuned = shown(file)
        return self._without_replaced_memory(config)

    def _without_replaced_memory(self, config: DictConfig) -> DictConfig:
        if "memory" in self.chosen:
            config.pop("memory", None)
        return config

    def _tuned_policy(self, name: str) -> str:
        pair, _, tuned = name.partition("/from/")
        algo, _, env = pair.partition("/")
        file = _chosen_tuned_file(f"{USUAL_TUNED}{pair}" if tuned == "usual" else tuned)
        choices = [] if file is None else map(_chosen_policy, read_tuned(file).get("defaults", []))
        usual = self._usual_policy(algo)
        if sections.is_atari(env):
            usual = usual.replace("Mlp", "Cnn", 1)
        return next((choice for choice in choices if choice is not None), usual)

    def _usual_policy(self, algo: str) -> str:
        """Return the policy that a preset chooses, or the usual one."""
        preset = self._file(f"algo/{algo}")
        choices = [] if preset is None else map(_chosen_policy, _read_yaml(preset)[0].get("defaults", []))
        return next((choice for choice in choices if choice is not None), sections.usual_policy(algo))

    def _experiment(self, config_path: str) -> tuple[DictConfig, dict[str, str | None]]:
        file = self._file(config_path)
        if file is None:
            raise ConfigLoadError(f"no {config_path}")
        if any(file.is_relative_to(folder) for folder in self.folders):
            config, header = _read_yaml(file)
        else:
            config, header = self._foreign_experiment(file), {}
        if file.name == "config.yaml":
            config.defaults = _choices_of_run(config, file)
        return self._without_replaced_memory(config), {**header, **GLOBAL}

    def _foreign_experiment(self, file: Path) -> DictConfig:
        """Return an experiment from elsewhere. Raises `ZooError` for code in one of somebody else."""
        if self.is_trusted or (file.name == "config.yaml" and sections.is_own_run(file.parent)):
            return _read_yaml(file)[0]
        config = read_of_others(file)
        values = OmegaConf.to_container(config, resolve=False)
        assert isinstance(values, dict)
        origin = f"the experiment in {shown(file)}"
        settings = {str(key): each for key, each in values.items() if key != "defaults"}
        sections.refuse_foreign_run(settings, origin)
        refuse_choices_of_others(values.get("defaults", []), origin)
        refuse_places_of_others(values, origin)
        return config

    def _file(self, config_path: str) -> Path | None:
        path = config_path if config_path.endswith(".yaml") else f"{config_path}.yaml"
        candidates = [folder / _place(path) for folder in self.folders]
        group, _, name = path.partition("/")
        if group == "experiment":
            candidates.append(Path.cwd() / name)
        return next((candidate for candidate in candidates if candidate.is_file()), None)

    def _read(self, config_path: str) -> tuple[DictConfig, dict[str, str | None]]:
        file = self._file(config_path)
        if file is None:
            raise ConfigLoadError(f"no {config_path}.yaml in {', '.join(map(str, self.folders))}")
        return _read_yaml(file)


def chosen_groups(command: DictConfig) -> list[str]:
    """Return the groups that a command's defaults list chooses from."""
    defaults = command.get("defaults", [])
    return [str(key).split()[-1] for each in defaults if isinstance(each, DictConfig) for key in each]


def _group(default: Any) -> str:
    """Return what an entry of a defaults list chooses; ``_self_`` is the whole entry."""
    return str(next(iter(default))) if isinstance(default, DictConfig) else str(default)


def _place(config_path: str) -> str:
    """Return where below ``conf/`` the files of a group stand."""
    return f"tune/{config_path}" if config_path.partition("/")[0] in SEARCH_GROUPS else config_path


def tuned_file(algo: str, env: str) -> Path | None:
    """Return the file of tuned values for ``algo`` on ``env``: its own, else that for Atari games, else None.

    ``./hyperparams`` is looked at before Zoo's own.
    """
    names = [env, sections.env_file_name(env), sections.env_file_name(env.rpartition(":")[2])]
    if sections.is_atari(env):
        names.append("atari")
    folders = search_folders("hyperparams")
    candidates = (folder / algo / f"{name}.yaml" for name in names for folder in folders)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _chosen_tuned_file(option: str) -> Path | None:
    """Return the file that an option of the group ``tuned`` means, or None if there is none."""
    path = Path(option).expanduser()
    if option.endswith(".yaml"):
        return path.absolute() if path.is_file() else None
    algo, _, env = option.removeprefix(USUAL_TUNED).partition("/")
    return tuned_file(algo, env)


def _no_tuned_file(option: str) -> str:
    files = [file for folder in search_folders("hyperparams") for file in folder.glob("*/*.yaml")]
    if option.endswith(".yaml"):
        names = [*map(str, Path(option).expanduser().parent.glob("*.yaml")), *map(shown, files)]
    else:
        names = [f"{file.parent.name}/{file.stem}" for file in files]
    return f"there is no tuned file {option}{nearest(option, names)} (tuned=none leaves tuned values out)"


def _chosen_policy(default: Any) -> str | None:
    """Return what ``override /policy: NAME`` in a defaults list chooses, or None for any other entry."""
    if not isinstance(default, DictConfig):
        return None
    for key, value in default.items():
        if str(key).split() == ["override", "/policy"]:
            return str(value)
    return None


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
    except AttributeError as error:
        raise ZooError(f"{shown(file)} is not the config of a run: {error}") from error
    return OmegaConf.create(["_self_", *({f"override /{group}": name} for group, name in choices.items())])


def _read_yaml(file: Path) -> tuple[DictConfig, dict[str, str | None]]:
    try:
        text = file.read_text(encoding="utf-8")
        config = OmegaConf.create(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise ZooError(f"can't read {shown(file)}: {' '.join(str(error).split())}") from error
    if not isinstance(config, DictConfig):
        raise ZooError(f"{shown(file)} holds {type(config).__name__}, expected keys and values")
    return config, header_of(text)
