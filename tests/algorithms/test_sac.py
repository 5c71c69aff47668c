"""What SAC makes of its critics' values."""

from __future__ import annotations

import torch

import zoo


def test_losses_are_summed_over_the_critics_and_errors_averaged() -> None:
    model = zoo.SAC({"net_arch": [4]}, "Pendulum-v1", seed=0, compile=False, threads=1)
    values = torch.tensor([[1.0, -2.0, 0.0], [4.0, 0.0, 1.0]])
    losses, errors = model._losses_and_errors(values, torch.tensor([2.0, 0.0, 0.5]))
    assert losses.tolist() == [0.5 * (1 + 4), 0.5 * 4, 0.5 * (0.25 + 0.25)]
    assert errors.tolist() == [1.5, 1.0, 0.5]
