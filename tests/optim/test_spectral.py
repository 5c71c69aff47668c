"""The power method, beside its steps written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from zoo.optim.spectral import SpectralNorm


@pytest.mark.parametrize("rows", [1, 4])
def test_directions_follow_the_weights_by_two_steps(rows: int) -> None:
    torch.manual_seed(0)
    spectral = SpectralNorm(nn.Linear(5, rows))
    before = spectral.directions["weight"][0].numpy().astype(np.float64)
    weights = torch.randn(rows, 5)
    spectral.network.weight.data.copy_(weights)  # type: ignore[union-attr, operator]
    spectral.follow()
    matrix, u = weights.numpy().astype(np.float64), before
    for _ in range(2):
        v = matrix.T @ u / np.linalg.norm(matrix.T @ u)
        u = matrix @ v / np.linalg.norm(matrix @ v)
    for found, expected in zip(spectral.directions["weight"], (u, v), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
