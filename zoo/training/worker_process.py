"""The process of a worker that is not the first: it learns as the first one says."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from zoo.config.fields import build
from zoo.errors import INTERRUPTED, ZooError
from zoo.files.printing import one_line
from zoo.training.checkpoint import CHECKPOINT, RESTORE, restore_share, write_share
from zoo.training.configured_algorithm import make_algorithm
from zoo.training.signals import stop_on_signals
from zoo.training.workers import (
    CONFIG,
    FAILED,
    LEARN,
    LOST,
    READY,
    Crew,
    config_of,
    open_store,
    task_of,
)

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm
    from zoo.optim.workers import Store, Workers
    from zoo.training.job import Task

SECONDS_LEFT = 3.0
"""What a worker has to end in by itself once the first one is gone."""

FAILURE = 1


def crew_of(n_workers: int) -> Crew:
    """Return the other workers, to be started; in a task of a job that is not the first, be one, and exit."""
    task = task_of(n_workers)
    if task is not None and task.rank:
        sys.exit(_follow(open_store(task), task.rank, task.size, task.rank_here, task.n_here, task))
    return Crew(n_workers, task)


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
    from zoo.optim.workers import Workers, means_loss

    try:
        given = json.loads(store.get(CONFIG))
    except RuntimeError:  # it has ended before
        return FAILURE
    if given is None:  # it has found a mistake, and told it
        store.set(f"{READY}/{rank}", "")
        return FAILURE
    config, checkpoint = given
    try:
        with contextlib.ExitStack() as closing:
            warnings.simplefilter("ignore")  # the first one has told
            algorithm = _make_algorithm(config_of(config, n_here, rank_here, task), closing)
            closing.enter_context(stop_on_signals(algorithm, leads=False))
            store.set(f"{READY}/{rank}", "")
            on_gpus = algorithm.device.type == "cuda"
            workers = Workers(rank, size, store, n_here=n_here, on_gpus=on_gpus)
            closing.callback(workers.close)
            algorithm.join(workers)
            _take_orders(algorithm, workers, Path(checkpoint))
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


def _make_algorithm(config: dict[str, Any], closing: contextlib.ExitStack) -> Algorithm[Any]:
    from zoo.envs.config import EnvConfig

    env = build(EnvConfig, {**config["env"], "check": False}, "env")  # the first one has checked it
    return make_algorithm(config, env, closing)


def _take_orders(algorithm: Algorithm[Any], workers: Workers, checkpoint: Path) -> None:
    def own(folder: str) -> Path:
        if Path(folder) != checkpoint:
            raise ZooError(f"it is told of a checkpoint in {one_line(folder)}; the run's is {checkpoint}")
        return checkpoint

    orders = algorithm.team.orders
    orders[LEARN] = lambda steps: algorithm.learn(steps, reset_num_timesteps=False)
    orders[CHECKPOINT] = lambda folder: workers.gathered(write_share(own(folder), algorithm))
    orders[RESTORE] = lambda folder: workers.gathered(restore_share(own(folder), algorithm, workers.rank))
    workers.follow(orders)


def _leave_word(store: Store, name: str, word: list[str]) -> None:
    with contextlib.suppress(RuntimeError):  # the store may be gone with the first worker
        store.set(name, json.dumps(word))
