"""The jobs of a multirun as one job array of a Slurm cluster; submitting them returns at once."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf

from zoo.config.hydra_internals import JobReturn, completed
from zoo.config.jobs import Outcome
from zoo.config.sweeps.folder import Row, SweepFolder, TakenError
from zoo.config.sweeps.slurm_script import batch_script, options_of
from zoo.config.sweeps.states import PREEMPTED, QUEUED, RUNNING
from zoo.config.sweeps.sweep import Sweep
from zoo.errors import ZooError
from zoo.files import atomic
from zoo.files.printing import one_line, say

SECONDS_BETWEEN_LOOKS = (1.0, 15.0)
"""While waiting, at first and in the end."""

ANSWER_LIMIT = 120
"""Seconds that a command of Slurm may take."""


class SlurmLauncher(Launcher):
    """What ``hydra/launcher=slurm`` stands for; its options are those of `SlurmOptions`."""

    def __init__(self, **options: Any) -> None:
        self.given = options

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        """Take over what the jobs have in common. Raises `ZooError` where there is no Slurm."""
        assert isinstance(task_function, Sweep)
        if shutil.which("sbatch") is None:
            raise ZooError(
                "hydra/launcher=slurm: this machine is not part of a Slurm cluster (it has no `sbatch`);"
                " hydra/launcher=joblib runs the jobs on its own cores"
            )
        plain = {
            key: OmegaConf.to_container(each) if OmegaConf.is_config(each) else each
            for key, each in self.given.items()
        }
        self.options = options_of(plain)
        self.sweep = task_function
        self.config = config
        self.sweep.begin(config)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit the jobs, and wait for them only if that is asked for."""
        numbers = self.sweep.add_jobs(self.config, job_overrides, initial_job_idx)
        assert self.sweep.folder is not None
        try:
            array = self._take_and_submit(numbers)
        except TakenError:
            raise
        except ZooError:
            if initial_job_idx == 0:
                self.sweep.folder.discard()  # of which no job has been started
            raise
        self._follow(array, numbers)
        outcomes = {number: Outcome(0) for number in numbers}
        if self.sweep.settings.wait:
            outcomes |= {row.state.number: Outcome(row.exit_status) for row in self.sweep.folder.rows()}
        return [
            completed(each, outcomes[number]) for each, number in zip(job_overrides, numbers, strict=True)
        ]

    def run_jobs(self, numbers: Sequence[int]) -> None:
        """Submit jobs that the sweep has."""
        self._follow(self._take_and_submit(numbers), numbers)

    def _take_and_submit(self, numbers: Sequence[int]) -> str:
        assert self.sweep.folder is not None
        folder = self.sweep.folder
        try:
            with folder.taken(numbers):
                return self._submit(folder, numbers)
        except OSError as error:
            raise ZooError(f"can't write down the jobs in {folder.shown}: {one_line(error)}") from error

    def _follow(self, array: str, numbers: Sequence[int]) -> None:
        """Say what was submitted, and wait for it if that is asked for."""
        assert self.sweep.folder is not None
        folder = self.sweep.folder
        with contextlib.suppress(ZooError):  # the jobs write it again
            folder.write_table()
        say(f"zoo: submitted to Slurm: {_job_ids(array, numbers)}")
        self.sweep.is_left_to_slurm = not self.sweep.settings.wait
        if self.sweep.settings.wait:
            say(f"zoo: waiting; Ctrl-C ends the waiting alone, the jobs go on: zoo status {folder.shown}")
            with contextlib.suppress(KeyboardInterrupt):
                _wait(folder, numbers)
                return
            self.sweep.is_left_to_slurm = True

    def _submit(self, folder: SweepFolder, numbers: Sequence[int]) -> str:
        """Return the number of the job array, which is cancelled if anything here fails."""
        script = folder.path / f"slurm-{time.strftime('%Y%m%d-%H%M%S')}.sh"
        atomic.write_text(script, batch_script(self.options, folder, numbers, self.sweep.function))
        # No job may start before it is known which it is.
        array = _answer(["sbatch", "--parsable", "--hold", str(script.absolute())]).strip().partition(";")[0]
        try:
            self.sweep.prepare(numbers)
            for number in numbers:
                folder.states.change(number, slurm_job=f"{array}_{number}")
            _answer(["scontrol", "release", array])
        except BaseException:
            with contextlib.suppress(ZooError):
                _answer(["scancel", array])
            raise
        return array


def _answer(command: Sequence[str]) -> str:
    """Return what a command of Slurm prints. Raises `ZooError` with what Slurm says if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ZooError(f"Slurm did not take the jobs: {one_line(error)}") from error
    if done.returncode:
        raise ZooError(f"Slurm did not take the jobs: {_complaint(done.stderr)}")
    return done.stdout


def _complaint(errors: str) -> str:
    """Return what Slurm complains about, in one line, the cause last."""
    lines = [line.rpartition("error: ")[2].strip() for line in errors.splitlines()]
    return one_line("; ".join(dict.fromkeys(line for line in lines if line)), 500) or "it does not say why"


def _job_ids(array: str, numbers: Sequence[int]) -> str:
    first, last = f"{array}_{numbers[0]}", f"{array}_{numbers[-1]}"
    return first if len(numbers) == 1 else f"{len(numbers)} jobs, {first} to {last}"


def _wait(folder: SweepFolder, numbers: Sequence[int]) -> None:
    """Wait until all jobs have ended, and tell of each how."""
    waited_for = set(numbers)
    pause, longest = SECONDS_BETWEEN_LOOKS
    while waited_for:
        time.sleep(pause)
        pause = min(1.1 * pause, longest)
        for row in _table(folder):
            if row.state.number in waited_for and row.status not in (QUEUED, RUNNING, PREEMPTED):
                waited_for.remove(row.state.number)
                say(f"zoo: job {row.state.number}: {ending(row)}")


def _table(folder: SweepFolder) -> list[Row]:
    """Return the jobs as they stand, or none where one can't be read at this moment: there is a next one."""
    try:
        return folder.write_table()
    except ZooError:
        return []


def ending(row: Row) -> str:
    """Return how a job ended, in a few words."""
    return f"{row.status}: {row.reason}" if row.reason else row.status
