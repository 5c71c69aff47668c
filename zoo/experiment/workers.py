"""Ranks of a training: processes that rank 0 starts and ends, or the tasks of a Slurm job."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from zoo.core.printing import one_line, print_message
from zoo.errors import INTERRUPTED, ZooError
from zoo.launch.processes import describe_exit, python_program

if TYPE_CHECKING:
    from zoo.optim.workers import Store, Workers

START_SECONDS, END_SECONDS = 600.0, 5.0
"""Time for the other ranks to start, which tasks of a job may do far apart, and to end before a kill."""

FAILURE = 1

LEARN = "learn"  # name of the order to learn
CONFIG, READY = "config", "ready"
"""The config's key in the store, and what each rank writes under its number once it is ready.

It is replaced by the error that ended the rank: "" if that was only that another rank was gone.
"""

FIRST_PORT, N_PORTS = 15_000, 16_000  # for tasks of a job; systems give away higher ports by themselves


class Task(NamedTuple):
    """Rank and local rank of a process; Slurm tasks connect to rank 0 at ``address:port``."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str = ""  # for tasks of a job alone
    port: int = 0


def slurm_task() -> Task | None:
    """Return which task of a step of several this process is, or None."""
    variable = os.environ.get
    size = int(variable("SLURM_STEP_NUM_TASKS", "1"))
    if size < 2:
        return None
    number = int(os.environ["SLURM_JOB_ID"]) + 31 * int(variable("SLURM_STEP_ID", "0"))
    address, counts = variable("MASTER_ADDR") or "127.0.0.1", os.environ["SLURM_STEP_TASKS_PER_NODE"]
    if int(variable("SLURM_STEP_NUM_NODES", "1")) > 1 and not variable("MASTER_ADDR"):
        nodes = os.environ["SLURM_STEP_NODELIST"]  # gpu[03-05,07],login1
        address = re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes)[0])
    # 2(x3),1 are 2,2,2,1
    counts = re.sub(r"(\d+)\(x(\d+)\)", lambda part: ",".join([part[1]] * int(part[2])), counts)
    return Task(
        rank=int(os.environ["SLURM_PROCID"]),
        size=size,
        local_rank=int(os.environ["SLURM_LOCALID"]),
        local_size=int(counts.split(",")[int(variable("SLURM_NODEID", "0"))]),
        address=address,
        port=int(variable("MASTER_PORT") or FIRST_PORT + number % N_PORTS),
    )


def rank_config(config: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Return the config of a rank: with a GPU of its own, or the CPU. Raises `ZooError` for too few GPUs.

    On a GPU nothing is compiled unless it is asked for: a CUDA graph would have to hold what NCCL does.
    """
    import torch

    if task.size == 1:
        return dict(config)
    device, size, n_gpus = config["device"], task.local_size, torch.cuda.device_count()
    if device.startswith("cuda:"):
        raise ZooError(f"device={device} is one GPU, and each rank needs one: device=cuda, or device=cpu")
    if device in ("auto", "cuda"):
        on_node = int(os.environ.get("SLURM_GPUS_ON_NODE") or size)
        if n_gpus >= size:
            device = f"cuda:{task.local_rank}"
        elif n_gpus == 1 and task.address and on_node >= size:
            device = "cuda:0"  # its own: the other tasks here see others
        elif device == "cuda":
            raise ZooError(f"each rank needs a GPU: there are {size} ranks here, and {n_gpus}; device=cpu")
        else:
            device = "cpu"
            if n_gpus:
                print_message(f"{size} ranks learn on the CPU: each needs a GPU, and there are {n_gpus}")
    compiles = False if device != "cpu" and config["compile"] == "auto" else config["compile"]
    return {**config, "device": device, "compile": compiles}


def rank_launcher(n_ranks: int) -> RankLauncher:
    """Return a launcher of the other ranks; in a later task of a job, run as a rank and exit."""
    task = None if n_ranks == 1 else slurm_task()
    if task is None:
        return RankLauncher(Task(0, n_ranks, 0, n_ranks))
    if task.size != n_ranks:
        raise ZooError(f"workers={n_ranks}, but Slurm has started {task.size} tasks: srun --ntasks={n_ranks}")
    if task.rank:
        sys.exit(_run_rank(_store_of(task), task))
    return RankLauncher(task)


class RankLauncher:
    """Starts the other ranks of a run at once, hands them its config later, and ends them."""

    def __init__(self, task: Task) -> None:
        self.task, self.size = task, task.size
        self._is_broken = False
        self._ranks: Workers | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._store: Store | None = None
        if task.address:
            self._store = _store_of(task)
        elif self.size > 1:
            self._store = self._start_processes()

    def _start_processes(self) -> Store:
        file = os.memfd_create("zoo-ranks")
        for rank in range(1, self.size):
            call = f"from zoo.experiment.workers import main; main({file}, {rank}, {self.size})"
            command = [sys.executable, "-c", python_program(call)]
            self._processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[file]))
        return _store_of(self.task, file)

    def join(self, config: Mapping[str, Any], checkpoint: Path | None, *, on_gpus: bool) -> Workers:
        """Return rank 0 among all, once the others are ready. Raises their errors.

        With ``device=auto`` this rank has chosen for all. The others go on from the checkpoint, if any.
        """
        from zoo.optim.workers import Workers

        assert self._store is not None
        if config["device"] == "auto":
            config = {**config, "device": "cuda" if on_gpus else "cpu"}
        self._store.set(CONFIG, json.dumps([config, checkpoint and str(checkpoint.absolute())]))
        deadline = time.monotonic() + START_SECONDS
        with self.explain_errors():
            while missing := [rank for rank in range(1, self.size) if self._report(rank) != READY]:
                if failure := self._failure():
                    raise failure
                if time.monotonic() > deadline:
                    raise ZooError(f"rank {missing[0]} of {self.size} is not ready after {START_SECONDS:g} s")
                time.sleep(0.01)
            self._ranks = Workers(0, self.size, self._store, local_size=self.task.local_size, on_gpus=on_gpus)
        return self._ranks

    def forward(self, number: int) -> None:
        """Send SIGTERM to the processes that were started here."""
        for process in self._processes:
            process.terminate()

    @contextlib.contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Raise the error of the rank that failed, instead of one that this caused here."""
        from zoo.optim.workers import is_worker_lost

        try:
            yield
        except BaseException as error:
            self._is_broken = True
            if self._store is None or not isinstance(error, Exception):
                raise
            failure, deadline = self._failure(), time.monotonic() + END_SECONDS
            if is_worker_lost(error):
                while failure is None and time.monotonic() < deadline:
                    time.sleep(0.02)
                    failure = self._failure()
                failure = failure or ZooError(f"a rank exited unexpectedly (killed?): {one_line(error)}")
            if failure is None:
                raise
            raise failure from None

    def _failure(self) -> ZooError | None:
        """Return the error of the first rank that failed by itself, if one has."""
        statuses = [process.poll() for process in self._processes] or [None] * (self.size - 1)
        for rank, status in enumerate(statuses, 1):
            report = self._report(rank)
            if report not in (None, READY, ""):
                return ZooError(f"rank {rank}: {report}")
            if status is not None and report != "":
                return ZooError(f"rank {rank} of {self.size} {describe_exit(status)}")
        return None

    def _report(self, rank: int) -> str | None:
        assert self._store is not None
        return self._store.get(str(rank)).decode() if self._store.check([str(rank)]) else None

    def close(self) -> None:
        """Stop the other ranks: cooperatively if none has failed, else by SIGKILL; wait for own processes."""
        ranks, self._ranks = self._ranks, None
        if ranks is not None:
            if not self._is_broken:
                with contextlib.suppress(RuntimeError):
                    ranks.end()
            ranks.close()
        elif self.task.address and self._store is not None:
            self._store.set(CONFIG, "")  # there is no run
        deadline = time.monotonic() + (END_SECONDS if ranks is not None else 0.0)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.communicate()
        self._processes, self._store = [], None


# -- the other ranks --------------------------------------------------------------------------------------


def main(file: int, rank: int, size: int) -> NoReturn:
    """Run as a rank that rank 0 has started on this machine, and exit; at once when rank 0 is gone."""

    def exit_with_rank_0() -> None:
        os.read(0, 1)  # its end of our standard input closes with it
        os._exit(FAILURE)

    threading.Thread(target=exit_with_rank_0, daemon=True).start()
    task = Task(rank, size, rank, size)
    sys.exit(_run_rank(_store_of(task, file), task))


def _store_of(task: Task, file: int | None = None) -> Store:
    """Return the store of the ranks; rank 0 serves it for a job's tasks, once all have started.

    On one machine it is a ``file`` without a name: no other user can open it, and nobody has to remove it.
    """
    import torch.distributed as dist

    from zoo.optim.workers import PATIENCE

    where, wait = (task.address, task.port), timedelta(seconds=START_SECONDS)
    try:
        if file is not None:
            store: Store = dist.FileStore(f"/proc/self/fd/{file}", task.size)  # type: ignore[attr-defined]
        else:
            store = dist.TCPStore(*where, task.size, task.rank == 0, wait)  # type: ignore[attr-defined]
    except (RuntimeError, OSError) as error:
        way = f"can't {'reach rank 0' if task.rank else 'meet the others'} at {where[0]}, port {where[1]}"
        others = "(MASTER_ADDR and MASTER_PORT choose others)"
        raise ZooError(f"rank {task.rank} {way} {others}: {one_line(error)}") from error
    store.set_timeout(PATIENCE)  # rank 0 may clone an expert before the others learn
    return store


def _run_rank(store: Store, task: Task) -> int:
    """Learn by the config in the store until rank 0 ends the run; return an exit status."""
    from zoo.experiment.checkpoint import CHECKPOINT, read_share, write_share
    from zoo.experiment.factories import make_algorithm
    from zoo.experiment.signals import stop_on_signals
    from zoo.optim.workers import Workers, is_worker_lost

    try:
        config, checkpoint = json.loads(store.get(CONFIG))
    except (RuntimeError, ValueError):  # rank 0 is gone, or has found an error, which it has reported
        return FAILURE
    try:
        with contextlib.ExitStack() as closing:
            warnings.simplefilter("ignore")  # rank 0 prints them
            config["env"]["check"] = False  # rank 0 has checked it
            algorithm = make_algorithm(rank_config(config, task), closing)
            closing.enter_context(stop_on_signals(algorithm, leads=False))
            store.set(str(task.rank), READY)
            on_gpus = algorithm.device.type == "cuda"
            ranks = Workers(task.rank, task.size, store, local_size=task.local_size, on_gpus=on_gpus)
            closing.callback(ranks.close)
            algorithm.join(ranks)
            if checkpoint is not None:
                algorithm.load_state(read_share(Path(checkpoint), task.rank))
            orders = algorithm.distributed.orders
            orders[LEARN] = partial(algorithm.learn, reset_num_timesteps=False, progress_bar=False)
            orders[CHECKPOINT] = lambda folder: ranks.gather(write_share(Path(folder), algorithm))
            ranks.follow(orders)
        return 0
    except KeyboardInterrupt:
        status, report = INTERRUPTED, "it was interrupted"
    except Exception as error:
        is_bug = not isinstance(error, ZooError)
        text = "".join(traceback.format_exception(error)).rstrip() if is_bug else str(error)
        status, report = FAILURE, "" if is_worker_lost(error) else text
    with contextlib.suppress(RuntimeError):  # the store may be gone with rank 0
        store.set(str(task.rank), report)
    return status
