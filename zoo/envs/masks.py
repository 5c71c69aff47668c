"""Masks of valid actions, read and checked, of a method `action_masks` of environments or of their infos."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from zoo.config.user_files import import_own
from zoo.envs.registry import env_error
from zoo.envs.spaces import (
    Env,
    Space,
    choice_sizes,
    describe,
    is_goal_space,
    leaf_spaces,
    nested,
)
from zoo.envs.transition import attached
from zoo.errors import ZooError

Masks = NDArray[np.bool_]
Query = Callable[[Sequence[int]], Sequence[Any]]
"""Returns the masks of some environments, by their numbers."""
NameOf = Callable[[int], str]

IGNORING = "env.mask_actions=false ignores masks"


class ActionMasks:
    """Reads, checks and flattens the masks of some environments with the same action space.

    ``query`` is None where infos hold them, if any do. ``size`` is the length of a mask; None where there are
    none, and as long as it is not known that infos hold some. ``name`` names an environment in messages. With
    goals an episode that is over may go on in hindsight, so its mask counts; without, all is valid there.
    """

    def __init__(
        self, action_space: Space, has_goals: bool, query: Query | None, name: NameOf, used: bool
    ) -> None:
        self._action_space, self.has_goals, self._name, self._used = action_space, has_goals, name, used
        self._query = query if used else None
        self._sizes = choice_sizes(action_space)
        self._starts = [end - size for end, size in zip(accumulate(self._sizes), self._sizes, strict=True)]
        self.size: int | None = None
        if self._query is not None:
            self._begin("a method `action_masks`")

    def _begin(self, given_as: str) -> None:
        """Set the mask size. Raises `ZooError` for actions that can't be masked."""
        if not self._sizes:
            raise ZooError(
                f"the environment has {given_as}, but actions of {describe(self._action_space)} cannot be "
                f"masked; only Discrete, MultiDiscrete and MultiBinary actions can ({IGNORING})"
            )
        self.size = sum(self._sizes)

    def detect(self, infos: Sequence[Mapping[str, Any]]) -> None:
        """Detect masks in the infos of a reset. Raises `ZooError` where only some environments have one."""
        if self._used and self.size is None and any("action_mask" in info for info in infos):
            self._begin("`action_mask` in its info")
            for i, info in enumerate(infos):
                self._row(i, info.get("action_mask"))

    def refuse_late_mask(self, i: int) -> None:
        """Raise `ZooError` if env ``i`` gives its first mask in a step, not at reset (masks in use)."""
        if self._used:
            raise ZooError(
                f"{self._name(i)} gave `action_mask` in a step, but none with the reset; give it there too "
                f"({IGNORING})"
            )

    def read(
        self, rows: Sequence[int], infos: Mapping[int, Any] | Sequence[Any], over: Masks | None = None
    ) -> Masks:
        """Return the masks of the environments ``rows``, (n, size); ``infos`` has theirs at the same numbers.

        All is valid where an episode is ``over``, (num_envs,), but with goals. Raises `ZooError` for a mask
        that allows no action, of another length, or missing.
        """
        if over is not None and over[list(rows)].any() and not self.has_goals:
            masks = np.ones((len(rows), self.size or 0), np.bool_)
            if going_on := [i for i in rows if not over[i]]:
                masks[~over[list(rows)]] = self.read(going_on, infos)
            return masks
        raw = [infos[i].get("action_mask") for i in rows] if self._query is None else self._query(rows)
        masks = np.concatenate([self._row(i, mask) for i, mask in zip(rows, raw, strict=True)])
        masks = masks.reshape(len(rows), -1)
        has_choice = np.logical_or.reduceat(masks, self._starts, axis=-1)
        if not has_choice.all():
            for row, choice in np.argwhere(~has_choice).tolist():
                if over is None or not over[rows[row]]:
                    which = "" if len(self._sizes) == 1 else f" for choice {choice + 1} of {len(self._sizes)}"
                    raise ZooError(
                        f"{self._name(rows[row])}: the mask allows no action{which};"
                        f" allow one or end the episode ({IGNORING})"
                    )
                masks[row] = True
        return masks

    def _row(self, i: int, mask: Any) -> Masks:
        if type(mask) is np.ndarray and mask.dtype == np.bool_ and mask.shape == (self.size,):
            return mask  # the quick way
        if mask is None and self._query is None:
            raise ZooError(
                f"{self._name(i)} gave no `action_mask` in its info, but others, or earlier ones, had one"
            )
        try:
            return flat_mask(mask, self._action_space)
        except ZooError as error:
            raise ZooError(f"{self._name(i)}: {error} ({IGNORING})") from error


def masks_of(envs: Sequence[Env], name: NameOf, *, used: bool = True) -> ActionMasks:
    """Return the masks of environments in a list, which may be replaced by others like them."""

    def ask(i: int) -> Any:
        try:
            return envs[i].get_wrapper_attr("action_masks")()
        except (Exception, SystemExit) as error:
            raise env_error(error, name(i), "in action_masks()") from error

    first = envs[0]
    query = (lambda rows: list(map(ask, rows))) if used and first.has_wrapper_attr("action_masks") else None
    return ActionMasks(first.action_space, is_goal_space(first.observation_space), query, name, used)


def flat_mask(mask: Any, action_space: Space) -> Masks:
    """Return a mask as one row.

    The choices of a MultiDiscrete action may come as a list of arrays, the parts of a Tuple or Dict action
    nested as it is; a part that is None, or that a dictionary lacks, may take any value.
    """
    sizes, inner = choice_sizes(action_space), action_space
    if isinstance(mask, Mapping) or (isinstance(mask, list | tuple) and not all(map(np.isscalar, mask))):
        parts: dict[Any, Space] = dict(enumerate(map(spaces.Discrete, sizes)))
        if isinstance(inner, spaces.Dict | spaces.Tuple):
            parts = dict(inner.items() if isinstance(inner, spaces.Dict) else enumerate(inner))
        masks = dict(mask.items() if isinstance(mask, Mapping) else enumerate(mask))
        if masks.keys() - parts.keys() or (not isinstance(mask, Mapping) and len(masks) != len(parts)):
            raise ZooError(f"masks for the parts {list(masks)}; {describe(inner)} has {list(parts)}")
        rows = [
            np.ones(sum(choice_sizes(part)), np.bool_)
            if masks.get(key) is None
            else flat_mask(masks[key], part)
            for key, part in parts.items()
        ]
        return np.concatenate(rows)
    row = np.ravel(mask)
    if row.size != sum(sizes):
        raise ZooError(f"a mask of {row.size} actions; {describe(inner)} takes {sum(sizes)}")
    if row.dtype == np.bool_:
        return row
    valid: Masks = row == 1
    if row.dtype.kind not in "iuf" or not (valid | (row == 0)).all():
        raise ZooError("a mask holds True and False, or 1 and 0, and nothing else")
    return valid


def sample_valid_action(space: Space, mask: Masks) -> Any:
    """Return a random action of ``space`` that a mask allows, drawn by the spaces' own generators."""
    drawn, start = {}, 0
    for path, leaf in leaf_spaces(space):
        sizes = choice_sizes(leaf)
        ends = np.cumsum([start, *sizes])
        start = ends[-1]
        if isinstance(leaf, spaces.Box):
            drawn[path] = leaf.sample()
            continue
        choices = [np.flatnonzero(part) for part in np.split(mask, ends)[1:-1]]
        chosen = np.array([leaf.np_random.choice(valid) for valid in choices]).reshape(leaf.shape or ())
        drawn[path] = (chosen + getattr(leaf, "start", 0)).astype(leaf.dtype)[()]
    return nested(space, drawn)


class ActionMasker(gym.Wrapper[Any, Any, Any, Any]):
    """Gives an environment a method `action_masks`, as SB3-Contrib's wrapper does.

    ``action_mask_fn`` is called with the wrapped environment. In a config it is a name: of a method or an
    attribute, ``valid_moves``, or of a function in a module, ``my_module.valid_moves``.
    """

    def __init__(self, env: Env, action_mask_fn: Callable[[Env], Any] | str) -> None:
        super().__init__(env)
        self._function = (
            _function_called(action_mask_fn, env) if isinstance(action_mask_fn, str) else action_mask_fn
        )

    def action_masks(self) -> Any:
        """Return which actions are valid now."""
        return self._function(self.env)


def _function_called(name: str, env: Env) -> Callable[[Env], Any]:
    """Return a function that reads the attribute of this name, or the function at a path."""
    module, _, function = name.rpartition(".")
    try:
        value: Any = getattr(import_own(module), function) if module else env.get_wrapper_attr(name)
    except (ImportError, AttributeError) as error:
        how = "" if module else "; a function of a module: action_mask_fn=my_module.my_function"
        raise ZooError(f"ActionMasker: {error}{how}") from error
    if module:
        return value
    return lambda env: value() if callable(value) else env.get_wrapper_attr(name)


def vector_query(env: VectorEnv[Any, Any, Any]) -> Query | None:
    """Return the function that queries masks of a vector environment, or None if they come in infos."""
    method, inner = attached(env, "action_masks"), env.unwrapped
    if method is not None and getattr(inner, "mask_size", 0) is not None:  # Zoo's gives None without masks
        return lambda rows: list(map(method().__getitem__, rows))
    if isinstance(inner, SyncVectorEnv) and inner.envs[0].has_wrapper_attr("action_masks"):
        return lambda rows: [inner.envs[i].get_wrapper_attr("action_masks")() for i in rows]
    if isinstance(inner, AsyncVectorEnv) and inner.call("has_wrapper_attr", "action_masks")[0]:
        return lambda rows: list(map(inner.call("action_masks").__getitem__, rows))
    return None
