"""The jobs of a multirun as one job array of a Slurm cluster: options, batch script, submitting, requeueing.

Each job of the array runs `run_array_job`, which starts the job of the sweep in a process of its own: if that
is killed, for its memory perhaps, its end is written down all the same. On the signal that announces the time
limit or a preemption the job ends with a checkpoint and exit status `REQUEUE`, on which the batch script puts
it back into the queue.
"""

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
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from zoo.config.fields import build, hyperparameter
from zoo.config.overrides import format_overrides
from zoo.core import atomic
from zoo.core.printing import one_line, say
from zoo.errors import ZooError
from zoo.launch.processes import JobCommand, JobResult, JobRunner
from zoo.launch.sweep import Sweep
from zoo.launch.sweep_folder import INTERRUPTED, PREEMPTED, QUEUED, RUNNING, JobState, SweepFolder

REQUEUE = 85
"""Exit status of a job that wants to be put back into the queue."""

KILLED_EARLY = tuple(128 + number for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2))
"""Exit statuses of one that was told to end before it could mind signals."""

MIN_SECONDS_OF_WORK = 30
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


_SLURM_NAMES = {
    "name": "job-name",
    "timeout_min": "time",
    "mem_gb": "mem",
    "tasks_per_node": "ntasks-per-node",
}
"""What Slurm calls otherwise."""

_NOT_OF_SBATCH = (
    *("array_parallelism", "signal_delay_s", "max_requeues", "additional_parameters"),
    *("setup", "container", "python", "srun_args"),
)


def batch_script(options: SlurmOptions, folder: SweepFolder, numbers: Sequence[int], function: str) -> str:
    """Return the script that `sbatch` takes. Raises `ZooError` for what can't stand in one."""
    parameters = {
        **dict(_parameters(options, folder, numbers)),
        **{key.replace("_", "-"): value for key, value in (options.additional_parameters or {}).items()},
    }
    flags = (_flag(key, value) for key, value in parameters.items() if value not in (None, False))
    sbatch_options = "\n".join(f"#SBATCH {flag}" for flag in flags)
    setup = "\n".join(options.setup or [])
    goes_on = " ".join(map(str, (REQUEUE, *KILLED_EARLY)))
    return f"""\
#!/bin/bash
{sbatch_options}

{setup}

# A signal is the job's own business: this script goes on when the job has ended.
trap : TERM USR1 USR2
{_job_command(options, folder, function)}
status=$?

# A job that was told to end, and wrote its checkpoint or had not begun, goes on where it was;
# one that somebody has cancelled meanwhile does not.
job="${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
if [[ " {goes_on} " == *" $status "* ]] &&\
 [ "${{SLURM_RESTART_COUNT:-0}}" -lt {options.max_requeues} ] &&\
 [ "$(squeue --noheader --array --jobs="$job" --format=%T)" = RUNNING ]; then
    scontrol requeue "$job"
fi
exit "$status"
"""


def _parameters(
    options: SlurmOptions, folder: SweepFolder, numbers: Sequence[int]
) -> Iterator[tuple[str, Any]]:
    if 60 * options.timeout_min - options.signal_delay_s - 60 < MIN_SECONDS_OF_WORK:
        raise ZooError(
            f"`hydra.launcher.signal_delay_s={options.signal_delay_s}` leaves too little of"
            f" `timeout_min={options.timeout_min}`, as Slurm may send the signal a minute early"
        )
    for field in dataclasses.fields(options):
        if field.name not in _NOT_OF_SBATCH:
            value = getattr(options, field.name)
            if field.name == "mem_gb" and value is not None:
                value = f"{round(1024 * value)}M"
            yield _SLURM_NAMES.get(field.name, field.name.replace("_", "-")), value
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


def _job_command(options: SlurmOptions, folder: SweepFolder, function: str) -> str:
    cpus = [] if options.cpus_per_task is None else [f"--cpus-per-task={options.cpus_per_task}"]
    srun = ["srun", "--nodes=1", "--ntasks=1", *cpus, "--unbuffered", *(options.srun_args or [])]
    # The job is to find the modules that we find.
    our_path = [os.path.abspath(path) for path in sys.path if path]
    path = "[each for each in sys.path if each]" if options.python else repr(our_path)
    code = f"import sys; sys.path[:] = {path}; from zoo.launch.slurm import run_array_job; run_array_job()"
    job = [code, str(folder.path.absolute()), function, str(options.max_requeues)]
    container = f"{options.container} " if options.container else ""
    python = options.python or shlex.quote(sys.executable)
    return f"{shlex.join(srun)} {container}{python} -u -c {shlex.join(job)}"


POLL_SECONDS = (1.0, 15.0)
"""Between two looks at the jobs while waiting, at first and in the end."""

TIMEOUT = 120
"""Seconds that a command of Slurm may take."""


class SlurmLauncher:
    """The launcher ``hydra/launcher=slurm``; its options are those of `SlurmOptions`."""

    def __init__(self, sweep: Sweep, folder: SweepFolder, **options: Any) -> None:
        if shutil.which("sbatch") is None:
            raise ZooError(
                "hydra/launcher=slurm: this machine is not part of a Slurm cluster (it has no `sbatch`);"
                " hydra/launcher=joblib runs the jobs on its own cores"
            )
        self.options = build(SlurmOptions, options, "hydra.launcher")
        self.sweep, self.folder = sweep, folder

    def run_jobs(self, numbers: Sequence[int]) -> None:
        """Submit jobs that the sweep has, and wait for them only if that is asked for."""
        try:
            with self.folder.hold_for_launcher(numbers):
                array = self._submit(numbers)
        except OSError as error:
            raise ZooError(f"can't write down the jobs in {self.folder.shown}: {one_line(error)}") from error
        with contextlib.suppress(ZooError):  # the jobs write it again
            self.folder.write_table()
        first, last = f"{array}_{numbers[0]}", f"{array}_{numbers[-1]}"
        ids = first if len(numbers) == 1 else f"{len(numbers)} jobs, {first} to {last}"
        say(f"zoo: submitted to Slurm: {ids}")
        self.sweep.is_left_to_slurm = True
        if self.sweep.settings.wait:
            status = f"zoo status {self.folder.shown}"
            say(f"zoo: waiting; Ctrl-C ends the waiting alone, the jobs go on: {status}")
            with contextlib.suppress(KeyboardInterrupt):
                _wait(self.folder, numbers)
                self.sweep.is_left_to_slurm = False

    def _submit(self, numbers: Sequence[int]) -> str:
        """Return the number of the job array, which is cancelled if anything here fails."""
        script = self.folder.path / f"slurm-{time.strftime('%Y%m%d-%H%M%S')}.sh"
        atomic.write_text(script, batch_script(self.options, self.folder, numbers, self.sweep.function))
        # No job may start before it is known which it is.
        answer = _run_slurm(["sbatch", "--parsable", "--hold", str(script.absolute())])
        array = answer.strip().partition(";")[0]
        try:
            self.sweep.queue(self.folder, numbers)
            for number in numbers:
                self.folder.change_job(number, slurm_job=f"{array}_{number}")
            _run_slurm(["scontrol", "release", array])
        except BaseException:
            with contextlib.suppress(ZooError):
                _run_slurm(["scancel", array])
            raise
        return array


def _run_slurm(command: Sequence[str]) -> str:
    """Return what a command of Slurm prints. Raises `ZooError` with what Slurm says if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ZooError(f"Slurm did not take the jobs: {one_line(error)}") from error
    if done.returncode:
        lines = [line.rpartition("error: ")[2].strip() for line in done.stderr.splitlines()]
        message = one_line("; ".join(dict.fromkeys(line for line in lines if line)), 500)
        raise ZooError(f"Slurm did not take the jobs: {message or 'it does not say why'}")
    return done.stdout


def _wait(folder: SweepFolder, numbers: Sequence[int]) -> None:
    """Wait until all jobs have ended, and say of each how."""
    waited_for = set(numbers)
    pause, longest = POLL_SECONDS
    while waited_for:
        time.sleep(pause)
        pause = min(1.1 * pause, longest)
        for row in folder.write_table():
            if row.state.number in waited_for and row.status not in (QUEUED, RUNNING, PREEMPTED):
                waited_for.remove(row.state.number)
                say(f"zoo: job {row.state.number}: {row.status}{f': {row.reason}' if row.reason else ''}")


def run_array_job() -> NoReturn:
    """Run the job of the sweep in ``argv[1]`` that has the index of this Slurm job, and exit."""
    path, function, max_requeues = sys.argv[1:]
    sys.exit(SlurmJobRunner(SweepFolder.open(path), function, int(max_requeues)).run_to_the_end())


class SlurmJobRunner(JobRunner):
    """Runs one job of a sweep within a Slurm job, until it is done or is to be put back into the queue."""

    SECONDS_BETWEEN_LOOKS = 2.0
    """How often a job looks whether another one has failed, where that ends the sweep."""

    def __init__(self, folder: SweepFolder, function: str, max_requeues: int) -> None:
        record = folder.read_record()
        threads = os.environ.get("SLURM_CPUS_PER_TASK")
        environment = {} if threads is None else {"OMP_NUM_THREADS": threads}
        command = JobCommand(record["command"], function, record["hydra_overrides"], environment)
        super().__init__(folder, command)
        self.number = int(os.environ["SLURM_ARRAY_TASK_ID"])
        self.restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        self.may_be_requeued = self.restarts < max_requeues
        self.signal: str | None = None
        self.is_over = threading.Event()

    def run_to_the_end(self) -> int:
        """Run the job; return the exit status, `REQUEUE` if it goes on another time."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._on_signal)
        if self.folder.read_job(self.number).fail_fast:
            self._stop_if_another_failed()
            threading.Thread(target=self._watch_others, daemon=True).start()
        array = os.environ["SLURM_ARRAY_JOB_ID"]
        self.run(self.number, self._run_once, slurm_job=f"{array}_{self.number}", restarts=self.restarts)
        self.is_over.set()
        state = self.folder.read_job(self.number)
        return REQUEUE if state.status == PREEMPTED else state.exit_status or 0

    def end_of(self, state: JobState, result: JobResult) -> dict[str, object]:
        end = super().end_of(state, result)
        if end["status"] != INTERRUPTED or self.signal is None:
            return end
        if self.may_be_requeued:
            return {**end, "status": PREEMPTED, "reason": f"{self.signal}: it waits to be started again"}
        reason = f"{self.signal}; it was queued again {self.restarts} times (hydra.launcher.max_requeues)"
        return {**end, "reason": reason}

    def _run_once(self, state: JobState, hidden_overrides: list[str], lock: int | None) -> JobResult:
        say(f"zoo: job {state.number}: {format_overrides(state.overrides)}")
        return self.command.run(self.processes, state.overrides, hidden_overrides, lock=lock)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name
        # The lock that this takes may be the one that the signal interrupted.
        threading.Thread(target=self.processes.stop, daemon=True).start()

    def _watch_others(self) -> None:
        while not self.processes.is_stopping and not self.is_over.wait(self.SECONDS_BETWEEN_LOOKS):
            self._stop_if_another_failed()

    def _stop_if_another_failed(self) -> None:
        if self.folder.has_failed():
            self.processes.stop("another job failed (sweep.fail_fast)")
