"""Arguments and attributes of models as other libraries have them, answered with what is meant here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.config.names_elsewhere import ATTRIBUTES
from zoo.config.unknown_keys import refuse_arguments
from zoo.errors import ZooError
from zoo.files.printing import one_line

PREDICT = ("observations", "state", "episode_start", "deterministic", "action_masks")
LEARN = ("total_timesteps", "callback", "reset_num_timesteps")


def check_predict(observations: Any, deterministic: Any, unknown: Mapping[str, Any]) -> None:
    """Raise `ZooError` for arguments of `predict` that are unknown, missing, or elsewhere."""
    refuse_arguments(unknown, "predict", PREDICT)
    if observations is None:
        raise ZooError("predict needs observations: one, or a batch")
    if not isinstance(deterministic, bool | np.bool_ | int):
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
