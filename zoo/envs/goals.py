"""Goal environments, as in Gymnasium-Robotics: the rewards of other goals, for hindsight replay.

Observations are a Dict with ``observation``, ``achieved_goal`` and ``desired_goal``. A method
``compute_reward(achieved_goal, desired_goal, info)`` gives the reward of a step that achieved one goal where
another was desired; where there is a method ``compute_terminated``, it says whether that ends the episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from zoo.core.printing import one_line
from zoo.envs.spaces import ACHIEVED, DESIRED, describe, is_goal_space
from zoo.errors import NotFiniteError, ZooError

COMPUTE_REWARD = "compute_reward(achieved_goal, desired_goal, info)"

Answer = Callable[[Any, Any, Any], Any]
Infos = Sequence[Mapping[str, Any]]


class GoalRewards:
    """Rewards and ends of steps under other goals, computed by methods of the environment.

    Methods are those of the vector environment if it has them, else of its first environment, or of one more
    like it where all are in worker processes. They are given an empty info for each goal, or ``with_infos``
    the info of the step.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, with_infos: bool = False) -> None:
        space: Any = env.single_observation_space
        if not is_goal_space(space):
            raise ZooError(
                "hindsight needs an env with goals: observations with `observation`, `achieved_goal` and"
                f" `desired_goal`, but they are {describe(space)}; replay=uniform learns without"
            )
        achieved, desired = space[ACHIEVED], space[DESIRED]
        if (achieved.shape, achieved.dtype) != (desired.shape, desired.dtype):
            raise ZooError(
                "hindsight makes desired goals of achieved ones, but achieved_goal is"
                f" {describe(achieved)} and desired_goal {describe(desired)}"
            )
        answer, ends = _method(env, "compute_reward"), _method(env, "compute_terminated")
        if answer is None:
            raise ZooError(f"hindsight needs an env with a method {COMPUTE_REWARD}")
        self._rewards = GoalFunction(answer, "compute_reward", with_infos=with_infos)
        self._ends = None if ends is None else GoalFunction(ends, "compute_terminated", with_infos=with_infos)

    def rewards(
        self, achieved: NDArray[Any], desired: NDArray[Any], infos: Infos | None = None
    ) -> NDArray[np.float32]:
        """Return the rewards (n,) of steps that achieved these goals where those (n, …) were desired."""
        rewards = self._rewards(achieved, desired, infos).astype(np.float32, copy=False)
        if not np.isfinite(rewards).all():
            row = int(np.flatnonzero(~np.isfinite(rewards))[0])
            raise NotFiniteError(
                f"the env's compute_reward gave {rewards[row]} for achieved_goal {achieved[row].tolist()}"
                f" and desired_goal {desired[row].tolist()}"
            )
        return rewards

    def terminated(
        self, achieved: NDArray[Any], desired: NDArray[Any], infos: Infos | None = None
    ) -> NDArray[np.bool_] | None:
        """Return whether each step ends its episode; None without a method ``compute_terminated``."""
        if self._ends is None:
            return None
        return self._ends(achieved, desired, infos).astype(np.bool_, copy=False)


class GoalFunction:
    """A method of an environment, called for many goals at once where it answers so, else one by one."""

    def __init__(self, answer: Answer, name: str, *, with_infos: bool = False) -> None:
        self.answer, self.name, self.with_infos = answer, name, with_infos
        self.is_vectorized: bool | None = None
        """Whether it has answered many goals with one number each; None before the first call."""

    def __call__(
        self, achieved: NDArray[Any], desired: NDArray[Any], infos: Infos | None = None
    ) -> NDArray[Any]:
        """Return one number, or truth, a row. Raises `ZooError` for any other answer."""
        if self.is_vectorized is None:
            self.is_vectorized = self._answers_many(achieved, desired, infos)
        answer = self._call_all_goals if self.is_vectorized else self.call_each_goal
        return answer(achieved, desired, infos)

    def _answers_many(self, achieved: NDArray[Any], desired: NDArray[Any], infos: Infos | None) -> bool:
        try:
            answers = self._call_all_goals(achieved, desired, infos)
        except ZooError:  # It may take one goal only, and fail in any way for more.
            return False
        try:
            singles = self.call_each_goal(achieved[:2], desired[:2], infos and infos[:2])
        except ZooError:  # It may take many only.
            return True
        return len(achieved) == 1 or np.allclose(answers[:2], singles, equal_nan=True)

    def _call_all_goals(
        self, achieved: NDArray[Any], desired: NDArray[Any], infos: Infos | None
    ) -> NDArray[Any]:
        n = len(achieved)
        answers = self._ask(achieved, desired, infos or [{}] * n)
        if answers.shape != (n,):
            raise self._refused(f"answered {n} of them in the shape {answers.shape}; expected ({n},)")
        return answers

    def call_each_goal(
        self, achieved: NDArray[Any], desired: NDArray[Any], infos: Infos | None = None
    ) -> NDArray[np.float64]:
        """Call the method for each row and return one number a row."""
        numbers = np.empty(len(achieved))
        for i, row in enumerate(zip(achieved, desired, infos or [{}] * len(achieved), strict=True)):
            answer = self._ask(*row)
            if answer.size != 1:
                raise self._refused(f"returned the shape {answer.shape} for one goal; expected one number")
            numbers[i] = answer.item()
        return numbers

    def _ask(self, achieved: Any, desired: Any, info: Any) -> NDArray[Any]:
        try:
            answers = np.asarray(self.answer(achieved, desired, info))
            return answers if answers.dtype.kind in "bf" else answers.astype(np.float64)
        except ZooError:
            raise
        except Exception as error:
            lacks_info = not self.with_infos and isinstance(error, KeyError | TypeError | AttributeError)
            hint = "; replay.hindsight.copy_info_dict=true gives it the info of the step"
            advice = hint if lacks_info else ""
            raise self._refused(f"raised {type(error).__name__}: {one_line(error)}{advice}") from error

    def _refused(self, problem: str) -> ZooError:
        info = "the info of the step" if self.with_infos else "an empty info"
        return ZooError(
            f"hindsight asks {self.name}(achieved_goal, desired_goal, info) about other goals, with {info},"
            f" and it {problem}"
        )


def _method(env: VectorEnv[Any, Any, Any], name: str) -> Answer | None:
    """Return a method of the vector environment or of one in it, which is looked up at each call."""
    bare: Any = env.unwrapped
    if hasattr(bare, name):
        return getattr(bare, name)
    if not hasattr(bare, "example") and not getattr(bare, "envs", None):
        return None

    def method() -> Any:
        env = bare.example() if hasattr(bare, "example") else bare.envs[0]
        return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None

    return (lambda *goals_and_info: method()(*goals_and_info)) if callable(method()) else None
