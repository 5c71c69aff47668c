"""Goal environments, as Gymnasium-Robotics means them: what any other goal would have been worth.

Observations are a Dict with ``observation``, ``achieved_goal`` and ``desired_goal``. A method
``compute_reward(achieved_goal, desired_goal, info)`` gives the reward of a step that achieved one goal where
another was desired; where there is a method ``compute_terminated``, it says whether that ends the episode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import getitem
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from zoo.core.printing import one_line
from zoo.envs.spaces import Space, describe
from zoo.errors import NotFiniteError, ZooError

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"

TRIED_GOALS = 16
"""Goals on which an environment shows whether it answers for many at once as for one after the other.

There are more of them by the largest side of a goal, lest a goal's numbers be taken for answers.
"""

COMPUTE_REWARD = "compute_reward(achieved_goal, desired_goal, info)"

HINDSIGHT_ASKS = "hindsight asks"
"""How a message begins that says why an environment can't be asked."""

Answer = Callable[[Any, Any, Any], Any]
Infos = Sequence[Mapping[str, Any]]
"""The info of each of some steps."""


def is_goal_space(space: Space) -> bool:
    """Whether observations say what was achieved and what is desired."""
    return isinstance(space, spaces.Dict) and {ACHIEVED, DESIRED} <= set(space)


class GoalOutcomes:
    """Rewards and ends of steps under goals that were not pursued, asked of the environment itself.

    That is the first one of a vector environment in this process, one made for it where all are in worker
    processes, or the vector environment itself if it has the methods. They are given an empty info for each
    goal, or ``with_infos`` the info of the step. Raises `ZooError` for an environment without goals, or
    without ``compute_reward``.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, with_infos: bool = False) -> None:
        self.space = goal_space(env.single_observation_space)
        answer, ends = _method(env, "compute_reward"), _method(env, "compute_terminated")
        if answer is None:
            raise ZooError(f"hindsight needs an env with a method {COMPUTE_REWARD}")
        self._rewards = Asked(answer, "compute_reward", with_infos=with_infos)
        self._ends = None if ends is None else Asked(ends, "compute_terminated", with_infos=with_infos)

    def rewards(
        self, achieved: NDArray[Any], desired: NDArray[Any], infos: Infos | None = None
    ) -> NDArray[np.float32]:
        """Return the rewards (n,) of steps that achieved these goals where those (n, …) were desired."""
        rewards = self._rewards(achieved, desired, infos).astype(np.float32, copy=False)
        are_finite = math.isfinite(np.vdot(rewards, rewards))  # which is quick to see
        if not are_finite and not np.isfinite(rewards).all():
            row = int(np.flatnonzero(~np.isfinite(rewards))[0])
            raise NotFiniteError(
                f"the env's compute_reward gave {rewards[row]} for achieved_goal {achieved[row].tolist()}"
                f" and desired_goal {desired[row].tolist()}"
            )
        return rewards

    def terminated(
        self, achieved: NDArray[Any], desired: NDArray[Any], infos: Infos | None = None
    ) -> NDArray[np.bool_] | None:
        """Return whether each of these steps ends its episode, None if the environment does not tell."""
        if self._ends is None:
            return None
        return self._ends(achieved, desired, infos).astype(np.bool_, copy=False)


def goal_space(space: Space) -> Space:
    """Return the space of goals. Raises `ZooError` if observations have none."""
    if not is_goal_space(space):
        raise ZooError(
            "hindsight needs an env with goals: observations with `observation`, `achieved_goal` and"
            f" `desired_goal`, but they are {describe(space)}; replay=uniform learns without"
        )
    assert isinstance(space, spaces.Dict)
    achieved, desired = space[ACHIEVED], space[DESIRED]
    if (achieved.shape, achieved.dtype) != (desired.shape, desired.dtype):
        raise ZooError(
            "hindsight makes desired goals of achieved ones, but achieved_goal is"
            f" {describe(achieved)} and desired_goal {describe(desired)}"
        )
    return achieved


class Asked:
    """One method of an environment, asked about many goals at once where that gives what one by one does."""

    def __init__(self, answer: Answer, name: str, *, with_infos: bool = False) -> None:
        self.answer, self.name, self.with_infos = answer, name, with_infos
        self._takes_many: bool | None = None

    def __call__(
        self, achieved: NDArray[Any], desired: NDArray[Any], infos: Infos | None = None
    ) -> NDArray[Any]:
        """Return one number, or truth, a row. Raises `ZooError` for any other answer."""
        if not self.takes_many(achieved, desired, infos):
            return self.one_by_one(achieved, desired, infos)
        try:
            answers = self._all_at_once(achieved, desired, infos)
        except Exception as error:
            raise self._failed(error) from error
        if not answers.shape:
            return np.full(len(achieved), answers)
        if answers.shape != (len(achieved),):
            raise self._refused(
                f"answered {len(achieved)} of them in the shape {answers.shape};"
                f" expected one number each, ({len(achieved)},)"
            )
        return answers

    def takes_many(self, achieved: NDArray[Any], desired: NDArray[Any], infos: Infos | None = None) -> bool:
        """Whether it answers for many goals at once: found out once, on these, half of which are reached."""
        if self._takes_many is None:
            rows = np.arange(TRIED_GOALS + max(achieved.shape[1:], default=0)) % len(achieved)
            achieved, desired = achieved[rows], desired[rows]
            desired[::2] = achieved[::2]
            infos = None if infos is None else [infos[row] for row in rows.tolist()]
            alone = self.one_by_one(achieved, desired, infos)
            try:
                together = self._all_at_once(achieved, desired, infos)
                is_same = together.shape in ((), alone.shape)
                self._takes_many = is_same and np.allclose(together, alone, equal_nan=True)
            except Exception:  # It may take one goal only, and fail in any way for more.
                self._takes_many = False
        return self._takes_many

    def one_by_one(
        self, achieved: NDArray[Any], desired: NDArray[Any], infos: Infos | None = None
    ) -> NDArray[np.float64]:
        """Return one number a row, asked for row by row."""
        rows = zip(achieved, desired, infos or [{}] * len(achieved), strict=True)
        try:
            return np.array([self._number(self.answer(*row)) for row in rows], dtype=np.float64)
        except Exception as error:
            raise self._failed(error) from error

    def _all_at_once(
        self, achieved: NDArray[Any], desired: NDArray[Any], infos: Infos | None
    ) -> NDArray[Any]:
        answers = np.asarray(self.answer(achieved, desired, infos or [{}] * len(achieved)))
        return answers if answers.dtype.kind in "bf" else answers.astype(np.float64)

    def _number(self, answer: Any) -> float:
        if np.size(answer) != 1:
            raise self._refused(f"returned the shape {np.shape(answer)} for one goal; expected one number")
        return float(np.asarray(answer).item())

    def _failed(self, error: Exception) -> ZooError:
        if isinstance(error, ZooError):
            return error
        needs_info = not self.with_infos and isinstance(error, KeyError | TypeError | AttributeError)
        advice = "; replay.hindsight.copy_info_dict=true gives it the info of the step" if needs_info else ""
        return self._refused(f"raised {type(error).__name__}: {one_line(error)}{advice}")

    def _refused(self, what: str) -> ZooError:
        info = "the info of the step" if self.with_infos else "an empty info"
        return ZooError(
            f"{HINDSIGHT_ASKS} {self.name}(achieved_goal, desired_goal, info) about other goals, with {info},"
            f" and it {what}"
        )


def _method(env: VectorEnv[Any, Any, Any], name: str) -> Answer | None:
    """Return a call of a method of the vector environment or of one in it, looked up anew each time."""
    bare: Any = env.unwrapped
    if hasattr(bare, name):
        return getattr(bare, name)
    if hasattr(bare, "example"):
        first = bare.example
    elif getattr(bare, "envs", None):
        first = partial(getitem, bare.envs, 0)
    else:
        return None
    if not first().has_wrapper_attr(name) or not callable(first().get_wrapper_attr(name)):
        return None
    return lambda *goals_and_info: first().get_wrapper_attr(name)(*goals_and_info)
