"""Operations are counted with those of the backward pass, and the numbers stay the same."""

from __future__ import annotations

import torch

from zoo.optim.operations import counted


def test_backward_passes_count() -> None:
    left, right = torch.randn(2, 2, requires_grad=True), torch.randn(2, 2)
    product, forward = counted(lambda: left @ right)
    assert forward == 1
    assert torch.equal(product, left @ right)
    (gradient,), both = counted(lambda: torch.autograd.grad((left @ right).sum(), left))
    assert both > 3
    assert torch.equal(gradient, torch.autograd.grad((left @ right).sum(), left)[0])


def test_the_count_is_the_same_each_time() -> None:
    network = torch.nn.Linear(3, 1)

    def step() -> torch.Tensor:
        return torch.autograd.grad(network(torch.ones(2, 3)).square().mean(), network.weight)[0]

    assert counted(step)[1] == counted(step)[1]
