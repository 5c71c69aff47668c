"""A multirun: its settings, the combinations of values that are its jobs, and resuming one that was left."""

from __future__ import annotations

import importlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from zoo.config.compose import ConfigLoader
from zoo.config.fields import hyperparameter
from zoo.config.overrides import parse_overrides, quoted
from zoo.core.printing import one_line, say
from zoo.errors import ZooError
from zoo.launch.job import Callbacks
from zoo.launch.sweep_folder import LAUNCHER_LOCK, MAKING_RUNS, RUNNING, AlreadyRunningError, SweepFolder

SECONDS_TO_CHECKPOINT = 120.0
"""What jobs get, whose multirun was killed, to end with a checkpoint."""


@dataclass
class SweepSettings:
    """What every command takes beside ``-m``."""

    retries: int = hyperparameter(0, "times that a job which failed by itself is tried again", ge=0)
    fail_fast: bool = hyperparameter(False, "after the first failure no more jobs start")
    resume: str | None = hyperparameter(None, "folder of a sweep whose unfinished jobs are run")
    wait: bool = hyperparameter(False, "on Slurm: wait for the jobs, and show how each ends")


def combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """Return the overrides of each job: every combination of the values that those with several have."""
    choices: dict[str, list[str]] = {}
    for each in overrides:
        key = each.get_key_element()
        if not each.is_sweep_override():
            choices[key] = [f"{key}={each.get_value_element_as_str()}"]
        elif each.is_discrete_sweep():
            choices[key] = [f"{key}={value}" for value in each.sweep_string_iterator()]
        else:
            raise ZooError(f"`{each.input_line}` has no end of values; expected a,b or range(n)")
    return [list(job) for job in itertools.product(*choices.values())]


@dataclass
class Sweep:
    """Many jobs of a command; ``function`` is ``module:name`` of what takes the config of each."""

    loader: ConfigLoader
    function: str
    settings: SweepSettings
    is_left_to_slurm: bool = False
    """Whether this process does not wait for the jobs."""

    def start(self, overrides: Sequence[str]) -> SweepFolder:
        """Run every combination of the overrides, or submit them to Slurm. Raises `ZooError`.

        The config of each is checked before the first of them starts.
        """
        config = self.loader.load_configuration(overrides, RunMode.MULTIRUN)
        callbacks = Callbacks(config)
        callbacks.on_multirun_start(config=config, config_name=self.loader.command)
        params = OmegaConf.select(config, "hydra.sweeper.params") or {}
        task, hydra = _given(config.hydra.overrides.task), _given(config.hydra.overrides.hydra)
        jobs = combinations(self.loader.parsed([*(f"{key}={value}" for key, value in params.items()), *task]))
        for job in jobs:
            self.loader.load_configuration([*hydra, *job], RunMode.RUN)
        if not jobs:
            raise ZooError("the sweep has no jobs: one of its ranges or lists is empty")
        self._refuse_other_sweep(config)
        folder = SweepFolder(str(config.hydra.sweep.dir))
        launcher = self._launcher(config, folder)
        job_config = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        try:
            SweepFolder.create(
                folder.path,
                jobs,
                command=self.loader.command,
                launcher=str(config.hydra.launcher._target_).rpartition(".")[2],
                working_folder=str(Path.cwd()),
                overrides=task,
                hydra_overrides=hydra,
                config=OmegaConf.to_container(job_config, resolve=False),
            )
        except BaseException:
            folder.discard()
            raise
        try:
            launcher.run_jobs(range(len(jobs)))
        except AlreadyRunningError:
            raise
        except ZooError:  # before the first of them was started
            folder.discard()
            raise
        callbacks.on_multirun_end(config=config, config_name=self.loader.command)
        return folder

    def resume(self, overrides: Sequence[str]) -> SweepFolder:
        """Run what is missing of the sweep that the settings name.

        Raises `ZooError` if there is none, if it is still going on, and for an override that it does not
        have.
        """
        assert self.settings.resume is not None
        folder = SweepFolder.open(self.settings.resume)
        record = folder.read_record()
        self._refuse_other_command(folder, record)
        launcher_overrides = _launcher_overrides(record, overrides, folder)
        if folder.is_held(LAUNCHER_LOCK):
            raise ZooError(
                f"the multirun in {folder.shown} is still going on; zoo status {folder.shown} shows it"
            )
        _wait_for_running_jobs(folder)
        numbers = [row.state.number for row in folder.rows() if row.is_missing]
        if not numbers:
            say(f"zoo: nothing is missing in {folder.shown}")
            return folder
        say(f"zoo: {len(numbers)} of {len(folder.read_jobs())} jobs are run, or go on, in {folder.shown}")
        overrides = [
            *_texts(record, "overrides"),
            *_texts(record, "hydra_overrides"),
            *launcher_overrides,
            f"hydra.sweep.dir={quoted(str(folder.path))}",
        ]
        config = self.loader.load_configuration(overrides, RunMode.MULTIRUN)
        self._launcher(config, folder).run_jobs(numbers)
        return folder

    def queue(self, folder: SweepFolder, numbers: Sequence[int]) -> None:
        """Write down that these jobs are to be run now, by today's settings."""
        for number in numbers:
            folder.change_job(
                number,
                status="queued",
                reason="",
                exit_status=None,
                started=None,
                retries_left=self.settings.retries,
                fail_fast=self.settings.fail_fast,
                slurm_job=None,
            )
        folder.write_table()

    def _launcher(self, config: DictConfig, folder: SweepFolder) -> Any:
        """Return the launcher that ``hydra/launcher`` chooses. Raises `ZooError`."""
        options: Any = OmegaConf.to_container(config.hydra.launcher, resolve=True)
        module, _, name = options.pop("_target_").rpartition(".")
        return getattr(importlib.import_module(module), name)(self, folder, **options)

    def _refuse_other_sweep(self, config: DictConfig) -> None:
        folder = SweepFolder(str(config.hydra.sweep.dir))
        if folder.record.exists():
            raise ZooError(
                f"there is a sweep in {folder.shown}; this goes on with it: sweep.resume={folder.shown}"
            )
        if folder.read_jobs():
            raise ZooError(f"there are jobs of another sweep in {folder.shown}: another hydra.sweep.dir")
        given = parse_overrides(_given(config.hydra.overrides.task))
        if self.loader.command in MAKING_RUNS and any(each.key_or_group == "job" for each in given):
            raise ZooError(
                "`job` can't be set for many jobs: each has its own; sweep.resume=DIR goes on with them"
            )
        for each in given:
            if each.key_or_group == "runs_dir" and each.is_sweep_override():
                raise ZooError("`runs_dir` has one value for all jobs: it gets the folder of the sweep")

    def _refuse_other_command(self, folder: SweepFolder, record: dict[str, Any]) -> None:
        command = one_line(record.get("command"))
        if command != self.loader.command:
            raise ZooError(
                f"{folder.shown} is a sweep of zoo {command}: zoo {command} -m sweep.resume={folder.shown}"
            )
        place = Path(str(record.get("working_folder") or Path.cwd()))
        if place.is_dir() and place.resolve() != Path.cwd().resolve():
            raise ZooError(
                f"the sweep in {folder.shown} was started in {one_line(place, 1000)};"
                " go there to resume it, as its settings may depend on that folder"
            )


def _given(overrides: Any) -> list[str]:
    """Return overrides as they were given: what an environment variable holds may be a secret."""
    given: Any = OmegaConf.to_container(overrides, resolve=False)
    return [str(value) for value in given]


def _launcher_overrides(record: dict[str, Any], given: Sequence[str], folder: SweepFolder) -> list[str]:
    """Return which launcher was chosen now, and its settings; refuse by name what would make other jobs."""
    known = {*_texts(record, "overrides"), *_texts(record, "hydra_overrides"), "hydra.mode=MULTIRUN"}
    chosen, changes = [], []
    for each in parse_overrides(given):
        line = str(each.input_line)
        if each.key_or_group == "hydra/launcher" or each.key_or_group.startswith("hydra.launcher."):
            chosen.append(line)
        elif line not in known:
            changes.append(one_line(line))
    if changes:
        raise ZooError(
            f"sweep.resume goes on with the jobs in {folder.shown} as they were, so it can't take"
            f" {', '.join(changes)}; beside it there may be hydra/launcher, its settings, and others of sweep"
        )
    return chosen


def _texts(record: dict[str, Any], key: str) -> list[str]:
    values = record.get(key)
    return [str(value) for value in values] if isinstance(values, list) else []


def _wait_for_running_jobs(folder: SweepFolder) -> None:
    """Wait for jobs on this machine whose multirun was killed: they are writing their checkpoints."""
    deadline = time.monotonic() + SECONDS_TO_CHECKPOINT
    is_announced = False
    while busy := [row for row in folder.rows() if row.status == RUNNING and row.state.slurm_job is None]:
        if not is_announced:
            say(f"zoo: waiting for {len(busy)} jobs of the multirun before to end")
            is_announced = True
        if time.monotonic() > deadline:
            raise ZooError(f"job {busy[0].state.number} in {folder.shown} is still running")
        time.sleep(0.2)
