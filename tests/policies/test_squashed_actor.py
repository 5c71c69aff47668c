"""The squashed actor: its layers, and its parameters over any leading dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig
from zoo.policies.squashed_actor import SquashedActor

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = spaces.Box(-2.0, 2.0, (2,), np.float32)


def actor(**config: Any) -> SquashedActor:
    torch.manual_seed(0)
    return SquashedActor(OBSERVATIONS, ACTIONS, PolicyConfig(**config))


def hidden_widths(network: nn.Module) -> list[int]:
    return [layer.out_features for layer in network.modules() if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize(
    ("net_arch", "widths"),
    [(None, [256, 256]), ([], []), ([32, 16], [32, 16]), ({"pi": [8], "qf": [4]}, [8])],
)
def test_widths_come_before_mean_and_deviation(net_arch: Any, widths: list[int]) -> None:
    assert hidden_widths(actor(net_arch=net_arch)) == [*widths, 2, 2]


def test_parameters_are_the_heads() -> None:
    network, observations = actor(net_arch=[8]), torch.randn(2, 5, 3)
    parameters = network(observations)
    assert parameters.shape == (2, 5, 4)
    torch.testing.assert_close(parameters, network.head(network.trunk(observations)))
    again, state = network.action_parameters({"observations": observations})
    assert torch.equal(again, parameters)
    assert state is None


def test_unknown_network_in_net_arch_is_named() -> None:
    with pytest.raises(ZooError, match=r"unknown key `policy.net_arch.vf`; known: pi, qf"):
        actor(net_arch={"pi": [8], "vf": [8]})


def test_first_weights_are_pytorchs_unless_asked_otherwise() -> None:
    assert actor().trunk[0].bias.any()
    assert not actor(ortho_init=True).trunk[0].bias.any()
