"""The projected slope against a numerical optimum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from zoo.optim.trust_region import projected


@pytest.mark.parametrize("bound", [0.01, 0.5, 2.0])
@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_nearest_that_is_allowed(seed: int, bound: float) -> None:
    rng = np.random.default_rng(seed)
    slopes, normals = rng.normal(size=(2, 2, 3, 4))
    found = projected(torch.tensor(slopes), torch.tensor(normals), bound).numpy()
    for slope, normal, z in zip(*(each.reshape(-1, 4) for each in (slopes, normals, found)), strict=True):
        limit = {"type": "ineq", "fun": lambda z, normal=normal: bound - normal @ z}
        best = minimize(
            lambda z, slope=slope: ((slope - z) ** 2).sum(),
            *(np.zeros(4), (), "SLSQP"),
            constraints=[limit],
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(z, best.x, atol=1e-5)
        if normal @ slope > bound:
            assert normal @ z == pytest.approx(bound)
        else:
            np.testing.assert_array_equal(z, slope)


def test_a_divergence_without_slope_leaves_all_as_it_is() -> None:
    slope = torch.tensor([[1.0, -2.0]])
    assert projected(slope, torch.zeros(1, 2), 0.1).tolist() == slope.tolist()
