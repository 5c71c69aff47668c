"""Resuming a run: one that is named, or a job's own where the same command is given again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.config.environment_values import as_written, resolved
from zoo.config.resume import SHOWN_ONLY
from zoo.errors import ZooError
from zoo.experiment.run_folder import FINISHED, RunFolder, StillGoingError
from zoo.experiment.signals import slurm_job

Config = dict[str, Any]


def reopen_run(config: Config) -> tuple[RunFolder | None, Config]:
    """Reopen the run that ``resume`` names, or that this job has begun; return it and its config.

    The run is None if a new one is to be made. One that still goes on in another process, a neighbour in the
    same job, is left alone; but where there is to be no other (a job that is named, with a seed), that is a
    `ZooError`, as is a run that can't be reopened.
    """
    if config["resume"] is not None:
        return RunFolder.reopen(config["resume"]), config
    is_requeued = os.environ.get("SLURM_RESTART_COUNT", "0").strip() not in ("", "0")
    job = config["job"] or (slurm_job() if is_requeued else None)
    for run, own_config in _unfinished_runs(config, job) if job is not None else ():
        try:
            run = RunFolder.reopen(run.path)
        except StillGoingError:
            if config["job"] is not None and config["seed"] is not None:
                raise
            continue
        shown = {key: config[key] for key in SHOWN_ONLY if key in config}
        return run, resolved(own_config) | shown
    return None, config


def _unfinished_runs(config: Mapping[str, Any], job: str) -> Iterator[tuple[RunFolder, Config]]:
    """Give those of a job with the same config, newest first, with their own configs."""
    folders = [path.parent for path in Path(config["runs_dir"]).glob("*/*/*/config.yaml")]
    for run in map(RunFolder, sorted(folders, key=lambda folder: folder.name, reverse=True)):
        with contextlib.suppress(ZooError):  # damaged, or somebody else's
            own_config = run.read_config()
            record = run.read_record() if run.record.exists() else own_config
            is_unfinished = record.get("job") == job and record.get("status") != FINISHED
            if is_unfinished and _compared(own_config, config) == _compared(as_written(config), config):
                yield run, own_config


def _compared(values: Mapping[str, Any], config: Mapping[str, Any]) -> Config:
    """Return what has to be equal in two configs of one run; a seed that is drawn may be any."""
    free = (*SHOWN_ONLY, "seed") if config["seed"] is None else SHOWN_ONLY
    return {key: value for key, value in values.items() if key not in free}
