"""Composing as Hydra does, from Zoo's source, with every value checked and every mistake explained."""

from __future__ import annotations

from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, flag_override

from zoo.config.bare_words import as_typed, spelled
from zoo.config.environment_values import resolved
from zoo.config.hydra_internals import PluggedLoader, parse_overrides
from zoo.config.mistakes import HYDRA_ERRORS, as_zoo_error
from zoo.config.own_modules import name_own
from zoo.config.resuming import ResumedRun, is_trusted
from zoo.config.source import ZooConfigSource, chosen_groups
from zoo.config.validation import checked, refuse_unknown_names, require_choices

SEARCHABLE = ("algo.", "env.", "policy.", "memory.", "n_envs")
"""How the names of settings begin that a search may be about."""


class ConfigLoader(PluggedLoader):
    """Composes the config of one command, for Hydra and for `zoo.compose`."""

    def __init__(self, command: str) -> None:
        super().__init__(ZooConfigSource, command)

    @property
    def source(self) -> ZooConfigSource:
        """Zoo's own source of configs."""
        return next(source for source in self.get_sources() if isinstance(source, ZooConfigSource))

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Compose; for a run (not for the frame of a multirun) also check. Raises `ZooError`."""
        is_run = run_mode == RunMode.RUN
        overrides = spelled(self.command, overrides)
        try:
            typed = as_typed(self.command, self.known_keys())
            refuse_unknown_names(parse_overrides(overrides), self.known_keys(), typed)
            self.source.is_trusted = is_trusted(parse_overrides(overrides))
            resumed = ResumedRun.of(overrides) if is_run else None
            given = overrides if resumed is None else resumed.overrides
            self.source.chosen = {override.key_or_group for override in parse_overrides(given)}
            config = self.composed(config_name, given, run_mode, from_shell, validate_sweep_overrides)
            if resumed is not None:
                resumed.put_into(config)
            plain = self._with_what_is_fixed(_plain_job(config))
        except (*HYDRA_ERRORS, ValueError) as error:
            raise as_zoo_error(error, as_typed(self.command, self.known_keys())) from error
        _let_callbacks_be_found(config)
        if is_run:
            require_choices(self.command, plain)
            self._check(config, plain)
        return config

    def load_incomplete(self, overrides: list[str]) -> DictConfig:
        """Compose and check what has been chosen so far; a group that has not been chosen is left out."""
        if ResumedRun.of(overrides) is not None:
            return self.load_configuration(self.command, overrides, RunMode.RUN)
        config = self.load_configuration(self.command, overrides, RunMode.MULTIRUN)
        self._check(config, _plain_job(config))
        return config

    def groups(self) -> list[str]:
        """Return the config groups of the command, as its defaults list names them, and Hydra's launchers."""
        return [*(group for group in self._groups() if not group.startswith("hydra")), "hydra/launcher"]

    def known_keys(self) -> list[str]:
        """Return the names at the top of the command's config: its settings and its groups."""
        names = dict.fromkeys([*map(str, self._command_config()), *self._groups()])
        return [name for name in names if name != "defaults" and not name.startswith("hydra")]

    def _with_what_is_fixed(self, plain: dict[str, object]) -> dict[str, object]:
        """Add to the list ``fixed`` of a search the hyperparameters that the command line sets."""
        fixed = plain.get("fixed")
        if not isinstance(fixed, list):
            return plain
        given = (key for key in sorted(self.source.chosen) if key.startswith(SEARCHABLE))
        return {**plain, "fixed": list(dict.fromkeys([*fixed, *given]))}

    def _command_config(self) -> DictConfig:
        config = self.source.load_config(self.command).config
        assert isinstance(config, DictConfig)
        return config

    def _groups(self) -> list[str]:
        return chosen_groups(self._command_config())

    def _check(self, config: DictConfig, plain: dict[str, object]) -> None:
        values = checked(self.command, plain)
        with flag_override(config, ["struct", "readonly"], [False, False]):
            for key, value in values.items():
                config[key] = value
            for key in plain.keys() - values.keys():
                del config[key]


def _let_callbacks_be_found(config: DictConfig) -> None:
    """Let Hydra find the callbacks in the working folder that the user's own files, or they, name."""
    callbacks = OmegaConf.select(config, "hydra.callbacks")
    for each in (callbacks or {}).values():
        target = each.get("_target_") if isinstance(each, DictConfig) else None
        if target is not None:
            name_own(str(target))


def _plain_job(config: DictConfig) -> dict[str, object]:
    """Return everything but Hydra's own part as plain values, with interpolations resolved."""
    job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    return dict(resolved(job))
