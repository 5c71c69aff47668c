"""Ending a run cleanly when the user or the cluster asks for it, also where its environment hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from zoo.algorithms.callback import PREEMPTED, Training
from zoo.envs.adapter import VecEnvAdapter
from zoo.experiment.slurm_environment import slurm_job


@contextlib.contextmanager
def stop_on_signals(
    algorithm: Training,
    *,
    leads: bool = True,
    forward: Callable[[int], None] | None = None,
) -> Iterator[None]:
    """Let SIGINT (Ctrl-C) and SIGTERM within the block end learning: ``stop_reason`` is then PREEMPTED.

    So do, in a Slurm job, SIGUSR1 and SIGUSR2, by which `sbatch --signal` announces the end of the time. A
    second Ctrl-C raises `KeyboardInterrupt` at once, and so does an environment that does not come back.
    Outside the main thread, where Python delivers no signals, nothing changes.

    Of several workers the first one ``leads``: it prints a message, and hands the first signal on by
    ``forward``. The others leave Ctrl-C, which reaches all of them, to it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and algorithm.stop_reason == PREEMPTED:
            raise KeyboardInterrupt
        if algorithm.stop_reason == PREEMPTED or (number == signal.SIGINT and not leads):
            return
        algorithm.request_stop(PREEMPTED)
        watch.start()
        if not leads:
            return
        if forward is not None:
            forward(number)
        is_compiling = algorithm.runtime.compile_clock.is_running
        what = "this update, once it is compiled" if is_compiling else "this update"
        again = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
        # Unlike print, this is safe wherever the signal interrupted the program.
        with contextlib.suppress(OSError):
            os.write(2, f"\nzoo: {signal.Signals(number).name}: ending after {what}{again}\n".encode())

    watch = HangWatch()
    announced = () if slurm_job() is None else (signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, *announced)}
    try:
        yield
    finally:
        watch.end()
        for number, handler in before.items():
            signal.signal(number, handler)


PATIENCE = 10.0
"""Seconds that one step or reset of the environments may take then."""

_IN_ENVIRONMENTS = (VecEnvAdapter.step.__code__, VecEnvAdapter.reset.__code__)


class HangWatch:
    """Interrupts the main thread, as Ctrl-C does, if it does not come back from the environments."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="zoo hang watch", daemon=True)

    def start(self) -> None:
        """Watch from now on, if not already."""
        if self._thread.ident is None:
            self._thread.start()

    def end(self) -> None:
        """Watch no more."""
        self._is_over.set()

    def _watch(self) -> None:
        call, since = _call_of_environments(), time.monotonic()
        while not self._is_over.wait(PATIENCE / 20):
            now = _call_of_environments()
            if now is None or now is not call:
                call, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                text = f"the environment has not come back for {PATIENCE:g} s: ending without this update"
                with contextlib.suppress(OSError):
                    os.write(2, f"zoo: {text}; the last checkpoint stays\n".encode())
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                since = time.monotonic()


def _call_of_environments() -> FrameType | None:
    """Return the call of a step or a reset that the main thread is in; two calls are two frames."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code not in _IN_ENVIRONMENTS:
        frame = frame.f_back
    return frame
