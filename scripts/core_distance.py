"""How long a message takes from one core to another and back: on a shared machine that changes with time.

Two virtual cores are at times neighbours with a cache between them, and at times far apart. Threads that hand
each other small results then wait longer for these, in every program.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from contextlib import closing
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

N_MESSAGES = 2_000
"""Messages of one look at the distance, which takes a millisecond."""

MOST_LOOKS = 50_000_000
"""Looks for one message, a second or more, before the other side is taken for dead."""


class CoreDistance:
    """A process on another core that answers messages while it is asked to, and waits otherwise.

    The cores are the first and the last that this process may use.
    """

    def __init__(self) -> None:
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
        self._core, self._is_alone = cores[0], len(cores) < 2
        if self._is_alone:  # or on a system that tells nobody where a process may run
            return
        self._memory = SharedMemory(create=True, size=128)  # the two bytes in use share no line of a cache
        context = multiprocessing.get_context("spawn")
        self._end, other = context.Pipe()
        context.Process(target=_answer, args=(other, self._memory.name, cores[-1]), daemon=True).start()
        other.close()  # so that its end is seen
        self._end.recv()

    def nanoseconds(self) -> float:
        """Return what a message there and back takes, with the interpreter's part in it; 0 on one core.

        Raises `OSError` or `EOFError` if the other process has ended.
        """
        if self._is_alone:
            return 0.0
        allowed, shared = os.sched_getaffinity(0), self._memory.buf
        assert shared is not None
        os.sched_setaffinity(0, [self._core])
        try:
            self._end.send(True)
            self._end.recv()
            started = time.perf_counter()
            for number in range(N_MESSAGES):
                shared[0] = number & 127
                _wait_for(shared, 64, number & 127)
            seconds = time.perf_counter() - started
            self._end.recv()
        finally:
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
        if not self._is_alone:
            self._end.close()
            self._memory.close()
            self._memory.unlink()


def _wait_for(shared: Any, place: int, value: int) -> None:
    for _ in range(MOST_LOOKS):
        if shared[place] == value:
            return
    raise BrokenPipeError("the process on the other core does not answer")


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
                _wait_for(shared, 0, number & 127)
                shared[64] = number & 127
            end.send(True)
    except (EOFError, OSError):
        del shared
        memory.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--looks", type=int, default=20, help="how often to look, once a second")
    n_looks = parser.parse_args().looks
    with closing(CoreDistance()) as distance:
        for look in range(n_looks):
            time.sleep(1.0 if look else 0.0)
            print(f"{time.strftime('%T')}  {distance.nanoseconds():.0f} ns", flush=True)


if __name__ == "__main__":
    main()
