"""Runs end where numbers stop being finite: nothing is learned from such numbers, and none are written.

What was collected is looked at before anything is learned from it, parameters before anything is written.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import torch

from zoo.algorithms.interaction import Interaction
from zoo.algorithms.team import Team
from zoo.errors import NotFiniteError, ZooError
from zoo.memory.columns import NotFinite, find_not_finite, transform
from zoo.optim.update_runner import Program


class Memory(Protocol):
    """What a memory says of its numbers."""

    def first_not_finite(self) -> NotFinite | None:
        """Return the first that is NaN or infinite among those that it was not asked about before."""


class Learning(Protocol):
    """What is looked at of an algorithm."""

    config: Any
    n_envs: int
    num_timesteps: int
    n_updates: int
    program: Program
    team: Team

    @property
    def interaction(self) -> Interaction:
        """What the environments show."""

    @property
    def memory(self) -> Memory:
        """What was collected."""


def check_finite(algorithm: Learning) -> None:
    """Raise `NotFiniteError` if anything lately collected, or a parameter, is not finite."""
    check_collected(algorithm)
    check_parameters(algorithm)


def check_collected(algorithm: Learning) -> None:
    """Raise `NotFiniteError` for the first number not yet looked at that is not finite.

    These are numbers that the memory took, and those that the environments show now; raw ones, where they
    are normalised.
    """
    found = algorithm.interaction.first_not_finite() or algorithm.memory.first_not_finite()
    if found is None:
        shown = transform(lambda array: array[None], algorithm.interaction.seen["observations"])
        found = find_not_finite({"next_observations": shown})
    if found is None:
        algorithm.interaction.found_finite()
        return
    steps_ago = found.steps_ago + (found.name == "observations")  # that step began with it
    since = algorithm.interaction.n_transitions_since(steps_ago) * algorithm.team.size
    step = algorithm.num_timesteps - since
    if found.name in ("actions", "behaviour", "states"):
        start, end = f"the policy's action for environment {found.env}", _advice(algorithm)
    else:
        thing = "a reward" if found.name == "rewards" else "an observation"
        start, end = f"environment {found.env} gave {thing} that", _range(found)
    raise NotFiniteError(f"{start} is not finite ({found.value}) at step {step} of the run{end}")


def check_parameters(algorithm: Learning) -> None:
    """Raise `NotFiniteError` if updates have made anything that they replace not finite."""
    for name, tensor in algorithm.program.state.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor.sum()) and not tensor.isfinite().all():
            raise NotFiniteError(
                f"after {algorithm.n_updates} updates `{name}` is not finite, at step"
                f" {algorithm.num_timesteps} of the run{_advice(algorithm)}"
            )


def check_policy_first(algorithm: Learning, error: ZooError) -> None:
    """Raise `NotFiniteError` where an environment failed because it was given actions that are not finite."""
    if not isinstance(error, NotFiniteError):
        check_finite(algorithm)


def _range(found: NotFinite) -> str:
    """Say from where on a reward is infinite here, where the environment may have given a finite one."""
    if found.name != "rewards" or not math.isinf(found.value):
        return ""
    return f"; rewards beyond {np.finfo(np.float32).max:.2g} are infinite in 32 bits"


def _advice(algorithm: Learning) -> str:
    """Name what bounds the size of an update."""
    bounds = [
        f"algo.{name}" for name in ("learning_rate", "max_grad_norm") if hasattr(algorithm.config, name)
    ]
    return f"; smaller {' or '.join(bounds)} may help" if bounds else ""
