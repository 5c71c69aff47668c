"""Optuna's samplers and pruners by the ``_target_`` and the arguments in `conf/tune/`.

Each trial has a sampler of its own: its draws don't depend on the process that runs it.
"""

from __future__ import annotations

import importlib.util
import inspect
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.config.user_files import own_class
from zoo.core.printing import one_line
from zoo.errors import ZooError, nearest

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

_TYPES: dict[str, Any] = {"int": int, "float": int | float, "bool": bool, "str": str}

NEEDS = {"CmaEsSampler": "cmaes", "GPSampler": "scipy", "QMCSampler": "scipy"}
"""Packages that samplers need beside Optuna."""

WARM_UP = 0.2
"""Share of a trial before which a pruner with ``n_warmup_steps: null`` ends none."""


def make_sampler(values: Mapping[str, Any], study_seed: int = 0, trial_seed: int = 0) -> BaseSampler:
    """Return one trial's sampler by the section ``sampler``. Raises `ZooError` if Optuna can't make it."""
    from optuna import samplers

    kind = own_class("sampler", str(values.get("_target_")), samplers.BaseSampler)  # type: ignore[type-abstract]
    package = NEEDS.get(kind.__name__)
    if package is not None and importlib.util.find_spec(package) is None:
        raise ZooError(f"sampler={kind.__name__} needs: pip install {package}")
    extra: dict[str, Any] = {"seed": trial_seed}
    if issubclass(kind, samplers.QMCSampler):  # the sequence is the study's; each trial has its next point
        extra = {"seed": study_seed, "independent_sampler": samplers.RandomSampler(seed=trial_seed)}
    sampler: BaseSampler = _construct(kind, values, extra, "sampler")
    return sampler


def make_pruner(values: Mapping[str, Any], first: int = 1, last: int = 1) -> BasePruner:
    """Return the pruner of the section ``pruner``; null values are derived from a trial's steps."""
    from optuna import pruners

    steps = {"n_warmup_steps": int(WARM_UP * last), "min_resource": first, "max_resource": last}
    filled = {key: steps.get(key) if value is None else value for key, value in values.items()}
    wrapped = values.get("wrapped_pruner")
    extra = {"wrapped_pruner": None if wrapped is None else make_pruner(wrapped, first, last)}
    kind = own_class("pruner", str(values.get("_target_")), pruners.BasePruner)  # type: ignore[type-abstract]
    pruner: BasePruner = _construct(kind, filled, extra, "pruner")
    return pruner


def _construct(kind: Any, values: Mapping[str, Any], extra: Mapping[str, Any], section: str) -> Any:
    parameters = inspect.signature(kind).parameters
    arguments = {key: value for key, value in extra.items() if key in parameters}
    for key, value in values.items():
        if key in ("_target_", "wrapped_pruner"):
            continue
        if key not in parameters or key in extra:
            raise ZooError(f"unknown key `{section}.{key}`{nearest(key, parameters)}")
        expected = _TYPES.get(str(parameters[key].annotation).removesuffix(" | None"))
        if expected is not None and value is not None and not isinstance(value, expected):
            annotation = parameters[key].annotation
            raise ZooError(f"`{section}.{key}={one_line(value)}` has the wrong type; expected {annotation}")
        arguments[key] = value
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some are called experimental
            return kind(**arguments)
    except (TypeError, ValueError, ImportError) as error:
        raise ZooError(f"`{section}`: {one_line(error)}") from error
