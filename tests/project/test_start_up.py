"""How long a user waits before anything happens, as multiples of what can't be avoided."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 3
ZOO = str(Path(sys.executable).with_name("zoo"))

ENDS_AT_FIRST_STEP = """
import os

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv


class EndsAtFirstStep(CartPoleEnv):
    def step(self, action):
        os._exit(77)


gym.register("EndsAtFirstStep-v0", EndsAtFirstStep, max_episode_steps=500)
"""


def seconds(command: list[str], folder: Path, *, status: int = 0) -> float:
    """Return the time that a command takes to end with ``status``."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    started = time.perf_counter()
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    duration = time.perf_counter() - started
    assert ended.returncode == status, f"status {ended.returncode}: {ended.stdout}\n{ended.stderr}"
    return duration


def medians(commands: dict[str, tuple[list[str], int]], folder: Path) -> dict[str, float]:
    """Return each command's median time over interleaved rounds, so that a busy machine slows all of them."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, (command, status) in commands.items():
            times[name].append(seconds(command, folder, status=status))
    return {name: statistics.median(measured) for name, measured in times.items()}


def test_help_is_there_at_once(tmp_path: Path) -> None:
    assert medians({"help": ([ZOO, "--help"], 0)}, tmp_path)["help"] < 0.5


def test_first_environment_step_comes_before_torch_could_be_imported_twice(tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text(ENDS_AT_FIRST_STEP)
    train = [ZOO, "train", "algo=ppo2", "env=ending:EndsAtFirstStep-v0", "env.check=false"]
    took = medians(
        {
            "import torch": ([sys.executable, "-c", "import torch"], 0),
            "first step": (train, 77),
        },
        tmp_path,
    )
    assert took["first step"] < 2 * took["import torch"], took
