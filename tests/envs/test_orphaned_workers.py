"""Worker processes whose parent was killed close their environments and end, also one that hangs."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = """
import os, subprocess, sys, time
import gymnasium as gym
import numpy as np
from zoo.envs import make_vec_env


class Slow(gym.Env):
    '''Owns a process, which ends when the environment is closed.'''

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        self.simulator = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {{}}

    def step(self, action):
        os.write(1, b"%d %d\\n" % (os.getpid(), self.simulator.pid))  # in one piece, as three write here
        {sleep}
        return np.zeros(1, np.float32), 0.0, False, False, {{}}

    def close(self):
        self.simulator.kill()
        self.simulator.wait()


if __name__ == "__main__":
    env = make_vec_env(Slow, 3, vectorization="workers", n_workers=3, start_method={method!r}, check=False)
    env.reset(seed=0)
    env.step(np.zeros(3, dtype=np.int64))
    print("all are idle", flush=True)
    time.sleep(1000)
"""

METHODS = ["fork", "forkserver", "spawn"]


@contextlib.contextmanager
def parent(path: Path, sleep: str, method: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process with three environments in workers; end whatever is left of them."""
    path.write_text(SCRIPT.format(sleep=sleep, method=method))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def read_processes(process: subprocess.Popen[str]) -> list[tuple[int, int]]:
    """Return a handle of each worker, and one of its environment's own process, once they are in a step."""
    assert process.stdout is not None
    lines = [process.stdout.readline().split() for _ in range(3)]
    return [(os.pidfd_open(int(worker)), os.pidfd_open(int(simulator))) for worker, simulator in lines]


def has_ended(handle: int, seconds: float = 10.0) -> bool:
    ended = bool(select.select([handle], [], [], seconds)[0])
    os.close(handle)
    return ended


def test_worker_whose_env_hangs_ends_when_the_parent_is_killed(tmp_path: Path) -> None:
    with contextlib.ExitStack() as all_at_once:  # each takes seconds
        processes = [
            all_at_once.enter_context(parent(tmp_path / f"{method}.py", "time.sleep(1000)", method))
            for method in METHODS
        ]
        workers = [[worker for worker, _ in read_processes(process)] for process in processes]
        for process in processes:
            process.kill()
        ended = [[has_ended(worker) for worker in own] for own in workers]
    assert dict(zip(METHODS, ended, strict=True)) == dict.fromkeys(METHODS, [True] * 3)


@pytest.mark.parametrize(
    ("sleep", "method"), [("pass", "fork"), ("pass", "spawn"), ("time.sleep(0.5)", "forkserver")]
)
def test_environments_are_closed_when_the_parent_is_killed(sleep: str, method: str, tmp_path: Path) -> None:
    with parent(tmp_path / "script.py", sleep, method) as process:
        handles = read_processes(process)
        if sleep == "pass":
            assert process.stdout is not None
            assert process.stdout.readline() == "all are idle\n"
        process.kill()
        for worker, simulator in handles:
            assert has_ended(simulator), "a process that an environment owns is left behind"
            assert has_ended(worker), "a worker goes on without its parent"
