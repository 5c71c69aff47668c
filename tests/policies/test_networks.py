"""Fully connected networks: their widths and layers, and their first weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig
from zoo.policies.networks import LayerStyle, Mlp, layer_sizes, orthogonal


def kinds(network: nn.Sequential) -> list[str]:
    return [type(layer).__name__ for layer in network]


def test_layers_in_their_order() -> None:
    network = Mlp(4, [8, 6], 2, LayerStyle("relu", layer_norm=True))
    assert kinds(network) == ["Linear", "LayerNorm", "ReLU", "Linear", "LayerNorm", "ReLU", "Linear"]
    assert (network.input_size, network.output_size) == (4, 2)


def test_no_output_layer_ends_with_the_non_linearity() -> None:
    network = Mlp(4, [8], None, LayerStyle("tanh", layer_norm=False))
    assert kinds(network) == ["Linear", "Tanh"]
    assert network.output_size == 8
    assert Mlp(4, [], None, LayerStyle("tanh", layer_norm=False)).output_size == 4


@pytest.mark.parametrize(("width", "size"), [(64, 4), (4, 64), (16, 16)])
@pytest.mark.parametrize("gain", [math.sqrt(2), 0.01, 1.0])
def test_orthogonal_weights_have_their_gain(width: int, size: int, gain: float) -> None:
    layer = nn.Linear(size, width)
    orthogonal(layer, gain)
    weight = layer.weight.detach() / gain
    product = weight @ weight.T if width <= size else weight.T @ weight
    torch.testing.assert_close(product, torch.eye(min(width, size)), rtol=1e-4, atol=1e-4)
    assert not layer.bias.any()


def test_gains_of_hidden_and_output_layers() -> None:
    network = Mlp(8, [8, 8], 8, LayerStyle("tanh", layer_norm=False))
    orthogonal(network, output_gain=0.01)
    gains = [
        torch.linalg.matrix_norm(layer.weight, 2).item() for layer in network if isinstance(layer, nn.Linear)
    ]
    assert gains == pytest.approx([math.sqrt(2), math.sqrt(2), 0.01], rel=1e-4)
    assert not any(layer.bias.any() for layer in network if isinstance(layer, nn.Linear))


def test_widths_by_network() -> None:
    names = ("shared", "pi", "vf")
    assert layer_sizes(PolicyConfig(), names, [64]) == {"shared": [], "pi": [64], "vf": [64]}
    assert layer_sizes(PolicyConfig(net_arch=[]), names, [64]) == {"shared": [], "pi": [], "vf": []}
    given = PolicyConfig(net_arch={"shared": [8], "vf": [4, 2]})
    assert layer_sizes(given, names, [64]) == {"shared": [8], "pi": [], "vf": [4, 2]}
    assert layer_sizes(PolicyConfig(net_arch=[3]), ("qf",), [64]) == {"qf": [3]}
    with pytest.raises(ZooError, match=r"unknown key `policy.net_arch.vf`; known: pi, qf"):
        layer_sizes(PolicyConfig(net_arch={"pi": [8], "vf": [8]}), ("pi", "qf"), [64])
    with pytest.raises(ZooError, match="one list of widths"):
        layer_sizes(PolicyConfig(net_arch={"pi": [8]}), ("qf",), [64])


def test_widths_that_no_layer_can_have_are_refused() -> None:
    assert layer_sizes(PolicyConfig(net_arch=[1]), ("pi",), [64]) == {"pi": [1]}
    with pytest.raises(ZooError, match="a layer of 0 units; expected at least 1"):
        layer_sizes(PolicyConfig(net_arch=[8, 0]), ("pi",), [64])


def test_unknown_non_linearity_is_named() -> None:
    with pytest.raises(ZooError, match=r"unknown activation 'tahn'; did you mean 'tanh'\?"):
        Mlp(3, [8], 2, LayerStyle("tahn", layer_norm=False))
