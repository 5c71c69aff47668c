"""The jobs of a multirun by a launcher plug-in of Hydra's: it starts processes, Zoo runs a job in each."""

from __future__ import annotations

import copy
import functools
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.experimental.callback import Callback
from hydra.types import HydraContext
from omegaconf import DictConfig, flag_override

from zoo.core.printing import one_line, say
from zoo.errors import ZooError
from zoo.launch.processes import JobRunner, handling_signals
from zoo.launch.sweep_folder import QUEUED, SweepFolder


class PluginLauncher:
    """Any installed `hydra.plugins.launcher.Launcher`, such as ``hydra/launcher=submitit_slurm``."""

    def __init__(self, folder: SweepFolder, function: str, config: DictConfig) -> None:
        self.folder = folder
        self.name = f"hydra/launcher={config.hydra.runtime.choices['hydra/launcher']}"
        self.job = _Job(folder.path.absolute(), function)
        config = copy.deepcopy(config)
        with flag_override(config, ["struct", "readonly"], [False, False]):
            config.hydra.sweep.dir = str(folder.path.absolute())
        parts: Any = {"config_loader": _JobConfigs(), "callbacks": Callback()}
        try:
            self.launcher = Plugins.instance().instantiate_launcher(
                hydra_context=HydraContext(**parts), task_function=self.job, config=config
            )
        except Exception as error:
            raise ZooError(f"{self.name} can't be used: {one_line(error, 500)}") from error

    def run_jobs(self, numbers: Sequence[int]) -> bool:
        """Run jobs that the sweep has, and wait for all of them. Raises `ZooError` if none could start."""
        self.job.numbers = list(numbers)
        self.folder.queue(numbers)
        jobs = [self.folder.read_job(number).overrides for number in numbers]
        try:
            with handling_signals(self._on_interrupt, signal.SIGINT):
                self.launcher.launch(jobs, initial_job_idx=0)
        except Exception as error:
            message = f"{self.name}: {type(error).__name__}: {one_line(error, 500)}"
            if all(self.folder.read_job(number).status == QUEUED for number in numbers):
                raise ZooError(message) from error
            say(f"zoo: {message}", sys.stderr)
        return True

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        """Wait for the jobs of this terminal, which end on the same Ctrl-C after their update."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(2, b"\nzoo: jobs in this terminal end now; Ctrl-C again no longer waits for any job\n")


@dataclass
class _Job:
    """The task of Hydra's that runs one job of the sweep, in a process of its own, as in every sweep."""

    folder: Path
    function: str
    numbers: Sequence[int] = ()

    def __call__(self, config: DictConfig) -> None:
        number = self.numbers[int(HydraConfig.get().job.num)]
        runner = _runner(self.folder, self.function)
        with runner.processes.handling_signals():
            runner.run_and_report(number, self.folder / f"{number}.log")


@functools.lru_cache
def _runner(folder: Path, function: str) -> JobRunner:
    """Return the runner of this process: once it is told to stop, it starts none of the later jobs."""
    return JobRunner(SweepFolder.open(folder), function, {})


class _JobConfigs:
    """The part of Hydra's config loader that a plug-in calls: the job's own process composes its config."""

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: Sequence[str]) -> DictConfig:
        """Return the multirun's config, to which the plug-in adds the job's number."""
        return copy.deepcopy(master_config)
