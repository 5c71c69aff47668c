"""The states of jobs in Slurm: in its queue, just ended, or in its accounting."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Sequence

WAITING = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
AT_WORK = (
    *("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT", "SIGNALING", "RESIZING"),
)

REASONS = {
    "CANCELLED": "it was cancelled",
    "OUT_OF_MEMORY": "it needed more memory than it had (hydra.launcher.mem_gb)",
    "TIMEOUT": "its time was up (hydra.launcher.timeout_min)",
    "NODE_FAIL": "its node failed",
    "PREEMPTED": "it had to make room, and was not put back into the queue",
    "FAILED": "it was killed before it was done (out of memory?)",
    "COMPLETED": "it ended before it was done",
}
"""What a job's last state in Slurm means if its own process wrote nothing down."""

TIMEOUT = 20
"""Seconds that Slurm has to answer."""


def job_states(jobs: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return each job's state, such as ``PENDING``, and why it waits; "" for one that Slurm has forgotten.

    ``jobs`` are elements of job arrays, such as ``12_3``. Nothing is returned where Slurm can't be asked.
    """
    ids = ",".join(sorted({job.partition("_")[0] for job in jobs}))
    squeue = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%r"]
    answer = _answer([*squeue, f"--jobs={ids}"]) if jobs else None
    if answer is None:
        return {}
    found = _parse(answer)
    if any(job not in found for job in jobs):
        sacct = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State"]
        found = {**_parse(_answer([*sacct, f"--jobs={ids}"]) or ""), **found}
    return {job: found.get(job, ("", "")) for job in jobs}


def _parse(answer: str) -> dict[str, tuple[str, str]]:
    rows = [line.strip().split("|") for line in answer.splitlines() if "|" in line]
    # sacct writes `CANCELLED by 1000`
    return {job: (state.split(" ")[0], why[0] if why else "") for job, state, *why in rows}


def _answer(command: Sequence[str]) -> str | None:
    """Return what a command of Slurm prints: nothing for jobs that it has forgotten, None if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode and "Invalid job id" not in done.stderr else done.stdout
