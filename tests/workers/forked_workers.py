"""Workers for tests: this process is the first, and the others are forked from it, which takes no time."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch.distributed as dist

from zoo.optim.workers import Workers

SECONDS = 300


def together(work: Callable[[Workers], Any], size: int = 2) -> list[Any]:
    """Have each of some workers do the work, and return what each of them gives."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "store")
        others = []
        for rank in range(1, size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_forked, args=(work, rank, size, path, theirs), daemon=True)
            process.start()
            theirs.close()
            others.append((process, ours))
        try:
            results = [_done(work, 0, size, path)]
            for _, connection in others:
                assert connection.poll(SECONDS), "a worker hangs"
                result, problem = pickle.loads(connection.recv_bytes())
                assert problem is None, problem
                results.append(result)
        finally:
            for process, connection in others:
                connection.close()
                process.join(2)
                process.kill()
                process.join()
        return results


def _forked(work: Callable[[Workers], Any], rank: int, size: int, path: str, pipe: Connection) -> None:
    result, problem = None, None
    try:
        result = _done(work, rank, size, path)
    except BaseException:
        problem = traceback.format_exc()
    pipe.send_bytes(pickle.dumps((result, problem)))  # tensors are sent, and not shared
    pipe.close()
    os._exit(0)


def _done(work: Callable[[Workers], Any], rank: int, size: int, path: str) -> Any:
    workers = Workers(rank, size, dist.FileStore(path, size))
    try:
        return work(workers)
    finally:
        workers.close()
