"""The pruners of Optuna, each with the settings that it takes here; resources are environment steps."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from zoo.config.fields import build, hyperparameter
from zoo.errors import ZooError, nearest

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

WARM_UP = 0.2
"""Share of a trial in which, unless it is told otherwise, no pruner of percentiles ends it."""


class PrunerSettings(Protocol):
    """The settings of one pruner."""

    def make(self, first: int, last: int) -> BasePruner:
        """Return the pruner of trials whose first evaluation and end are after so many environment steps."""


@dataclass
class NoPruner:
    """Every trial runs to its end."""

    def make(self, first: int, last: int) -> BasePruner:
        from optuna.pruners import NopPruner

        return NopPruner()


@dataclass
class Percentile:
    """Ends a trial whose best score so far is not among the best at that step."""

    percentile: float = hyperparameter(25.0, "best part of the trials that goes on", gt=0, le=100)
    n_startup_trials: int = hyperparameter(10, "complete trials before the first is ended", ge=0)
    n_warmup_steps: int | None = hyperparameter(
        None, "steps before which no trial is ended; null: a fifth of it", unit="environment steps", ge=0
    )

    def make(self, first: int, last: int) -> BasePruner:
        from optuna.pruners import PercentilePruner

        warm_up = int(WARM_UP * last) if self.n_warmup_steps is None else self.n_warmup_steps
        return PercentilePruner(
            self.percentile, n_startup_trials=self.n_startup_trials, n_warmup_steps=warm_up
        )


@dataclass
class Median:
    """Ends a trial whose best score so far is below the median of the others' at that step."""

    n_startup_trials: int = hyperparameter(10, "complete trials before the first is ended", ge=0)
    n_warmup_steps: int | None = hyperparameter(
        None, "steps before which no trial is ended; null: a fifth of it", unit="environment steps", ge=0
    )

    def make(self, first: int, last: int) -> BasePruner:
        return Percentile(50.0, self.n_startup_trials, self.n_warmup_steps).make(first, last)


@dataclass
class Rungs:
    """What halving pruners share: at each rung the best part of the trials goes on."""

    min_resource: int | None = hyperparameter(
        None, "steps of the first rung; null: the first evaluation", unit="environment steps", ge=1
    )
    reduction_factor: int = hyperparameter(
        3, "one of so many trials goes on, for so many times as long", ge=2
    )


@dataclass
class SuccessiveHalving(Rungs):
    """Lets the best part of the trials go on at each rung."""

    min_early_stopping_rate: int = hyperparameter(0, "rungs that are left out at the start", ge=0)

    def make(self, first: int, last: int) -> BasePruner:
        from optuna.pruners import SuccessiveHalvingPruner

        return SuccessiveHalvingPruner(
            min_resource=self.min_resource or first,
            reduction_factor=self.reduction_factor,
            min_early_stopping_rate=self.min_early_stopping_rate,
        )


@dataclass
class Hyperband(Rungs):
    """Successive halving in brackets with different first rungs."""

    def make(self, first: int, last: int) -> BasePruner:
        from optuna.pruners import HyperbandPruner

        smallest = min(self.min_resource or first, last)
        return HyperbandPruner(smallest, max_resource=last, reduction_factor=self.reduction_factor)


@dataclass
class Patient:
    """Another pruner, which only ends a trial that has stopped getting better."""

    patience: int = hyperparameter(2, "evaluations without a better score that are borne", ge=0)
    min_delta: float = hyperparameter(0.0, "gain that counts as better", ge=0)
    wrapped: str = hyperparameter("median", "the other pruner, with its usual settings")
    n_startup_trials: int = hyperparameter(10, "complete trials before the first is ended", ge=0)

    def make(self, first: int, last: int) -> BasePruner:
        from optuna.pruners import PatientPruner

        known = [name for name in PRUNERS if name != "patient"]
        if self.wrapped not in known:
            hint = nearest(self.wrapped, known)
            raise ZooError(f"`pruner.wrapped={self.wrapped}` is not one of {', '.join(known)}{hint}")
        wrapped = PRUNERS[self.wrapped]()
        if hasattr(wrapped, "n_startup_trials"):
            wrapped.n_startup_trials = self.n_startup_trials
        # With no pruner inside, Optuna's ends whatever has stopped getting better.
        inner = None if self.wrapped == "none" else wrapped.make(first, last)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is called experimental
            return PatientPruner(inner, self.patience, self.min_delta)


PRUNERS: dict[str, type[Any]] = {
    "none": NoPruner,
    "median": Median,
    "percentile": Percentile,
    "successive_halving": SuccessiveHalving,
    "hyperband": Hyperband,
    "patient": Patient,
}
"""The pruners' settings by their name."""


def pruner_settings(values: Mapping[str, Any]) -> PrunerSettings:
    """Return the settings that the section ``pruner`` holds. Raises `ZooError` for what it does not take."""
    name = values.get("name")
    if name not in PRUNERS:
        raise ZooError(f"unknown pruner '{name}'{nearest(str(name), PRUNERS)} (known: {', '.join(PRUNERS)})")
    given = {key: value for key, value in values.items() if key != "name"}
    settings: PrunerSettings = build(PRUNERS[name], given, "pruner")
    if isinstance(settings, Patient):
        settings.make(1, 1)
    return settings


def checked_pruner(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section ``pruner`` with every default filled in; raises as `pruner_settings`."""
    settings: Any = pruner_settings(values)
    return {"name": values["name"], **dataclasses.asdict(settings)}
