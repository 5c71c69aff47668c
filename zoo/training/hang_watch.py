"""Ending a run whose environment hangs, once a signal has asked for its end: it would never come to it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType

from zoo.envs.adapter import EnvStepper

PATIENCE = 10.0
"""Seconds that one step or reset of the environments may take then."""

_IN_ENVIRONMENTS = (EnvStepper.step.__code__, EnvStepper.reset.__code__)


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
