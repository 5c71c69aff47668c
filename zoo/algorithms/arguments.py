"""Arguments and attributes of models as other libraries have them, answered with what is meant here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import Never

from zoo.algorithms.callback import Callback
from zoo.config.aliases import ATTRIBUTES, NAMES, UnknownKeyError, placed, refuse_arguments
from zoo.config.fields import build, scheduled
from zoo.config.keys import all_keys, not_of
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
MADE_WITH = {
    "policy": "is made with the model: compile=true compiles it, set_parameters() gives it other weights, and"
    " a class of your own is the constructor's first argument",
    "config": "is what the model was made with: zoo.load(model.save(PATH), env, gamma=…) goes on with others",
    "env": "is exchanged by model.set_env(env)",
}
"""Attributes that can't be replaced, and what is done in the place of that."""
LEARN = ("total_timesteps", "callback", "reset_num_timesteps")


def built_config(algorithm: type[Any], given: Mapping[str, Any]) -> Any:
    """Return the config with these hyperparameters. Raises `ZooError`, which says whose an unknown one is."""
    try:
        return build(algorithm.config_class, given, algorithm.name)
    except UnknownKeyError as error:
        if error.is_answered or error.section != algorithm.name:
            raise
        hint = not_of(error.key, [algorithm.name], "")
        if hint:
            raise ZooError(f"unknown key `{algorithm.name}.{error.key}`{hint}") from error
        raise placed(error, all_keys("train", ()), str) from error


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


def refuse_policy_alone(*_arguments: Any, **_options: Any) -> Never:
    """Raise `ZooError` where a policy is asked in the place of its model."""
    raise ZooError("a policy alone predicts nothing; give its model, and call model.predict")


def check_learn(others: Sequence[Any], unknown: Mapping[str, Any]) -> None:
    """Raise `ZooError` for arguments that `learn` has not, or takes by name only."""
    refuse_arguments(unknown, "learn", LEARN)
    if others:
        raise ZooError(
            f"learn takes total_timesteps and callback, not {2 + len(others)} arguments; anything else is"
            " given by name: reset_num_timesteps=False"
        )


def changed_config(model: Any, name: str, value: Any) -> Any:
    """Return a model's config with another value of what follows a schedule, which each update reads anew.

    None for a name that means nothing to it. Raises `ZooError` for a value that would do nothing.
    """
    instead = MADE_WITH.get(name, "")
    if name in vars(model.config):
        config = build(type(model.config), {**vars(model.config), name: value}, model.name)
        if name in scheduled(config) and name in model.schedules:
            return config
        instead = (
            f"is fixed once the model is made: zoo.load(model.save(PATH), env, {name}=…) goes on with it"
        )
    elif not instead and (hint := elsewhere(name)):
        instead = f"would do nothing{hint}"
    if instead:
        raise ZooError(f"{type(model).__name__}.{name} {instead}")
    return None


def elsewhere(name: str) -> str:
    """Return the hint at what another library's attribute of a model is here, or ""."""
    if name in ATTRIBUTES:
        return f"; here it is {ATTRIBUTES[name]}"
    return f"; {NAMES[name]}" if " " in NAMES.get(name, "") else ""
