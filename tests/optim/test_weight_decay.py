"""Weight decay against PyTorch's gradient of the sum of squares, written out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from zoo.optim.parameters import Parameters
from zoo.optim.weight_decay import WeightDecay


def test_it_is_half_the_sum_of_squares_of_weights_that_are_not_spared() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    parameters = Parameters("critic", module)
    decay = WeightDecay(parameters, 0.3, spared=["2.weight"])
    vector = parameters.flat.clone().requires_grad_()
    expected = 0.3 * 0.5 * parameters.named(vector)["0.weight"].square().sum()
    (gradient,) = torch.autograd.grad(expected, vector)
    torch.testing.assert_close(decay.gradient(parameters.flat), gradient)
    assert decay.loss(parameters.flat).item() == pytest.approx(expected.item())
