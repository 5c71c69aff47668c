"""Resuming a run: one that is named, a job's own where the same command is given again, or for more steps.

A run that is given more steps goes on from its last checkpoint, and ends bit for bit as if it had been begun
with its config as it stands afterwards: with the new number of steps, the intervals that followed from the
old one, and what was decided by it.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.config.environment_values import as_written, resolved
from zoo.config.resume import FREE_OF_CHECKPOINTS, SHOWN_ONLY
from zoo.core.atomic import make_folder
from zoo.core.file_lock import FileLock, is_locked
from zoo.core.printing import one_line
from zoo.errors import ZooError
from zoo.experiment.run_folder import FINISHED, RunFolder, StillGoingError

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm

Config = dict[str, Any]

DECIDED = ("compile", "threads")
"""Settings that may be ``auto``: what is decided depends on the number of steps."""


def reopen_run(config: Config, job: str | None) -> tuple[RunFolder | None, Config]:
    """Reopen the run that ``resume`` names or that the ``job`` has begun; return it and its config.

    The run is None if a new one is to be made. Raises `ZooError`.
    """
    if config["resume"] is not None:
        before = RunFolder(config["resume"]).read_config().get("n_timesteps")
        is_longer = before not in (None, config["n_timesteps"])
        return RunFolder.reopen(config["resume"], for_more_steps=is_longer), config
    found = None if job is None else find_unfinished_run(config, job)
    if found is None:
        return None, config
    run, own_config = found[0], resolved(found[1])
    own_config |= {key: config[key] for key in SHOWN_ONLY if key in config}
    checkpoint = own_config["callbacks"].get("checkpoint")
    if checkpoint is not None:
        checkpoint |= {key: config["callbacks"]["checkpoint"][key] for key in FREE_OF_CHECKPOINTS}
    return run, own_config


# -- the run of a job -------------------------------------------------------------------------------------


def find_unfinished_run(config: Mapping[str, Any], job: str) -> tuple[RunFolder, Config] | None:
    """Take up the newest unfinished run of a job that has the same config; return it, and its own config.

    None if there is no such run. Runs that still go on in another process, a neighbour in the same job, are
    left alone; but where there is to be no other (a job that is named, with a seed), that is a `ZooError`.
    """
    for run, own_config in _unfinished_runs(config, job):
        try:
            return RunFolder.reopen(run.path), own_config
        except StillGoingError as error:
            if config["job"] is not None and config["seed"] is not None:
                raise _still_going(job, run) from error
        except (ZooError, OSError):  # damaged, or somebody else's
            continue
    return None


@contextlib.contextmanager
def one_start_per_job(config: Mapping[str, Any]) -> Iterator[None]:
    """Let one process at a time make the run's folder of a config that names a job and a seed.

    Raises `ZooError` if another process has done so for this job with the same config, and goes on.
    """
    root = Path(config["runs_dir"])
    make_folder(root)
    with FileLock(root / ".jobs.lock"):
        for run, _ in _unfinished_runs(config, config["job"]):
            if is_locked(run.lock):
                raise _still_going(config["job"], run)
        yield


def _unfinished_runs(config: Mapping[str, Any], job: str) -> Iterator[tuple[RunFolder, Config]]:
    """Give those of a job with the same config, newest first, with their own configs."""
    folders = [path.parent for path in Path(config["runs_dir"]).glob("*/*/*/config.yaml")]
    for run in map(RunFolder, sorted(folders, key=lambda folder: folder.name, reverse=True)):
        with contextlib.suppress(ZooError, OSError):  # damaged, or somebody else's
            record = run.read_record() if run.record.exists() else run.read_config()
            if record.get("job") == job and record.get("status") != FINISHED:
                own_config = run.read_config()
                if _is_same(config, own_config):
                    yield run, own_config


def _is_same(config: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a run of another config would be that of this one; a seed that is drawn may be any."""
    free = (*SHOWN_ONLY, "seed") if config["seed"] is None else SHOWN_ONLY
    ours, theirs = (_compared(each, free) for each in (as_written(config), other))
    return ours == theirs


def _compared(config: Mapping[str, Any], free: tuple[str, ...]) -> Config:
    kept = {key: value for key, value in config.items() if key not in free}
    checkpoint = kept["callbacks"].get("checkpoint")
    if isinstance(checkpoint, Mapping):
        fixed = {key: value for key, value in checkpoint.items() if key not in FREE_OF_CHECKPOINTS}
        kept["callbacks"] = {**kept["callbacks"], "checkpoint": fixed}
    return kept


def _still_going(job: str, run: RunFolder) -> ZooError:
    return ZooError(
        f"job {job} is still going on in {run.path}, with this config and seed; let it end, or give this run"
        " another job or seed"
    )


# -- more steps -------------------------------------------------------------------------------------------


def length_dependent_settings(algorithm: Algorithm, config: Mapping[str, Any]) -> list[str]:
    """Return the settings by which what a run computes depends on its number of steps."""
    dependent = algorithm.progress_dependent_settings()
    settings = [f"{name}={one_line(value)}" for name, value in dependent.items()]
    checkpoint = config["callbacks"].get("checkpoint")
    is_replayable = algorithm.envs is None or algorithm.envs.is_replayable
    if not is_replayable and isinstance(checkpoint, Mapping) and checkpoint.get("every") is None:
        settings.append("callbacks.checkpoint.every=null (its checkpoints reset the environments)")
    return settings


def extended_config(algorithm: Algorithm, run: RunFolder, config: Config, n_before: int | None) -> Config:
    """Return a run's config for more steps, in the intervals of the ``n_before`` steps that it had.

    Raises `ZooError` if what the run has computed so far would have been another with more steps.
    """
    from zoo.experiment.factories import with_intervals

    reasons = length_dependent_settings(algorithm, config)
    if not reasons:
        return {**with_intervals({**config, "n_timesteps": n_before}), "n_timesteps": config["n_timesteps"]}
    path = shlex.quote(str(run.path))
    follow = "follow" if len(reasons) > 1 else "follows"
    raise ZooError(
        f"the run in {run.path} would have begun otherwise with n_timesteps={config['n_timesteps']}:"
        f" {' and '.join(reasons)} {follow} the number of steps; to go on in a new run instead:"
        f" zoo train experiment={path}/config.yaml init_from={path} init_with=all n_timesteps=…"
    )


def write_extended_config(run: RunFolder, config: Mapping[str, Any], algorithm: Algorithm) -> Config:
    """Write the config of a run that has been brought back to its checkpoint, and return it.

    First the run is recorded as one that is to go on. Raises `ZooError` if it can't be written.
    """
    decided = {name: value for name in DECIDED if (value := getattr(algorithm.runtime, name)) != "auto"}
    longer = {**config, **decided}
    before = run.read_config()
    run.update_record(status="preempted")
    written = {key: value for key, value in as_written(longer).items() if key not in SHOWN_ONLY}
    run.write_config(written | {key: before[key] for key in SHOWN_ONLY if key in before})
    return longer
