"""Q-networks: dueling against its formula, widths, masks, quantiles and their means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from zoo.errors import ZooError
from zoo.policies.config import policy_preset
from zoo.policies.q_networks import QNetwork, QuantileNetwork

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)


def q_network(
    observations: spaces.Space[Any] = VECTOR, name: str = "MlpPolicy", *, dueling: bool = False, **fields: Any
) -> QNetwork:
    torch.manual_seed(0)
    config = policy_preset(name)
    for field, value in fields.items():
        setattr(config, field, value)
    return QNetwork(observations, spaces.Discrete(4, start=1), config, dueling=dueling)


def widths(layers: nn.Module | None) -> list[int]:
    assert layers is not None
    return [layer.out_features for layer in layers.modules() if isinstance(layer, nn.Linear)]


def test_dueling_centres_the_advantages_on_the_state_value() -> None:
    ours, observations = q_network(dueling=True), torch.randn(5, 3)
    assert ours.state_value is not None
    values = ours(observations)
    torch.testing.assert_close(values.mean(-1), ours.state_value(observations)[:, 0])
    advantages = ours.advantages(observations)
    torch.testing.assert_close(
        values - values.mean(-1, keepdim=True), advantages - advantages.mean(-1, keepdim=True)
    )
    gradients = torch.autograd.grad(values[0, 0], list(ours.parameters()))
    assert all(gradient.any() for gradient in gradients[-2:])


@pytest.mark.parametrize(("net_arch", "hidden"), [(None, [64, 64]), ([], []), ([32], [32])])
def test_both_branches_have_the_hidden_layers(net_arch: Any, hidden: list[int]) -> None:
    ours = q_network(dueling=True, net_arch=net_arch)
    assert widths(ours.advantages) == [*hidden, 4]
    assert widths(ours.state_value) == [*hidden, 1]
    assert q_network(net_arch=net_arch).state_value is None


def test_after_images_advantages_are_linear_and_the_state_value_is_not() -> None:
    ours = q_network(IMAGE, "CnnPolicy", dueling=True)
    assert widths(ours.advantages) == [4]
    assert widths(ours.state_value) == [64, 64, 1]


def test_net_arch_by_network_is_refused() -> None:
    with pytest.raises(ZooError, match="one list of widths"):
        q_network(net_arch={"pi": [8]})


def test_masked_values_are_below_all_others() -> None:
    ours, observations = q_network(dueling=True), torch.randn(5, 3)
    values, masks = ours(observations), torch.rand(5, 4) < 0.5
    seen = {"observations": observations, "action_masks": masks}
    parameters, state = ours.action_parameters(seen)
    assert state is None
    assert torch.equal(parameters, torch.where(masks, values, -1e8))
    assert torch.equal(ours.action_parameters({"observations": observations})[0], values)


def test_leading_dimensions_are_free() -> None:
    ours, observations = q_network(dueling=True), torch.randn(6, 3)
    torch.testing.assert_close(ours(observations.reshape(2, 3, 3)), ours(observations).reshape(2, 3, 4))


def test_first_weights_are_pytorchs_unless_asked_otherwise() -> None:
    assert q_network().advantages[0].bias.any()
    ours = q_network(ortho_init=True, dueling=True, net_arch=[8])
    for part in (ours.advantages, ours.state_value):
        assert isinstance(part, nn.Sequential)
        assert not part[0].bias.any()
        norms = [torch.linalg.matrix_norm(part[layer].weight, 2).item() for layer in (0, -1)]
        assert norms == pytest.approx([2**0.5, 1.0], rel=1e-4)


N, ACTIONS = 5, 4


def quantile_network(
    observations: spaces.Space[Any] = VECTOR, name: str = "MlpPolicy", *, dueling: bool = False
) -> QuantileNetwork:
    torch.manual_seed(0)
    space = spaces.Discrete(ACTIONS, start=1)
    return QuantileNetwork(observations, space, policy_preset(name), n_quantiles=N, dueling=dueling)


@pytest.mark.parametrize("dueling", [False, True])
def test_leading_dimensions_of_quantiles_are_free(dueling: bool) -> None:
    ours, observations = quantile_network(dueling=dueling), torch.randn(6, 3)
    quantiles = ours(observations)
    assert quantiles.shape == (6, N, ACTIONS)
    torch.testing.assert_close(ours(observations.reshape(2, 3, 3)), quantiles.reshape(2, 3, N, ACTIONS))
    torch.testing.assert_close(ours(observations[0]), quantiles[0])


def test_both_streams_are_of_quantiles() -> None:
    ours, observations = quantile_network(dueling=True), torch.randn(6, 3)
    assert widths(ours.advantages) == [64, 64, N * ACTIONS]
    assert widths(ours.state_value) == [64, 64, N]
    assert ours.state_value is not None
    quantiles, advantages = ours(observations), ours.advantages(observations)
    values = ours.state_value(observations)
    for i in range(N):
        row = advantages[:, i * ACTIONS : (i + 1) * ACTIONS]
        expected = values[:, i, None] + row - row.mean(-1, keepdim=True)
        torch.testing.assert_close(quantiles[:, i], expected)


def test_action_values_are_means_of_quantiles_and_masked_ones_below_all_others() -> None:
    ours, observations = quantile_network(dueling=True), torch.randn(6, 3)
    means, masks = ours(observations).mean(1), torch.rand(6, ACTIONS) < 0.5
    parameters, state = ours.action_parameters({"observations": observations, "action_masks": masks})
    assert state is None
    assert torch.equal(parameters, torch.where(masks, means, -1e8))
    assert torch.equal(ours.action_parameters({"observations": observations})[0], means)
