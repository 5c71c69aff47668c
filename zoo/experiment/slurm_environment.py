"""The Slurm job in which a run takes place."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from zoo.errors import ZooError

FIRST_PORT, N_PORTS = 15_000, 16_000
"""Where workers of a job meet: below the ports that systems give away by themselves."""


@dataclass(frozen=True)
class Task:
    """One of the tasks that `srun` has started: which of how many, in all and on its node.

    The first one listens at ``address`` and ``port``. ``gpus_here`` are all that the step has on this node,
    where Slurm sets that.
    """

    rank: int
    size: int
    rank_here: int
    n_here: int
    address: str
    port: int
    gpus_here: int | None = None


def slurm_task() -> Task | None:
    """Return which task of a step of several this process is, or None. Raises `ZooError`."""
    asked = os.environ.get
    size = int(asked("SLURM_STEP_NUM_TASKS", "1"))
    if size < 2:
        return None
    try:
        number = int(os.environ["SLURM_JOB_ID"]) + 31 * int(asked("SLURM_STEP_ID", "0"))
        node, n_nodes = int(asked("SLURM_NODEID", "0")), int(asked("SLURM_STEP_NUM_NODES", "1"))
        address = "127.0.0.1" if n_nodes == 1 else first_host(os.environ["SLURM_STEP_NODELIST"])
        return Task(
            rank=int(os.environ["SLURM_PROCID"]),
            size=size,
            rank_here=int(os.environ["SLURM_LOCALID"]),
            n_here=tasks_on_nodes(os.environ["SLURM_STEP_TASKS_PER_NODE"])[node],
            address=asked("MASTER_ADDR") or address,
            port=int(asked("MASTER_PORT") or FIRST_PORT + number % N_PORTS),
            gpus_here=int(asked("SLURM_GPUS_ON_NODE") or 0) or None,
        )
    except (LookupError, ValueError) as error:
        raise ZooError(f"workers can't tell which task of Slurm they are: {error}") from error


def first_host(nodes: str) -> str:
    """Return the first of Slurm's list of nodes, such as ``gpu[03-05,07],login1``."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0] if first else nodes)


def tasks_on_nodes(counts: str) -> list[int]:
    """Return the number of tasks on each node, which Slurm writes as ``2(x3),1``."""
    found: list[int] = []
    for part in counts.split(","):
        count, _, times = part.partition("(x")
        found += [int(count)] * int(times.rstrip(")") or 1)
    return found


def slurm_job() -> str | None:
    """Return the Slurm job of this process, an index of an array by both its numbers, or None."""
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    if array is not None and index is not None:
        return f"{array}_{index}"
    return os.environ.get("SLURM_JOB_ID")


def is_requeued() -> bool:
    """Tell whether Slurm started this job before, and put it back into the queue."""
    return os.environ.get("SLURM_RESTART_COUNT", "0").strip() not in ("", "0")
