"""Which actions are valid now: environments say so by a method `action_masks`, or in their infos."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from zoo.envs.composite_spaces import is_composite, leaf_spaces, leaves, nested
from zoo.envs.env_error import env_error
from zoo.envs.spaces import Space, choice_sizes, describe
from zoo.errors import ZooError

Env = gym.Env[Any, Any]
Masks = NDArray[np.bool_]

IGNORING = "env.mask_actions=false leaves masks out"


class MaskForm:
    """What masks of the actions of one space look like: one row, the alternatives of all choices in it."""

    def __init__(self, action_space: Space) -> None:
        self.action_space = action_space
        self.choices = choice_sizes(action_space)
        self.size = sum(self.choices)
        self._starts = [end - size for end, size in zip(accumulate(self.choices), self.choices, strict=True)]

    def check_space(self, given_as: str) -> None:
        """Raise `ZooError` for actions that can't be masked, though the environment does so."""
        if not self.choices:
            raise ZooError(
                f"the environment has {given_as}, but actions of {describe(self.action_space)} cannot be "
                f"masked; those of Discrete, MultiDiscrete and MultiBinary can ({IGNORING})"
            )

    def check_size(self, size: int, who: str) -> None:
        """Raise `ZooError` for a mask of another length."""
        if size != self.size:
            raise ZooError(
                f"{who} gave a mask of {size} actions; {describe(self.action_space)} takes {self.size}"
            )

    def leave_a_choice(self, masks: Masks) -> Any:
        """Return for each row of masks (…, size) whether every choice has a valid alternative."""
        if len(self.choices) == 1:
            return np.logical_or.reduce(masks, axis=-1)
        return np.logical_or.reduceat(masks, self._starts, axis=-1).all(-1)

    def nothing_left(self, mask: Masks, who: str) -> ZooError:
        """Return the error for an environment whose mask leaves a choice without a valid alternative."""
        empty = np.flatnonzero(~np.logical_or.reduceat(mask, self._starts))[0]
        which = "" if len(self.choices) == 1 else f" for choice {empty + 1} of {len(self.choices)}"
        return ZooError(
            f"{who} allows no action{which}: its mask is all false"
            f"{' there' if which else ''}; allow one, or end the episode before ({IGNORING})"
        )


class ActionMasks:
    """The masks of some environments with the same actions.

    ``size`` is the length of a mask; None where there are none, and as long as it is not known that infos
    hold some. ``name`` says in a message which environment is meant. With ``used=False`` nobody is asked.
    """

    def __init__(
        self, envs: Sequence[Env], action_space: Space, name: Callable[[int], str], *, used: bool = True
    ) -> None:
        self._form, self._name, self._used = MaskForm(action_space), name, used
        self._methods = [_mask_method(env) if used else None for env in envs]
        self.size: int | None = None
        if self._methods[0] is not None:
            self._form.check_space("a method `action_masks`")
            self.size = self._form.size

    def made_anew(self, i: int, env: Env) -> None:
        """Ask another environment from now on."""
        self._methods[i] = _mask_method(env) if self._used else None

    def look_for_them(self, infos: Sequence[Mapping[str, Any]]) -> None:
        """Find out from the infos of a reset whether there are masks."""
        if self._used and self.size is None and "action_mask" in infos[0]:
            self._form.check_space("`action_mask` in its info")
            self.size = self._form.size

    def _form_of(self, i: int, given: Any) -> Masks:
        """Return as one row what an environment gave. Raises `ZooError` for nothing, or another length."""
        if given is None:
            raise ZooError(f"{self._name(i)} gave no `action_mask` in its info, but did at the first reset")
        try:
            mask = flat_mask(given, self._form.action_space)
        except (Exception, SystemExit) as error:
            raise env_error(error, self._name(i), "in action_masks()") from error
        self._form.check_size(mask.size, self._name(i))
        return mask

    def _given(self, methods: Sequence[Callable[[], Any] | None], infos: Sequence[Any], first: int) -> Any:
        """Return what environments, from the ``first`` one on, say that is allowed, in whatever form."""
        given: list[Any] = []
        try:
            for method, info in zip(methods, infos, strict=True):
                given.append(info.get("action_mask") if method is None else method())
        except (Exception, SystemExit) as error:
            raise env_error(error, self._name(first + len(given)), "in action_masks()") from error
        return given

    def at_the_end(self, i: int, info: Mapping[str, Any], *, terminated: bool) -> Masks:
        """Return which actions an environment allows where an episode ends; all, if it is over and none is.

        Raises `ZooError` for an episode that is cut short where no action is allowed.
        """
        mask = self._form_of(i, self._given(self._methods[i : i + 1], [info], i)[0]).copy()
        if self._form.leave_a_choice(mask):
            return mask
        if not terminated:
            raise self._form.nothing_left(mask, self._name(i))
        return np.ones_like(mask)

    def write(self, masks: Masks | None, infos: Sequence[Mapping[str, Any]]) -> None:
        """Write the mask of every environment into its row, if there are any.

        Raises `ZooError` for one that allows no action.
        """
        if self.size is None:
            return
        assert masks is not None
        given, shape = self._given(self._methods, infos, 0), masks.shape[1:]
        if all(type(mask) is np.ndarray and mask.shape == shape for mask in given):
            np.concatenate(given, out=masks.reshape(-1), casting="unsafe")
        else:
            for i, mask in enumerate(given):
                masks[i] = self._form_of(i, mask)
        has_choice = self._form.leave_a_choice(masks)
        if not has_choice.all():
            i = int(has_choice.argmin())
            raise self._form.nothing_left(masks[i], self._name(i))


def flat_mask(mask: Any, action_space: Space) -> Masks:
    """Return a mask as one row.

    The choices of a MultiDiscrete action may come as a list of arrays, the parts of a Tuple or Dict action
    nested as it is; a part that is None, or that a dictionary lacks, may take any value.
    """
    if is_composite(action_space) and isinstance(mask, Mapping | tuple):
        parts = dict(leaves(action_space, _complete(mask, action_space)))
        spaces_of_parts = leaf_spaces(action_space)
        return np.concatenate([_part_of_mask(parts[path], leaf) for path, leaf in spaces_of_parts])
    if isinstance(mask, list | tuple) and len(mask) and isinstance(mask[0], np.ndarray | list | tuple):
        return np.concatenate([np.asarray(part, dtype=np.bool_).ravel() for part in mask])
    return np.asarray(mask, dtype=np.bool_).ravel()


def _complete(mask: Any, space: Space) -> Any:
    """Return a nested mask with False, which is no mask, for the parts that it says nothing of."""
    if not is_composite(space):
        return False if mask is None else mask
    if isinstance(space, spaces.Dict):
        given = {} if mask is None else mask
        unknown = [key for key in given if key not in space.spaces]
        if unknown:
            raise ZooError(f"a mask for `{unknown[0]}`, which is no part of {describe(space)}")
        return {key: _complete(given.get(key), part) for key, part in space.items()}
    assert isinstance(space, spaces.Tuple)
    given = [None] * len(space) if mask is None else mask
    if len(given) != len(space):
        raise ZooError(f"masks for {len(given)} parts; {describe(space)} has {len(space)}")
    return tuple(_complete(part, inner) for part, inner in zip(given, space, strict=True))


def _part_of_mask(mask: Any, space: Space) -> Masks:
    size = sum(choice_sizes(space))
    if mask is False:
        return np.ones(size, np.bool_)
    flat = flat_mask(mask, space)
    if flat.size != size:
        raise ZooError(f"a mask of {flat.size} actions; {describe(space)} takes {size}")
    return flat


def allowed_action(space: Space, mask: Masks) -> Any:
    """Return a random action of ``space`` that a mask allows, drawn by the spaces' own generators."""
    drawn, start = {}, 0
    for path, leaf in leaf_spaces(space):
        size = sum(choice_sizes(leaf))
        drawn[path] = _allowed_part(leaf, mask[start : start + size])
        start += size
    return nested(space, drawn)


def _allowed_part(space: Space, mask: Masks) -> Any:
    if isinstance(space, spaces.Box):
        return space.sample()
    parts = np.split(mask, np.cumsum(choice_sizes(space))[:-1])
    counted = np.array([space.np_random.choice(np.flatnonzero(part)) for part in parts])
    action = counted.reshape(space.shape) + getattr(space, "start", 0)
    return action.astype(space.dtype)[()]


class ActionMasker(gym.Wrapper[Any, Any, Any, Any]):
    """Says which actions are valid by a function of the environment, or by a method of it under its name.

    ``action_mask_fn`` is called with the wrapped environment whenever somebody asks for `action_masks`. In a
    config it is a name: of a method or an attribute, ``valid_moves``, or of a function in a module,
    ``my_module.valid_moves``.
    """

    def __init__(self, env: Env, action_mask_fn: Callable[[Env], Any] | str) -> None:
        super().__init__(env)
        if isinstance(action_mask_fn, str):
            action_mask_fn = _function_called(action_mask_fn, env)
        self._function = action_mask_fn

    def action_masks(self) -> Any:
        """Return which actions are valid now."""
        return self._function(self.env)


def _function_called(name: str, env: Env) -> Callable[[Env], Any]:
    """Return what asks an environment for its attribute of this name, or the function at a path."""
    module_name, dot, function_name = name.rpartition(".")
    if not dot:
        if not name.isidentifier() or not env.has_wrapper_attr(name):
            raise ZooError(
                f"ActionMasker: {type(env.unwrapped).__name__} has no method `{name}`; "
                "a function of a module is named with it: action_mask_fn=my_module.my_function"
            )
        return lambda env: _value(env.get_wrapper_attr(name))
    try:
        found = getattr(importlib.import_module(module_name), function_name, None)
    except ImportError as error:
        raise ZooError(f"ActionMasker: {name}: {error}") from error
    if not callable(found):
        raise ZooError(f"ActionMasker: `{module_name}` has no function `{function_name}`")
    function: Callable[[Env], Any] = found
    return function


def _value(attribute: Any) -> Any:
    return attribute() if callable(attribute) else attribute


def _mask_method(env: Env) -> Callable[[], Any] | None:
    if not env.has_wrapper_attr("action_masks"):
        return None
    method: Callable[[], Any] = env.get_wrapper_attr("action_masks")
    return method
