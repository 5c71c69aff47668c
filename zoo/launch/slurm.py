"""The jobs of a multirun as one job array of a Slurm cluster: its options, its script, and submitting it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from zoo.config.fields import hyperparameter
from zoo.core import atomic
from zoo.core.printing import one_line, say
from zoo.errors import ZooError
from zoo.launch.folder import Row, SweepFolder
from zoo.launch.states import PREEMPTED, QUEUED, RUNNING
from zoo.launch.sweep import Sweep

REQUEUE = 85
"""Exit status of a job that wants to be put back into the queue."""

BEFORE_IT_BEGAN = tuple(128 + number for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2))
"""Exit statuses of one that was told to end before it could mind signals."""

SECONDS_OF_WORK = 30
"""What a time limit has to leave before the signal; Slurm may send it a minute too early."""


@dataclass
class SlurmOptions:
    """What ``hydra.launcher`` takes with ``hydra/launcher=slurm``; null leaves it to the cluster."""

    name: str = hyperparameter(help="name of the jobs")
    timeout_min: int = hyperparameter(help="time limit of a job", unit="minutes", ge=1)
    array_parallelism: int = hyperparameter(help="jobs at the same time", ge=1)
    signal_delay_s: int = hyperparameter(
        help="time before the limit at which a job is told to end", unit="seconds", ge=1
    )
    max_requeues: int = hyperparameter(help="times that a job is put back into the queue", ge=0)
    partition: str | None = hyperparameter(None, "queue; null: the cluster's usual one")
    account: str | None = hyperparameter(None, "whose time is spent")
    qos: str | None = hyperparameter(None, "quality of service")
    nodes: int | None = hyperparameter(None, "what is allocated; a job is one process on the first", ge=1)
    tasks_per_node: int | None = hyperparameter(None, "what is allocated; a job is one process", ge=1)
    cpus_per_task: int | None = hyperparameter(None, "cores of a job, and threads where none are set", ge=1)
    mem_gb: float | None = hyperparameter(None, "memory of a node", unit="GB", gt=0)
    mem_per_cpu: str | None = hyperparameter(None, "memory a core, such as 2G, with mem_gb=null")
    mem_per_gpu: str | None = hyperparameter(None, "memory a GPU, such as 32G, with mem_gb=null")
    gpus_per_node: int | str | None = hyperparameter(None, "GPUs, such as 1 or a100:1")
    gpus_per_task: int | str | None = hyperparameter(None, "GPUs")
    cpus_per_gpu: int | None = hyperparameter(None, "cores a GPU, with cpus_per_task=null", ge=1)
    gres: str | None = hyperparameter(None, "generic resources, such as gpu:a100:1")
    constraint: str | None = hyperparameter(None, "features that a node must have")
    exclude: str | None = hyperparameter(None, "nodes not to take")
    nodelist: str | None = hyperparameter(None, "nodes to take")
    exclusive: bool | None = hyperparameter(None, "no other jobs on the node")
    dependency: str | None = hyperparameter(None, "jobs to wait for, such as afterok:123")
    comment: str | None = hyperparameter(None, "a comment")
    mail_type: str | None = hyperparameter(None, "when to send mail, such as END")
    mail_user: str | None = hyperparameter(None, "whom to send it")
    additional_parameters: dict[str, Any] | None = hyperparameter(None, "any other options of sbatch")
    setup: list[str] | None = hyperparameter(None, "commands before the job, such as: module load cuda")
    container: str | None = hyperparameter(None, "command that runs the job's command in a container")
    python: str | None = hyperparameter(None, "command; null: the Python that submits")
    srun_args: list[str] | None = hyperparameter(None, "further arguments of srun")


_SPELLED = {"name": "job-name", "timeout_min": "time", "mem_gb": "mem", "tasks_per_node": "ntasks-per-node"}
"""What Slurm calls otherwise."""

_NOT_SLURMS = (
    *("array_parallelism", "signal_delay_s", "max_requeues", "additional_parameters"),
    *("setup", "container", "python", "srun_args"),
)


def batch_script(options: SlurmOptions, folder: SweepFolder, numbers: Sequence[int], function: str) -> str:
    """Return the script that `sbatch` takes. Raises `ZooError` for what can't stand in one."""
    wants_to_go_on = " ".join(map(str, (REQUEUE, *BEFORE_IT_BEGAN)))
    parameters = dict(_parameters(options, folder, numbers))
    parameters |= {
        key.replace("_", "-"): value for key, value in (options.additional_parameters or {}).items()
    }
    lines = [
        f"#SBATCH {_flag(key, value)}" for key, value in parameters.items() if value not in (None, False)
    ]
    return "\n".join(
        [
            "#!/bin/bash",
            *lines,
            "",
            *(options.setup or []),
            "",
            "# A signal is the job's own business: this script goes on when the job has ended.",
            "trap : TERM USR1 USR2",
            _command(options, folder, function),
            "status=$?",
            "",
            "# A job that was told to end, and wrote its checkpoint or had not begun, goes on where it was;",
            "# one that somebody has cancelled meanwhile does not.",
            'job="${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"',
            f'if [[ " {wants_to_go_on} " == *" $status "* ]] &&'
            f' [ "${{SLURM_RESTART_COUNT:-0}}" -lt {options.max_requeues} ] &&'
            ' [ "$(squeue --noheader --array --jobs="$job" --format=%T)" = RUNNING ]; then',
            '    scontrol requeue "$job"',
            "fi",
            'exit "$status"',
            "",
        ]
    )


def _parameters(
    options: SlurmOptions, folder: SweepFolder, numbers: Sequence[int]
) -> Iterator[tuple[str, Any]]:
    if 60 * options.timeout_min - options.signal_delay_s - 60 < SECONDS_OF_WORK:
        raise ZooError(
            f"`hydra.launcher.signal_delay_s={options.signal_delay_s}` leaves too little of"
            f" `timeout_min={options.timeout_min}`, as Slurm may send the signal a minute early"
        )
    for field in dataclasses.fields(options):
        if field.name not in _NOT_SLURMS:
            value = getattr(options, field.name)
            if field.name == "mem_gb" and value is not None:
                value = f"{round(1024 * value)}M"
            yield _SPELLED.get(field.name, field.name.replace("_", "-")), value
    log = str(folder.path.absolute()).replace("\\", "\\\\").replace("%", "%%")
    yield "array", f"{','.join(map(str, numbers))}%{options.array_parallelism}"
    yield "chdir", os.getcwd()
    yield "output", f"{log}/%a.log"
    yield "open-mode", "append"
    yield "requeue", True
    yield "signal", f"USR2@{options.signal_delay_s}"


def _flag(key: str, value: Any) -> str:
    if value is True:
        return f"--{key}"
    text = str(value)
    if re.search(r"[\n\r\0]", text):
        raise ZooError(f"Slurm's option {key} can't be {text!r}: it has several lines")
    return f"--{key}={shlex.quote(text)}"


def _command(options: SlurmOptions, folder: SweepFolder, function: str) -> str:
    cpus = [] if options.cpus_per_task is None else [f"--cpus-per-task={options.cpus_per_task}"]
    srun = ["srun", "--nodes=1", "--ntasks=1", *cpus, "--unbuffered", *(options.srun_args or [])]
    path = "[each for each in sys.path if each]" if options.python else repr(_search_path())
    code = f"import sys; sys.path[:] = {path}; from zoo.launch.slurm_job import main; main()"
    python = options.python or shlex.quote(sys.executable)
    job = [str(Path(folder.path).absolute()), function, str(options.max_requeues)]
    return " ".join(
        [
            shlex.join(srun),
            *([options.container] if options.container else []),
            python,
            "-u -c",
            shlex.join([code, *job]),
        ]
    )


def _search_path() -> list[str]:
    """Return where modules are looked for, so that the job finds those that we found."""
    return [os.path.abspath(path) for path in sys.path if path]


def options_of(values: Mapping[str, Any]) -> SlurmOptions:
    """Return the launcher's settings, checked. Raises `ZooError`."""
    from zoo.config.fields import build

    return build(SlurmOptions, values, "hydra.launcher")


SECONDS_BETWEEN_LOOKS = (1.0, 15.0)
"""While waiting, at first and in the end."""

ANSWER_LIMIT = 120
"""Seconds that a command of Slurm may take."""


class SlurmLauncher:
    """What ``hydra/launcher=slurm`` stands for; its options are those of `SlurmOptions`."""

    def __init__(self, **options: Any) -> None:
        self.given = options

    def setup(self, sweep: Sweep, config: DictConfig) -> None:
        """Take over what the jobs have in common. Raises `ZooError` where there is no Slurm."""
        if shutil.which("sbatch") is None:
            raise ZooError(
                "hydra/launcher=slurm: this machine is not part of a Slurm cluster (it has no `sbatch`);"
                " hydra/launcher=joblib runs the jobs on its own cores"
            )
        self.options = options_of(self.given)
        self.sweep = sweep

    def run_jobs(self, numbers: Sequence[int]) -> None:
        """Submit jobs that the sweep has, and wait for them only if that is asked for."""
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
        for row in folder.write_table():
            if row.state.number in waited_for and row.status not in (QUEUED, RUNNING, PREEMPTED):
                waited_for.remove(row.state.number)
                say(f"zoo: job {row.state.number}: {ending(row)}")


def ending(row: Row) -> str:
    """Return how a job ended, in a few words."""
    return f"{row.status}: {row.reason}" if row.reason else row.status
