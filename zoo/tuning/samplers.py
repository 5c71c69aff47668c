"""The samplers of Optuna, each with the settings that it takes here.

A sampler is made anew for each trial, with a seed of that trial's own: what it draws depends on the study's
seed, the trial's number and the trials before, in whatever process it is at work.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from zoo.config.fields import build, hyperparameter
from zoo.errors import ZooError, nearest

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


class SamplerSettings(Protocol):
    """The settings of one sampler."""

    def make(self, study_seed: int, trial_seed: int) -> BaseSampler:
        """Return the sampler for one trial."""


@dataclass
class Random:
    """Every trial at random."""

    def make(self, study_seed: int, trial_seed: int) -> BaseSampler:
        from optuna.samplers import RandomSampler

        return RandomSampler(seed=trial_seed)


@dataclass
class TPE:
    """Tree-structured Parzen estimator."""

    n_startup_trials: int = hyperparameter(10, "trials at random before the first that is modelled", ge=0)
    n_ei_candidates: int = hyperparameter(24, "candidates of which the most promising is taken", ge=1)
    multivariate: bool | None = hyperparameter(
        None, "model all hyperparameters together; null: where there is one objective"
    )
    constant_liar: bool = hyperparameter(True, "take running trials for bad ones, so that others keep away")

    def make(self, study_seed: int, trial_seed: int) -> BaseSampler:
        from optuna.samplers import TPESampler

        return TPESampler(seed=trial_seed, **vars(self))


@dataclass
class CMAES:
    """Covariance matrix adaptation."""

    n_startup_trials: int = hyperparameter(10, "trials at random before the first that is modelled", ge=0)
    population: int | None = hyperparameter(
        None, "trials of a generation; null: by the hyperparameters", ge=2
    )
    with_margin: bool = hyperparameter(True, "keep whole numbers from getting stuck")

    def make(self, study_seed: int, trial_seed: int) -> BaseSampler:
        from zoo.tuning.cma_es import CmaEsSampler

        return CmaEsSampler(
            seed=trial_seed,
            n_startup_trials=self.n_startup_trials,
            popsize=self.population,
            with_margin=self.with_margin,
            warn_independent_sampling=False,
        )


@dataclass
class GP:
    """Gaussian process."""

    n_startup_trials: int = hyperparameter(10, "trials at random before the first that is modelled", ge=0)
    deterministic: bool = hyperparameter(False, "the same values always give the same score")

    def make(self, study_seed: int, trial_seed: int) -> BaseSampler:
        from optuna.samplers import GPSampler

        return GPSampler(
            seed=trial_seed,
            n_startup_trials=self.n_startup_trials,
            deterministic_objective=self.deterministic,
            warn_independent_sampling=False,
        )


@dataclass
class QMC:
    """Quasi Monte Carlo: the sequence is the study's, of which each trial takes the next point."""

    sequence: str = hyperparameter("sobol", "the sequence", choices=("sobol", "halton"))
    scramble: bool = hyperparameter(True, "shift the points at random, by the study's seed")

    def make(self, study_seed: int, trial_seed: int) -> BaseSampler:
        from optuna.samplers import QMCSampler, RandomSampler

        return QMCSampler(
            qmc_type=self.sequence,
            scramble=self.scramble,
            seed=study_seed,
            independent_sampler=RandomSampler(seed=trial_seed),
            warn_asynchronous_seeding=False,
            warn_independent_sampling=False,
        )


@dataclass
class NSGAII:
    """Evolution by dominance."""

    population: int = hyperparameter(50, "trials of a generation", ge=2)
    crossover: float = hyperparameter(0.9, "share of children that have two parents", ge=0, le=1)
    mutation: float | None = hyperparameter(
        None, "share of a child's hyperparameters drawn anew; null: one of them", ge=0, le=1
    )

    def make(self, study_seed: int, trial_seed: int) -> BaseSampler:
        from optuna.samplers import NSGAIISampler

        return NSGAIISampler(
            seed=trial_seed,
            population_size=self.population,
            crossover_prob=self.crossover,
            mutation_prob=self.mutation,
        )


SAMPLERS: dict[str, type[Any]] = {
    "random": Random,
    "tpe": TPE,
    "cmaes": CMAES,
    "gp": GP,
    "qmc": QMC,
    "nsgaii": NSGAII,
}
"""The samplers' settings by their name."""

NEEDS = {"cmaes": "cmaes", "gp": "scipy", "qmc": "scipy"}
"""Packages that samplers are made of, beside Optuna."""

FOR_ONE_OBJECTIVE = ("cmaes",)


def sampler_settings(values: Mapping[str, Any]) -> SamplerSettings:
    """Return the settings that the section ``sampler`` holds. Raises `ZooError` for what it does not take."""
    name = values.get("name")
    if name not in SAMPLERS:
        raise ZooError(
            f"unknown sampler '{name}'{nearest(str(name), SAMPLERS)} (known: {', '.join(SAMPLERS)})"
        )
    given = {key: value for key, value in values.items() if key != "name"}
    settings: SamplerSettings = build(SAMPLERS[name], given, "sampler")
    return settings


def checked_sampler(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section ``sampler`` with every default filled in; raises as `sampler_settings`."""
    settings: Any = sampler_settings(values)
    return {"name": values["name"], **dataclasses.asdict(settings)}


def require_sampler(name: str, n_objectives: int) -> None:
    """Raise `ZooError` if a sampler's package is missing, or if it can't search for several objectives."""
    package = NEEDS.get(name)
    if package is not None and importlib.util.find_spec(package) is None:
        raise ZooError(f"sampler={name} needs: pip install {package}")
    if n_objectives > 1 and name in FOR_ONE_OBJECTIVE:
        raise ZooError(f"sampler={name} searches for one objective only; sampler=nsgaii or tpe take several")
