"""Quantile networks: shapes, dueling against its formula, means, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from zoo.policies.config import policy_preset
from zoo.policies.quantile_network import QuantileNetwork

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)
N, ACTIONS = 5, 4


def network(
    observations: spaces.Space[Any] = VECTOR, name: str = "MlpPolicy", *, dueling: bool = False
) -> QuantileNetwork:
    torch.manual_seed(0)
    space = spaces.Discrete(ACTIONS, start=1)
    return QuantileNetwork(observations, space, policy_preset(name), n_quantiles=N, dueling=dueling)


def widths(layers: nn.Module | None) -> list[int]:
    assert layers is not None
    return [layer.out_features for layer in layers.modules() if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize("dueling", [False, True])
def test_leading_dimensions_are_free(dueling: bool) -> None:
    ours, observations = network(dueling=dueling), torch.randn(6, 3)
    quantiles = ours(observations)
    assert quantiles.shape == (6, N, ACTIONS)
    torch.testing.assert_close(ours(observations.reshape(2, 3, 3)), quantiles.reshape(2, 3, N, ACTIONS))
    torch.testing.assert_close(ours(observations[0]), quantiles[0])


def test_both_streams_are_of_quantiles() -> None:
    ours, observations = network(dueling=True), torch.randn(6, 3)
    assert widths(ours.advantages) == [64, 64, N * ACTIONS]
    assert widths(ours.state_value) == [64, 64, N]
    assert ours.state_value is not None
    quantiles, advantages = ours(observations), ours.advantages(observations)
    values = ours.state_value(observations)
    for i in range(N):
        row = advantages[:, i * ACTIONS : (i + 1) * ACTIONS]
        expected = values[:, i, None] + row - row.mean(-1, keepdim=True)
        torch.testing.assert_close(quantiles[:, i], expected)


def test_without_dueling_there_is_one_stream() -> None:
    ours = network()
    assert ours.state_value is None
    assert widths(ours) == [64, 64, N * ACTIONS]


def test_after_images_advantages_are_linear_and_the_state_value_is_not() -> None:
    ours = network(IMAGE, "CnnPolicy", dueling=True)
    assert widths(ours.advantages) == [N * ACTIONS]
    assert widths(ours.state_value) == [64, 64, N]
    assert ours(torch.zeros(2, 36, 36, 1, dtype=torch.uint8)).shape == (2, N, ACTIONS)


def test_action_values_are_means_of_quantiles_and_masked_ones_below_all_others() -> None:
    ours, observations = network(dueling=True), torch.randn(6, 3)
    means, masks = ours(observations).mean(1), torch.rand(6, ACTIONS) < 0.5
    parameters, state = ours.action_parameters({"observations": observations, "action_masks": masks})
    assert state is None
    assert torch.equal(parameters, torch.where(masks, means, -1e8))
    assert torch.equal(ours.action_parameters({"observations": observations})[0], means)
