"""Worker processes whose parent was killed end, also in the middle of an environment that hangs."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import ctypes, os, sys, time
import gymnasium as gym
import numpy as np
from zoo.envs import make_vec_env


class Hanging(gym.Env):
    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {{}}

    def step(self, action):
        os.write(1, b"%d\\n" % os.getpid())  # in one piece, as three write here
        while True:
            {sleep}(1000)


if __name__ == "__main__":
    env = make_vec_env(
        Hanging, 3, vectorization="workers", n_workers=3, start_method={method!r}, check=False
    )
    env.reset(seed=0)
    env.step(np.zeros(3, dtype=np.int64))
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("sleep", ["time.sleep", "ctypes.PyDLL(None).sleep"], ids=["in Python", "in C"])
def test_worker_whose_env_hangs_ends_when_the_parent_is_killed(
    sleep: str, method: str, tmp_path: Path
) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(sleep=sleep, method=method))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )
    assert process.stdout is not None
    try:
        hanging = [os.pidfd_open(int(process.stdout.readline())) for _ in range(3)]
        process.kill()
        for worker in hanging:
            assert select.select([worker], [], [], 10)[0], "a worker goes on without its parent"
            os.close(worker)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
