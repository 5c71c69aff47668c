"""The workers of a run, as the first of them starts and ends them: here, or as the tasks of a Slurm job."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from zoo.config.fields import build
from zoo.core.free_memory import usable_cores
from zoo.core.printing import one_line
from zoo.errors import INTERRUPTED, ZooError
from zoo.experiment.problems import tell
from zoo.experiment.slurm import LOOPBACK, Task, slurm_task
from zoo.launch.processes import describe_exit

if TYPE_CHECKING:
    from zoo.optim.workers import Store, Workers

START_SECONDS = 600.0
"""What the other workers have to start in; the tasks of a job may start far apart."""

SECONDS_TO_COME = 60.0
"""How long tasks of a job that has failed are told so."""

SECONDS_TO_END = 5.0
"""What they have to end in, before they are killed."""

SECONDS_LEFT = 3.0
"""What a worker has to end in by itself once the first one is gone."""

FAILURE = 1

LEARN = "learn"
"""The order to learn."""

CONFIG, READY, FAILED, LOST = "config", "ready", "failed", "lost"
"""What stands in the store: the run's config, and of each worker how far it is, or why it has ended."""


def task_of(n_workers: int) -> Task | None:
    """Return which task of a Slurm job this process is as a worker, None if it starts the others itself.

    Raises `ZooError` for a job with another number of tasks.
    """
    task = slurm_task()
    if task is None or n_workers == 1:
        return None
    if task.size != n_workers:
        raise ZooError(
            f"workers={n_workers}, but Slurm has started {task.size} tasks: srun --ntasks={n_workers}"
        )
    return task


def refuse_tasks(n_workers: int) -> None:
    """Raise `ZooError` where tasks of a job would have to be the workers of one run after the other."""
    task = slurm_task()
    if n_workers > 1 and task is not None:
        raise ZooError(
            f"workers={n_workers}: every trial starts its own, so a job has to be one task, not {task.size};"
            " srun --ntasks=1"
        )


def workers_here(n_workers: int) -> int:
    """Return how many of the workers are on this machine."""
    task = task_of(n_workers)
    return n_workers if task is None else task.n_here


def config_of(
    config: Mapping[str, Any], n_here: int, rank_here: int, task: Task | None = None
) -> dict[str, Any]:
    """Return the config of a worker: with a GPU of its own, or the CPU. Raises `ZooError` for too few GPUs.

    A ``task`` of a job may be shown its own GPU alone.

    On a GPU nothing is compiled unless it is asked for: a CUDA graph would have to hold what NCCL does.
    """
    device = _device(config["device"], n_here, rank_here, task)
    is_gpu, compiles = device.startswith("cuda"), config["compile"]
    return {**config, "device": device, "compile": False if is_gpu and compiles == "auto" else compiles}


def _device(asked: str, n_here: int, rank_here: int, task: Task | None) -> str:
    import torch

    if asked.startswith("cuda:"):
        raise ZooError(f"device={asked} is one GPU, and each worker needs one: device=cuda, or device=cpu")
    if asked not in ("auto", "cuda"):
        return asked
    n_gpus = torch.cuda.device_count()
    if n_gpus >= n_here:
        return f"cuda:{rank_here}"
    if n_gpus == 1 and task is not None and (task.gpus_here is None or task.gpus_here >= n_here):
        return "cuda:0"  # its own: the other tasks here see others
    if asked == "cuda":
        raise ZooError(f"each worker needs a GPU: there are {n_here} workers here, and {n_gpus}; device=cpu")
    if n_gpus:
        few = f"{n_gpus} GPU{'s' if n_gpus > 1 else ''}"
        tell(f"{n_here} workers here, and {few}: all learn on the CPU, as each worker needs a GPU of its own")
    return "cpu"


def open_store(task: Task) -> Store:
    """Return where the tasks of a job meet, which is with the first of them. Raises `ZooError`."""
    import torch.distributed as dist

    wait = datetime.timedelta(seconds=START_SECONDS)
    is_first = task.rank == 0
    try:
        where = task.address, task.port, task.size, is_first
        # By itself it would listen to all networks, also where all tasks are on this machine.
        here = _listening(task.port) if is_first and task.address == LOOPBACK else None
        return dist.TCPStore(*where, timeout=wait, wait_for_workers=False, master_listen_fd=here)  # type: ignore[attr-defined]
    except (RuntimeError, OSError) as error:
        place = f"{task.address}, port {task.port}"
        way = "listen at" if is_first else "reach the first one at"
        raise ZooError(
            f"worker {task.rank} can't {way} {place} (MASTER_ADDR and MASTER_PORT choose others):"
            f" {one_line(error)}"
        ) from error


def _listening(port: int) -> int:
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        listening.listen(socket.SOMAXCONN)
        return listening.detach()


# -- the first one ----------------------------------------------------------------------------------------


def worker_launcher(n_workers: int) -> WorkerLauncher:
    """Return the other workers, to be started; in a task of a job that is not the first, be one, and exit."""
    task = task_of(n_workers)
    if task is not None and task.rank:
        sys.exit(_follow(open_store(task), task.rank, task.size, task.rank_here, task.n_here, task))
    return WorkerLauncher(n_workers, task)


class WorkerLauncher:
    """The other workers of a run; ``size`` counts the first one, this process, too."""

    def __init__(self, size: int, task: Task | None) -> None:
        self.size, self.task = size, task
        self.n_here = size if task is None else task.n_here
        self.is_broken = False
        self._has_called = False
        self._workers: Workers | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._store: Store | None = None
        if task is not None:  # from now on the others see whether this one lives
            self._store = open_store(task)

    def start(self, config: Mapping[str, Any], *, on_gpus: bool = False) -> Workers:
        """Start the others with this config, or meet them, and return this one. Raises what they raise.

        Where ``device`` is auto, this one has chosen for all, on whatever nodes they are.
        """
        from zoo.optim.workers import Workers

        if self._store is None:
            self._store = self._start_processes()
        if config["device"] == "auto":
            config = {**config, "device": "cuda" if on_gpus else "cpu"}
        self._store.set(CONFIG, json.dumps(config))
        self._has_called = True
        with self.causes_told():
            self._wait_until_ready()
            self._workers = Workers(0, self.size, self._store, n_here=self.n_here, on_gpus=on_gpus)
        return self._workers

    def _start_processes(self) -> Store:
        import torch.distributed as dist

        cores = usable_cores()
        if self.size > cores:
            tell(f"{self.size} workers share {cores} core{'s' if cores > 1 else ''}: fewer may be faster")
        self._folder = tempfile.TemporaryDirectory(prefix="zoo-workers-", ignore_cleanup_errors=True)
        path = f"{self._folder.name}/store"
        store = dist.FileStore(path, self.size)  # type: ignore[attr-defined]
        for rank in range(1, self.size):
            command = [sys.executable, "-c", _code(path, rank, self.size)]
            self._processes.append(subprocess.Popen(command, stdin=subprocess.PIPE))
        return store

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        missing = list(range(1, self.size))
        while missing:
            failure = self._failure()
            if failure is not None:
                raise failure
            missing = [rank for rank in missing if self._word(READY, rank) is None]
            if missing and time.monotonic() > deadline:
                raise ZooError(
                    f"worker {missing[0]} of {self.size} has not started in {START_SECONDS:g} seconds"
                )
            time.sleep(0.01 if missing else 0.0)

    def forward(self, number: int) -> None:
        """Tell the processes that were started here that a signal asks for the end."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)

    # -- what went wrong --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def causes_told(self) -> Iterator[None]:
        """Let an error that only says that another worker is gone be the one that this has died of."""
        try:
            yield
        except Exception as error:
            self.is_broken = True
            cause = self._cause_of(error)
            if cause is None:
                raise
            raise cause from None
        except BaseException:
            self.is_broken = True
            raise

    def _cause_of(self, error: Exception) -> Exception | None:
        from zoo.optim.workers import means_loss

        is_loss = means_loss(error)
        deadline = time.monotonic() + (SECONDS_TO_END if is_loss else 0.0)
        while True:
            failure = self._failure()
            if failure is not None:
                return failure
            if time.monotonic() >= deadline:
                break
            time.sleep(0.02)
        if is_loss:
            return ZooError(f"a worker has died without a word: {one_line(error)}")
        if isinstance(error, ZooError) and not str(error).startswith("worker "):
            return type(error)(f"worker 0: {error}")
        return None

    def _failure(self) -> Exception | None:
        """Return why another worker has ended, if one has that was not merely left alone by another one."""
        ends = [(rank, process.poll()) for rank, process in enumerate(self._processes, 1)]
        for rank in range(1, self.size):
            report = self._word(FAILED, rank)
            if report is not None:
                kind, text = json.loads(report)
                error = ZooError if kind == "mistake" else RuntimeError
                return error(f"worker {rank}: {text}")
        for rank, status in ends:
            if status is not None and self._word(LOST, rank) is None:
                return ZooError(f"worker {rank} of {self.size} {describe_exit(status)}")
        return None

    def _word(self, kind: str, rank: int) -> str | None:
        assert self._store is not None
        name = f"{kind}/{rank}"
        return self._store.get(name).decode() if self._store.check([name]) else None

    # -- the end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the others, by a word if all is well, and wait for those that were started here."""
        workers, self._workers = self._workers, None
        if self._store is not None and not self._has_called:
            self._send_home()
        if workers is not None:
            if not self.is_broken:
                with contextlib.suppress(RuntimeError):
                    workers.end()
            workers.close()
        deadline = time.monotonic() + (SECONDS_TO_END if workers is not None else 0.0)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        self._processes, self._store = [], None
        if self._folder is not None:
            self._folder.cleanup()

    def _send_home(self) -> None:
        """Tell the other tasks of a job that there is no run, which some may ask for only now."""
        assert self._store is not None
        self._store.set(CONFIG, json.dumps(None))
        deadline = time.monotonic() + SECONDS_TO_COME
        names = [f"{READY}/{rank}" for rank in range(1, self.size)]
        while time.monotonic() < deadline and not self._store.check(names):
            time.sleep(0.05)


def _code(path: str, rank: int, size: int) -> str:
    # Until a worker minds signals it ends by them, without a traceback.
    return (
        f"import sys; sys.path[:] = {sys.path!r};"
        " import signal; signal.signal(signal.SIGINT, signal.SIG_DFL);"
        " signal.signal(signal.SIGTERM, signal.SIG_DFL);"
        f" from zoo.experiment.workers import main; main({path!r}, {rank}, {size})"
    )


# -- the others -------------------------------------------------------------------------------------------


def main(path: str, rank: int, size: int) -> NoReturn:
    """Be a worker that the first one has started on this machine, and exit."""
    import torch.distributed as dist

    folder = Path(path).parent
    threading.Thread(target=_end_with_the_first, args=(folder,), daemon=True).start()
    store = dist.FileStore(path, size)  # type: ignore[attr-defined]
    status = _follow(store, rank, size, rank, size)
    if select.select([sys.stdin], [], [], 0)[0]:  # the first one is gone, and can't remove it
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(status)


def _end_with_the_first(folder: Path) -> None:
    """Wait until the first worker's end of our standard input closes, which means that it is gone."""
    select.select([sys.stdin], [], [])
    time.sleep(SECONDS_LEFT)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(FAILURE)


def _follow(store: Store, rank: int, size: int, rank_here: int, n_here: int, task: Task | None = None) -> int:
    """Learn by the config in the store until the first worker says that it is over; return an exit status."""
    from zoo.envs.config import EnvConfig
    from zoo.experiment.checkpoint import CHECKPOINT, RESTORE, restore_share, write_share
    from zoo.experiment.factories import make_algorithm
    from zoo.experiment.signals import stop_on_signals
    from zoo.optim.workers import Workers, means_loss

    try:
        config = json.loads(store.get(CONFIG))
    except RuntimeError:  # it has ended before
        return FAILURE
    if config is None:  # it has found a mistake, and told it
        store.set(f"{READY}/{rank}", "")
        return FAILURE
    try:
        with contextlib.ExitStack() as closing:
            warnings.simplefilter("ignore")  # the first one has told
            env = build(EnvConfig, {**config["env"], "check": False}, "env")  # the first one has checked it
            algorithm = make_algorithm(config_of(config, n_here, rank_here, task), env, closing)
            closing.enter_context(stop_on_signals(algorithm, leads=False))
            store.set(f"{READY}/{rank}", "")
            on_gpus = algorithm.device.type == "cuda"
            workers = Workers(rank, size, store, n_here=n_here, on_gpus=on_gpus)
            closing.callback(workers.close)
            algorithm.join(workers)
            orders = algorithm.distributed.orders
            orders[LEARN] = lambda steps: algorithm.learn(steps, reset_num_timesteps=False)
            orders[CHECKPOINT] = lambda folder: workers.gathered(write_share(Path(folder), algorithm))
            orders[RESTORE] = lambda folder: workers.gathered(restore_share(Path(folder), algorithm, rank))
            workers.follow(orders)
        return 0
    except KeyboardInterrupt:
        _leave_word(store, f"{FAILED}/{rank}", ["mistake", "it was interrupted"])
        return INTERRUPTED
    except Exception as error:
        if means_loss(error):
            _leave_word(store, f"{LOST}/{rank}", [])
        elif isinstance(error, ZooError):
            _leave_word(store, f"{FAILED}/{rank}", ["mistake", str(error)])
        else:
            text = "".join(traceback.format_exception(error)).rstrip()
            _leave_word(store, f"{FAILED}/{rank}", ["bug", f"{type(error).__name__}: {error}\n{text}"])
        return FAILURE


def _leave_word(store: Store, name: str, word: list[str]) -> None:
    with contextlib.suppress(RuntimeError):  # the store may be gone with the first worker
        store.set(name, json.dumps(word))
