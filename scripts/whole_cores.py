"""How much of each core a machine gives when all of them compute: on a shared one that comes and goes.

Virtual cores may be two halves of one core for a while. Then products of matrices on two threads take as long
as on one, whatever a program does, and what was measured says more of the neighbours than of it.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from typing import Any

SECONDS = 0.1
"""How long the products of one look take."""

WHOLE = 0.85
"""The share from which on cores count as whole: clocks differ with how many are at work."""


class Cores:
    """Processes, one on each core, that multiply matrices when they are asked to, and wait otherwise."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.ends: list[Any] = []
        for core in sorted(os.sched_getaffinity(0)):
            own, other = context.Pipe()
            context.Process(target=_multiply, args=(other, core), daemon=True).start()
            self.ends.append(own)
        for end in self.ends:
            end.recv()

    def share(self) -> float:
        """Return how many products all cores finish at once, as a share of what each does alone."""
        alone = sum(self._finished([end]) for end in self.ends)
        return self._finished(self.ends) / alone

    def wait_until_whole(self, seconds: float) -> float:
        """Wait until the cores are whole, for so long at most; return the last share."""
        until = time.monotonic() + seconds
        share = self.share()
        while share < WHOLE and time.monotonic() < until:
            time.sleep(1.0)
            share = self.share()
        return share

    def _finished(self, ends: list[Any]) -> int:
        for end in ends:
            end.send(True)
        return sum(end.recv() for end in ends)


def _multiply(end: Connection, core: int) -> None:
    os.sched_setaffinity(0, [core])
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import numpy as np

    matrix = np.full((128, 128), 0.5, np.float32)
    end.send(True)
    while end.recv():
        n_products, until = 0, time.perf_counter() + SECONDS
        while time.perf_counter() < until:
            matrix @ matrix
            n_products += 1
        end.send(n_products)


if __name__ == "__main__":
    cores = Cores()
    for _ in range(12):
        print(f"{time.strftime('%T')}  {cores.share():.2f}", flush=True)
        time.sleep(1.0)
