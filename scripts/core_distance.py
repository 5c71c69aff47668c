"""How long a message takes from one core to another and back: on a shared machine that changes with time.

Two virtual cores are at times neighbours with a cache between them, and at times far apart. Threads that hand
each other small results then wait longer for these, in every program.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import closing
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

N_MESSAGES = 2_000
"""Messages of one look at the distance, which takes a millisecond."""


class CoreDistance:
    """A process on another core that answers messages while it is asked to, and waits otherwise."""

    def __init__(self) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self._core, self._is_alone = cores[0], len(cores) < 2
        self._memory = SharedMemory(create=True, size=128)  # the two bytes in use share no line of a cache
        context = multiprocessing.get_context("spawn")
        self._end, other = context.Pipe()
        context.Process(target=_answer, args=(other, self._memory.name, cores[-1]), daemon=True).start()
        self._end.recv()

    def nanoseconds(self) -> float:
        """Return what a message there and back takes, with the interpreter's part in it; 0 on one core."""
        if self._is_alone:
            return 0.0
        allowed, shared = os.sched_getaffinity(0), self._memory.buf
        assert shared is not None
        os.sched_setaffinity(0, [self._core])
        self._end.send(True)
        self._end.recv()
        started = time.perf_counter()
        for number in range(N_MESSAGES):
            sent = shared[0] = number & 127
            while shared[64] != sent:
                pass
        seconds = time.perf_counter() - started
        self._end.recv()
        os.sched_setaffinity(0, allowed)
        return seconds / N_MESSAGES * 1e9

    def wait_until_near(self, nanoseconds: float, seconds: float = 600.0) -> float:
        """Wait until the cores are that near, for so long at most; return how far they are then."""
        until = time.monotonic() + seconds
        while (found := self.nanoseconds()) > nanoseconds and time.monotonic() < until:
            time.sleep(0.5)
        return found

    def close(self) -> None:
        """End the other process and give the memory back."""
        self._end.close()
        self._memory.close()
        self._memory.unlink()


def _answer(end: Connection, name: str, core: int) -> None:
    os.sched_setaffinity(0, [core])
    memory: Any = SharedMemory(name=name)
    shared = memory.buf
    end.send(True)
    try:
        while end.recv():
            shared[0] = shared[64] = 255
            end.send(True)
            for number in range(N_MESSAGES):
                expected = number & 127
                while shared[0] != expected:
                    pass
                shared[64] = expected
            end.send(True)
    except EOFError:
        del shared
        memory.close()


if __name__ == "__main__":
    with closing(CoreDistance()) as distance:
        for _ in range(20):
            print(f"{time.strftime('%T')}  {distance.nanoseconds():.0f} ns", flush=True)
            time.sleep(1.0)
