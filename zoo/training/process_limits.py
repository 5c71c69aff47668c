"""How many processes a run may start: what the machine can hold."""

from __future__ import annotations

from zoo.errors import ZooError
from zoo.files.free_memory import GIB, SHARE, free_bytes, usable_cores

WORKERS_A_CORE = 8
"""More workers than that only wait for each other."""

WORKER_BYTES = 2**28
"""What a worker takes before it has done anything."""


def refuse_too_many_workers(n_workers: int) -> None:
    """Raise `ZooError` for more workers than this machine can hold, before any is started."""
    cores, free = usable_cores(), free_bytes()
    most = WORKERS_A_CORE * cores
    if n_workers > most:
        raise ZooError(
            f"workers={n_workers} are too many for {cores} core{'s' if cores > 1 else ''}: at most"
            f" {WORKERS_A_CORE} for each, workers={most}"
        )
    needed = (n_workers - 1) * WORKER_BYTES
    if free is not None and needed > SHARE * free:
        raise ZooError(
            f"workers={n_workers} need {needed / GIB:.1f} GiB of memory to start, but {free / GIB:.1f} GiB"
            f" are free; workers={1 + int(SHARE * free / WORKER_BYTES)} fit"
        )
