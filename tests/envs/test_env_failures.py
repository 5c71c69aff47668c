"""What an environment does wrong is told with its index, seed and step, in this process and in workers."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from scripted import Counting

from zoo.envs import VecEnvAdapter, make_vec_env
from zoo.errors import ZooError

WHERE: dict[str, dict[str, Any]] = {
    "here": {},
    "workers": {"vectorization": "workers", "n_workers": 2, "start_method": "fork"},
}


def stepper(make: Any, n: int, where: str, **options: Any) -> VecEnvAdapter:
    return VecEnvAdapter(make_vec_env(make, n, check=False, **{**WHERE[where], **options}))


def message_of(envs: VecEnvAdapter, n_steps: int) -> str:
    """Step until something is raised, which must not be before the last step."""
    actions = np.zeros(envs.num_envs, np.int64)
    for _ in range(n_steps - 1):
        envs.step(actions)
    with pytest.raises(ZooError) as caught:
        envs.step(actions)
    envs.close()
    return str(caught.value)


class Misshapen(Counting):
    """Shows something else than its space in its second step, or at the end of an episode, its third."""

    def __init__(self, space: Any, wrong: Any, at: int = 2) -> None:
        super().__init__(lengths=(3,))
        self.observation_space = space
        self.right, self.wrong, self.at = space.sample(), wrong, at

    def _shown(self) -> Any:
        return self.wrong if self._observation[1] == self.at else self.right


VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
MISSHAPEN = {
    "one number": (VECTOR, 1.0, "()", "(4,)"),
    "one entry": (VECTOR, np.ones(1, np.float32), "(1,)", "(4,)"),
    "one entry of a list": (VECTOR, [1.0], "(1,)", "(4,)"),
    "a row": (spaces.Box(-1.0, 1.0, (2, 3), np.float32), np.ones(3, np.float32), "(3,)", "(2, 3)"),
    "an array": (spaces.Discrete(3), np.array([2]), "(1,)", "()"),
    "a part": (
        spaces.Dict({"a": VECTOR, "b": spaces.Discrete(2)}),
        {"a": np.ones((1, 4), np.float32), "b": 1},
        "(1, 4)",
        "(4,)",
    ),
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(("space", "wrong", "found", "expected"), MISSHAPEN.values(), ids=MISSHAPEN)
@pytest.mark.parametrize("at", [2, 3])
def test_observation_of_another_shape_is_refused(
    space: Any, wrong: Any, found: str, expected: str, at: int, where: str
) -> None:
    envs = stepper(lambda: Misshapen(space, wrong, at), 2, where)
    envs.reset([7, 8])
    message = message_of(envs, at)
    assert message.startswith(f"env 0 (step {at} after seed 7): ")
    assert f"of shape {found}" in message
    assert f"observation_space says {expected}" in message
    assert "\n" not in message


class Exiting(Counting):
    """Ends its process in its second step, as if all were well."""

    def __init__(self, leave: Any) -> None:
        super().__init__(lengths=(9,))
        self.leave = leave

    def step(self, action: Any) -> Any:
        if self._observation[1] == 1 and self.np_random_seed == 3:
            self.leave(0)
        return super().step(action)


@pytest.mark.parametrize("where", WHERE)
def test_env_that_calls_exit_is_an_error(where: str) -> None:
    envs = stepper(lambda: Exiting(sys.exit), 4, where)
    envs.reset([0, 1, 2, 3])
    assert message_of(envs, 2).startswith("env 3 (step 2 after seed 3) raised SystemExit in a step:")
