"""What Slurm says of jobs: those in its queue, those that just left it, and those in its books."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WAITING = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
AT_WORK = (
    "RUNNING",
    "CONFIGURING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "STAGE_OUT",
    "SIGNALING",
    "RESIZING",
)

REASONS = {
    "CANCELLED": "it was cancelled",
    "OUT_OF_MEMORY": "it needed more memory than it had (hydra.launcher.mem_gb)",
    "TIMEOUT": "its time was up (hydra.launcher.timeout_min)",
    "DEADLINE": "its deadline passed",
    "NODE_FAIL": "its node failed",
    "BOOT_FAIL": "its node did not start",
    "PREEMPTED": "it had to make room, and was not put back into the queue",
    "FAILED": "it was killed before it was done (out of memory?)",
    "COMPLETED": "it ended before it was done",
}
"""What a job's last state in Slurm means where its own process wrote nothing down."""

SECONDS_TO_ANSWER = 20


@dataclass(frozen=True)
class Standing:
    """How a job stands with Slurm: a state such as ``PENDING``, and why it waits."""

    state: str
    why: str = ""

    @property
    def is_waiting(self) -> bool:
        """Whether it will be started."""
        return self.state in WAITING

    @property
    def is_at_work(self) -> bool:
        """Whether its processes may be there."""
        return self.state in AT_WORK


GONE = Standing("GONE")


def standings(jobs: Iterable[str]) -> dict[str, Standing] | None:
    """Return how each of these jobs, such as ``12_3``, stands; None if Slurm can't be asked from here."""
    wanted = list(jobs)
    ids = ",".join(sorted({job.partition("_")[0] for job in wanted}))
    asked = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%r", f"--jobs={ids}"]
    answer = _answer(asked)
    if answer is None:
        return None
    found = _read(answer)
    if any(job not in found for job in wanted):
        books = [
            "sacct",
            "--noheader",
            "--parsable2",
            "--allocations",
            "--format=JobID,State",
            f"--jobs={ids}",
        ]
        found = {**_read(_answer(books) or ""), **found}
    return {job: found.get(job, GONE) for job in wanted}


def _read(answer: str) -> dict[str, Standing]:
    rows = [line.strip().split("|") for line in answer.splitlines() if "|" in line]
    # `CANCELLED by 1000` in the books
    return {job: Standing(state.split(" ")[0], *why[:1]) for job, state, *why in rows}


def _answer(command: Sequence[str]) -> str | None:
    """Return what a command of Slurm prints; nothing for jobs that it has forgotten, None if it fails."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SECONDS_TO_ANSWER,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode and "Invalid job id" not in done.stderr:
        return None
    return done.stdout
