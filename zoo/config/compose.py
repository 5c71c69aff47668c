"""Composing the config of a command as Hydra does, every value checked, for the command line and Python."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra import initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException

from zoo.config import sections
from zoo.config.aliases import ALGORITHMS, UnknownKeyError
from zoo.config.choices import Choices, base_of
from zoo.config.environment_values import VariableText, as_written, resolved
from zoo.config.fields import build
from zoo.config.keys import COMMAND_SECTIONS, all_keys, other_algorithms_hint
from zoo.config.overrides import parse_overrides, with_config_keys
from zoo.config.resume import RESUME, ResumedRun
from zoo.config.schema import SETTINGS
from zoo.config.source import SearchPath, ZooConfigSource, read_yaml
from zoo.config.user_files import search_folders, shown
from zoo.config.validate import (
    REQUIRED_CHOICES,
    check_overrides,
    checked,
    refuse_pretraining_from_nothing,
    require_choices,
)
from zoo.core.plain_data import value_at
from zoo.core.printing import one_line
from zoo.errors import ZooError, nearest

SEARCHABLE = ("algo.", "env.", "policy.", "replay.", "n_envs")
"""Prefixes of the settings that a search may vary."""

VERSION_BASE: dict[str, Any] = {"version_base": None} if hydra.__version__.startswith("1.3.") else {}
"""Asks Hydra 1.3 for its own defaults; later releases have no others."""

HYDRA_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError)


def as_zoo_error(error: Exception) -> ZooError:
    """Return one of Hydra's errors as one line: its first, or which option of a group there is not."""
    missing = str(error.missing_cfg_file) if isinstance(error, MissingConfigException) else ""
    if isinstance(error, MissingConfigException) and "/" in missing:
        group, _, name = missing.rpartition("/") if missing.startswith("hydra/") else missing.partition("/")
        if name.endswith(".yaml"):
            return ZooError(f"{group}: there is no file {name}")
        options = list(dict.fromkeys(error.options or ()))  # plug-ins may have files of the same name
        if ALGORITHMS.get(name.lower()) in options:
            return ZooError(f"unknown {group} '{name}': it is {group}={ALGORITHMS[name.lower()]} here")
        listed = f" (known: {', '.join(options)})" if options else ""
        return ZooError(f"unknown {group} '{name}'{nearest(name, options)}{listed}")
    causes = [error, error.__cause__] if isinstance(error.__cause__, OmegaConfBaseException) else [error]
    lines = (str(cause).strip().partition("\n")[0] for cause in causes)
    return ZooError(": ".join(one_line(line).rstrip(".") for line in lines))


class ConfigLoader:
    """Composes the configs of one command."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.groups = COMMAND_SECTIONS.get(command, ())
        """The config groups of the command, without Hydra's own."""
        for plugin in (SearchPath, ZooConfigSource):
            Plugins.instance().register(plugin)
        outer = GlobalHydra.instance().hydra  # of the program that calls us, if it is one of Hydra's
        GlobalHydra.instance().clear()
        SearchPath.command = command
        try:
            with initialize_config_module("zoo.config", command, **VERSION_BASE):
                self.hydra = GlobalHydra.instance().config_loader()
        finally:
            SearchPath.command = None
            GlobalHydra.instance().hydra = outer

    @property
    def source(self) -> ZooConfigSource:
        """Zoo's own source of configs."""
        return next(source for source in self.hydra.get_sources() if isinstance(source, ZooConfigSource))

    def load_configuration(self, overrides: Sequence[str], run_mode: RunMode) -> DictConfig:
        """Compose; for a run (not for the frame of a multirun) also check. Raises `ZooError`."""
        overrides = with_config_keys(self.command, overrides)
        is_run = run_mode == RunMode.RUN
        try:
            parsed = parse_overrides(overrides)
            self._choose(parsed)
            check_overrides(self.command, parsed, is_run=is_run)
            resumed = _resumed_run(parsed) if is_run else None
            chosen = parsed if resumed is None else parse_overrides(resumed.overrides)
            config = self._composed(chosen, run_mode)
            if resumed is not None:
                resumed.apply_to(config)
            plain = self._plain_job(config)
        except UnknownKeyError as error:
            raise self._with_hint(error) from error
        except (*HYDRA_ERRORS, ValueError) as error:
            raise as_zoo_error(error) from error
        if is_run:
            require_choices(self.command, plain)
            refuse_pretraining_from_nothing(self.typed, plain)
            self._check(config, plain)
        return config

    def settings(self, overrides: Sequence[str]) -> Any:
        """Return a job's settings as their dataclass; for a command with sections, its config."""
        config = job_part(self.load_configuration(overrides, RunMode.RUN))
        return config if self.groups else build(SETTINGS[self.command], resolved(config), "")

    def check_jobs(self, jobs: Iterable[Sequence[str]]) -> Iterator[None]:
        """Check the config of each job, given by its overrides, in an iteration. Raises `ZooError`.

        Jobs that differ in plain values alone are composed once; each composes its config anew when it runs.
        """
        parsed = functools.cache(lambda override: parse_overrides([override])[0])
        composed: dict[Any, dict[str, Any]] = {}
        for job in jobs:
            plain = {text: override for text in job if self._is_plain(override := parsed(text))}
            values = {override.key_or_group: override.value() for override in plain.values()}
            shape = (*values, *(text for text in job if text not in plain))
            try:
                config = copy.deepcopy(composed[shape])
                for key, value in values.items():
                    section, _, name = key.rpartition(".")
                    (value_at(config, section) if section else config)[name] = value
                checked(self.command, config)
            except (LookupError, TypeError, ZooError):  # first job of its shape, or an error: compose fully
                composed[shape] = self._plain_job(self.load_configuration(job, RunMode.RUN))
            yield

    def _is_plain(self, override: Override) -> bool:
        """Tell whether an override sets a number, a text or a list, on which nothing else depends."""
        key, value = override.key_or_group, None if override.is_delete() else override.value()
        is_choice = (
            override.is_hydra_override() or key in (*self.groups, "algo.generator", RESUME) or "/" in key
        )
        is_text = isinstance(value, str | list) and "${" not in str(value)
        return not is_choice and not override.package and (is_text or isinstance(value, int | float))

    def load_incomplete(self, overrides: list[str]) -> DictConfig:
        """Compose and check an incomplete config; groups without a chosen option are left out."""
        if _resumed_run(parse_overrides(overrides)) is not None:
            return self.load_configuration(overrides, RunMode.RUN)
        config = self.load_configuration(overrides, RunMode.MULTIRUN)
        self._check(config, self._plain_job(config))
        return config

    def _choose(self, overrides: Sequence[Override]) -> Choices:
        """Store the typed values (None for several) and the choices that follow from them."""
        self.typed = {o.key_or_group: None if o.is_sweep_override() else o.value() for o in overrides}
        groups = (*self.groups, "algo.generator")
        self.choices = Choices({key: self.typed[key] for key in groups if key in self.typed}, self.groups)
        return self.choices

    def _composed(self, overrides: Sequence[Override], run_mode: RunMode) -> DictConfig:
        """Return the composed config, without groups that have no chosen option."""
        choices = self._choose(overrides)
        self.source.read.clear()
        self.source.fit = choices.fit
        lines = []
        for override in overrides:  # a key within a section may be one that no file has
            is_plain = not (override.is_add() or override.is_force_add() or override.is_delete())
            section, dot, _ = override.key_or_group.partition(".")
            adds = is_plain and dot and section in (*self.groups, "env")
            if adds and (key := override.key_or_group) in ("policy.net_arch", "algo.action_noise"):
                lines.append(f"++{key}=null")  # they are replaced, not merged
            lines.append(f"++{override.input_line}" if adds else str(override.input_line))
        config = self.hydra.load_configuration(self.command, [*lines, *choices.overrides()], run_mode)
        with flag_override(config, ["struct", "readonly"], [False, False]):
            for group, option in {"algo": choices.algo, "env": choices.env}.items():
                if group in REQUIRED_CHOICES.get(self.command, ()) and option is None:
                    config.pop(group, None)
            if self.groups:
                choices.over_declared(config)
            config.hydra.overrides.task = [
                override.input_line for override in overrides if not override.is_hydra_override()
            ]
        return config

    def _plain_job(self, config: DictConfig) -> dict[str, Any]:
        """Return the job as plain values; adds keys typed on the command line to a search's ``fixed``."""
        plain = resolved(job_part(config))
        if isinstance(plain.get("fixed"), list):
            typed_keys = (key for key in sorted(self.typed) if key.startswith(SEARCHABLE))
            plain["fixed"] = list(dict.fromkeys([*plain["fixed"], *typed_keys]))
        return plain

    def _with_hint(self, error: UnknownKeyError) -> ZooError:
        """Return the error with a hint at where its key stands in the whole config, if it is there."""
        if error.is_sure:  # to say more algorithms are imported, which takes long
            return error
        algorithm = base_of(self.choices.algo or "")
        chosen = [algorithm] if sections.is_algorithm(algorithm) else []
        others = ""
        if error.section == "env":
            others = f"; what the environment itself takes: `env.kwargs.{error.key}`"
        elif error.section in ("", "algo") and "algo" in COMMAND_SECTIONS.get(self.command, ()):
            others = other_algorithms_hint(error.key, chosen)
        return error.with_hint(list(all_keys(self.command, chosen or sections.ALGORITHMS)), others)

    def _check(self, config: DictConfig, plain: dict[str, Any]) -> None:
        """Put the checked values into the config. Raises `ZooError` with the file that sets a wrong one."""
        try:
            values = checked(self.command, plain)
        except ZooError as error:
            hinted = self._with_hint(error) if isinstance(error, UnknownKeyError) else error
            raise self._with_file_name(hinted, plain) from error
        with flag_override(config, ["struct", "readonly"], [False, False]):
            for key, value in values.items():
                config[key] = as_written(value)
            for key in plain.keys() - values.keys():
                del config[key]

    def _with_file_name(self, error: ZooError, plain: dict[str, Any]) -> ZooError:
        """Name the file that sets the key with which a message begins, if no override sets it."""
        named = re.match(r"(?:unknown key )?`([\w.]+)", str(error))
        if named is None:
            return error
        path, value = named[1], value_at(plain, named[1])
        if isinstance(value, str) and re.fullmatch(r"None|0\d+", value):
            return ZooError(f"{error}; write {'null' if value == 'None' else int(value)}")
        if isinstance(value, VariableText) and "wrong type" in str(error):
            return ZooError(f"{error}; write '{path}=\"${{oc.decode:{value.written}}}\"'")
        if path in self.typed or any("." in key and path.startswith(f"{key}.") for key in self.typed):
            return error
        for file, section in reversed(self.source.read.items()):
            if not section or path.startswith(f"{section}."):
                setting = OmegaConf.select(read_yaml(file)[0], path.removeprefix(f"{section}."))
                if setting is not None and setting == value:
                    return ZooError(f"{error} (in {shown(file)})")
        return error


def _resumed_run(overrides: Sequence[Override]) -> ResumedRun | None:
    folders = [override.value() for override in overrides if override.key_or_group == RESUME]
    if not folders or folders[-1] is None:
        return None
    return ResumedRun(Path(str(folders[-1])).expanduser(), overrides)


def job_part(config: DictConfig) -> DictConfig:
    """Return everything but Hydra's own part."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def compose(command: str = "train", overrides: Sequence[str] = ()) -> DictConfig:
    """Return the checked config of ``zoo <command> <overrides>``.

    Only texts of environment variables are still interpolations: no dump of it has their values. Works
    anywhere and any number of times, also inside of a running Hydra job. Raises `ZooError`.
    """
    if command not in SETTINGS:
        raise ZooError(f"unknown command '{command}'{nearest(command, SETTINGS)}")
    return job_part(ConfigLoader(command).load_configuration(overrides, RunMode.RUN))


def env_id(name: str) -> str:
    """Return the id that ``env=name`` stands for: what ``conf/env/<name>.yaml`` says, where there is one."""
    if not any((folder / "env" / f"{name}.yaml").is_file() for folder in search_folders("conf")):
        return name
    return str(compose("check", [f"env='{name}'"]).env.id)
