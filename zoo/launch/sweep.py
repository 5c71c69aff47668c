"""A multirun: its settings, its combinations, where it stands, and going on with one that was left."""

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
from zoo.config.fields import build, hyperparameter
from zoo.config.overrides import parse_overrides, quoted
from zoo.core.printing import one_line, say
from zoo.errors import ZooError
from zoo.launch.folder import LAUNCHER, MAKING_RUNS, SweepFolder, TakenError, made
from zoo.launch.jobs import Callbacks, Job
from zoo.launch.processes import Attempts, JobCommand
from zoo.launch.states import RUNNING

SECTION = "sweep"


@dataclass
class SweepSettings:
    """What every command takes beside ``-m``."""

    retries: int = hyperparameter(0, "times that a job which failed by itself is tried again", ge=0)
    fail_fast: bool = hyperparameter(False, "after the first failure no more jobs start")
    resume: str | None = hyperparameter(None, "folder of a sweep whose unfinished jobs are run")
    wait: bool = hyperparameter(False, "on Slurm: wait for the jobs, and show how each ends")


def taken_out(overrides: Sequence[str]) -> tuple[SweepSettings | None, list[str]]:
    """Return the settings among the overrides, None if there are none, and the others.

    Raises `ZooError` for an unknown one, a wrong type, and a value out of range.
    """
    own = [each for each in overrides if each.lstrip("+").startswith(f"{SECTION}.")]
    others = [each for each in overrides if each not in own]
    values = dict(_value_of(each.lstrip("+")) for each in own)
    return (build(SweepSettings, values, SECTION) if own else None), others


def _value_of(override: str) -> tuple[str, object]:
    key, _, text = override.removeprefix(f"{SECTION}.").partition("=")
    if key == "resume" and text:  # a path may have characters that mean something to Hydra
        return key, text.strip("'\"")
    (parsed,) = parse_overrides([override])
    if parsed.is_sweep_override():
        raise ZooError(f"`{override}`: what is set for the whole sweep has one value")
    return key, parsed.value()


@dataclass
class Sweep(Job):
    """The jobs of a command. ``folder`` is there once a launcher has made it."""

    command: str
    settings: SweepSettings
    folder: SweepFolder | None = None
    is_left_to_slurm: bool = False
    """Whether nobody here waits for the jobs."""

    def add_jobs(self, config: DictConfig, jobs: Sequence[Sequence[str]]) -> list[int]:
        """Write down the jobs, each by its overrides, and return their numbers. Raises `ZooError`.

        What could not be written down as a whole leaves nothing behind.
        """
        if not jobs:
            raise ZooError("the sweep has no jobs: one of its ranges or lists is empty")
        self._refuse_what_is_not_one_sweep(config)
        place = Path(str(config.hydra.sweep.dir))
        is_new = not place.exists()
        numbers = list(range(len(jobs)))
        job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        try:
            self.folder = made(
                place,
                numbers,
                jobs,
                command=self.command,
                launcher=str(config.hydra.launcher._target_).rpartition(".")[2],
                working_folder=str(Path.cwd()),
                overrides=_plain(config.hydra.overrides.task),
                hydra_overrides=_plain(config.hydra.overrides.hydra),
                config=OmegaConf.to_container(job, resolve=False),
            )
        except BaseException:
            if is_new:
                SweepFolder(place).discard()
            raise
        return numbers

    def _refuse_what_is_not_one_sweep(self, config: DictConfig) -> None:
        folder = SweepFolder(str(config.hydra.sweep.dir))
        if folder.record.exists():
            raise ZooError(
                f"there is a sweep in {folder.shown}; this goes on with it: sweep.resume={folder.shown}"
            )
        if folder.states.all():
            raise ZooError(f"there are jobs of another sweep in {folder.shown}: another hydra.sweep.dir")
        given = parse_overrides(_plain(config.hydra.overrides.task))
        if self.command in MAKING_RUNS and any(each.key_or_group == "job" for each in given):
            raise ZooError(
                "`job` can't be set for many jobs: each has its own; sweep.resume=DIR goes on with them"
            )
        for each in given:
            if each.key_or_group == "runs_dir" and each.is_sweep_override():
                raise ZooError("`runs_dir` has one value for all jobs: it gets the folder of the sweep")

    def prepare(self, numbers: Sequence[int], **values: object) -> SweepFolder:
        """Write down that these jobs are to be run now, by today's settings."""
        assert self.folder is not None
        for number in numbers:
            self.folder.states.change(
                number,
                status="queued",
                reason="",
                exit_status=None,
                started=None,
                retries_left=self.settings.retries,
                fail_fast=self.settings.fail_fast,
                **{"slurm_job": None, **values},
            )
        self.folder.write_table()
        return self.folder

    def attempts(self, config: DictConfig, environment: dict[str, str]) -> Attempts:
        """Return what runs the jobs on this machine."""
        assert self.folder is not None
        hydra_overrides = _plain(config.hydra.overrides.hydra)
        return Attempts(self.folder, JobCommand(self.command, self.function, hydra_overrides, environment))


def _plain(values: Any) -> list[str]:
    """Return overrides as they were given: what an environment variable holds may be a secret."""
    given: Any = OmegaConf.to_container(values, resolve=False)
    return [str(value) for value in given]


PATIENCE = 120.0
"""Seconds for jobs of a multirun that was killed, which end with a checkpoint."""


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


def begin(loader: ConfigLoader, sweep: Sweep, overrides: Sequence[str]) -> None:
    """Run every combination of the overrides, or hand them to Slurm. Raises `ZooError`.

    The config of each is checked before the first of them begins.
    """
    config = loader.load_configuration(overrides, RunMode.MULTIRUN)
    callbacks = Callbacks(config)
    callbacks.on_multirun_start(config=config, config_name=loader.command)
    params = OmegaConf.select(config, "hydra.sweeper.params") or {}
    given = [*(f"{key}={value}" for key, value in params.items()), *_plain(config.hydra.overrides.task)]
    jobs = combinations(loader.parsed(given))
    for job in jobs:
        hydra_overrides = _plain(config.hydra.overrides.hydra)
        loader.load_configuration([*hydra_overrides, *job], RunMode.RUN)
    launcher = launcher_with(config, sweep)
    numbers = sweep.add_jobs(config, jobs)
    try:
        launcher.run_jobs(numbers)
    except TakenError:
        raise
    except ZooError:  # before the first of them was started
        assert sweep.folder is not None
        sweep.folder.discard()
        raise
    callbacks.on_multirun_end(config=config, config_name=loader.command)


def launcher_with(config: DictConfig, sweep: Sweep) -> Any:
    """Return the launcher that the frame of a multirun chooses, ready for the jobs of ``sweep``."""
    options: Any = OmegaConf.to_container(config.hydra.launcher, resolve=True)
    module, _, name = options.pop("_target_").rpartition(".")
    launcher = getattr(importlib.import_module(module), name)(**options)
    launcher.setup(sweep, config)
    return launcher


def resume(loader: ConfigLoader, sweep: Sweep, given: Sequence[str]) -> None:
    """Run what is missing of the sweep that the settings name.

    Raises `ZooError` if there is none, if it is still going on, and for an override that it does not have.
    """
    assert sweep.settings.resume is not None
    folder = SweepFolder.open(sweep.settings.resume)
    record = folder.read_record()
    _refuse_another_command(folder, record, sweep.command)
    launcher_choices = _refuse_changes(record, given, folder)
    if folder.states.is_held(LAUNCHER):
        raise ZooError(
            f"the multirun in {folder.shown} is still going on; zoo status {folder.shown} shows it"
        )
    _wait_for_the_last(folder)
    numbers = [row.state.number for row in folder.rows() if row.is_missing]
    sweep.folder = folder
    if not numbers:
        say(f"zoo: nothing is missing in {folder.shown}")
        return
    say(f"zoo: {len(numbers)} of {len(folder.states.all())} jobs are run, or go on, in {folder.shown}")
    frame = [*_texts(record, "overrides"), *_texts(record, "hydra_overrides"), *launcher_choices]
    overrides = [*frame, f"hydra.sweep.dir={quoted(str(folder.path))}"]
    config = loader.load_configuration(overrides, RunMode.MULTIRUN)
    launcher_with(config, sweep).run_jobs(numbers)


def _refuse_another_command(folder: SweepFolder, record: dict[str, Any], command: str) -> None:
    if record.get("command") != command:
        was = one_line(record.get("command"))
        raise ZooError(f"{folder.shown} is a sweep of zoo {was}: zoo {was} -m sweep.resume={folder.shown}")
    place = Path(str(record.get("working_folder") or Path.cwd()))
    if place.is_dir() and place.resolve() != Path.cwd().resolve():
        raise ZooError(
            f"the sweep in {folder.shown} was started in {one_line(place, 1000)};"
            " go there to resume it, as its settings may depend on that folder"
        )


def _refuse_changes(record: dict[str, Any], given: Sequence[str], folder: SweepFolder) -> list[str]:
    """Return which launcher was chosen now, and how; refuse by name what would make other jobs."""
    parsed = parse_overrides(given)
    known = {*_texts(record, "overrides"), *_texts(record, "hydra_overrides")}
    chosen = [str(each.input_line) for each in parsed if _is_of_the_launcher(each)]
    others = [str(each.input_line) for each in parsed if not _is_of_the_launcher(each)]
    changes = [one_line(each) for each in others if each not in known and each != "hydra.mode=MULTIRUN"]
    if changes:
        raise ZooError(
            f"sweep.resume goes on with the jobs in {folder.shown} as they were, so it can't take"
            f" {', '.join(changes)}; beside it there may be hydra/launcher, its settings, and others of sweep"
        )
    return chosen


def _is_of_the_launcher(override: Override) -> bool:
    return override.key_or_group == "hydra/launcher" or override.key_or_group.startswith("hydra.launcher.")


def _texts(record: dict[str, Any], key: str) -> list[str]:
    values = record.get(key)
    return [str(value) for value in values] if isinstance(values, list) else []


def _wait_for_the_last(folder: SweepFolder) -> None:
    """Wait for jobs on this machine whose multirun was killed: they are writing their checkpoints."""
    deadline = time.monotonic() + PATIENCE
    is_told = False
    while busy := [row for row in folder.rows() if row.status == RUNNING and row.state.slurm_job is None]:
        if not is_told:
            say(f"zoo: waiting for {len(busy)} jobs of the multirun before to end")
            is_told = True
        if time.monotonic() > deadline:
            raise ZooError(f"job {busy[0].state.number} in {folder.shown} is still running")
        time.sleep(0.2)
