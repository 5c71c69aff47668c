"""The masks of vector environments that are not our own: they hold them, say them, or are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from zoo.envs.action_masks import MaskForm, Masks, flat_mask
from zoo.envs.env_group import Info
from zoo.envs.goals import is_goal_space
from zoo.envs.spaces import Space
from zoo.envs.vector_facts import attached
from zoo.envs.vector_infos import info_of
from zoo.errors import ZooError


class VectorMasks:
    """Asks a vector environment for masks: its method `action_masks`, those of its environments, its infos.

    ``masks`` are those of what is shown now (num_envs, ``size``), None where there are none, as before the
    first reset. ``name`` says in a message which environment is meant, and when.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], action_space: Space, name: Callable[[int], str], *, used: bool
    ) -> None:
        self._form, self._num_envs, self._name, self._used = MaskForm(action_space), env.num_envs, name, used
        self._ask = _method(env) if used else None
        if self._ask is not None:
            self._form.check_space("a method `action_masks`")
        self._has_goals = is_goal_space(env.single_observation_space)
        self._in_infos = False
        self.masks: Masks | None = None

    @property
    def size(self) -> int | None:
        """The length of a mask; None without masks."""
        return None if self.masks is None else self._form.size

    def look_for_them(self, infos: Mapping[str, Any]) -> None:
        """Find out from the infos of a reset of all environments whether there are masks in infos."""
        if self._used and self._ask is None and not self._in_infos and _has_masks(infos):
            self._form.check_space("`action_mask` in its info")
            self._in_infos = True

    def read(
        self, infos: Mapping[str, Any], over: Masks | None = None, reset: Masks | None = None
    ) -> Masks | None:
        """Return the masks of what is shown now; None where there are none.

        Where an episode is ``over`` all actions count as valid. ``reset`` says which rows the infos are of,
        if not of all. Raises `ZooError` for an environment that allows no action, has a mask of another
        length, or has one only sometimes.
        """
        if not self._used:
            return None
        before = self.masks
        if self._ask is not None:
            infos = {"action_mask": self._ask(None if self._has_goals else over)}
        elif _has_masks(infos) and not self._in_infos:
            raise self._form.come_too_late(self._name(_first_with_one(infos)))
        elif not self._in_infos:
            return None
        masks = np.empty((self._num_envs, self._form.size), np.bool_) if before is None else before.copy()
        for i in range(self._num_envs) if reset is None else np.flatnonzero(reset).tolist():
            is_over = over is not None and bool(over[i])
            masks[i] = self._of(i, _row(infos, i), is_over=is_over)
        self.masks = masks
        return masks

    def final(self, infos: Sequence[Info], rows: Sequence[int], terminated: Masks) -> Masks | None:
        """Return the masks at the ends of episodes; all where nobody acts, or nobody asked in time."""
        if self.masks is None:
            return None
        everything = self._form.everything
        return np.stack(
            [
                self._of(i, info.get("action_mask", everything), is_over=bool(terminated[i]))
                for i, info in zip(rows, infos, strict=True)
            ]
        )

    def _of(self, i: int, mask: Any, *, is_over: bool) -> Masks:
        if is_over and not self._has_goals:
            return self._form.everything
        if mask is None:
            who = "others did" if self.masks is None else "did before"
            raise ZooError(f"{self._name(i)} gave no `action_mask` in its info, but {who}")
        flat = flat_mask(mask, self._form.action_space)
        self._form.check_size(flat.size, self._name(i))
        if self._form.leave_a_choice(flat):
            return flat
        if not is_over:
            raise self._form.nothing_left(flat, self._name(i))
        return self._form.everything


def _has_masks(infos: Mapping[str, Any]) -> bool:
    return infos.get("action_mask") is not None


def _first_with_one(infos: Mapping[str, Any]) -> int:
    return int(np.argmax(infos.get("_action_mask", [True])))


def _row(infos: Mapping[str, Any], i: int) -> Any:
    """Return the mask of one environment, None where it gave none; Gymnasium's may have it in parts."""
    present = infos.get("_action_mask")
    if not _has_masks(infos) or (present is not None and not present[i]):
        return None
    given = infos["action_mask"]
    return info_of(given, i) if isinstance(given, Mapping) else given[i]


def _method(env: VectorEnv[Any, Any, Any]) -> Callable[[Masks | None], Any] | None:
    """Return what gives the masks of all environments, if anything but their infos does.

    It is called with where episodes are over, as those need not be asked.
    """
    own: Callable[[], Any] | None = attached(env, "action_masks")
    if own is not None:
        return lambda over: own()
    several: Any = env.unwrapped
    if isinstance(several, SyncVectorEnv) and several.envs[0].has_wrapper_attr("action_masks"):
        return lambda over: [
            None if over is not None and over[i] else single.get_wrapper_attr("action_masks")()
            for i, single in enumerate(several.envs)
        ]
    if isinstance(several, AsyncVectorEnv) and several.call("has_wrapper_attr", "action_masks")[0]:
        return lambda over: several.call("action_masks")
    return None
