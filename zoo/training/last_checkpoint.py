"""The last checkpoint of a run: to go on with after a signal, or, once it has finished, for more steps."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from zoo.algorithms.callback import PREEMPTED, Callback, Training
from zoo.training.checkpoint import CheckpointCallback
from zoo.training.checkpoint_files import keep_last, remove_files

KEPT_BYTES = 32 * 2**20
"""What that of a finished run may take if nobody asked for it to be kept."""


def kept_bytes(keep: bool | str) -> float:
    """Return what the checkpoint of a finished run may take, by the setting ``callbacks.checkpoint.keep``."""
    if keep == "auto":
        return KEPT_BYTES
    return math.inf if keep else 0


def leave_last(
    callbacks: Iterable[Callback], algorithm: Training, most_bytes: float, *, is_outdated: bool
) -> None:
    """Write a checkpoint of this moment, unless there is one, or it takes too much once the run has finished.

    There may be one of before an evaluation, which has made it ``is_outdated``.
    """
    for each in callbacks:
        if not isinstance(each, CheckpointCallback):
            continue
        is_there = each.written_at == algorithm.num_timesteps
        if algorithm.stop_reason == PREEMPTED:
            if not is_there:
                each.on_preemption(algorithm)
        elif most_bytes and (is_outdated or not is_there):
            each.leave_last(algorithm, most_bytes)


def drop(folder: Path, most_bytes: float) -> int:
    """Remove the checkpoints of a finished run, but for a last one that takes no more than ``most_bytes``.

    Return what was removed though it might have been kept: bytes.
    """
    if most_bytes == math.inf:
        return 0
    left = keep_last(folder) if most_bytes else 0
    if most_bytes and left <= most_bytes:
        return 0
    remove_files(folder)
    return left
