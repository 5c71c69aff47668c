"""The masks of vector environments that are not our own: they hold them, say them, or are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from zoo.envs.action_masks import MaskForm, Masks, flat_mask
from zoo.envs.env_group import Info
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
        self.masks: Masks | None = None

    @property
    def size(self) -> int | None:
        """The length of a mask; None without masks."""
        return None if self.masks is None else self._form.size

    def read(
        self, infos: Mapping[str, Any], over: Masks | None = None, reset: Masks | None = None
    ) -> Masks | None:
        """Return the masks of what is shown now; None where there are none.

        Where an episode is ``over`` no action need be allowed. ``reset`` says which rows the infos are of, if
        not of all. Raises `ZooError` for an environment that allows no action, or has a mask of another
        length.
        """
        if not self._used:
            return None
        given, before = self._given(infos), self.masks
        if given is None:
            if before is not None:
                raise ZooError(f"{self._name(0)} gave no `action_mask` in its info, but did before")
            return None
        masks = np.empty((self._num_envs, self._form.size), np.bool_) if before is None else before.copy()
        for i in range(self._num_envs) if reset is None else np.flatnonzero(reset).tolist():
            masks[i] = self._of(i, _row(given, i), is_over=over is not None and bool(over[i]))
        self.masks = masks
        return masks

    def final(self, infos: Sequence[Info], rows: Sequence[int], terminated: Masks) -> Masks | None:
        """Return the masks at the ends of episodes; all actions where nobody asked in time."""
        if self.masks is None:
            return None
        everything = np.ones(self._form.size, np.bool_)
        return np.stack(
            [
                self._of(i, info.get("action_mask", everything), is_over=bool(terminated[i]))
                for i, info in zip(rows, infos, strict=True)
            ]
        )

    def _given(self, infos: Mapping[str, Any]) -> Any:
        if self._ask is not None:
            return self._ask()
        given = infos.get("action_mask")
        if given is not None and self.masks is None:
            self._form.check_space("`action_mask` in its info")
        return given

    def _of(self, i: int, mask: Any, *, is_over: bool) -> Masks:
        flat = flat_mask(mask, self._form.action_space)
        self._form.check_size(flat.size, self._name(i))
        if self._form.leave_a_choice(flat):
            return flat
        if not is_over:
            raise self._form.nothing_left(flat, self._name(i))
        return np.ones_like(flat)


def _row(given: Any, i: int) -> Any:
    """Return the mask of one environment; Gymnasium's infos may have it in parts."""
    return info_of(given, i) if isinstance(given, Mapping) else given[i]


def _method(env: VectorEnv[Any, Any, Any]) -> Callable[[], Any] | None:
    """Return what gives the masks of all environments, if anything but their infos does."""
    own: Callable[[], Any] | None = attached(env, "action_masks")
    if own is not None:
        return own
    several: Any = env.unwrapped
    if isinstance(several, SyncVectorEnv):
        has_method = several.envs[0].has_wrapper_attr("action_masks")
    elif isinstance(several, AsyncVectorEnv):
        has_method = several.call("has_wrapper_attr", "action_masks")[0]
    else:
        has_method = False
    return (lambda: several.call("action_masks")) if has_method else None
