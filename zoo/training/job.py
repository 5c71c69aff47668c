"""The job of a cluster in which a run takes place."""

from __future__ import annotations

import os


def slurm_job() -> str | None:
    """Return the Slurm job of this process, an index of an array by both its numbers, or None."""
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    if array is not None and index is not None:
        return f"{array}_{index}"
    return os.environ.get("SLURM_JOB_ID")


def is_requeued() -> bool:
    """Tell whether Slurm started this job before, and put it back into the queue."""
    return os.environ.get("SLURM_RESTART_COUNT", "0").strip() not in ("", "0")
