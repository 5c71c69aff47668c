"""What an environment does wrong is told with its index, seed and step, in this process and in workers."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from scripted import Counting, Failing

from zoo.envs import EnvStepper, make_vec_env
from zoo.errors import ZooError

WHERE: dict[str, dict[str, Any]] = {
    "here": {},
    "workers": {"vectorization": "workers", "n_workers": 2, "start_method": "fork"},
}


def stepper(make: Any, n: int, where: str, **options: Any) -> EnvStepper:
    return EnvStepper(make_vec_env(make, n, check=False, **{**WHERE[where], **options}))


def message_of(envs: EnvStepper, n_steps: int) -> str:
    """Step until something is raised, which must not be before the last step."""
    actions = np.zeros(envs.num_envs, np.int64)
    for _ in range(n_steps - 1):
        envs.step(actions)
    with pytest.raises(ZooError) as caught:
        envs.step(actions)
    envs.close()
    return str(caught.value)


@pytest.mark.parametrize("where", WHERE)
def test_raising_env_is_named_with_the_step_since_its_seed(where: str) -> None:
    envs = stepper(Failing, 4, where)
    envs.reset([40, 41, 42, 43])
    assert message_of(envs, 3).startswith("env 0 (step 3 after seed 40) raised RuntimeError in a step:")


class FailingLater(Counting):
    """Raises when it was used for ``n`` steps since it was seeded; episodes have 2, 3, 4, 2, … steps."""

    n_left = 7

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.n_left = type(self).n_left if seed is not None else self.n_left
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.n_left -= 1
        if self.n_left == 0:
            raise RuntimeError("out of fuel")
        return super().step(action)


@pytest.mark.parametrize("where", WHERE)
def test_steps_are_counted_over_the_ends_of_episodes_and_after_a_replay(where: str) -> None:
    envs = stepper(FailingLater, 3, where)
    envs.reset([40, 41, 42])
    for _ in range(4):
        envs.step([0, 0, 0])
    kept = envs.state()
    assert message_of(envs, 3).startswith("env 0 (step 7 after seed 40) raised RuntimeError")
    again = stepper(FailingLater, 3, where)
    again.load_state(kept)
    assert message_of(again, 3).startswith("env 0 (step 7 after seed 40) raised RuntimeError")


@pytest.mark.parametrize("where", WHERE)
def test_steps_are_counted_anew_from_each_seed(where: str) -> None:
    class FailingSoon(FailingLater):
        n_left = 3

    envs = stepper(FailingSoon, 1, where, reseed_every=2)
    envs.reset([40])
    message = message_of(envs, 5)
    assert re.match(r"env 0 \(step 3 after seed \d+\) raised RuntimeError", message)
    assert "seed 40)" not in message


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


@pytest.mark.parametrize("where", WHERE)
def test_first_observation_of_another_shape_is_refused(where: str) -> None:
    envs = stepper(lambda: Misshapen(VECTOR, np.ones(1, np.float32), at=0), 2, where)
    with pytest.raises(ZooError, match=r"env 0 \(seed 7\): .*shape \(1,\)"):
        envs.reset([7, 8])
    envs.close()


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


@pytest.mark.parametrize("where", WHERE)
def test_exit_of_a_maker_is_an_error(where: str) -> None:
    with pytest.raises(ZooError, match="env 0 raised SystemExit while it was made"):
        stepper(lambda: sys.exit(0), 2, where)


@pytest.mark.parametrize("where", WHERE)
def test_env_that_raises_where_it_is_asked_for_a_mask_is_named(where: str) -> None:
    class Unmasked(Counting):
        def action_masks(self) -> Any:
            return [True, 1 / (1 - int(self._observation[1])) > 0]

    envs = stepper(Unmasked, 2, where)
    envs.reset([7, 8])
    message = message_of(envs, 1)
    assert message.startswith("env 0 (step 1 after seed 7) raised ZeroDivisionError in action_masks():")


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_env_that_ends_its_worker_without_an_error_is_an_error(start_method: str) -> None:
    envs = stepper(lambda: Exiting(os._exit), 4, "workers", start_method=start_method)
    envs.reset([0, 1, 2, 3])
    assert message_of(envs, 2) == (
        "the worker process of envs 2 to 3 died in env 3 (step 2 after seed 3): "
        "the environment ended it with exit code 0, as os._exit() does"
    )
