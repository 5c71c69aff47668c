"""Which actions are valid now: environments say so by a method `action_masks`, or in their infos."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from zoo.envs.env_error import env_error
from zoo.envs.spaces import Space, describe, mask_size
from zoo.errors import ZooError

Env = gym.Env[Any, Any]


class ActionMasks:
    """The masks of some environments with the same actions.

    ``size`` is the length of a mask; None where there are none, and as long as it is not known that infos
    hold some. ``name`` says in a message which environment is meant.
    """

    def __init__(self, envs: Sequence[Env], action_space: Space, name: Callable[[int], str]) -> None:
        self._action_space, self._name = action_space, name
        self._methods = [_mask_method(env) for env in envs]
        self.size = None if self._methods[0] is None else self._size_of_method()

    def made_anew(self, i: int, env: Env) -> None:
        """Ask another environment from now on."""
        self._methods[i] = _mask_method(env)

    def look_for_them(self, infos: Sequence[Mapping[str, Any]]) -> None:
        """Find out from the infos of a reset whether there are masks."""
        if self.size is None and "action_mask" in infos[0]:
            self.size = mask_size(self._action_space)

    def of(self, i: int, info: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return which actions an environment allows now. Raises `ZooError` if it does not say so."""
        method = self._methods[i]
        if method is None and "action_mask" not in info:
            raise ZooError(f"{self._name(i)} gave no `action_mask` in its info, but did at the first reset")
        try:
            mask = flat_mask(info["action_mask"] if method is None else method())
        except (Exception, SystemExit) as error:
            raise env_error(error, self._name(i), "in action_masks()") from error
        if mask.size != self.size:
            raise ZooError(
                f"{self._name(i)} gave a mask of {mask.size} actions; {describe(self._action_space)} "
                f"takes {self.size}"
            )
        return mask

    def write(self, masks: NDArray[np.bool_] | None, infos: Sequence[Mapping[str, Any]]) -> None:
        """Write the mask of every environment into its row, if there are any."""
        if self.size is None:
            return
        assert masks is not None
        for i, info in enumerate(infos):
            masks[i] = self.of(i, info)

    def _size_of_method(self) -> int:
        size = mask_size(self._action_space)
        if size is None:
            raise ZooError(
                f"the environment has a method `action_masks`, but actions of {describe(self._action_space)} "
                "cannot be masked; those of Discrete, MultiDiscrete and MultiBinary can"
            )
        return size


def flat_mask(mask: Any) -> NDArray[np.bool_]:
    """Return a mask as one row; the parts of a MultiDiscrete action may come as a list of arrays."""
    if isinstance(mask, list | tuple) and len(mask) and isinstance(mask[0], np.ndarray | list | tuple):
        return np.concatenate([np.asarray(part, dtype=np.bool_).ravel() for part in mask])
    return np.asarray(mask, dtype=np.bool_).ravel()


def _mask_method(env: Env) -> Callable[[], Any] | None:
    if not env.has_wrapper_attr("action_masks"):
        return None
    method: Callable[[], Any] = env.get_wrapper_attr("action_masks")
    return method
