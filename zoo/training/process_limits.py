"""How many processes a run may start: what the machine can hold, and fewer for a stranger's run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.agents.foreign_sizes import ENVS_LIMIT
from zoo.agents.own_runs import is_own_run
from zoo.errors import ZooError
from zoo.files.free_memory import GIB, SHARE, free_bytes
from zoo.files.printing import one_line
from zoo.training.job import slurm_task
from zoo.training.machine import usable_cores

WORKERS_A_CORE = 8
"""More workers than that only wait for each other."""

WORKER_BYTES = 2**28
"""What a worker takes before it has done anything."""

PROCESSES_A_CORE = 4
"""What a run that is not one's own may start."""


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


def refuse_many_of_others(run: Path, config: Mapping[str, Any], remedy: str) -> None:
    """Raise `ZooError` if a run that is not this user's own would start many processes by its config."""
    problem = _many(config)
    if problem is not None and not is_own_run(run):
        raise ZooError(
            f"the run in {one_line(run)} asks for {problem}, refused because it is not a run of your own,"
            f" started in this folder; {remedy}"
        )


def _many(config: Mapping[str, Any]) -> str | None:
    """Return what of a config makes more processes or environments than a stranger's run may."""
    cores, env = usable_cores(), config["env"]
    n_workers = config.get("workers", 1) if slurm_task() is None else 1  # a job has started its tasks itself
    evaluation = config["callbacks"].get("eval") or {}
    n_envs = max(config["n_envs"], evaluation.get("n_envs", 1))
    if n_workers * n_envs > ENVS_LIMIT:
        return f"{n_workers * n_envs:,} environments, more than {ENVS_LIMIT:,}"
    each = 1
    if env.get("vectorization") == "workers":
        each += min(n_envs, env.get("n_workers") or cores)
    most = PROCESSES_A_CORE * cores
    if n_workers * each > most:
        return f"{n_workers * each:,} processes (workers, env.n_workers), more than {most}"
    return None
