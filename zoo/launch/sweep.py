"""A multirun: the combinations of values that are its jobs, and resuming one that was left."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import track

from zoo.config.compose import ConfigLoader, job_part
from zoo.config.overrides import parse_overrides, quoted
from zoo.core.printing import one_line, say
from zoo.errors import ZooError
from zoo.launch.plugin import PluginLauncher
from zoo.launch.sweep_folder import LAUNCHER_LOCK, RUNNING, SweepFolder


def combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """Return the overrides of each job: every combination of the values that those with several have."""
    choices: dict[str, list[str]] = {}
    for override in overrides:
        key = override.get_key_element()
        if not override.is_sweep_override():
            choices[key] = [f"{key}={override.get_value_element_as_str()}"]
        elif override.is_discrete_sweep():
            choices[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            raise ZooError(f"`{override.input_line}` is continuous; expected a,b or range(n), or zoo tune")
    return [list(job) for job in itertools.product(*choices.values())]


@dataclass
class Sweep:
    """Many jobs of a command; ``function`` is ``module:name`` of what takes the config of each."""

    loader: ConfigLoader
    function: str
    is_left_to_slurm: bool = False
    """Whether the jobs go on without this process."""

    def start(self, overrides: Sequence[str]) -> SweepFolder:
        """Check every job's config, then run or submit all jobs. Raises `ZooError`."""
        config = self.loader.load_configuration(overrides, RunMode.MULTIRUN)
        # As they were given: what an environment variable holds may be a secret.
        unresolved: Any = OmegaConf.to_container(config.hydra.overrides, resolve=False)
        task, hydra = unresolved["task"], unresolved["hydra"]
        params = [f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items()]
        jobs = combinations(parse_overrides([*params, *task], self.loader.hydra))
        if not jobs:
            raise ZooError("the sweep has no jobs: one of its ranges or lists is empty")
        checks = self.loader.check_jobs([*hydra, *job] for job in jobs)
        console = Console(stderr=True)
        is_hidden = not console.is_terminal
        list(track(checks, "checking jobs", len(jobs), console=console, transient=True, disable=is_hidden))
        folder = SweepFolder(str(config.hydra.sweep.dir))
        self._refuse_other_sweep(folder, task)
        launcher = self._launcher(config, folder)
        try:
            folder.create(
                jobs,
                command=self.loader.command,
                launcher=config.hydra.launcher._target_.rpartition(".")[2],
                working_folder=str(Path.cwd()),
                overrides=task,
                hydra_overrides=hydra,
                config=OmegaConf.to_container(job_part(config), resolve=False),
            )
            with folder.hold(LAUNCHER_LOCK):
                self.is_left_to_slurm = not launcher.run_jobs(range(len(jobs)))
        except ZooError:  # before the first of them was started
            folder.discard()
            raise
        return folder

    def resume(self, path: str, overrides: Sequence[str]) -> SweepFolder:
        """Run a sweep's unfinished jobs. Raises `ZooError` if there is no sweep or it is still running."""
        folder = SweepFolder.open(path)
        record = folder.read_record()
        self._refuse_other_command(folder, record)
        overrides = [
            *(str(override) for override in [*record["overrides"], *record["hydra_overrides"]]),
            *_launcher_overrides(record, overrides, folder),
            f"hydra.sweep.dir={quoted(str(folder.path))}",
        ]
        jobs = folder.current_jobs()  # before the lock is held, by which jobs under way are known
        with folder.hold(LAUNCHER_LOCK):
            for job in jobs:
                if job.status == RUNNING and job.slurm_job is None:
                    raise ZooError(f"job {job.number} in {folder.shown} is still going on")
            numbers = [job.number for job in jobs if job.is_missing]
            if not numbers:
                say(f"zoo: nothing is missing in {folder.shown}")
                return folder
            say(f"zoo: {len(numbers)} of {len(jobs)} jobs are run, or go on, in {folder.shown}")
            config = self.loader.load_configuration(overrides, RunMode.MULTIRUN)
            self.is_left_to_slurm = not self._launcher(config, folder).run_jobs(numbers)
        return folder

    def _launcher(self, config: DictConfig, folder: SweepFolder) -> Any:
        if not str(config.hydra.launcher._target_).startswith("zoo.launch."):
            return PluginLauncher(folder, self.function, config)
        options: Any = OmegaConf.to_container(config.hydra.launcher, resolve=True)
        return get_class(options.pop("_target_"))(folder, self.function, **options)

    def _refuse_other_sweep(self, folder: SweepFolder, task: Sequence[str]) -> None:
        if folder.jobs.exists():
            raise ZooError(f"there is a sweep in {folder.shown}; sweep.resume={folder.shown} goes on with it")
        for override in parse_overrides(task):
            if self.loader.command == "train" and override.key_or_group == "job":
                raise ZooError(
                    "`job` can't be set for many jobs: each has its own; sweep.resume=DIR goes on with them"
                )
            if override.key_or_group == "runs_dir" and override.is_sweep_override():
                raise ZooError("`runs_dir` has one value for all jobs: it gets the folder of the sweep")

    def _refuse_other_command(self, folder: SweepFolder, record: dict[str, Any]) -> None:
        command = record["command"]
        if command != self.loader.command:
            raise ZooError(
                f"{folder.shown} is a sweep of zoo {command}: zoo {command} -m sweep.resume={folder.shown}"
            )
        place = Path(record["working_folder"])
        if place.is_dir() and not place.samefile(Path.cwd()):
            raise ZooError(
                f"the sweep in {folder.shown} was started in {one_line(place, 1000)};"
                " go there to resume it, as its settings may depend on that folder"
            )


def _launcher_overrides(record: dict[str, Any], overrides: Sequence[str], folder: SweepFolder) -> list[str]:
    """Return the launcher's new overrides. Raises `ZooError` for overrides that would change the jobs."""
    earlier = {*record["overrides"], *record["hydra_overrides"]}
    new = [override for override in parse_overrides(overrides) if override.input_line not in earlier]
    chosen = [o for o in new if o.key_or_group.replace("/", ".").startswith("hydra.launcher")]
    if changes := [one_line(override.input_line) for override in new if override not in chosen]:
        raise ZooError(
            f"sweep.resume goes on with the jobs in {folder.shown} as they were, so it can't take"
            f" {', '.join(changes)}; beside it there may be hydra/launcher and its settings"
        )
    return [str(override.input_line) for override in chosen]
