"""Environments that are stepped one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from scripted import Counting

from zoo.envs.env_group import EnvGroup
from zoo.envs.step_arrays import StepArrays
from zoo.envs.whereabouts import Whereabouts


def test_it_is_known_which_environment_is_at_work_while_it_is() -> None:
    at_work: list[str | None] = []

    class Looking(Counting):
        def reset(self, **options: Any) -> Any:
            at_work.append(whereabouts.at_work())
            return super().reset(**options)

        def step(self, action: Any) -> Any:
            at_work.append(whereabouts.at_work())
            return super().step(action)

    group = EnvGroup([Looking, Looking], 3, reseed_every=1000, renew=False)
    arrays = StepArrays.allocate(2, group.observation_space, group.action_space)
    group.use_arrays(arrays)
    whereabouts = Whereabouts(arrays.whereabouts, 3)
    group.reset([7, 8], None, [0, 1])
    assert at_work == ["env 3 (seed 7)", "env 4 (seed 8)"]
    assert whereabouts.at_work() is None
    at_work.clear()
    group.step(np.zeros(2, np.int64))
    assert at_work == ["env 3 (step 1 after seed 7)", "env 4 (step 1 after seed 8)"]
    assert whereabouts.at_work() is None
