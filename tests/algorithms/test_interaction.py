"""Acting in environments, and what is said of the steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from logged_envs import Logged

from zoo.algorithms.interaction import Interaction
from zoo.envs.stepper import EnvStepper


def next_step_envs(*lengths: int) -> EnvStepper:
    """Return environments with episodes of these lengths, each reset in a step of its own."""
    makers: Any = [lambda length=length: Logged((length,)) for length in lengths]
    return EnvStepper(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP))


def test_steps_that_merely_reset_are_no_transitions() -> None:
    interaction = Interaction(next_step_envs(2, 4))
    interaction.reset([0, 1])
    for _ in range(6):  # the first is reset in steps 3 and 6, the second in step 5
        interaction.step(lambda seen: {"actions": np.zeros(2, np.int64)})
    assert [interaction.n_transitions_since(n) for n in range(7)] == [0, 1, 2, 4, 5, 7, 9]
