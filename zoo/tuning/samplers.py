"""Optuna's samplers and pruners by name, or by ``_target_``, with the settings of `conf/tune/`.

Each trial has a sampler of its own, with a seed from the study's seed and the trial's number: its draws don't
depend on the process that runs it.
"""

from __future__ import annotations

import importlib.util
import inspect
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.config.user_imports import own_class
from zoo.core.printing import one_line
from zoo.errors import ZooError, nearest

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

SAMPLERS: dict[str, tuple[str, dict[str, str]]] = {
    "random": ("RandomSampler", {}),
    "tpe": ("TPESampler", {}),
    "cmaes": ("CmaEsSampler", {"population": "popsize"}),
    "gp": ("GPSampler", {"deterministic": "deterministic_objective"}),
    "qmc": ("QMCSampler", {"sequence": "qmc_type"}),
    "nsgaii": (
        "NSGAIISampler",
        {"population": "population_size", "crossover": "crossover_prob", "mutation": "mutation_prob"},
    ),
}
"""Optuna's class by name, and its names for settings that are called otherwise here."""

PRUNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("NopPruner", {}),
    "median": ("MedianPruner", {"n_startup_trials": 10}),
    "percentile": ("PercentilePruner", {"percentile": 25.0, "n_startup_trials": 10}),
    "successive_halving": ("SuccessiveHalvingPruner", {"reduction_factor": 3}),
    "hyperband": ("HyperbandPruner", {"reduction_factor": 3}),
    "patient": ("PatientPruner", {"patience": 2}),
}
"""Optuna's class by name, and its default arguments."""

NEEDS = {"cmaes": "cmaes", "gp": "scipy", "qmc": "scipy"}
"""Packages that samplers need beside Optuna."""

PLAIN: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "None": (type(None),),
}
"""Types of arguments, as Optuna's signatures spell them."""

WARM_UP = 0.2
"""Share of a trial before which the median and percentile pruners don't prune by default."""


def make_sampler(values: Mapping[str, Any], study_seed: int, trial_seed: int) -> BaseSampler:
    """Return the sampler that the section ``sampler`` describes, for one trial.

    Raises `ZooError` for an unknown name or key, and for values that Optuna does not take.
    """
    from optuna import samplers

    name, settings = _name_and_settings(values, "sampler", SAMPLERS)
    if name is None:
        kind, renamed = own_class("sampler", str(values["_target_"]), samplers.BaseSampler), {}  # type: ignore[type-abstract]
    else:
        kind, renamed = getattr(samplers, SAMPLERS[name][0]), SAMPLERS[name][1]
    defaults: dict[str, Any] = {"seed": trial_seed}
    if issubclass(kind, samplers.QMCSampler):  # the sequence is the study's; each trial has its next point
        defaults = {"seed": study_seed, "independent_sampler": samplers.RandomSampler(seed=trial_seed)}
    sampler: BaseSampler = _construct(kind, "sampler", settings, defaults, renamed)
    return sampler


def make_pruner(values: Mapping[str, Any], first: int, last: int) -> BasePruner:
    """Return the pruner that the section ``pruner`` describes.

    ``first`` and ``last`` are the environment steps of a trial's first evaluation and of its end, by which
    settings that are null are found. Raises `ZooError` as `make_sampler` does.
    """
    from optuna import pruners

    name, settings = _name_and_settings(values, "pruner", PRUNERS)
    if name is None:
        kind, defaults = own_class("pruner", str(values["_target_"]), pruners.BasePruner), {}  # type: ignore[type-abstract]
    else:
        kind, defaults = getattr(pruners, PRUNERS[name][0]), dict(PRUNERS[name][1])
    if name in ("median", "percentile"):
        defaults["n_warmup_steps"] = int(WARM_UP * last)
    if name == "successive_halving":
        defaults["min_resource"] = first
    if name == "hyperband":
        defaults["max_resource"] = last
        settings["min_resource"] = min(settings.get("min_resource") or first, last)
    if name == "patient":
        defaults["wrapped_pruner"] = _wrapped(settings, first, last)
    pruner: BasePruner = _construct(kind, "pruner", settings, defaults, {})
    return pruner


def checked_sampler(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section ``sampler``; raises as `make_sampler`."""
    make_sampler(values, 0, 0)
    return dict(values)


def checked_pruner(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section ``pruner``; raises as `make_pruner`."""
    make_pruner(values, 1, 1)
    return dict(values)


def require_sampler(name: str | None, n_objectives: int) -> None:
    """Raise `ZooError` if a sampler's package is missing, or if it can't search for several objectives."""
    package = NEEDS.get(str(name))
    if package is not None and importlib.util.find_spec(package) is None:
        raise ZooError(f"sampler={name} needs: pip install {package}")
    if n_objectives > 1 and name == "cmaes":
        raise ZooError("sampler=cmaes searches for one objective only; sampler=nsgaii or tpe take several")


def _name_and_settings(
    values: Mapping[str, Any], what: str, known: Mapping[str, Any]
) -> tuple[str | None, dict[str, Any]]:
    """Return the name, None for a section with a ``_target_``, and the settings."""
    settings = {key: value for key, value in values.items() if key not in ("name", "_target_")}
    if values.get("_target_") is not None:
        return None, settings
    name = values.get("name")
    if name not in known:
        raise ZooError(f"unknown {what} '{name}'{nearest(str(name), known)} (known: {', '.join(known)})")
    return str(name), settings


def _wrapped(settings: dict[str, Any], first: int, last: int) -> BasePruner | None:
    """Return the pruner inside a patient one, and remove its settings from ``settings``."""
    inner = settings.pop("wrapped", "median")
    n_startup_trials = settings.pop("n_startup_trials", None)
    known = [name for name in PRUNERS if name != "patient"]
    if inner not in known:
        raise ZooError(
            f"`pruner.wrapped={inner}` is not one of {', '.join(known)}{nearest(str(inner), known)}"
        )
    if inner == "none":  # with no pruner inside, Optuna's ends whatever has stopped getting better
        return None
    values = {"name": inner}
    if "n_startup_trials" in PRUNERS[inner][1] and n_startup_trials is not None:
        values["n_startup_trials"] = n_startup_trials
    return make_pruner(values, first, last)


def _construct(
    kind: Any, what: str, settings: Mapping[str, Any], defaults: Mapping[str, Any], renamed: Mapping[str, str]
) -> Any:
    """Construct ``kind`` of Optuna's from settings; ``usual`` has the arguments for missing or null ones."""
    parameters = inspect.signature(kind).parameters
    known = [*renamed, *(key for key in parameters if key not in renamed.values())]
    arguments = {key: value for key, value in defaults.items() if key in parameters}
    for key, value in settings.items():
        if key not in known:
            raise ZooError(f"unknown key `{what}.{key}`{nearest(key, known)}")
        argument = renamed.get(key, key)
        if value is not None or argument not in arguments:
            arguments[argument] = _converted(value, str(parameters[argument].annotation), f"{what}.{key}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some are called experimental
            return kind(**arguments)
    except (TypeError, ValueError, ImportError) as error:
        raise ZooError(f"`{what}`: {one_line(error)}") from error


def _converted(value: Any, annotation: str, path: str) -> Any:
    """Return a value converted to an argument's type. Raises `ZooError` for one of another type."""
    types = annotation.split(" | ")
    if not set(types) <= PLAIN.keys():
        return value
    if isinstance(value, float) and value.is_integer() and "int" in types:
        return int(value)
    if not isinstance(value, tuple(kind for name in types for kind in PLAIN[name])):
        raise ZooError(f"`{path}={one_line(value)}` has the wrong type; expected {annotation}")
    return value
