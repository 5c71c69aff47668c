"""One step of all environments as one record: what was seen, what was done, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from zoo.envs.adapter import Step
from zoo.memory.columns import Column, assign, join, transform

Array = np.ndarray


@dataclass(slots=True)
class Experience:
    """All arrays have one row an environment, but for those of ``outcome`` that are about finished episodes.

    ``columns`` hold, by name, what the policy was shown (normalised ``observations``, ``action_masks`` where
    the environment has them) and what it did (``actions``, and whatever else it adds); a memory takes those
    that it declares. ``observations`` are the raw ones. ``outcome`` is what the environments answered.
    """

    columns: dict[str, Column]
    observations: Column
    outcome: Step

    @property
    def ended(self) -> Array:
        """Whether each environment's episode ended with this step."""
        return self.outcome.terminated | self.outcome.truncated

    def stored(self) -> dict[str, Column]:
        """Return by name what replay memories store of it: what was shown, raw, done, and what came of it."""
        values = self.columns | self.following()
        values["observations"], values["rewards"] = self.observations, self.outcome.rewards
        values["terminated"], values["ended"] = self.outcome.terminated, self.ended
        return values

    def following(self) -> dict[str, Column]:
        """Return ``next_observations``, raw, and with masks ``next_action_masks``: what the actions led to.

        For ended episodes that is the final one.
        """
        outcome = self.outcome
        following = {"next_observations": outcome.observations}
        if outcome.action_masks is not None:
            following["next_action_masks"] = outcome.action_masks
        if len(outcome.finished):
            final = {
                "next_observations": outcome.final_observations,
                "next_action_masks": outcome.final_action_masks,
            }
            for name, column in following.items():
                following[name] = transform(np.copy, column)
                assign(following[name], outcome.finished, final[name])
        return following


def joined(experiences: Sequence[Experience], names: Collection[str]) -> dict[str, Column]:
    """Return what a replay memory stores of steps that follow each other, (steps, n_envs, …).

    Concatenated, as `np.stack` looks at each array by itself.
    """
    each = [experience.stored() for experience in experiences]
    n = len(each)
    return {
        name: transform(
            lambda array: array.reshape(n, len(array) // n, *array.shape[1:]),
            join([values[name] for values in each]),
        )
        for name in names
    }
