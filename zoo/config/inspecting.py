"""The settings of the commands that look at runs and at the machine: `zoo reproduce` and `zoo doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from zoo.config.fields import hyperparameter


@dataclass
class ReproduceSettings:
    """What `zoo reproduce` takes."""

    run: str | None = hyperparameter(help="folder of the run")
    until: int | None = hyperparameter(
        help="compare as far as this step; null: the whole run", unit="environment steps", ge=1
    )
    runs_dir: str = hyperparameter(help="folder that gets the new run")


@dataclass
class DoctorSettings:
    """What `zoo doctor` takes."""

    format: str = hyperparameter(help="text, or json for programs", choices=("text", "json"))
