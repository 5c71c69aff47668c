"""A multirun, as Hydra hands it to a launcher: what to run, how, and where it stands once there are jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from zoo.config.hydra_internals import parse_overrides
from zoo.config.jobs import Job
from zoo.config.sweeps.attempts import Attempts
from zoo.config.sweeps.folder import MAKING_RUNS, SweepFolder, made
from zoo.config.sweeps.processes import JobCommand
from zoo.config.sweeps.settings import SweepSettings
from zoo.errors import ZooError

LAUNCHER_PREFIX = "hydra_plugins.zoo."


@dataclass
class Sweep(Job):
    """The jobs of a command. ``folder`` is there once a launcher has made it."""

    command: str
    settings: SweepSettings
    folder: SweepFolder | None = None
    new_place: Path | None = None
    """Where the folder will be, if there is nothing there yet."""
    is_left_to_slurm: bool = False
    """Whether nobody here waits for the jobs."""

    def begin(self, config: DictConfig) -> None:
        """Look where the folder will be, before Hydra writes there."""
        place = Path(str(config.hydra.sweep.dir))
        self.new_place = None if place.exists() else place

    def discard_if_unbegun(self) -> None:
        """Leave nothing of a new sweep whose jobs could not be written down."""
        if self.folder is None and self.new_place is not None:
            SweepFolder(self.new_place).discard()

    def add_jobs(self, config: DictConfig, overrides: Sequence[Sequence[str]], first: int) -> list[int]:
        """Write down new jobs, and return their numbers. Raises `ZooError` if there are none."""
        if not overrides:
            raise ZooError("the sweep has no jobs: one of its ranges or lists is empty")
        if first == 0:
            self._refuse_what_is_not_one_sweep(config)
        numbers = list(range(first, first + len(overrides)))
        job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        self.folder = made(
            Path(str(config.hydra.sweep.dir)),
            numbers,
            overrides,
            command=self.command,
            launcher=str(config.hydra.launcher._target_).removeprefix(LAUNCHER_PREFIX),
            working_folder=str(Path.cwd()),
            overrides=_plain(config.hydra.overrides.task),
            hydra_overrides=_plain(config.hydra.overrides.hydra),
            config=OmegaConf.to_container(job, resolve=False),
        )
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
