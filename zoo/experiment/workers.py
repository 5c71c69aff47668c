"""Workers of a run: processes that the first one starts and ends, or the tasks of a Slurm job."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from zoo.core.free_memory import usable_cores
from zoo.core.printing import one_line, print_message
from zoo.errors import INTERRUPTED, ZooError
from zoo.launch.processes import describe_exit, python_program

if TYPE_CHECKING:
    from zoo.optim.workers import Store, Workers

START_SECONDS = 600.0
"""Time for the other workers to start; the tasks of a job may start far apart."""

DISMISS_SECONDS = 60.0
"""How long a failed first task waits for the others, to dismiss them."""

END_SECONDS = 5.0
"""Time for workers to end, before they are killed."""

GRACE_SECONDS = 3.0
"""Time for a worker to end by itself once the first one is gone."""

FAILURE = 1

LEARN = "learn"
"""Name of the command to learn."""

CONFIG, READY, ENDED = "config", "ready", "ended"
"""Keys in the store: the run's config, and of each worker that it is ready, or by which error it has ended.

That is "" for one that ended only because another one was gone.
"""

LOOPBACK = "127.0.0.1"

FIRST_PORT, N_PORTS = 15_000, 16_000
"""Where workers of a job meet: below the ports that systems give away by themselves."""


@dataclass(frozen=True)
class Task:
    """One of the workers: which of how many, in all and on its node.

    The first of those that `srun` has started listens at ``address`` and ``port``; others have no address.
    ``gpus_here`` are all that the step has on this node, None where Slurm does not set that.
    """

    rank: int
    size: int
    rank_here: int
    n_here: int
    address: str = ""
    port: int = 0
    gpus_here: int | None = None


def slurm_task() -> Task | None:
    """Return which task of a step of several this process is, or None."""
    variable = os.environ.get
    size = int(variable("SLURM_STEP_NUM_TASKS", "1"))
    if size < 2:
        return None
    number = int(os.environ["SLURM_JOB_ID"]) + 31 * int(variable("SLURM_STEP_ID", "0"))
    node, n_nodes = int(variable("SLURM_NODEID", "0")), int(variable("SLURM_STEP_NUM_NODES", "1"))
    address = LOOPBACK if n_nodes == 1 else first_host(os.environ["SLURM_STEP_NODELIST"])
    return Task(
        rank=int(os.environ["SLURM_PROCID"]),
        size=size,
        rank_here=int(os.environ["SLURM_LOCALID"]),
        n_here=tasks_on_nodes(os.environ["SLURM_STEP_TASKS_PER_NODE"])[node],
        address=variable("MASTER_ADDR") or address,
        port=int(variable("MASTER_PORT") or FIRST_PORT + number % N_PORTS),
        gpus_here=int(variable("SLURM_GPUS_ON_NODE") or 0) or None,
    )


def first_host(nodes: str) -> str:
    """Return the first of Slurm's list of nodes, such as ``gpu[03-05,07],login1``."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0] if first else nodes)


def tasks_on_nodes(counts: str) -> list[int]:
    """Return the number of tasks on each node, which Slurm writes as ``2(x3),1``."""
    parts = re.findall(r"(\d+)(?:\(x(\d+)\))?", counts)
    return [int(count) for count, times in parts for _ in range(int(times or 1))]


def worker_config(config: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Return the config of a worker: with a GPU of its own, or the CPU. Raises `ZooError` for too few GPUs.

    On a GPU nothing is compiled unless it is asked for: a CUDA graph would have to hold what NCCL does.
    """
    device = _device(config["device"], task)
    is_gpu, compiles = device.startswith("cuda"), config["compile"]
    return {**config, "device": device, "compile": False if is_gpu and compiles == "auto" else compiles}


def _device(device: str, task: Task) -> str:
    import torch

    if device.startswith("cuda:"):
        raise ZooError(f"device={device} is one GPU, and each worker needs one: device=cuda, or device=cpu")
    if device not in ("auto", "cuda"):
        return device
    n_gpus, n_here = torch.cuda.device_count(), task.n_here
    if n_gpus >= n_here:
        return f"cuda:{task.rank_here}"
    is_job = bool(task.address)
    if n_gpus == 1 and is_job and (task.gpus_here is None or task.gpus_here >= n_here):
        return "cuda:0"  # its own: the other tasks here see others
    if device == "cuda":
        raise ZooError(f"each worker needs a GPU: there are {n_here} workers here, and {n_gpus}; device=cpu")
    if n_gpus:
        few = f"{n_gpus} GPU{'s' if n_gpus > 1 else ''}"
        print_message(f"{n_here} workers here, and {few}: all learn on the CPU, as each needs one of its own")
    return "cpu"


def open_store(task: Task) -> Store:
    """Return the store in which the tasks of a job meet; the first one serves it. Raises `ZooError`."""
    import torch.distributed as dist

    wait = datetime.timedelta(seconds=START_SECONDS)
    is_first = task.rank == 0
    try:
        where = task.address, task.port, task.size, is_first
        return dist.TCPStore(*where, timeout=wait, wait_for_workers=False)  # type: ignore[attr-defined]
    except (RuntimeError, OSError) as error:
        way = "listen at" if is_first else "reach the first one at"
        raise ZooError(
            f"worker {task.rank} can't {way} {task.address}, port {task.port} (MASTER_ADDR and MASTER_PORT"
            f" choose others): {one_line(error)}"
        ) from error


# -- the first one ----------------------------------------------------------------------------------------


def worker_launcher(n_workers: int) -> WorkerLauncher:
    """Return a launcher of the other workers; in a later task of a job, run as a worker and exit."""
    task = None if n_workers == 1 else slurm_task()
    if task is None:
        return WorkerLauncher(Task(0, n_workers, 0, n_workers))
    if task.size != n_workers:
        raise ZooError(
            f"workers={n_workers}, but Slurm has started {task.size} tasks: srun --ntasks={n_workers}"
        )
    if task.rank:
        sys.exit(_run_worker(open_store(task), task))
    return WorkerLauncher(task)


class WorkerLauncher:
    """Starts and ends the other workers of a run; ``size`` counts this process too."""

    def __init__(self, task: Task) -> None:
        self.task, self.size = task, task.size
        self.is_broken = False
        self._workers: Workers | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        # The other tasks of a job see from now on whether this one lives.
        self._store: Store | None = open_store(task) if task.address else None

    def start(self, config: Mapping[str, Any], *, on_gpus: bool = False) -> Workers:
        """Start the others with this config, or meet them, and return this worker. Raises their errors.

        With ``device=auto`` this worker has chosen for all, on all nodes.
        """
        from zoo.optim.workers import Workers

        if self._store is None:
            self._store = self._start_processes()
        if config["device"] == "auto":
            config = {**config, "device": "cuda" if on_gpus else "cpu"}
        self._store.set(CONFIG, json.dumps(config))
        with self.explain_worker_errors():
            self._wait_until_ready()
            self._workers = Workers(0, self.size, self._store, n_here=self.task.n_here, on_gpus=on_gpus)
        return self._workers

    def _start_processes(self) -> Store:
        cores = usable_cores()
        if self.size > cores:
            print_message(f"{self.size} workers share {cores} core{'s' * (cores > 1)}: fewer may be faster")
        file = os.memfd_create("zoo-workers")
        for rank in range(1, self.size):
            call = f"from zoo.experiment.workers import main; main({file}, {rank}, {self.size})"
            command = [sys.executable, "-c", python_program(call)]
            self._processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[file]))
        return _file_store(file, self.size)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while missing := [rank for rank in range(1, self.size) if self._read(READY, rank) is None]:
            failure = self._failure()
            if failure is not None:
                raise failure
            if time.monotonic() > deadline:
                raise ZooError(f"worker {missing[0]} of {self.size} has not started in {START_SECONDS:g} s")
            time.sleep(0.01)

    def own_config(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the config of the first worker."""
        return config if self.size == 1 else worker_config(config, self.task)

    def forward(self, number: int) -> None:
        """Send SIGTERM to the processes that were started here."""
        for process in self._processes:
            process.terminate()

    @contextlib.contextmanager
    def explain_worker_errors(self) -> Iterator[None]:
        """Raise the error of the rank that failed, instead of one that this caused here."""
        from zoo.optim.workers import is_worker_lost

        try:
            yield
        except BaseException as error:
            self.is_broken = True
            if self._store is None or not isinstance(error, Exception):
                raise
            is_loss = is_worker_lost(error)
            deadline = time.monotonic() + (END_SECONDS if is_loss else 0.0)
            while (failure := self._failure()) is None and time.monotonic() < deadline:
                time.sleep(0.02)
            if failure is None and is_loss:
                failure = ZooError(f"a worker exited unexpectedly (killed?): {one_line(error)}")
            if failure is None:
                raise
            raise failure from None

    def _failure(self) -> ZooError | None:
        """Return the error of the first worker that failed by itself, if one has."""
        for rank in range(1, self.size):
            report = self._read(ENDED, rank)
            if report:
                return ZooError(f"worker {rank}: {report}")
        for rank, process in enumerate(self._processes, 1):
            status = process.poll()
            if status is not None and self._read(ENDED, rank) is None:
                return ZooError(f"worker {rank} of {self.size} {describe_exit(status)}")
        return None

    def _read(self, kind: str, rank: int) -> str | None:
        assert self._store is not None
        name = f"{kind}/{rank}"
        return self._store.get(name).decode() if self._store.check([name]) else None

    def close(self) -> None:
        """Stop the other ranks: cooperatively if none has failed, else by SIGKILL; wait for own processes."""
        workers, self._workers = self._workers, None
        if self._store is not None and not self._store.check([CONFIG]):
            # There is no run, which other tasks of a job have to hear, even if they start only now.
            self._store.set(CONFIG, json.dumps(None))
            deadline = time.monotonic() + DISMISS_SECONDS
            names = [f"{READY}/{rank}" for rank in range(1, self.size)]
            while time.monotonic() < deadline and not self._store.check(names):
                time.sleep(0.05)
        if workers is not None:
            if not self.is_broken:
                with contextlib.suppress(RuntimeError):
                    workers.end()
            workers.close()
        deadline = time.monotonic() + (END_SECONDS if workers is not None else 0.0)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.communicate()
        self._processes, self._store = [], None


# -- the other ranks --------------------------------------------------------------------------------------


def main(file: int, rank: int, size: int) -> NoReturn:
    """Run as a worker that the first one has started on this machine, and exit."""

    def exit_with_first_worker() -> None:
        select.select([sys.stdin], [], [])  # its end of our standard input closes with it
        time.sleep(GRACE_SECONDS)
        os._exit(FAILURE)

    threading.Thread(target=exit_with_first_worker, daemon=True).start()
    sys.exit(_run_worker(_file_store(file, size), Task(rank, size, rank, size)))


def _file_store(file: int, size: int) -> Store:
    """Return a store in a file without a name: no other user can open it, and nobody has to remove it."""
    import torch.distributed as dist

    return dist.FileStore(f"/proc/self/fd/{file}", size)  # type: ignore[attr-defined]


def _run_worker(store: Store, task: Task) -> int:
    """Learn by the config in the store until the first worker ends the run; return an exit status."""
    from zoo.experiment.checkpoint import CHECKPOINT, RESTORE, read_share, write_share
    from zoo.experiment.factories import make_algorithm
    from zoo.experiment.signals import stop_on_signals
    from zoo.optim.workers import Workers, is_worker_lost

    rank = task.rank
    try:
        config = json.loads(store.get(CONFIG))
    except RuntimeError:  # it has ended before
        return FAILURE
    if config is None:  # it has found a mistake, and reported it
        store.set(f"{READY}/{rank}", "")
        return FAILURE
    try:
        with contextlib.ExitStack() as closing:
            warnings.simplefilter("ignore")  # the first one prints them
            config["env"]["check"] = False  # the first one has checked it
            algorithm = make_algorithm(worker_config(config, task), closing)
            closing.enter_context(stop_on_signals(algorithm, leads=False))
            store.set(f"{READY}/{rank}", "")
            on_gpus = algorithm.device.type == "cuda"
            workers = Workers(rank, task.size, store, n_here=task.n_here, on_gpus=on_gpus)
            closing.callback(workers.close)
            algorithm.join(workers)

            def restore(folder: str) -> None:
                algorithm.load_state(read_share(Path(folder), rank))
                workers.gather(None)

            orders = algorithm.distributed.orders
            orders[LEARN] = partial(algorithm.learn, reset_num_timesteps=False, progress_bar=False)
            orders[CHECKPOINT] = lambda folder: workers.gather(write_share(Path(folder), algorithm))
            orders[RESTORE] = restore
            workers.follow(orders)
        return 0
    except KeyboardInterrupt:
        status, report = INTERRUPTED, "it was interrupted"
    except Exception as error:
        is_bug = not isinstance(error, ZooError)
        text = "".join(traceback.format_exception(error)).rstrip() if is_bug else str(error)
        status, report = FAILURE, "" if is_worker_lost(error) else text
    with contextlib.suppress(RuntimeError):  # the store may be gone with the first worker
        store.set(f"{ENDED}/{rank}", report)
    return status
