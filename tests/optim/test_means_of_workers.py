"""What one of several workers computes by itself: `tests/workers` has them work together."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from zoo.optim import workers as module
from zoo.optim.workers import Workers

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
    monkeypatch.setattr("zoo.optim.tracing.traced_sum", lambda tensor: tensor + 6)
    workers = Workers.__new__(Workers)
    workers.size = 4
    graph = make_fx(lambda tensor: workers.mean(tensor), tracing_mode="fake")(torch.ones(3))
    torch.testing.assert_close(graph(torch.ones(3) * 2), torch.full((3,), 2.0))
