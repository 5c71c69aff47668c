"""Acting in environments, and what is said of the steps."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from logged_envs import Logged

from zoo.algorithms.interaction import Interaction, envs_for
from zoo.envs.adapter import EnvStepper
from zoo.envs.config import EnvConfig


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


def test_time_is_told_by_what_it_went_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by 1 whenever it is looked at: four times a step."""
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)))
    monkeypatch.setattr("zoo.algorithms.interaction.time", clock)
    timings = {"env": 0.0, "policy": 0.0}
    interaction = Interaction(next_step_envs(9, 9), timings=timings)
    interaction.reset([0, 1])
    for n in (1, 2, 3):
        interaction.step(lambda seen: {"actions": np.zeros(2, np.int64)})
        assert timings == {"env": 1.0 * n, "policy": 2.0 * n}


@pytest.mark.parametrize(("config", "gamma"), [(None, 0.99), (SimpleNamespace(gamma=0.5), 0.5)])
def test_discount_of_normalised_rewards_is_the_algorithms_or_else_the_usual_one(
    config: Any, gamma: float
) -> None:
    _, envs = envs_for(EnvConfig(id="Pendulum-v1", normalize=True), 1, 1, config)
    assert envs.normalizer is not None
    assert envs.normalizer.gamma == gamma
