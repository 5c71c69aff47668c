"""Ending a run cleanly when the user or the cluster asks for it, and the Slurm job that it belongs to."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from zoo.algorithms.callback import PREEMPTED, Training
from zoo.envs.subproc_vec_env import SubprocVecEnv
from zoo.launch.processes import handling_signals


@contextlib.contextmanager
def stop_on_signals(
    algorithm: Training, *, leads: bool = True, forward: Callable[[int], None] | None = None
) -> Iterator[None]:
    """Let SIGINT (Ctrl-C) and SIGTERM within the block end learning: ``stop_reason`` is then PREEMPTED.

    So do, in a Slurm job, SIGUSR1 and SIGUSR2, by which `sbatch --signal` announces the end of the time. A
    second Ctrl-C raises `KeyboardInterrupt` at once. Environments in workers that hang are given up soon.
    Rank 0 ``leads``: it prints a message, and hands the first signal on by ``forward``. The other ranks leave
    Ctrl-C, which reaches all of them, to it. Outside the main thread nothing changes.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and algorithm.stop_reason == PREEMPTED:
            raise KeyboardInterrupt
        if algorithm.stop_reason == PREEMPTED or (number == signal.SIGINT and not leads):
            return
        algorithm.request_stop(PREEMPTED)
        SubprocVecEnv.stop_requested = True
        if not leads:
            return
        if forward is not None:
            forward(number)
        is_compiling = algorithm.runtime.compile_clock.is_running
        until = "this update, once it is compiled" if is_compiling else "this update"
        again = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
        # Unlike print, this is safe wherever the signal interrupted the program.
        with contextlib.suppress(OSError):
            os.write(2, f"\nzoo: {signal.Signals(number).name}: ending after {until}{again}\n".encode())

    announced = () if slurm_job() is None else (signal.SIGUSR1, signal.SIGUSR2)
    try:
        with handling_signals(stop, signal.SIGINT, signal.SIGTERM, *announced):
            yield
    finally:
        SubprocVecEnv.stop_requested = False


def slurm_job() -> str | None:
    """Return the Slurm job of this process, an index of an array by both its numbers, or None."""
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    if array is not None and index is not None:
        return f"{array}_{index}"
    return os.environ.get("SLURM_JOB_ID")
