"""Which actions are valid now: environments say so by a method `action_masks`, or in their infos."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from zoo.config.own_modules import import_own
from zoo.envs.composite_spaces import is_composite, leaf_spaces, leaves, nested
from zoo.envs.env_error import env_error
from zoo.envs.goals import is_goal_space
from zoo.envs.spaces import Space, choice_sizes, describe
from zoo.errors import ZooError
from zoo.files.printing import one_line

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
                f" ({IGNORING})"
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

    @property
    def everything(self) -> Masks:
        """The mask that allows all."""
        return np.ones(self.size, np.bool_)

    def come_too_late(self, who: str) -> ZooError:
        """Return the error for masks in the infos of steps where those of the reset had none."""
        self.check_space("`action_mask` in its info")
        return ZooError(
            f"{who} gave `action_mask` in a step, but none with the reset; give it there too ({IGNORING})"
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
        self._has_goals = is_goal_space(envs[0].observation_space)
        self.size: int | None = None
        if self._methods[0] is not None:
            self._form.check_space("a method `action_masks`")
            self.size = self._form.size

    def made_anew(self, i: int, env: Env) -> None:
        """Ask another environment from now on."""
        self._methods[i] = _mask_method(env) if self._used else None

    def look_for_them(self, infos: Sequence[Mapping[str, Any]]) -> None:
        """Find out from the infos of a reset whether there are masks.

        Raises `ZooError` where only some environments have one.
        """
        if not self._used or self.size is not None:
            return
        given = ["action_mask" in info for info in infos]
        if any(given):
            self._form.check_space("`action_mask` in its info")
            self.size = self._form.size
        if any(given) and not all(given):
            raise ZooError(
                f"{self._name(given.index(False))} gave no `action_mask` in its info, but others did"
            )

    def come_too_late(self) -> None:
        """Raise `ZooError` if masks are used: the first environment has one, but had none with the reset."""
        if self._used:
            raise self._form.come_too_late(self._name(0))

    def _form_of(self, i: int, given: Any) -> Masks:
        """Return as one row what an environment gave. Raises `ZooError` for nothing, or another length."""
        if given is None and self._methods[i] is not None:
            raise ZooError(f"{self._name(i)} returned None from action_masks()")
        if given is None:
            raise ZooError(f"{self._name(i)} gave no `action_mask` in its info, but did before")
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
        """Return which actions an environment allows where an episode ends; all if it is over.

        Then nobody acts any more, so it is not asked, unless there are goals: with another one, in hindsight,
        the episode may go on. Raises `ZooError` for an episode that is cut short where no action is allowed.
        """
        if terminated and not self._has_goals:
            return self._form.everything
        mask = self._form_of(i, self._given(self._methods[i : i + 1], [info], i)[0]).copy()
        if self._form.leave_a_choice(mask):
            return mask
        if not terminated:
            raise self._form.nothing_left(mask, self._name(i))
        return self._form.everything

    def write(self, masks: Masks | None, infos: Sequence[Mapping[str, Any]]) -> None:
        """Write the mask of every environment into its row, if there are any.

        Raises `ZooError` for one that allows no action.
        """
        if self.size is None:
            return
        assert masks is not None
        given, shape = self._given(self._methods, infos, 0), masks.shape[1:]
        if all(type(mask) is np.ndarray and mask.shape == shape and mask.dtype == np.bool_ for mask in given):
            np.concatenate(given, out=masks.reshape(-1))
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
    nested as it is; a part that is None, or that a dictionary lacks, may take any value. Raises `ZooError`
    for parts that are not those of the action.
    """
    if is_composite(action_space) and _is_nested(mask, action_space):
        parts = dict(leaves(action_space, _complete(mask, action_space)))
        spaces_of_parts = leaf_spaces(action_space)
        return np.concatenate([_part_of_mask(parts[path], leaf) for path, leaf in spaces_of_parts])
    rows = list(_rows_in(mask))
    if len(rows) == 1:
        return rows[0]
    sizes, space = choice_sizes(action_space), describe(action_space)
    if len(rows) != len(sizes):
        raise ZooError(f"masks for {len(rows)} choices; {space} has {len(sizes)}")
    for number, (row, size) in enumerate(zip(rows, sizes, strict=True), start=1):
        if len(row) != size:
            raise ZooError(f"a mask of {len(row)} for choice {number} of {space}, which has {size}")
    return np.concatenate(rows)


def _is_nested(mask: Any, space: Space) -> bool:
    """Whether a mask is nested as the actions are; a list may be one, or all alternatives in a row."""
    return isinstance(mask, Mapping | tuple) or (
        isinstance(space, spaces.Tuple)
        and isinstance(mask, list)
        and any(part is None or not np.isscalar(part) for part in mask)
    )


def _rows_in(mask: Any) -> Iterator[Masks]:
    """Return a row for each part of a list, of lists too."""
    if isinstance(mask, list | tuple) and len(mask) and isinstance(mask[0], np.ndarray | list | tuple):
        for part in mask:
            yield from _rows_in(part)
    else:
        yield _row(mask)


def _row(mask: Any) -> Masks:
    """Return a row of truth values. Raises `ZooError` for anything else, as what is added to logits."""
    row = np.asarray(mask).ravel()
    if row.dtype == np.bool_:
        return row
    if row.dtype.kind not in "iuf":
        raise ZooError(f"a mask is an array of True and False, not a {type(mask).__name__}")
    valid = row == 1
    if not (valid | (row == 0)).all():
        raise ZooError("a mask holds True and False, or 1 and 0, and nothing else")
    return valid


def _complete(mask: Any, space: Space) -> Any:
    """Return a nested mask with False, which is no mask, for the parts that it says nothing of."""
    if not is_composite(space):
        return False if mask is None else mask
    if isinstance(space, spaces.Dict):
        given = {} if mask is None else mask
        if not isinstance(given, Mapping):
            raise ZooError(
                f"{len(given)} masks in a row for {describe(space)}; name its parts in a dictionary"
            )
        unknown = [key for key in given if key not in space.spaces]
        if unknown:
            raise ZooError(f"a mask for `{unknown[0]}`, which is no part of {describe(space)}")
        return {key: _complete(given.get(key), part) for key, part in space.items()}
    assert isinstance(space, spaces.Tuple)
    given = [None] * len(space) if mask is None else mask
    if isinstance(given, Mapping):
        raise ZooError(f"a dictionary of masks for {describe(space)}; its parts have no names")
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


class AllowedActions:
    """Random actions of one environment, of those that it allows; ``masked=False``: of all in ``space``.

    ``info`` is that of the reset before the first action. Raises `ZooError` for a wrong mask.
    """

    def __init__(self, env: Env, space: Space, info: Mapping[str, Any], *, masked: bool) -> None:
        self._space = space
        self._masks = ActionMasks([env], space, lambda _: "the environment", used=masked)
        self._masks.look_for_them([info])

    def draw(self, info: Mapping[str, Any]) -> Any:
        """Return an action for what is shown with this info."""
        if self._masks.size is None:
            if "action_mask" in info:
                self._masks.come_too_late()
            return self._space.sample()
        row = np.empty((1, self._masks.size), np.bool_)
        self._masks.write(row, [info])
        return allowed_action(self._space, row[0])


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
    if not all(part.isidentifier() for part in name.split(".")):
        raise ZooError(
            f"ActionMasker: `{one_line(name, 80)}` is neither a method's name nor a function's, such as "
            "my_module.my_function"
        )
    try:
        found = getattr(import_own(module_name), function_name, None)
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
