"""Processes that are forked from this one: they start at once, as all is imported already."""

from __future__ import annotations

import functools
import importlib
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

import zoo


@functools.cache
def import_all() -> None:
    """Import what a training needs, and let Hydra look for its plugins, once for all processes."""
    for module in ("commands.train", "experiment.experiment", "envs.env_checker"):
        importlib.import_module(f"zoo.{module}")
    zoo.compose("train", ["algo=ppo2", "env=CartPole-v1"])


class Forked:
    """Does some work in a session and a folder of its own; the process ends with the status it returns."""

    def __init__(self, work: Callable[[], int], folder: Path | str = ".", **variables: str) -> None:
        self.returncode: int | None = None
        self._streams = [os.memfd_create("output"), os.memfd_create("errors")]
        import_all()
        self.pid = os.fork()
        if self.pid == 0:
            self._do(work, folder, variables)

    def _do(self, work: Callable[[], int], folder: Path | str, variables: dict[str, str]) -> NoReturn:
        status = 1
        try:
            os.setsid()
            os.chdir(folder)
            os.environ.update(variables)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for stream, file in enumerate(self._streams, start=1):
                os.dup2(file, stream)
            sys.stdout, sys.stderr = (os.fdopen(stream, "w", 1, closefd=False) for stream in (1, 2))
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for seed in (random.seed, np.random.seed, torch.seed):  # as in a process that was started
                seed()
            status = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)

    def poll(self) -> int | None:
        """Return the exit status as `subprocess` gives it, None while the process goes on."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = 300.0) -> int:
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            assert time.monotonic() < deadline, "it hangs"
            time.sleep(0.005)
        return status

    def communicate(self, timeout: float = 300.0) -> tuple[str, str]:
        """Wait for the end; return what was printed, and what was told of errors."""
        self.wait(timeout)
        printed, errors = (os.pread(file, os.fstat(file).st_size, 0).decode() for file in self._streams)
        return printed, errors

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
