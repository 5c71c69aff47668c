"""The jobs of a multirun as one job array of a Slurm cluster: options, batch script, submitting, requeueing.

Each job of the array runs `ArrayJob`, which starts the job of the sweep in a process of its own: if that
is killed, for its memory perhaps, its end is written down all the same. On the signal that announces the time
limit or a preemption the job ends with a checkpoint and exit status `REQUEUE`, on which the batch script puts
it back into the queue. Started again, `zoo.launch.sweep_folder` names it to `zoo train` by `job=`, by which
`zoo.experiment.run_folder` finds the run and goes on from its checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import jinja2

from zoo.config.fields import build, hyperparameter
from zoo.config.overrides import format_overrides
from zoo.core import atomic
from zoo.core.printing import say
from zoo.errors import ZooError
from zoo.launch.processes import JobRunner
from zoo.launch.sweep_folder import INTERRUPTED, PREEMPTED, SweepFolder, run_slurm

REQUEUE = 85
"""Exit status of a job that wants to be put back into the queue."""

KILLED_EARLY = tuple(128 + number for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2))
"""Exit statuses of one that was told to end before it could mind signals."""


@dataclass
class SlurmOptions:
    """Settings ``hydra.launcher`` of ``hydra/launcher=slurm``; null: the cluster's default."""

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
    cpus_per_task: int | None = hyperparameter(None, "cores of a job, and threads where none are set", ge=1)
    mem_gb: float | None = hyperparameter(None, "memory of a node", unit="GB", gt=0)
    gpus_per_node: int | str | None = hyperparameter(None, "GPUs, such as 1 or a100:1")
    constraint: str | None = hyperparameter(None, "features that a node must have")
    additional_parameters: dict[str, Any] | None = hyperparameter(None, "any other options of sbatch")
    setup: list[str] | None = hyperparameter(None, "commands before the job, such as: module load cuda")
    python: str | None = hyperparameter(None, "command that runs Python; null: the Python that submits")


def batch_script(options: SlurmOptions, folder: SweepFolder, numbers: Sequence[int], function: str) -> str:
    """Return the script that `sbatch` takes. Raises `ZooError` for a time limit that leaves no time."""
    if 60 * options.timeout_min - options.signal_delay_s < 90:
        raise ZooError(
            f"`hydra.launcher.signal_delay_s={options.signal_delay_s}` leaves too little of"
            f" `timeout_min={options.timeout_min}`, as Slurm may send the signal a minute early"
        )
    log = str(folder.path.absolute()).replace("\\", "\\\\").replace("%", "%%")
    as_in_slurm = ("partition", "account", "qos", "cpus_per_task", "gpus_per_node", "constraint")
    parameters = {
        "job-name": options.name,
        "time": options.timeout_min,
        **{name: getattr(options, name) for name in as_in_slurm},
        "mem": None if options.mem_gb is None else f"{round(1024 * options.mem_gb)}M",
        "array": f"{','.join(map(str, numbers))}%{options.array_parallelism}",
        "chdir": os.getcwd(),
        "output": f"{log}/%a.log",
        "open-mode": "append",
        "requeue": True,
        "signal": f"USR2@{options.signal_delay_s}",
        **(options.additional_parameters or {}),
    }
    flags = [
        f"--{key.replace('_', '-')}{'' if value is True else f'={shlex.quote(str(value))}'}"
        for key, value in parameters.items()
        if value not in (None, False)
    ]
    template = Path(__file__).with_name("slurm_job.sh.j2").read_text(encoding="utf-8")
    return jinja2.Template(template, trim_blocks=True, keep_trailing_newline=True).render(
        flags=flags,
        setup=options.setup or [],
        command=_job_command(options, folder, function),
        goes_on=" ".join(map(str, (REQUEUE, *KILLED_EARLY))),
        max_requeues=options.max_requeues,
    )


def _job_command(options: SlurmOptions, folder: SweepFolder, function: str) -> str:
    cpus = "" if options.cpus_per_task is None else f"--cpus-per-task={options.cpus_per_task}"
    # The job is to find the modules that we find.
    our_path = [os.path.abspath(path) for path in sys.path if path]
    path = "[each for each in sys.path if each]" if options.python else repr(our_path)
    job = f"ArrayJob{(str(folder.path.absolute()), function, options.max_requeues)}"
    code = f"import sys; sys.path[:] = {path}; from zoo.launch.slurm import ArrayJob; {job}.run_and_exit()"
    python = options.python or shlex.quote(sys.executable)
    return f"srun --nodes=1 --ntasks=1 {cpus} --unbuffered {python} -u -c {shlex.quote(code)}"


class SlurmLauncher:
    """The launcher ``hydra/launcher=slurm``, with the options of `SlurmOptions`."""

    def __init__(self, folder: SweepFolder, function: str, **options: Any) -> None:
        if shutil.which("sbatch") is None:
            raise ZooError(
                "hydra/launcher=slurm: this machine is not part of a Slurm cluster (it has no `sbatch`);"
                " hydra/launcher=joblib runs the jobs on its own cores"
            )
        self.options = build(SlurmOptions, options, "hydra.launcher")
        self.folder, self.function = folder, function

    def run_jobs(self, numbers: Sequence[int]) -> bool:
        """Submit jobs that the sweep has. Raises `ZooError` if Slurm does not take them."""
        script = self.folder.jobs / f"slurm-{time.strftime('%Y%m%d-%H%M%S')}.sh"
        atomic.write_text(script, batch_script(self.options, self.folder, numbers, self.function))
        # No job may start before it is known which it is.
        answer = run_slurm(["sbatch", "--parsable", "--hold", str(script.absolute())])
        array = answer.strip().partition(";")[0]
        try:
            self.folder.queue(numbers, array)
            run_slurm(["scontrol", "release", array])
        except BaseException:
            with contextlib.suppress(ZooError):
                run_slurm(["scancel", array])
            raise
        say(f"zoo: submitted to Slurm: {len(numbers)} {'jobs' if len(numbers) > 1 else 'job'}, array {array}")
        return False


class ArrayJob(JobRunner):
    """The job of a sweep with the index of this Slurm job; told to end, it is put back into the queue."""

    def __init__(self, path: str, function: str, max_requeues: int) -> None:
        threads = os.environ.get("SLURM_CPUS_PER_TASK")
        super().__init__(SweepFolder.open(path), function, {"OMP_NUM_THREADS": threads} if threads else {})
        self.restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        self.max_requeues = max_requeues
        self.signal: str | None = None

    def run_and_exit(self) -> NoReturn:
        """Run the job and exit, with status `REQUEUE` if it goes on another time."""
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(signum, self._on_signal)
        number = int(os.environ["SLURM_ARRAY_TASK_ID"])
        say(f"zoo: job {number}: {format_overrides(self.folder.read_job(number).overrides)}")
        state = self.run(number, restarts=self.restarts)
        sys.exit(REQUEUE if state.status == PREEMPTED else state.exit_status)

    def interruption(self, reason: str) -> tuple[str, str]:
        if self.signal is None:
            return INTERRUPTED, reason
        if self.restarts < self.max_requeues:
            return PREEMPTED, f"{self.signal}: it waits to be started again"
        limit = f"it was queued again {self.restarts} times (hydra.launcher.max_requeues)"
        return INTERRUPTED, f"{self.signal}; {limit}"

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name
        # The lock that this takes may be the one that the signal interrupted.
        threading.Thread(target=self.processes.stop, daemon=True).start()
