"""Studies of a moment: A2C on a small environment, and one whose trials can be held."""

from __future__ import annotations

import copy
import functools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from optuna.trial import Trial

import zoo
from zoo.tuning.study import quiet_optuna
from zoo.tuning.study_process import StudyProcess
from zoo.tuning.tune import Search

ENV = "CartPole-v1"

SMALL = (
    *("algo=a2c", "n_timesteps=200", "n_envs=2", "seed=1", "compile=false", "threads=1", "tuned=none"),
    *("callbacks.eval.n_episodes=2", "n_evaluations=2", "top_k=0", "verbose=0", "n_startup_trials=2"),
    "space.algo.n_steps.high=16",
)
"""Settings of a study whose trials take a moment."""


def overrides(*more: str) -> list[str]:
    env = [] if any(each.startswith("env=") for each in more) else [f"env={ENV}"]
    return [*SMALL, *env, *more]


def config_of(*more: str) -> dict[str, Any]:
    return copy.deepcopy(_composed(more, os.getcwd() if "tuned=mine.yaml" in more else ""))


@functools.cache
def _composed(more: tuple[str, ...], folder: str) -> dict[str, Any]:
    plain = OmegaConf.to_container(zoo.compose("tune", overrides(*more)), resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def begin_study(*more: str) -> Search:
    """Return the study of a command, as `zoo tune` begins it or finds it."""
    return Search(config_of(*more))


def process_of(found: Search, deadline: float | None = None) -> StudyProcess:
    """Return one that works on the study in this process, as those do that `zoo tune` starts."""
    return StudyProcess(found.plan, found.shared.storage, deadline)


def run_study(*more: str) -> Search:
    """Begin a study, or go on with it, and do all that is left to do."""
    found = begin_study(*more)
    with quiet_optuna():
        process_of(found).work()
    return found


def run_one_trial(found: Search, objective: Callable[[Trial], float], process: str = "somebody") -> bool:
    """Run a trial of a study without a training, as a process of that name."""
    found.shared.process = process
    with quiet_optuna():
        return found.shared.run_next(objective, lambda trial: None)


def sampling_objective(found: Search) -> Callable[[Trial], float]:
    """Return an objective that draws a trial's values and scores it with 1."""

    def objective(trial: Trial) -> float:
        trial.set_user_attr("values", found.plan.space.suggest(trial, found.plan.base))
        return 1.0

    return objective


WAITING_MODULE = """
import time
from pathlib import Path

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv


class Waits(CartPoleEnv):
    '''Waits as long as there is a file `hold`, but for those of the small try before a study.'''

    made = 0

    def __init__(self):
        super().__init__()
        Waits.made += 1
        self.may_wait = Waits.made > 2

    def step(self, action):
        while self.may_wait and Path("hold").exists():
            time.sleep(0.02)
        return super().step(action)


gym.register("Waits-v0", Waits, max_episode_steps=50)
"""

WAITING = ("env=waits:Waits-v0", "env.check=false", "n_envs=2")
WAITING_NAME = "a2c/waits:Waits-v0/default"
WAITING_STUDY = Path("runs/tune/a2c/waits-Waits-v0/default")


def write_module(folder: Path, *, hold: bool) -> None:
    (folder / "waits.py").write_text(WAITING_MODULE)
    if hold:
        (folder / "hold").touch()


def kill_all(pid: int) -> None:
    """Kill a process and its children, in whatever threads it started them."""
    children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    for each in [*(int(child) for found in children for child in found), pid]:
        os.kill(each, signal.SIGKILL)


def wait_until(is_so: object, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if is_so():  # type: ignore[operator]
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to that")
