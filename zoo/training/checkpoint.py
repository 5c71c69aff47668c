"""Checkpoints: all that the rest of a run depends on, from which it goes on exactly.

``checkpoint/checkpoint.json`` holds the plain values and names the safetensors file beside it that holds the
arrays. It is replaced last, in one step, and only then is the file of the previous checkpoint removed: at any
moment there is one whole checkpoint, or none has been written yet.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.algorithms.callback import Callback
from zoo.errors import ZooError
from zoo.files import atomic
from zoo.files.tensors import Arrays, read_tensors, write_tensors
from zoo.training.problems import told
from zoo.training.run_folder import CHECKPOINT_VALUES
from zoo.training.signals import PREEMPTED

if TYPE_CHECKING:
    from zoo.algorithms.base import Algorithm

FORMAT = 1


class CheckpointCallback(Callback):
    """Writes a checkpoint to ``folder`` every ``every`` environment steps, at a barrier.

    ``callbacks`` are the others of the run, whose state is part of the checkpoint. A checkpoint that can't be
    written is told in one line; the run goes on, and the previous checkpoint stays.
    """

    barrier = True

    def __init__(self, folder: str | Path, every: int, callbacks: Sequence[Callback] = ()) -> None:
        self.folder = Path(folder)
        self.every = every
        self.callbacks = callbacks

    def on_steps(self, algorithm: Algorithm[Any]) -> None:
        """Write a checkpoint, unless a signal came: the other callbacks may have left out what was due."""
        if algorithm.stop_reason == PREEMPTED:
            return
        with told("the run goes on, and the previous checkpoint, if any, stays"):
            write_checkpoint(self.folder, algorithm, self.callbacks)


@dataclass
class Checkpoint:
    """What a checkpoint holds; the arrays are views of its file."""

    timesteps: int
    arrays: Arrays
    algorithm: dict[str, Any]
    callbacks: dict[str, dict[str, Any]]
    monitor: list[int] | None


def write_checkpoint(folder: Path, algorithm: Algorithm[Any], callbacks: Iterable[Callback] = ()) -> None:
    """Write the state of an algorithm at a barrier, and of its callbacks. Raises `ZooError` if it can't."""
    arrays, values = algorithm.checkpoint()
    monitor = algorithm.envs.monitor if algorithm.envs is not None else None
    tensors = f"{algorithm.num_timesteps}-{secrets.token_hex(4)}.safetensors"
    record = {
        "format": FORMAT,
        "timesteps": algorithm.num_timesteps,
        "tensors": tensors,
        "algorithm": values,
        "callbacks": {name: state for name, each in _named(callbacks) if (state := each.state())},
        "monitor": None if monitor is None else monitor.offsets(),
    }
    _remove_leftovers(folder)
    try:
        write_tensors(folder / tensors, arrays)
        atomic.write_json(folder / CHECKPOINT_VALUES, record)
    finally:
        _remove_leftovers(folder)


def read_checkpoint(folder: str | Path) -> Checkpoint:
    """Return the checkpoint in ``folder``. Raises `ZooError` if there is none or it is damaged."""
    path = Path(folder) / CHECKPOINT_VALUES
    record = _read_values(path)
    if record is None:
        raise ZooError(f"there is no checkpoint in {folder}")
    try:
        if record["format"] > FORMAT:
            raise ZooError(
                f"{path} has format {record['format']}, but this Zoo reads up to {FORMAT}; update Zoo"
            )
        return Checkpoint(
            timesteps=record["timesteps"],
            arrays=read_tensors(path.with_name(record["tensors"])),
            algorithm=record["algorithm"],
            callbacks=record["callbacks"],
            monitor=record["monitor"],
        )
    except (KeyError, TypeError) as error:
        raise ZooError(f"{path} is damaged: {error}") from error


def restore(checkpoint: Checkpoint, algorithm: Algorithm[Any], callbacks: Iterable[Callback] = ()) -> None:
    """Bring algorithm, callbacks and their files back to where they were at the checkpoint.

    Then ``algorithm.learn(algorithm.total_timesteps - algorithm.num_timesteps, callbacks,
    reset_num_timesteps=False)`` goes on as if nothing had happened. Raises `ZooError` if the checkpoint is
    not one of this algorithm and these callbacks.
    """
    algorithm.restore(checkpoint.arrays, checkpoint.algorithm)
    there = dict(_named(callbacks))
    missing = [name for name in checkpoint.callbacks if name not in there]
    if missing:
        raise ZooError(
            f"the checkpoint holds the state of {', '.join(missing)}, which this run does not have"
        )
    for name, state in checkpoint.callbacks.items():
        there[name].load_state(state)
    if checkpoint.monitor is not None and algorithm.envs is not None and algorithm.envs.monitor is not None:
        algorithm.envs.monitor.truncate(checkpoint.monitor)


def _named(callbacks: Iterable[Callback]) -> Iterable[tuple[str, Callback]]:
    """Give each callback a name: that of its class, and a number if it is not the first of its class."""
    counts: dict[str, int] = {}
    for each in callbacks:
        name = type(each).__name__
        counts[name] = counts.get(name, 0) + 1
        yield (name if counts[name] == 1 else f"{name}-{counts[name]}"), each


def _read_values(path: Path) -> dict[str, Any] | None:
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ZooError(f"{path} is damaged: {error}") from error
    if not isinstance(values, dict):
        raise ZooError(f"{path} is damaged: it holds no mapping")
    return values


def _remove_leftovers(folder: Path) -> None:
    """Remove what no checkpoint refers to: the previous one's arrays, and what a killed process began."""
    if not folder.is_dir():
        return
    try:
        values = _read_values(folder / CHECKPOINT_VALUES) or {}
    except ZooError:
        # What can't be read now may be read later.
        return
    for path in folder.iterdir():
        if path.is_file() and path.name not in (CHECKPOINT_VALUES, values.get("tensors")):
            path.unlink(missing_ok=True)
