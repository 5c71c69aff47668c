"""Retrace's targets against its recursion, step by step, and against small cases by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from zoo.algorithms.acer import Returns, retrace

each_example = settings(deadline=None, derandomize=True, max_examples=80)
Array = np.ndarray


def recursion(gamma: float, batch: dict[str, Array], next_values: Array, coefficients: Array | None) -> Array:
    """Return Q^ret (sequences, time), backwards; the carry to step t − 1 has the coefficient of step t."""
    targets = np.zeros_like(batch["rewards"])
    for i, rewards in enumerate(batch["rewards"]):
        carry = np.nan
        for t in reversed(range(len(rewards))):
            if batch["terminated"][i, t]:
                carry = 0.0
            elif batch["next_index"][i, t] >= 0:
                carry = next_values[batch["next_index"][i, t]]
            targets[i, t] = rewards[t] + gamma * carry
            coefficient = 1.0 if coefficients is None else coefficients[i, t]
            carry = coefficient * (targets[i, t] - batch["taken"][i, t]) + batch["values"][i, t]
    return targets


def tensors(batch: dict[str, Any]) -> dict[str, Tensor]:
    return {name: torch.as_tensor(column) for name, column in batch.items()}


def corrected(
    gamma: float,
    batch: dict[str, Any],
    next_values: Any,
    coefficients: Any,
    *,
    sequences: slice = slice(None),
) -> Array:
    columns = tensors(batch)
    returns = Returns(gamma, columns["values"], torch.as_tensor(next_values), columns["taken"], columns)
    given_ones = None if coefficients is None else torch.as_tensor(coefficients)
    return returns.corrected(given_ones).numpy()


@given(
    seed=st.integers(0, 999),
    length=st.integers(1, 21),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    truncates=st.booleans(),
)
@each_example
def test_targets_are_those_of_the_recursion(seed: int, length: int, gamma: float, truncates: bool) -> None:
    rng = np.random.default_rng(seed)
    shape = 3, length
    ended = rng.random(shape) < 0.3
    terminated = ended & (rng.random(shape) < 0.5)
    batch = {
        "rewards": rng.normal(size=shape),
        "taken": rng.normal(size=shape),
        "values": rng.normal(size=shape),
        "ended": ended,
        "terminated": terminated,
    }
    next_values = rng.normal(size=3 * length)
    is_apart = ended & ~terminated
    is_apart[:, -1] = True
    batch["next_index"] = np.where(is_apart, rng.permutation(3 * length).reshape(shape), -1)
    coefficients = np.minimum(1.0, rng.exponential(size=shape)) if truncates else None
    expected = recursion(gamma, batch, next_values, coefficients)
    found = corrected(gamma, batch, next_values, coefficients)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("ended", "terminated", "targets"),
    [
        ([False, False], [False, False], [2.25, 4.0]),
        ([True, False], [True, False], [1.0, 4.0]),
        ([True, False], [False, False], [1.0 + 0.5 * 6.0, 4.0]),
        ([False, True], [False, True], [1.0 + 0.5 * (0.5 * (2.0 - 1.0) + 1.0), 2.0]),
    ],
    ids=["goes on", "terminal", "cut short", "terminal at the end"],
)
def test_small_cases_by_hand(ended: list[bool], terminated: list[bool], targets: list[float]) -> None:
    batch = {
        "rewards": [[1.0, 2.0]],
        "taken": [[0.5, 1.0]],
        "values": [[0.0, 1.0]],
        "ended": [ended],
        "terminated": [terminated],
        "next_index": [[1 if ended[0] and not terminated[0] else -1, 0]],
    }
    coefficients = torch.tensor([[2.0, 0.5]]).clamp(max=1.0)
    assert corrected(0.5, batch, [4.0, 6.0], coefficients).tolist() == [targets]


@pytest.mark.parametrize("length", [1, 2, 3, 8, 20])
def test_sum_reaches_to_the_end_and_no_further(length: int) -> None:
    errors, weights = torch.ones(2, length), torch.full((2, length), 0.5)
    expected = [2.0 - 0.5**k for k in reversed(range(length))]
    assert retrace(errors, weights)[1].tolist() == pytest.approx(expected)
    weights[0, -1] = float("inf")
    assert retrace(errors, weights)[0].tolist() == pytest.approx(expected), "the last weight is not read"
