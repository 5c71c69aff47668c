"""Choosing an option of each config group: from the typed overrides to overrides that choose everything.

The first of these that chooses wins: command line, experiment, tuned file, preset, algorithm. Files choose
by ``override /GROUP: OPTION`` in their defaults lists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from zoo.config.fields import common_class, defaults
from zoo.config.overrides import as_hydra_reads
from zoo.config.schema import preset_or_name
from zoo.config.sections import ALGORITHMS, algorithm_class, is_algorithm, section_class
from zoo.config.source import bases, choices_in, find_file, read_yaml
from zoo.config.user_files import search_folders, shown
from zoo.errors import ZooError, nearest

NO_TUNED = "none"

DEFAULT_POLICY = "MlpPolicy"

RUN_CONFIG = "config.yaml"
"""File name of a run's config; other experiments have other names."""


def algorithm_options() -> list[str]:
    """Return the values of ``algo=``: algorithms and their presets."""
    return sorted({file.stem for folder in search_folders("conf") for file in folder.glob("algo/*.yaml")})


def lineage(algo: str | None) -> list[str]:
    """Return a preset, its base, that one's base and so on, down to an algorithm; nothing for None."""
    file = None if algo is None else find_file(f"algo/{algo}")
    below = [] if file is None else bases(read_yaml(file)[0])
    return [] if algo is None else [algo, *(lineage(below[0]) if below else [])]


def base_of(algo: str) -> str:
    """Return the algorithm that a preset builds on, directly or through others; any other name as it is."""
    names = lineage(algo)
    files = {name: find_file(f"algo/{name}") for name in names if name not in ALGORITHMS}
    return next((name for name in names if is_algorithm(name) and files.get(name) is None), names[-1])


def choices_of(config_path: str) -> dict[str, Any]:
    """Return the group options that a file and its bases choose."""
    file = find_file(config_path)
    if file is None:
        return {}
    config = read_yaml(file)[0]
    if file.name == RUN_CONFIG:
        # The tuned file may be for another generator than the run's.
        generator = {"tuned": NO_TUNED} if "generator" in config.algo else {}
        return {"algo": preset_or_name(config.algo), "env": str(config.env.id), **generator}
    chosen: dict[str, Any] = {}
    for base in bases(config):
        chosen |= choices_of(f"{config_path.partition('/')[0]}/{base}")
    return chosen | choices_in(config)


class Choices:
    """Options of a command's groups: those typed, and those chosen by the files that they name."""

    def __init__(self, typed: Mapping[str, Any], groups: Collection[str]) -> None:
        self.typed = typed
        """Typed options of groups, and gail's generator; None for several."""
        self._groups = groups
        names = self.typed.get("experiment")
        self._of_experiments: dict[str, Any] = {}
        for name in names if isinstance(names, list) else [names]:
            self._of_experiments |= choices_of(f"experiment/{name}")
        self.algo, self.env = self._option("algo"), self._option("env")

    def overrides(self) -> list[str]:
        """Return overrides for untyped groups, and for the tuned file's path. Raises `ZooError`."""
        tuned = self._tuned_file() if "tuned" in self._groups else None
        chosen = self._by_default()
        if tuned is not None:
            chosen |= choices_of(f"tuned/{tuned}")
        chosen |= self._of_experiments
        chosen = {group: option for group, option in chosen.items() if group not in self.typed}
        if tuned is not None and self.typed.get("tuned", tuned) is not None:
            chosen["tuned"] = tuned
        return [f"{group}={as_hydra_reads(option)}" for group, option in chosen.items()]

    def _option(self, group: str) -> str | None:
        """Return the option that the command line or an experiment chooses; None for no option or several."""
        option = self.typed[group] if group in self.typed else self._of_experiments.get(group)
        return option if isinstance(option, str) else None

    def _by_default(self) -> dict[str, Any]:
        """Return the options chosen by the algorithm, its preset and the kind of environment."""
        chosen: dict[str, Any] = {}
        names = lineage(self.algo)
        is_known = bool(names) and is_algorithm(names[-1])
        algorithm: Any = algorithm_class(names[-1]) if is_known and "policy" in self._groups else None
        if "policy" in self._groups:
            policy = algorithm.usual_policy if is_known else DEFAULT_POLICY
            chosen = {"policy": policy} | choices_of(f"algo/{self.algo}")
            if self.env is not None and section_class("env")(id=self.env).is_atari:
                chosen["policy"] = chosen["policy"].replace("Mlp", "Cnn", 1)
        if "space" in self._groups:
            spaces = [name for name in names if find_file(f"space/{name}") is not None]
            if is_known and not spaces:  # its class declares one
                spaces = [base_of(str(self.algo))]
            chosen |= {"space": spaces[0]} if spaces else {}
        return chosen

    def _tuned_file(self) -> str | None:
        """Return the path of the chosen tuned file, else the environment's or its family's, or None."""
        option, algo, env = self._option("tuned"), self.algo, self.env
        if option == NO_TUNED:
            return NO_TUNED
        files = []
        if option is not None and option.endswith(".yaml"):
            files = [Path(option).expanduser().absolute()]
        else:
            algo, _, env = (algo, "", env) if option is None else option.partition("/")
            if algo is not None and env is not None:
                names, folders = section_class("env")(id=env).tuned_names, search_folders("hyperparams")
                files = [folder / algo / f"{name}.yaml" for name in names for folder in folders]
        file = next((str(file) for file in files if file.is_file()), None)
        if file is None and option is not None:
            others = [other for folder in search_folders("hyperparams") for other in folder.glob("*/*.yaml")]
            candidates = [f"{other.parent.name}/{other.stem}" for other in others]
            if option.endswith(".yaml"):
                candidates = [*map(str, Path(option).expanduser().parent.glob("*.yaml")), *map(shown, others)]
            raise ZooError(
                f"there is no tuned file {option}{nearest(option, candidates)}"
                " (tuned=none leaves tuned values out)"
            )
        return file

    def fit(self, group: str, file: Path, config: DictConfig) -> None:
        """Remove a file's values that do not apply to this command line."""
        if group == "tuned" and file.stem != NO_TUNED:
            config.tuned = shown(file)
            self._fit_generator(config)
        left_out = {"replay"} & self.typed.keys() if group in ("tuned", "experiment") else set()
        if group == "experiment":
            is_run = file.name == RUN_CONFIG
            chosen = self.typed.keys() & {"callbacks", "logger"}
            left_out |= {section for section in chosen if is_run or self.typed[section] == "none"}
            # The new run belongs neither to the old run's job nor to its sweep.
            left_out |= {"job"} if is_run else set()
            sweep = file.absolute().parent.parent.parent.parent / "sweep.yaml"
            left_out |= {"runs_dir"} if is_run and sweep.is_file() else set()
        for key in left_out:
            config.pop(key, None)

    def _fit_generator(self, config: DictConfig) -> None:
        """Keep only a gail file's values for any generator, if another generator is typed than the file's."""
        values, generator = config.get("algo"), self.typed.get("algo.generator")
        if generator is None or not isinstance(values, DictConfig):
            return
        common = defaults(common_class(algorithm_class("gail").config_class))
        if values.get("generator", common["generator"]) != generator:
            config.algo = {key: values[key] for key in values if key in common}

    def _usual_env(self) -> dict[str, Any]:
        """Return the settings of environments by which the preset differs from its algorithm."""
        names = lineage(self.algo)
        classes = [algorithm_class(names[-1], name) for name in names if is_algorithm(names[-1])]
        usual = next((item.usual_normalize for item in classes if item.usual_normalize), None)
        return {} if usual is None else {"normalize": {**usual}}

    def over_declared(self, config: DictConfig) -> None:
        """Merge a composed config over the chosen names and the declared defaults."""
        declared: dict[str, dict[str, Any]] = {}
        if self.algo is not None and is_algorithm(name := base_of(self.algo)):
            preset = {} if name == self.algo else {"preset": self.algo}
            values = defaults(common_class(algorithm_class(name).config_class))
            declared["algo"] = {"name": name, **preset, **values}
        if self.env is not None:
            declared["env"] = {"id": self.env, **defaults(section_class("env")), **self._usual_env()}
        if isinstance(policy := OmegaConf.select(config, "hydra.runtime.choices.policy"), str):
            declared["policy"] = {**defaults(section_class("policy")), "name": policy}
        for section, values in declared.items():
            config[section] = OmegaConf.merge(values, config.get(section) or {})
