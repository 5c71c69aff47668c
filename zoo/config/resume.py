"""Going on with a run: its own config is taken, and a setting that would change the run is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, flag_override

from zoo.config.overrides import quoted
from zoo.config.schema import preset_or_name
from zoo.core.plain_data import parse_yaml
from zoo.core.printing import one_line
from zoo.errors import ZooError

RESUME = "resume"

CHECKPOINTS = "callbacks.checkpoint"
FREE_OF_CHECKPOINTS = ("every", "keep")
"""Settings of the checkpoint callback that may differ."""

SHOWN_ONLY = (RESUME, "job", "verbose", "progress_bar")
"""Settings in which two configs of the same run may differ: what is printed, and the run's names."""

FREE = (*SHOWN_ONLY, *(f"{CHECKPOINTS}.{key}" for key in FREE_OF_CHECKPOINTS))
"""Settings that change nothing of what is computed."""


class ResumedRun:
    """The config of the run in ``folder``, and what the user wrote beside ``resume=``."""

    def __init__(self, folder: Path, given: Sequence[Override]) -> None:
        self.folder = folder
        self.config = OmegaConf.create(_read_config(folder))
        self.given = given

    @property
    def overrides(self) -> list[str]:
        """What the config to be filled is composed with."""
        choices = [f"algo={quoted(str(self.config.algo.name))}", f"env={quoted(str(self.config.env.id))}"]
        return choices + [
            str(override.input_line)
            for override in self.given
            if override.is_hydra_override() or override.key_or_group in FREE
        ]

    def apply_to(self, config: DictConfig) -> None:
        """Put the run's config into the composed one. Raises `ZooError` for a setting that differs."""
        changes = [change for override in self.given if (change := self._change(override)) is not None]
        if changes:
            raise ZooError(
                f"resume goes on with a run as it was, so it can't take {', '.join(changes)};"
                f" to train its agent with other settings: init_from={self.folder}"
            )
        with flag_override(config, ["struct", "readonly"], [False, False]):
            for key, value in self.config.items():
                if key not in FREE and key in config and key != "hydra":
                    config[key] = value
            for override in self.given:
                if override.key_or_group.startswith(f"{CHECKPOINTS}."):
                    OmegaConf.update(config, override.key_or_group, override.value())

    def _change(self, override: Override) -> str | None:
        """Return how an override differs from the run, or None if it does not."""
        key = override.key_or_group
        if override.is_hydra_override() or key in FREE:
            return None
        value = override.value()
        was = _choice(self.config, key) if isinstance(value, str | list) else _MISSING
        if was is _MISSING:
            was = _plain(OmegaConf.select(self.config, key, default=_MISSING))
        if was is not _MISSING and (value == was or (key == "replay" and _as_set(value) == _as_set(was))):
            return None
        known = "" if was is _MISSING or isinstance(was, dict | list) else f" (the run has {was})"
        return f"{override.input_line}{known}"


_MISSING = object()


def _choice(config: DictConfig, group: str) -> Any:
    """Return the option of a config group that the run was made with."""
    if group == "algo":
        return preset_or_name(config.algo)
    if group == "env":
        return config.env.id
    if group == "policy":
        return config.policy.name
    if group == "replay":
        chosen = [name for name in ("prioritized", "hindsight") if OmegaConf.select(config, f"replay.{name}")]
        return chosen if len(chosen) > 1 else (chosen or ["uniform"])[0]
    return _MISSING


def _as_set(options: Any) -> set[Any]:
    """Return one option, or several, as a set; ``uniform`` adds nothing to others."""
    return set(options if isinstance(options, list) else [options]) - {"uniform"}


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.yaml"
    if not folder.is_dir():
        raise ZooError(f"resume: there is no folder {one_line(folder)}")
    try:
        config = parse_yaml(path.read_bytes())
    except FileNotFoundError as error:
        raise ZooError(f"resume: there is no run in {one_line(folder)}: it has no config.yaml") from error
    except (OSError, ValueError) as error:
        raise ZooError(f"can't read the run's config {one_line(path)}: {one_line(error)}") from error
    if not all(isinstance(config.get(section), dict) for section in ("algo", "env", "policy")):
        raise ZooError(
            f"{one_line(path)} is not the config of a run: it has no sections algo, env and policy"
        )
    return config
