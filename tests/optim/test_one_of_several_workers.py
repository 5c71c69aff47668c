"""What one of several workers computes by itself: `tests/workers` has them work together."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from zoo.optim import workers as module
from zoo.optim.workers import END, GO_ON, STOP, Workers

INTERFACE = "GLOO_SOCKET_IFNAME"


@pytest.mark.parametrize(("n_here", "size", "interface"), [(None, 2, "lo"), (2, 2, "lo"), (1, 2, None)])
def test_workers_of_one_machine_meet_within_it(
    n_here: int | None, size: int, interface: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def init(*arguments: Any, **options: Any) -> None:
        seen.append(os.environ.get(INTERFACE))

    monkeypatch.delenv(INTERFACE, raising=False)
    monkeypatch.setattr(module.dist, "init_process_group", init)
    monkeypatch.setattr(module.socket, "if_nameindex", lambda: [(1, "eth0"), (2, "lo")])
    workers = Workers(0, size, None, n_here=n_here)
    assert seen == [interface]
    assert workers.n_here == (n_here or size)
    assert INTERFACE not in os.environ


def test_mean_of_what_is_compiled_is_the_sum_over_the_number_of_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zoo.optim.compile.traced_sum", lambda tensor: tensor + 6)
    workers = Workers.__new__(Workers)
    workers.size = 4
    graph = make_fx(lambda tensor: workers.mean(tensor), tracing_mode="fake")(torch.ones(3))
    torch.testing.assert_close(graph(torch.ones(3) * 2), torch.full((3,), 2.0))


class Told(Workers):
    """A worker that hears what is written down, and notes of how many sums it took part in the making."""

    rank, size = 1, 2

    def __init__(self, *words: tuple[str, dict[str, Any]]) -> None:
        self.words = list(words)
        self.n_totals = 0

    def _receive(self) -> tuple[str, dict[str, Any]]:
        return self.words.pop(0)

    def sum(self, *numbers: float) -> list[float]:
        self.n_totals += 1
        return list(numbers)


@pytest.mark.parametrize(("last", "n_totals"), [(GO_ON, 0), (STOP, 0), (END, 1)])
def test_orders_are_carried_out_until_a_word_says_how_to_go_on(last: str, n_totals: int) -> None:
    done: list[int] = []
    worker = Told(("note", {"number": 3}), ("note", {"number": 4}), (last, {}), ("note", {"number": 5}))
    assert worker.follow({"note": lambda number: done.append(number)}) == last
    assert (done, worker.n_totals, len(worker.words)) == ([3, 4], n_totals, 1)


@pytest.mark.parametrize(("last", "stops"), [(GO_ON, False), (STOP, True), (END, True)])
def test_what_the_first_worker_says_ends_the_others_or_not(last: str, stops: bool) -> None:
    for wanted in (False, True):
        assert Told((last, {})).is_to_stop(wanted, {}) is stops


class Sent:
    """What a broadcast gives in this process: it is there at once."""

    def is_completed(self) -> bool:
        return True

    def wait(self) -> None:
        """Have nothing to wait for."""


def test_what_the_first_worker_says_is_heard_as_it_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_way: list[torch.Tensor] = []

    def broadcast(message: torch.Tensor, source: int, *, async_op: bool) -> Sent:
        assert (source, async_op) == (0, True)
        if on_the_way:
            message.copy_(on_the_way.pop())
        else:
            on_the_way.append(message.clone())
        return Sent()

    monkeypatch.setattr(module.dist, "broadcast", broadcast)
    first, other = Workers.__new__(Workers), Workers.__new__(Workers)
    first.rank, other.rank = 0, 1
    first.order("note", text="größer", number=3)
    assert other._receive() == ("note", {"text": "größer", "number": 3})
