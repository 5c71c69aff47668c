"""An environment that can be held in the middle of a trial: its module, for the folder of a test."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

MODULE = """
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

SETTINGS = ("env=waits:Waits-v0", "env.check=false", "n_envs=2")
NAME = "a2c/waits:Waits-v0/default"
STUDY = Path("runs/tune/a2c/waits-Waits-v0/default")


def write_module(folder: Path, *, hold: bool) -> None:
    (folder / "waits.py").write_text(MODULE)
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
