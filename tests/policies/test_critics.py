"""Critics of continuous actions, and the entropy's weight."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.policies.config import PolicyConfig
from zoo.policies.critics import ContinuousCritics, QuantileCritics, Temperature

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = spaces.Box(-2.0, 2.0, (2,), np.float32)


def critics(n_critics: int, **config: Any) -> ContinuousCritics:
    torch.manual_seed(0)
    return ContinuousCritics(OBSERVATIONS, ACTIONS, PolicyConfig(**config), n_critics=n_critics)


def test_each_critic_has_weights_of_its_own_and_reads_observation_and_action() -> None:
    network = critics(3, net_arch=[8])
    observations, actions = torch.randn(5, 3), torch.randn(5, 2)
    values = network(observations, actions)
    assert values.shape == (3, 5)
    assert not torch.allclose(values[0], values[1])
    assert not torch.allclose(values, network(observations + 1, actions))
    assert not torch.allclose(values, network(observations, actions + 1))
    pairs = torch.cat([observations, actions], dim=1)
    torch.testing.assert_close(values[1], network.critics[1](pairs)[:, 0])


def test_leading_dimensions_are_free() -> None:
    network, observations, actions = critics(2, net_arch=[8]), torch.randn(6, 3), torch.randn(6, 2)
    shaped = network(observations.reshape(2, 3, 3), actions.reshape(2, 3, 2))
    torch.testing.assert_close(shaped, network(observations, actions).reshape(2, 2, 3))


@pytest.mark.parametrize(
    ("net_arch", "widths"),
    [(None, [256, 256]), ([], []), ([32, 16], [32, 16]), ({"pi": [8], "qf": [16, 4]}, [16, 4])],
)
def test_widths_of_critics(net_arch: Any, widths: list[int]) -> None:
    layers = critics(2, net_arch=net_arch).modules()
    assert [layer.out_features for layer in layers if isinstance(layer, nn.Linear)] == [*widths, 1] * 2


def test_an_algorithm_has_widths_of_its_own_where_the_config_names_none() -> None:
    network = ContinuousCritics(OBSERVATIONS, ACTIONS, PolicyConfig(), n_critics=1, widths=[40, 30])
    layers = [layer.out_features for layer in network.modules() if isinstance(layer, nn.Linear)]
    assert layers == [40, 30, 1]


def test_orthogonal_weights_come_if_asked_for_and_leave_values_as_large_as_features() -> None:
    asked, usual = (critics(2, net_arch=[8], ortho_init=ortho_init).critics for ortho_init in (True, None))
    for critic in asked:
        norms = [torch.linalg.matrix_norm(critic[i].weight, 2).item() for i in (0, -1)]  # type: ignore[index]
        assert norms == pytest.approx([math.sqrt(2), 1.0], rel=1e-4)
    assert all(critic[0].bias.any() for critic in usual)  # type: ignore[index]


def test_the_first_critics_can_be_asked_alone() -> None:
    network = critics(3, net_arch=[8])
    pairs = torch.randn(5, 3), torch.randn(5, 2)
    assert torch.equal(network(*pairs, first=1), network(*pairs)[:1])
    assert torch.equal(network(*pairs, first=2), network(*pairs)[:2])


def test_quantiles_come_after_the_leading_dimensions() -> None:
    torch.manual_seed(0)
    network = QuantileCritics(OBSERVATIONS, ACTIONS, PolicyConfig(net_arch=[8]), n_critics=2, n_quantiles=5)
    observations, actions = torch.randn(4, 3, 3), torch.randn(4, 3, 2)
    quantiles = network(observations, actions)
    assert quantiles.shape == (2, 4, 3, 5)
    pairs = torch.cat([observations, actions], dim=-1)
    torch.testing.assert_close(quantiles[1], network.critics[1](pairs))


def test_temperature_is_kept_as_its_logarithm() -> None:
    log_coefficient: Tensor = Temperature(0.2)()
    assert log_coefficient.shape == ()
    assert log_coefficient.item() == pytest.approx(math.log(0.2))
