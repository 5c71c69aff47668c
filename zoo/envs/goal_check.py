"""Whether a goal environment's ``compute_reward`` is what hindsight replay takes it for."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from zoo.envs.goals import ACHIEVED, DESIRED, Asked, is_goal_space
from zoo.errors import ZooError

COMPUTE_REWARD = "compute_reward(achieved_goal, desired_goal, info)"


class GoalCheck:
    """Compares what an environment says of its own steps with the rewards that these had."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        self._has_goals = is_goal_space(env.observation_space)
        self._steps: list[tuple[Any, Any, float]] = []

    def note(self, observation: Any, reward: Any) -> None:
        """Keep what a step led to; nothing for environments without goals."""
        if self._has_goals:
            achieved, desired = (np.array(observation[key]) for key in (ACHIEVED, DESIRED))
            self._steps.append((achieved, desired, float(reward)))

    def findings(self) -> list[str]:
        """Return, in words, what would keep hindsight replay from learning, or slow it down."""
        if not self._steps:
            return []
        if not self.env.has_wrapper_attr("compute_reward"):
            return [
                f"there are goals, but no method {COMPUTE_REWARD}, which hindsight replay needs;"
                " memory=uniform learns without"
            ]
        asked = Asked(self.env.get_wrapper_attr("compute_reward"), self._space(), "compute_reward")
        try:
            return self._of_own_steps(asked) + self._of_many(asked)
        except ZooError as error:
            return [str(error)]

    def _space(self) -> Any:
        return self.env.observation_space[ACHIEVED]  # type: ignore[index]

    def _of_own_steps(self, asked: Asked) -> list[str]:
        achieved, desired, rewards = (np.array(column) for column in zip(*self._steps, strict=True))
        answers = asked.one_by_one(achieved, desired)
        unusable = np.flatnonzero(~np.isfinite(answers))
        if len(unusable):
            step = int(unusable[0])
            return [
                f"compute_reward gave {answers[step]} for the goals of step {step + 1};"
                " rewards must be finite"
            ]
        others = np.flatnonzero(~np.isclose(answers, rewards, rtol=1e-4, atol=1e-5))
        if not len(others):
            return []
        step = int(others[0])
        return [
            f"step {step + 1} gave the reward {rewards[step]:g}, but compute_reward gives {answers[step]:g}"
            f" for its goals ({len(others)} of {len(rewards)} steps differ): hindsight replay would learn"
            f" from both; let step() return what {COMPUTE_REWARD} does, or set"
            " memory.hindsight.copy_info_dict=true if that needs the info of the step"
        ]

    def _of_many(self, asked: Asked) -> list[str]:
        if asked.takes_many():
            return []
        return [
            "compute_reward answers for one goal at a time, so hindsight replay asks it row by row, which is"
            " slow; let it take arrays of goals (n, …) and return rewards (n,)"
        ]
