"""The folder of one run: its paths, its record ``run.json`` and its lock; and finding one to go on with."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.agents.card import versions
from zoo.agents.find import KEPT, kept_agents
from zoo.algorithms.callback import PREEMPTED
from zoo.config.environment_values import as_written, resolved
from zoo.config.resume import SHOWN_ONLY
from zoo.config.schema import preset_or_name
from zoo.config.user_files import shown
from zoo.core import atomic
from zoo.core.file_lock import FileLock
from zoo.core.free_memory import usable_cores
from zoo.core.plain_data import parse_json, parse_own_yaml, to_yaml, value_at, with_finite_numbers
from zoo.core.printing import one_line
from zoo.envs.registry import folder_name
from zoo.errors import ZooError
from zoo.experiment.checkpoint import RECORD, checkpoint_step
from zoo.experiment.signals import slurm_job
from zoo.launch.job_runs import JobRuns

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm

FINISHED = "finished"  # the status of a run that ended by itself


class StillGoingError(ZooError):
    """A run that another process trains."""


class FinishedJobError(ZooError):
    """The run of a job that Slurm started again is finished: nothing is left to do."""


class RunFolder:
    """The paths in a run's folder, and its record ``run.json``.

    ``status`` there is ``running``, ``finished``, ``failed`` or ``preempted``. One that was killed says
    ``running`` for ever: a lock, which dies with its process, shows whether it still does.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.record = self.path / "run.json"
        self.monitor = self.path / "monitor"
        self.progress = self.path / "progress.csv"
        self.tensorboard = self.path / "tb"
        self.evaluations = self.path / "evaluations.npz"
        self.agent = self.path / "agent"
        self.best_agent = self.path / "best_agent"
        self.kept_agents = self.path / KEPT
        self.checkpoint = self.path / "checkpoint"
        self.pretraining_curves = self.path / "pretrain.csv"
        self.videos = self.path / "videos"
        self.status: str | None = None  # what this process has last written into the record
        self._lock = FileLock(self.path / ".lock")

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"<RunFolder {self.path}>"

    @classmethod
    def create(cls, root: str | os.PathLike[str], algo: str, env: str, seed: int) -> RunFolder:
        """Make ``root/algo/env/<timestamp>_s<seed>``, another one than every other process makes."""
        parent = Path(root) / algo / folder_name(env)
        name = f"{datetime.datetime.now():%Y%m%d-%H%M%S}_s{seed}"
        try:
            parent.mkdir(parents=True, exist_ok=True)
            for attempt in itertools.count(1):
                run = cls(parent / (name if attempt == 1 else f"{name}_{attempt}"))
                with contextlib.suppress(FileExistsError):
                    run.path.mkdir()
                    break
            run._lock.acquire(wait=False)
        except OSError as error:
            raise ZooError(f"can't make a run's folder in {parent}: {error.strerror or error}") from error
        return run

    @classmethod
    def reopen(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Reopen an interrupted run, anew if it has no checkpoint. Raises `ZooError` if it can't go on."""
        run = cls(path)
        # A run that was killed before its first record has a config, and nothing else to go on from.
        if run.record.exists() and run.read_record().get("status") == FINISHED:
            how = f"to train its agent further: {run.continuation()}"
            raise ZooError(f"the run in {run.path} is finished; {how}")
        # A record lock: other ranks don't inherit it, so one that outlives rank 0 holds nothing.
        if not run._lock.acquire(wait=False):
            raise StillGoingError(f"the run in {run.path} is still going on in another process")
        for folder in (run.path, run.kept_agents):
            atomic.recover(folder)
        later = [run.monitor, run.tensorboard, run.kept_agents, run.progress, run.evaluations]
        if run.has_checkpoint:
            step = checkpoint_step(run.checkpoint)
            later = [agent for steps, agent in kept_agents(run.path).items() if steps > step]
        for stale in later:
            atomic.remove(stale)
        return run

    @property
    def has_checkpoint(self) -> bool:
        """Whether the run has reached its first checkpoint."""
        return (self.checkpoint / RECORD).is_file()

    def continuation(self) -> str:
        """Return the command of a new run that trains this one's last agent further, with its settings."""
        config, path, steps = self.read_config(), shown(self.path), self.read_record().get("timesteps")
        parts = [f"experiment={path}/config.yaml", f"init_from={path}"]
        if value_at(config, "pretrain.dataset") is not None:  # the clone would replace the weights
            parts.append("pretrain.dataset=null")
        if self.has_checkpoint and checkpoint_step(self.checkpoint) == steps:
            parts.append("init_with=all")
        elif config.get("init_with", "weights") != "weights":
            parts.append("init_with=weights")
        return shlex.join(["zoo", "train", *parts])

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write the whole resolved config."""
        atomic.write_text(self.config, to_yaml(config))

    def read_config(self) -> dict[str, Any]:
        """Read the run's config. Raises `ZooError` if it is missing or damaged."""
        return _read(self.config, parse_own_yaml)

    def read_record(self) -> dict[str, Any]:
        """Return ``run.json``. Raises `ZooError` if it is missing or damaged."""
        return _read(self.record, parse_json)

    def update_record(self, **values: Any) -> None:
        """Write these values into ``run.json`` beside those that stand there."""
        earlier = self.read_record() if self.record.exists() else {}
        atomic.write_json(self.record, with_finite_numbers(earlier | values))
        self.status = values.get("status", self.status)

    def close(self) -> None:
        """Let other processes take up the run."""
        self._lock.release()

    def start(self, *, seed: int, job: str | None = None) -> None:
        """Record that the run is going on: who, where, with what; and the ``job`` that it belongs to."""
        earlier = self.read_record() if self.record.exists() else {}
        now = _now()
        self.update_record(
            status="running",
            command=shlex.join(sys.argv),
            seed=seed,
            job=job or earlier.get("job"),
            host=platform.node(),
            started=earlier.get("started", now),
            ended=None,
            **({"resumed": [*earlier.get("resumed", []), now]} if earlier else {}),
            **git_state(),
            versions=versions(),
            machine=machine(),
        )

    @contextlib.contextmanager
    def tracked(self, algorithm: Algorithm, *, job: str | None = None) -> Iterator[None]:
        """Record the run's start and its end: failed if the block raises, else preempted or not."""
        first_step, started = algorithm.num_timesteps, _clock(algorithm)

        def end(status: str, **more: Any) -> None:
            seconds = max(_clock(algorithm) - started, 1e-9)
            self.update_record(
                status=status,
                **more,
                ended=_now(),
                timesteps=algorithm.num_timesteps,
                steps_per_second=round((algorithm.num_timesteps - first_step) / seconds, 1),
                stop_reason=algorithm.stop_reason,
            )

        try:
            self.start(seed=algorithm.seed, job=job)
            yield
            end("preempted" if algorithm.stop_reason == PREEMPTED else FINISHED)
        except KeyboardInterrupt:
            with contextlib.suppress(ZooError):
                end("preempted")
            raise
        except BaseException as error:
            with contextlib.suppress(ZooError):
                end("failed", error=f"{type(error).__name__}: {error}")
            raise


def reopen_run(config: dict[str, Any]) -> tuple[RunFolder | None, dict[str, Any]]:
    """Reopen the run that ``resume`` names, or that this job has begun; return it and its config.

    The run is None if a new one is to be made. One that still goes on in another process is left alone; where
    there is to be no other (a job that is named, with a seed), that is a `ZooError`.
    """
    if config["resume"] is not None:
        return RunFolder.reopen(config["resume"]), config
    is_requeued = os.environ.get("SLURM_RESTART_COUNT", "0").strip() not in ("", "0")
    job = config["job"] or (slurm_job() if is_requeued else None)
    is_one_run = config["job"] is not None and config["seed"] is not None
    for run, own_config, is_finished in _runs_of_job(config, job) if job is not None else ():
        if not is_finished:
            try:
                run = RunFolder.reopen(run.path)
            except StillGoingError:
                if is_one_run:
                    raise
                continue
            return run, resolved(own_config) | {key: config[key] for key in SHOWN_ONLY if key in config}
        if is_requeued and (config["job"] or config["seed"]) is not None:
            raise FinishedJobError(f"the run of this job is finished: {run.path}")
    return None, config


def begin_run(config: Mapping[str, Any], given_config: dict[str, Any]) -> RunFolder:
    """Make the folder of a new run with its config; ``given_config`` is the config before its seed was drawn.

    Raises `StillGoingError` if another process has begun the run of the same job meanwhile.
    """
    job, jobs = config["job"] or slurm_job(), JobRuns(config["runs_dir"])
    names = preset_or_name(config["algo"]), config["env"]["id"]
    with contextlib.nullcontext() if job is None else jobs.hold():
        if job is not None and (rival := reopen_run(given_config)[0]) is not None:
            rival.close()
            raise StillGoingError(f"another process has begun the run of job {job} meanwhile: {rival.path}")
        run = RunFolder.create(config["runs_dir"], *names, config["seed"])
        run.write_config(as_written(config))
        if job is not None:
            jobs.add(job, run.path)
    return run


def _runs_of_job(config: Mapping[str, Any], job: str) -> Iterator[tuple[RunFolder, dict[str, Any], bool]]:
    """Yield the job's runs of the same config, the newest first: folder, config, and whether it finished."""
    for run in map(RunFolder, reversed(JobRuns(config["runs_dir"]).by_job().get(job, []))):
        with contextlib.suppress(ZooError):  # damaged, or somebody else's
            own_config = run.read_config()
            status = run.read_record().get("status") if run.record.exists() else None
            if _compared(own_config, config) == _compared(as_written(config), config):
                yield run, own_config, status == FINISHED


def _compared(values: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config without keys that may differ between a run and its resumption."""
    free = (*SHOWN_ONLY, "seed") if config["seed"] is None else SHOWN_ONLY
    return {key: value for key, value in values.items() if key not in free}


def _read(path: Path, parse: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
    try:
        return parse(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ZooError(f"can't read {path}: {one_line(error)}") from error


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def _clock(algorithm: Algorithm) -> float:
    """Return the time, which stands still during evaluations and while something is compiled."""
    left_out = algorithm.timings["evaluation"] + algorithm.runtime.compile_clock.seconds
    return time.perf_counter() - left_out


def machine() -> dict[str, Any]:
    """Return system, processor and number of cores."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        name = re.search(r"(?m)^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(errors="replace"))
        cpu = name[1].strip() if name else cpu
    return {"system": platform.platform(), "cpu": cpu, "cores": usable_cores()}


def git_state() -> dict[str, Any]:
    """Return the commit checked out in the working folder, and whether files differ from it."""
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return {"git_commit": None}
    lines = done.stdout.splitlines()
    commit = lines[0].removeprefix("# branch.oid ").replace("(initial)", "") or None
    return {"git_commit": commit, "git_changed": not all(line.startswith("#") for line in lines)}
