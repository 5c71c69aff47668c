"""The run of a job: the same command given again goes on with it, and never begins it beside itself."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.config.environment_values import as_written
from zoo.config.resuming import FREE_OF_CHECKPOINTS, SHOWN_ONLY
from zoo.errors import ZooError
from zoo.files.atomic import make_folder
from zoo.files.file_lock import is_locked
from zoo.training.run_folder import FINISHED, RunFolder, StillGoingError

Config = dict[str, Any]


def unfinished_run(
    root: str | os.PathLike[str], job: str, is_same: Callable[[Config], bool], *, is_only_one: bool = False
) -> tuple[RunFolder, Config] | None:
    """Take up the newest unfinished run of a job whose config is the same; return it, and that config.

    None if there is no such run. Runs that still go on in another process, a neighbour in the same job, are
    left alone, unless there is to be no other: then that is a `ZooError`.
    """
    for run, config in _unfinished_runs(root, job, is_same):
        try:
            return RunFolder.reopen(run.path), config
        except StillGoingError as error:
            if is_only_one:
                raise _still_going(job, run) from error
        except (ZooError, OSError):
            # Damaged, or somebody else's.
            continue
    return None


@contextlib.contextmanager
def begun_once(
    root: str | os.PathLike[str], job: str | None, is_same: Callable[[Config], bool]
) -> Iterator[None]:
    """Let one process at a time make a run's folder within the block; ``job`` is None for any number.

    Raises `ZooError` if another one has done so for this job with the same config, and goes on.
    """
    if job is None:
        yield
        return
    with _locked(Path(root)):
        for run, _ in _unfinished_runs(root, job, is_same):
            if is_locked(run.lock):
                raise _still_going(job, run)
        yield


def is_same_run(config: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether a run of another config would be that of this one; a seed that is drawn may be any."""
    free = (*SHOWN_ONLY, "seed") if config["seed"] is None else SHOWN_ONLY
    ours, theirs = (_without(_without_kept(each), free) for each in (as_written(config), other))
    return ours == theirs


def _unfinished_runs(
    root: str | os.PathLike[str], job: str, is_same: Callable[[Config], bool]
) -> Iterator[tuple[RunFolder, Config]]:
    """Give those of a job, newest first, with their configs."""
    folders = [config.parent for config in Path(root).glob("*/*/*/config.yaml")]
    for run in map(RunFolder, sorted(folders, key=lambda folder: folder.name, reverse=True)):
        try:
            record = run.read_record() if run.record.exists() else run.read_config()
            is_wanted = record.get("job") == job and record.get("status") != FINISHED
            config = run.read_config() if is_wanted else {}
            is_wanted = is_wanted and is_same(config)
        except (ZooError, OSError):
            # Damaged, or somebody else's.
            continue
        if is_wanted:
            yield run, config


def _still_going(job: str, run: RunFolder) -> ZooError:
    return ZooError(
        f"job {job} is still going on in {run.path}, with this config and seed; let it end, or give this run"
        " another job or seed"
    )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, made if it is missing; nothing where its file system has no such locks."""
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(OSError):
            make_folder(folder)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            closing.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _without(config: Mapping[str, Any], keys: Sequence[str]) -> Config:
    return {key: value for key, value in config.items() if key not in keys}


def _without_kept(config: Mapping[str, Any]) -> Config:
    """Return the config without what of checkpoints may differ when a run goes on."""
    if not isinstance(checkpoint := config["callbacks"].get("checkpoint"), Mapping):
        return dict(config)
    callbacks = {**config["callbacks"], "checkpoint": _without(checkpoint, FREE_OF_CHECKPOINTS)}
    return {**config, "callbacks": callbacks}
