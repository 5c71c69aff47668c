"""Arguments and attributes of models as other libraries have them, answered with what is meant here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.algorithms.callback import Callback
from zoo.config.all_keys import all_keys, not_of
from zoo.config.fields import build
from zoo.config.names_elsewhere import ATTRIBUTES
from zoo.config.unknown_keys import UnknownKeyError, refuse_arguments
from zoo.errors import ZooError
from zoo.files.printing import one_line

PREDICT = ("observations", "state", "episode_start", "deterministic", "action_masks")
METHODS = {
    "_on_step": "on_steps(self, algorithm), every `every` environment steps",
    "_on_rollout_start": "on_steps(self, algorithm), every `every` environment steps",
    "_on_rollout_end": "on_steps(self, algorithm), every `every` environment steps",
    "_on_training_start": "on_training_start(self, algorithm)",
    "_on_training_end": "on_training_end(self, algorithm)",
}
"""Methods of Stable-Baselines3's callbacks, and those of ours."""
LEARN = ("total_timesteps", "callback", "reset_num_timesteps")


def built_config(algorithm: type[Any], given: Mapping[str, Any]) -> Any:
    """Return the config with these hyperparameters. Raises `ZooError`, which says whose an unknown one is."""
    try:
        return build(algorithm.config_class, given, algorithm.name)
    except UnknownKeyError as error:
        if error.is_answered or error.section != algorithm.name:
            raise
        hint = not_of(error.key, [algorithm.name], "")
        if not hint and error.key in all_keys("train", ()):
            hint = f": it is a setting of zoo train, and of zoo.train, not of {algorithm.__name__}"
        if not hint:
            raise
        raise ZooError(f"unknown key `{algorithm.name}.{error.key}`{hint}") from error


def as_callbacks(callback: Callback | Iterable[Callback] | None) -> list[Callback]:
    """Return the callbacks. Raises `ZooError` for anything else, such as a function, or one of SB3's form."""
    several = callback if isinstance(callback, Iterable) else [callback] if callback is not None else []
    callbacks = list(several)
    for each in callbacks:
        if not isinstance(each, Callback):
            raise ZooError(
                f"callback is a {type(each).__name__}; expected a zoo.algorithms.callback.Callback with"
                " on_steps(self, algorithm), or a list of such"
            )
        _refuse_methods_of_others(each)
    return callbacks


def _refuse_methods_of_others(callback: Callback) -> None:
    """Raise `ZooError` for a callback that has only methods which nothing calls here."""
    own = [name for name in dir(Callback) if name.startswith("on_")]
    has_own = any(getattr(type(callback), name) is not getattr(Callback, name) for name in own)
    for name, meant in METHODS.items():
        if hasattr(callback, name) and not has_own:
            raise ZooError(
                f"{type(callback).__name__}.{name} is never called: here it is {meant};"
                " algorithm.request_stop(reason) ends the training"
            )


def check_predict(observations: Any, deterministic: Any, unknown: Mapping[str, Any]) -> None:
    """Raise `ZooError` for arguments of `predict` that are unknown, missing, or elsewhere."""
    refuse_arguments(unknown, "predict", PREDICT)
    if observations is None:
        raise ZooError("predict needs observations: one, or a batch")
    if type(deterministic) is not bool and not isinstance(deterministic, np.bool_ | int):
        raise ZooError(
            f"deterministic={one_line(repr(deterministic), 40)} is neither True nor False; masks are given by"
            " name: action_masks=…"
        )


def check_learn(others: Sequence[Any], unknown: Mapping[str, Any]) -> None:
    """Raise `ZooError` for arguments that `learn` has not, or takes by name only."""
    refuse_arguments(unknown, "learn", LEARN)
    if others:
        raise ZooError(
            f"learn takes total_timesteps and callback, not {2 + len(others)} arguments; anything else is"
            " given by name: reset_num_timesteps=False"
        )


def no_attribute(model: object, name: str) -> str:
    """Return the message for an attribute that a model does not have."""
    place, config = ATTRIBUTES.get(name, ""), vars(model).get("config")
    if not place and dataclasses.is_dataclass(config):
        own = [field.name for field in dataclasses.fields(config)]
        place = f"model.config.{name}" if name in own else ""
    hint = f"; here it is {place}" if place else ""
    return f"'{type(model).__name__}' object has no attribute '{name}'{hint}"
