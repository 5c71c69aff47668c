"""Which actions are valid now: environments say so by a method `action_masks`, or in their infos."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from zoo.config.own_modules import import_own
from zoo.envs.goals import is_goal_space
from zoo.envs.registry import env_error
from zoo.envs.spaces import Env, Info, Space, choice_sizes, describe, is_composite, leaf_spaces, nested
from zoo.envs.vector_infos import attached, info_of
from zoo.errors import ZooError

Masks = NDArray[np.bool_]

IGNORING = "env.mask_actions=false leaves masks out"


class MaskForm:
    """What masks of the actions of one space look like: one row, the alternatives of all choices in it.

    ``name`` says in a message which environment is meant, and when. With goals an episode that is over may go
    on with another one in hindsight, so its mask counts; without, nobody acts there, and all is valid.
    """

    def __init__(self, action_space: Space, name: Callable[[int], str], *, has_goals: bool) -> None:
        self.action_space, self.name, self.has_goals = action_space, name, has_goals
        self.choices = choice_sizes(action_space)
        self.size = sum(self.choices)
        self._starts = [end - size for end, size in zip(accumulate(self.choices), self.choices, strict=True)]

    @property
    def everything(self) -> Masks:
        """The mask that allows all."""
        return np.ones(self.size, np.bool_)

    def check_space(self, given_as: str) -> None:
        """Raise `ZooError` for actions that can't be masked, though the environment does so."""
        if not self.choices:
            raise ZooError(
                f"the environment has {given_as}, but actions of {describe(self.action_space)} cannot be "
                f"masked; those of Discrete, MultiDiscrete and MultiBinary can ({IGNORING})"
            )

    def row(self, i: int, given: Any) -> Masks:
        """Return as one row what environment ``i`` gave. Raises `ZooError` for anything that is none."""
        try:
            mask = flat_mask(given, self.action_space)
        except (Exception, SystemExit) as error:
            raise env_error(error, self.name(i), "in action_masks()") from error
        if mask.size != self.size:
            raise ZooError(
                f"{self.name(i)} gave a mask of {mask.size} actions; {describe(self.action_space)} takes "
                f"{self.size} ({IGNORING})"
            )
        return mask

    def at_the_end(self, i: int, mask: Masks, *, is_over: bool) -> Masks:
        """Return a mask; all, where an episode is over and nothing is valid."""
        if self.leave_a_choice(mask):
            return mask
        if not is_over:
            raise self.nothing_left(i, mask)
        return self.everything

    def leave_a_choice(self, masks: Masks) -> Any:
        """Return for each row of masks (…, size) whether every choice has a valid alternative."""
        if len(self.choices) == 1:
            return np.logical_or.reduce(masks, axis=-1)
        return np.logical_or.reduceat(masks, self._starts, axis=-1).all(-1)

    def nothing_left(self, i: int, mask: Masks) -> ZooError:
        """Return the error for an environment whose mask leaves a choice without a valid alternative."""
        empty = np.flatnonzero(~np.logical_or.reduceat(mask, self._starts))[0]
        which = "" if len(self.choices) == 1 else f" for choice {empty + 1} of {len(self.choices)}"
        return ZooError(
            f"{self.name(i)} allows no action{which}: its mask is all false"
            f"{' there' if which else ''}; allow one, or end the episode before ({IGNORING})"
        )

    def left_out(self, i: int, who: str) -> ZooError:
        """Return the error for an info without a mask where others, or earlier ones, had one."""
        return ZooError(f"{self.name(i)} gave no `action_mask` in its info, but {who}")

    def come_too_late(self, i: int) -> ZooError:
        """Return the error for masks in the infos of steps where those of the reset had none."""
        self.check_space("`action_mask` in its info")
        return ZooError(
            f"{self.name(i)} gave `action_mask` in a step, but none with the reset; give it there too "
            f"({IGNORING})"
        )


class ActionMasks:
    """The masks of some environments with the same actions.

    ``size`` is the length of a mask; None where there are none, and as long as it is not known that infos
    hold some. ``name`` says in a message which environment is meant. With ``used=False`` nobody is asked.
    """

    def __init__(
        self, envs: Sequence[Env], action_space: Space, name: Callable[[int], str], *, used: bool = True
    ) -> None:
        self._form = MaskForm(action_space, name, has_goals=is_goal_space(envs[0].observation_space))
        self._used = used
        self._methods = [_mask_method(env) if used else None for env in envs]
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
            raise self._form.left_out(given.index(False), "others did")

    def come_too_late(self) -> None:
        """Raise `ZooError` if masks are used: the first environment has one, but had none with the reset."""
        if self._used:
            raise self._form.come_too_late(0)

    def at_the_end(self, i: int, info: Mapping[str, Any], *, terminated: bool) -> Masks:
        """Return which actions an environment allows where an episode ends; all if it is over.

        Raises `ZooError` for an episode that is cut short where no action is allowed.
        """
        if terminated and not self._form.has_goals:
            return self._form.everything
        mask = self._row(i, self._given(self._methods[i : i + 1], [info], i)[0]).copy()
        return self._form.at_the_end(i, mask, is_over=terminated)

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
                masks[i] = self._row(i, mask)
        has_choice = self._form.leave_a_choice(masks)
        if not has_choice.all():
            i = int(has_choice.argmin())
            raise self._form.nothing_left(i, masks[i])

    def _given(self, methods: Sequence[Callable[[], Any] | None], infos: Sequence[Any], first: int) -> Any:
        """Return what environments, from the ``first`` one on, say that is allowed, in whatever form."""
        given: list[Any] = []
        try:
            for method, info in zip(methods, infos, strict=True):
                given.append(info.get("action_mask") if method is None else method())
        except (Exception, SystemExit) as error:
            raise env_error(error, self._form.name(first + len(given)), "in action_masks()") from error
        return given

    def _row(self, i: int, given: Any) -> Masks:
        if given is not None:
            return self._form.row(i, given)
        if self._methods[i] is not None:
            raise ZooError(f"{self._form.name(i)} returned None from action_masks()")
        raise self._form.left_out(i, "did before")


class VectorMasks:
    """Asks somebody's vector environment for masks: its own method, those of its environments, its infos.

    ``masks`` are those of what is shown now (num_envs, ``size``), None where there are none, as before the
    first reset. ``name`` says in a message which environment is meant, and when.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], action_space: Space, name: Callable[[int], str], *, used: bool
    ) -> None:
        self._form = MaskForm(action_space, name, has_goals=is_goal_space(env.single_observation_space))
        self._num_envs, self._used = env.num_envs, used
        self._ask = _vector_method(env) if used else None
        if self._ask is not None:
            self._form.check_space("a method `action_masks`")
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
            infos = {"action_mask": self._ask(None if self._form.has_goals else over)}
        elif _has_masks(infos) and not self._in_infos:
            raise self._form.come_too_late(int(np.argmax(infos.get("_action_mask", [True]))))
        elif not self._in_infos:
            return None
        masks = np.empty((self._num_envs, self._form.size), np.bool_) if before is None else before.copy()
        for i in range(self._num_envs) if reset is None else np.flatnonzero(reset).tolist():
            is_over = over is not None and bool(over[i])
            masks[i] = self._of(i, _mask_in(infos, i), is_over=is_over)
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
        if is_over and not self._form.has_goals:
            return self._form.everything
        if mask is None:
            raise self._form.left_out(i, "others did" if self.masks is None else "did before")
        return self._form.at_the_end(i, self._form.row(i, mask), is_over=is_over)


def flat_mask(mask: Any, action_space: Space) -> Masks:
    """Return a mask as one row.

    The choices of a MultiDiscrete action may come as a list of arrays, the parts of a Tuple or Dict action
    nested as it is; a part that is None, or that a dictionary lacks, may take any value. Raises `ZooError`
    for parts that are not those of the action.
    """
    if is_composite(action_space) and _is_nested(mask, action_space):
        return np.concatenate(list(_parts_of_mask(mask, action_space)))
    rows = list(_rows_in(mask))
    sizes, space = choice_sizes(action_space), describe(action_space)
    if len(rows) == 1:
        return rows[0]
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


def _parts_of_mask(mask: Any, space: Any) -> Iterator[Masks]:
    """Yield the masks of the parts of an action; a part without one may take any value."""
    if mask is None or not is_composite(space):
        size = sum(choice_sizes(space))
        flat = np.ones(size, np.bool_) if mask is None else flat_mask(mask, space)
        if flat.size != size:
            raise ZooError(f"a mask of {flat.size} actions; {describe(space)} takes {size}")
        yield flat
        return
    keys = list(space) if isinstance(space, spaces.Dict) else range(len(space))
    if isinstance(mask, Mapping) != isinstance(space, spaces.Dict):
        raise ZooError(f"{describe(space)} takes its masks nested as it is, not in a {type(mask).__name__}")
    if isinstance(mask, Mapping):
        if unknown := [key for key in mask if key not in space.spaces]:
            raise ZooError(f"a mask for `{unknown[0]}`, which is no part of {describe(space)}")
    elif len(mask) != len(space):
        raise ZooError(f"masks for {len(mask)} parts; {describe(space)} has {len(space)}")
    for key in keys:
        yield from _parts_of_mask(mask.get(key) if isinstance(mask, Mapping) else mask[key], space[key])


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
        if not env.has_wrapper_attr(name):
            raise ZooError(
                f"ActionMasker: {type(env.unwrapped).__name__} has no method `{name}`; "
                "a function of a module is named with it: action_mask_fn=my_module.my_function"
            )
        attribute = env.get_wrapper_attr(name)
        return lambda env: attribute() if callable(attribute) else env.get_wrapper_attr(name)
    try:
        found = getattr(import_own(module_name), function_name, None)
    except (ImportError, ValueError) as error:
        raise ZooError(f"ActionMasker: {name}: {error}") from error
    if not callable(found):
        raise ZooError(f"ActionMasker: `{module_name}` has no function `{function_name}`")
    function: Callable[[Env], Any] = found
    return function


def _mask_method(env: Env) -> Callable[[], Any] | None:
    return env.get_wrapper_attr("action_masks") if env.has_wrapper_attr("action_masks") else None


def _has_masks(infos: Mapping[str, Any]) -> bool:
    return infos.get("action_mask") is not None


def _mask_in(infos: Mapping[str, Any], i: int) -> Any:
    """Return the mask of one environment, None where it gave none; Gymnasium's may have it in parts."""
    present = infos.get("_action_mask")
    if not _has_masks(infos) or (present is not None and not present[i]):
        return None
    given = infos["action_mask"]
    return info_of(given, i) if isinstance(given, Mapping) else given[i]


def _vector_method(env: VectorEnv[Any, Any, Any]) -> Callable[[Masks | None], Any] | None:
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
