"""Environments that never come back from a step: told by index and step, and nobody waits for them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from scripted import Counting

from zoo.envs import EnvStepper, make_vec_env
from zoo.envs.subproc import WorkersVectorEnv
from zoo.errors import ZooError


class Hanging(Counting):
    """Never comes back from a reset or a step of env 3 (that with seed 3); episodes of 2 steps."""

    def __init__(self, at: str) -> None:
        super().__init__(lengths=(2,))
        self.at = at
        self.is_third = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.is_third = seed == 3 if seed is not None else self.is_third
        self._hang(f"reset {self._episode + 1}")
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self._hang(f"step {int(self._observation[1]) + 1} of episode {self._episode}")
        return super().step(action)

    def _hang(self, here: str) -> None:
        while self.is_third and here == self.at:
            time.sleep(1)


def stepper(make: Any, n: int, **options: Any) -> EnvStepper:
    return EnvStepper(
        make_vec_env(
            make, n, vectorization="workers", start_method="fork", check=False, **{"n_workers": 2, **options}
        )
    )


def play(envs: EnvStepper, n_steps: int) -> None:
    envs.reset(range(envs.num_envs))
    for _ in range(n_steps):
        envs.step(np.zeros(envs.num_envs, np.int64))


@pytest.mark.parametrize(
    ("at", "n_steps", "which"),
    [
        ("reset 0", 0, r"env 3 \(seed 3\)"),
        ("step 1 of episode 0", 1, r"env 3 \(step 1 after seed 3\)"),
        ("reset 1", 2, r"env 3 \(step 2 after seed 3\)"),
        ("step 2 of episode 1", 4, r"env 3 \(step 4 after seed 3\)"),
    ],
)
def test_hanging_env_is_told_with_its_index_and_step(at: str, n_steps: int, which: str) -> None:
    envs = stepper(lambda: Hanging(at), 5, step_timeout=0.4)
    assert isinstance(envs.env, WorkersVectorEnv)
    processes = [worker.process for worker in envs.env.engine.workers]
    started = time.monotonic()
    with pytest.raises(ZooError, match=rf"^{which} has not come back for 0\.4 s \(env\.step_timeout\)"):
        play(envs, n_steps)
    assert time.monotonic() - started < 4.0, "a worker that hangs is not asked to close"
    assert not any(process.is_alive() for process in processes)
    with pytest.raises(ZooError, match="closed"):
        envs.step(np.zeros(5, np.int64))


@pytest.mark.parametrize("vectorization", ["auto", "sync", "native"])
def test_timeout_is_refused_where_a_step_cannot_be_given_up(vectorization: str) -> None:
    with pytest.raises(ZooError, match=r"env\.step_timeout=5.*needs env\.vectorization=workers"):
        make_vec_env("CartPole-v1", 2, vectorization=vectorization, step_timeout=5)
