"""Ranks: data-parallel processes whose weights stay equal, because updates use averages over all ranks.

Each rank has its own environments. An update averages its gradients, and every other value that decides its
course, over all ranks (`zoo.optim.update_runner.average`). The average is the same on all of them to the last
bit, so weights that are equal once stay equal. Between two updates rank 0 alone decides what comes next, and
the others carry out its orders (`Workers.order`, `Workers.follow`).
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from zoo.errors import ZooError
from zoo.optim.update_runner import is_concrete

GO_ON, STOP, END = "go on", "stop", "end"
"""Rank 0's answers to whether there is a next update, and its order to end the process."""

ORDER_BYTES = 8192  # room for an order

PATIENCE = timedelta(days=30)
"""How long a rank waits for the others: an evaluation may take hours. A rank that dies is noticed at once."""

SPIN_SECONDS, LONGEST_NAP = 2e-4, 2e-3
"""How long waiting for the others keeps a core busy, and then the longest time between two looks."""

Store = Any  # A `torch.distributed.Store`, which type checkers don't know
Orders = Mapping[str, Callable[..., Any]]  # what rank 0 can order, by name


class Workers:
    """One of ``size`` processes that learn as one, ``local_size`` of them on this machine; ``rank`` 0 leads.

    They meet in ``store``. With one GPU per rank, gradients go through NCCL and everything else through gloo.
    Raises `ZooError` if this process already is one of several. Every method except `order` has to be called
    by all ranks, in the same order; it raises `RuntimeError` once a rank has died.
    """

    def __init__(
        self, rank: int, size: int, store: Store, *, local_size: int | None = None, on_gpus: bool = False
    ) -> None:
        if dist.is_initialized():
            raise ZooError("ranks can't be started: this process uses torch.distributed already")
        self.rank, self.size, self.local_size = rank, size, local_size or size
        backend, variable = "cpu:gloo,cuda:nccl" if on_gpus else "gloo", "GLOO_SOCKET_IFNAME"
        is_local = self.local_size == size and variable not in os.environ
        if is_local:
            os.environ[variable] = "lo"
        try:
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
        finally:
            if is_local:
                del os.environ[variable]

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which logs, evaluates and saves."""
        return self.rank == 0

    def end(self) -> None:
        """End the other ranks; they have to be waiting for orders."""
        self.order(END)
        self.sum(0)  # no rank leaves before all have received the order

    def close(self) -> None:
        """Leave the group of ranks."""
        dist.destroy_process_group()

    # -- within updates ---------------------------------------------------------------------------------

    def mean(self, tensor: Tensor) -> Tensor:
        """Return the mean of a floating-point tensor over all ranks, also while compiling."""
        if not is_concrete(tensor):
            from zoo.optim.compile import traced_sum

            return traced_sum(tensor) / self.size
        summed = tensor.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed)
        return summed / self.size

    # -- between updates --------------------------------------------------------------------------------

    def sum(self, *numbers: float) -> list[float]:
        """Return the sum of each number over all ranks; signals are heeded meanwhile."""
        totals: list[float] = self.gather_vectors(np.array(numbers, np.float64)).sum(axis=0).tolist()
        return totals

    def gather_vectors(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the vectors (n,) of all ranks as (size, n)."""
        parts = [torch.zeros(len(vector), dtype=torch.float64) for _ in range(self.size)]
        _wait(dist.all_gather(parts, torch.from_numpy(vector), async_op=True))
        return torch.stack(parts).numpy()

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order."""
        self.sum(0)  # signals are heeded until all have come
        values = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite the tensors with rank 0's."""
        for tensor in tensors:
            _wait(dist.broadcast(tensor, 0, async_op=True))

    def is_to_stop(self, wanted: bool, orders: Orders) -> bool:
        """Return whether all end before the next update, as rank 0 says after its ``orders``."""
        if self.is_first:
            self.order(STOP if wanted else GO_ON)
            return wanted
        return self.follow(orders) != GO_ON

    def follow(self, orders: Orders) -> str:
        """Carry out rank 0's orders until it sends `GO_ON`, `STOP` or `END`; return that."""
        while True:
            message = torch.zeros(ORDER_BYTES, dtype=torch.uint8)
            self.broadcast([message])
            name, arguments = json.loads(bytes(message.numpy()))
            if name == END:
                self.sum(0)
            if name in (GO_ON, STOP, END):
                return name
            orders[name](**arguments)

    def order(self, name: str, **arguments: Any) -> None:
        """Have the other ranks do something, in which this one, rank 0, then takes its part."""
        text = json.dumps([name, arguments]).encode()
        self.broadcast([torch.frombuffer(bytearray(text.ljust(ORDER_BYTES)), dtype=torch.uint8)])


def is_worker_lost(error: BaseException | None) -> bool:
    """Whether an error means that another rank has died: errors of gloo name its source files.

    A `ZooError` never means it: an environment may have lost a connection too.
    """
    while error is not None and not isinstance(error, ZooError):
        is_gloo = isinstance(error, RuntimeError) and re.search(r"/gloo/\w+/|\bNCCL\b", str(error))
        if is_gloo or isinstance(error, dist.DistError):
            return True
        error = error.__cause__
    return False


def _wait(work: Any) -> None:
    """Wait for what all ranks take part in, and let signals through: torch itself would not."""
    started, nap = time.perf_counter(), 0.0
    while not work.is_completed():
        time.sleep(nap)
        if nap or time.perf_counter() - started > SPIN_SECONDS:
            nap = min(LONGEST_NAP, 2 * nap or SPIN_SECONDS)
    work.wait()
