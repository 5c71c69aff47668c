"""The plan of a study: the config of its trials, its space, sampler and pruner, and its folder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from zoo.config.environment_values import as_written
from zoo.config.schema import SECTIONS, TrainSettings
from zoo.core.plain_data import flat
from zoo.envs.registry import folder_name
from zoo.errors import ZooError
from zoo.tuning.space import Config, Space

FREE = (
    *("resume", "job", "runs_dir", "progress_bar", "verbose", "device", "threads", "compile"),
    *("tuned", "seed", "logger", "callbacks.checkpoint"),
)
"""Settings of a training that may change between two commands on one study."""


class Plan:
    """A study as the checked config of `zoo tune` describes it, as plain data. Raises `ZooError`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = dict(config)
        training = {"algo", "callbacks", "logger", *SECTIONS, *(each.name for each in fields(TrainSettings))}
        self.base: Config = {key: each for key, each in config.items() if key in training}
        self.algo = str(config["algo"].get("preset") or config["algo"]["name"])
        self.env = str(config["env"]["id"])
        self.name, self.objective = str(config["study"]), str(config["objective"])
        self.full_name = f"{self.algo}/{self.env}/{self.name}"
        self.folder = Path(config["runs_dir"], "tune", self.algo, folder_name(self.env), self.name)
        self.space = Space(config["space"], config["fixed"])
        self.n_seeds, self.n_timesteps = int(config["n_seeds"]), int(config["n_timesteps"])

    def check(self) -> None:
        """Raise `ZooError` for settings that would fail in every trial."""
        if not re.fullmatch(r"\w[\w.-]{0,99}", self.name):
            raise ZooError(f"`study={self.name}` is not a name; expected letters, digits, dots and dashes")
        for key in ("resume", "job"):
            if self.config[key] is not None:
                raise ZooError(f"`{key}` can't be set: zoo tune goes on with a study by the same command")
        _ = self.timeout
        if self.config["n_jobs"] == 0:
            raise ZooError("`n_jobs=0` is neither -1 (one a core) nor at least 1")
        if self.base["callbacks"].get("eval") is None:
            raise ZooError("`callbacks.eval` is switched off: without evaluations no trial has a score")
        self.space.check(self.base)

    @property
    def timeout(self) -> float | None:
        """Seconds after which no trial starts; None: no limit."""
        timeout: int | str | None = self.config["timeout"]
        if not isinstance(timeout, str):
            return timeout
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|sec|min|m|h)", timeout.strip())
        if match is None or float(match[1]) == 0:
            raise ZooError(f"`timeout={timeout}` is not a time; expected seconds, 30min or 2h")
        return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2][0]]

    @property
    def interval(self) -> int:
        """Environment steps between the evaluations of a training."""
        every: int | None = self.base["callbacks"]["eval"]["every"]
        return every or max(1, self.n_timesteps // int(self.config["n_evaluations"]))

    def settings(self) -> dict[str, Any]:
        """Return the settings that two commands on one study must share, as JSON stores them."""
        base = {
            path: each
            for path, each in flat(as_written(self.base))
            if path not in self.space.dimensions
            and not any(f"{path}.".startswith(f"{free}.") for free in FREE)
        }
        space = {f"space.{path}": repr(each) for path, each in self.space.dimensions.items()}
        own = {"objective": self.objective, "n_seeds": self.n_seeds, "callbacks.eval.every": self.interval}
        plain: dict[str, Any] = json.loads(json.dumps({**base, **own, **space}, default=str))
        return plain

    def config_of_trial(self, values: Mapping[str, Any], seed: int, runs_dir: Path) -> Config:
        """Return the config of one training. Raises `ZooError` for values that don't go together."""
        config = self.space.config_with(self.base, dict(values))
        callbacks = {**config["callbacks"], "eval": {**config["callbacks"]["eval"], "every": self.interval}}
        quiet = {"progress_bar": False, "verbose": 0}
        return {**config, **quiet, "callbacks": callbacks, "seed": seed, "runs_dir": str(runs_dir)}
