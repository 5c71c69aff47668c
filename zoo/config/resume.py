"""Resuming a run: its own config is used, and an override that would change the run is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, flag_override

from zoo.config.overrides import quoted
from zoo.config.schema import OLDER_POLICY, preset_or_name
from zoo.config.sections import SECTIONS
from zoo.core.plain_data import parse_own_yaml, value_at
from zoo.core.printing import one_line
from zoo.errors import ZooError

RESUME = "resume"

SHOWN_ONLY = (RESUME, "job", "verbose", "progress_bar")
"""Settings in which two configs of the same run may differ: what is printed, and the run's names."""

CHECKPOINTS = ("callbacks.checkpoint.every", "callbacks.checkpoint.keep")

FREE = (*SHOWN_ONLY, *CHECKPOINTS)
"""Settings that change nothing of what is computed."""


class ResumedRun:
    """The config of the run in ``folder``, and the overrides typed beside ``resume=``."""

    def __init__(self, folder: Path, typed: Sequence[Override]) -> None:
        self.folder, self.typed = folder, typed
        self.config = _read_config(folder)

    @property
    def overrides(self) -> list[str]:
        """Overrides that compose the config which `apply_to` then fills."""
        choices = [f"algo={quoted(self.config['algo']['name'])}", f"env={quoted(self.config['env']['id'])}"]
        return choices + [
            str(override.input_line)
            for override in self.typed
            if override.is_hydra_override() or override.key_or_group in FREE
        ]

    def apply_to(self, config: DictConfig) -> None:
        """Put the run's config into the composed one. Raises `ZooError` for a setting that differs."""
        changes = [change for override in self.typed if (change := self._change(override)) is not None]
        if changes:
            raise ZooError(
                f"resume goes on with a run as it was, so it can't take {', '.join(changes)};"
                f" to train its agent with other settings: init_from={self.folder}"
            )
        with flag_override(config, ["struct", "readonly"], [False, False]):
            for key, value in self.config.items():
                if key not in FREE and key in (*config, *SECTIONS) and key != "hydra":
                    config[key] = {**OLDER_POLICY, **value} if key == "policy" else value
            for override in self.typed:
                if override.key_or_group in CHECKPOINTS:
                    OmegaConf.update(config, override.key_or_group, override.value())

    def _change(self, override: Override) -> str | None:
        key = override.key_or_group
        value: Any = override.value()
        if override.is_hydra_override() or key in FREE:
            return None
        saved = self._value(key)
        if key == "replay":
            value = set(value if isinstance(value, list) else [value]) - {"uniform"}
        if value == saved:
            return None
        note = "" if saved is None or isinstance(saved, dict | list | set) else f" (the run has {saved})"
        return f"{override.input_line}{note}"

    def _value(self, key: str) -> Any:
        """Return a setting of the run, or the option of a config group that it was made with."""
        if key == "algo":
            return preset_or_name(self.config["algo"])
        if key == "replay":
            return {kind for kind in ("prioritized", "hindsight") if value_at(self.config, f"replay.{kind}")}
        return value_at(self.config, {"env": "env.id", "policy": "policy.name"}.get(key, key))


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.yaml"
    if not path.exists():
        raise ZooError(f"resume: there is no run in {one_line(folder)}: it has no config.yaml")
    try:
        config = parse_own_yaml(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ZooError(f"can't read the run's config {one_line(path)}: {one_line(error)}") from error
    if not all(isinstance(config.get(section), dict) for section in ("algo", "env", "policy")):
        raise ZooError(f"{one_line(path)} is no config of a run: it has no sections algo, env and policy")
    return config
