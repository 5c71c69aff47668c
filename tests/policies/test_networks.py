"""Fully connected networks: their layers, their first weights, and their arithmetic on arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.policies.networks import Mlp, in_numpy, orthogonal


def kinds(network: nn.Sequential) -> list[str]:
    return [type(layer).__name__ for layer in network]


def test_layers_in_their_order() -> None:
    network = Mlp(4, [8, 6], 2, activation="relu", layer_norm=True)
    assert kinds(network) == ["Linear", "LayerNorm", "ReLU", "Linear", "LayerNorm", "ReLU", "Linear"]
    assert (network.input_size, network.output_size) == (4, 2)


def test_no_output_layer_ends_with_the_non_linearity() -> None:
    network = Mlp(4, [8], None, activation="tanh")
    assert kinds(network) == ["Linear", "Tanh"]
    assert network.output_size == 8
    assert Mlp(4, [], None, activation="tanh").output_size == 4


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
    network = Mlp(8, [8, 8], 8, activation="tanh", hidden_gain=math.sqrt(2), output_gain=0.01)
    gains = [
        torch.linalg.matrix_norm(layer.weight, 2).item() for layer in network if isinstance(layer, nn.Linear)
    ]
    assert gains == pytest.approx([math.sqrt(2), math.sqrt(2), 0.01], rel=1e-4)
    assert not any(layer.bias.any() for layer in network if isinstance(layer, nn.Linear))


def test_without_an_output_layer_all_weights_are_hidden_ones() -> None:
    network = Mlp(8, [8], None, activation="tanh", hidden_gain=3.0, output_gain=0.01)
    assert torch.linalg.matrix_norm(network[0].weight, 2).item() == pytest.approx(3.0, rel=1e-4)


def test_no_gain_keeps_pytorchs_weights() -> None:
    torch.manual_seed(0)
    network = Mlp(4, [8], 2, activation="relu")
    torch.manual_seed(0)
    assert torch.equal(network[0].weight, nn.Linear(4, 8).weight)


@given(
    hidden=st.lists(st.integers(1, 9), max_size=3),
    output=st.none() | st.integers(1, 5),
    activation=st.sampled_from(["tanh", "relu"]),
    layer_norm=st.booleans(),
    batch=st.integers(1, 6),
)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_arrays_give_what_modules_give(
    hidden: list[int], output: int | None, activation: str, layer_norm: bool, batch: int
) -> None:
    torch.manual_seed(batch)
    network = Mlp(3, hidden, output, activation=activation, layer_norm=layer_norm)
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    forward = in_numpy(network)
    assert forward is not None
    values = 3 * torch.randn(batch, 3)
    before = values.clone()
    result = forward(values.numpy())
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, network(before).detach().numpy(), rtol=1e-3, atol=1e-4)
    assert torch.equal(values, before)


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "gelu", "leaky_relu", "silu"])
def test_arrays_are_right_or_not_offered(activation: str) -> None:
    torch.manual_seed(0)
    network = Mlp(3, [8, 8], 2, activation=activation)
    forward = in_numpy(network)
    assert (forward is not None) or activation not in ("tanh", "relu")
    if forward is not None:
        values = 3 * torch.randn(5, 3)
        np.testing.assert_allclose(
            forward(values.numpy()), network(values).detach().numpy(), rtol=1e-4, atol=1e-5
        )


def test_arrays_see_later_updates() -> None:
    network = Mlp(3, [8], 2, activation="tanh", layer_norm=True)
    forward = in_numpy(network)
    assert forward is not None
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(2.0)
    values = torch.randn(5, 3)
    np.testing.assert_allclose(
        forward(values.numpy()), network(values).detach().numpy(), rtol=1e-4, atol=1e-5
    )


def test_unknown_non_linearity_is_named() -> None:
    with pytest.raises(ZooError, match=r"unknown activation 'tahn'; did you mean 'tanh'\?"):
        Mlp(3, [8], 2, activation="tahn")


class Noisy(nn.Linear):
    """A layer of somebody's own that is more than what it inherits from."""


class Residual(nn.Sequential):
    """A row of layers that are not simply called in a row."""

    def forward(self, values: Tensor) -> Tensor:
        return values + super().forward(values)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Dropout(0.5),
        nn.BatchNorm1d(3),
        nn.Linear(3, 3, bias=False),
        nn.LayerNorm(3, bias=False),
        nn.LayerNorm(3, elementwise_affine=False),
        Noisy(3, 3),
    ],
)
def test_layers_that_arrays_do_not_know_are_left_to_modules(layer: nn.Module) -> None:
    assert in_numpy(nn.Sequential(nn.Linear(3, 3), layer)) is None


def test_networks_that_are_no_plain_row_of_layers_are_left_to_modules() -> None:
    assert in_numpy(Residual(nn.Linear(3, 3))) is None
    assert in_numpy(nn.Linear(3, 3)) is None
