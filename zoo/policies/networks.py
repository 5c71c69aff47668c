"""Fully connected networks, their initial weights, and a copy of their arithmetic in NumPy for acting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor, nn

from zoo.errors import ZooError, nearest

Array = np.ndarray
ArrayFunction = Callable[[Array], Array]

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "silu": nn.SiLU,
}


def activation_class(name: str) -> type[nn.Module]:
    """Return the module class of a named non-linearity. Raises `ZooError` with the nearest name."""
    if name not in _ACTIVATIONS:
        raise ZooError(f"unknown activation '{name}'{nearest(name, _ACTIVATIONS)}")
    return _ACTIVATIONS[name]


class Mlp(nn.Sequential):
    """Hidden layers of the given widths and, unless ``output_size`` is None, a linear output layer.

    ``hidden_gain`` None keeps PyTorch's initial weights; a number makes hidden weights orthogonal with that
    gain, output weights orthogonal with ``output_gain``, and all biases zero.
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: Sequence[int],
        output_size: int | None,
        *,
        activation: str,
        layer_norm: bool = False,
        hidden_gain: float | None = None,
        output_gain: float = 1.0,
    ) -> None:
        layers: list[nn.Module] = []
        size = input_size
        for width in hidden_sizes:
            layers.append(nn.Linear(size, width))
            if layer_norm:
                layers.append(nn.LayerNorm(width))
            layers.append(activation_class(activation)())
            size = width
        if output_size is not None:
            layers.append(nn.Linear(size, output_size))
        super().__init__(*layers)
        self.input_size = input_size
        self.output_size = size if output_size is None else output_size
        if hidden_gain is None:
            return
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        for layer in linear:
            is_output = output_size is not None and layer is linear[-1]
            orthogonal(layer, output_gain if is_output else hidden_gain)


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float = math.sqrt(2)) -> None:
    """Give a layer orthogonal weights (Saxe et al. 2014) and a zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def in_numpy(network: nn.Module) -> ArrayFunction | None:
    """Return the network's forward pass on float32 arrays, or None if it is not a row of layers known here.

    The weights are views of the module's own, so later updates in place are seen. On a small batch this is
    an order of magnitude faster than going through modules.
    """
    if not isinstance(network, nn.Sequential) or type(network).forward is not nn.Sequential.forward:
        return None
    layers = [_layer_in_numpy(layer) for layer in network]
    known = [layer for layer in layers if layer is not None]
    if len(known) < len(layers) or any(parameter.is_cuda for parameter in network.parameters()):
        return None

    def forward(values: Array) -> Array:
        for layer in known:
            values = layer(values)
        return values

    return forward


def _layer_in_numpy(layer: nn.Module) -> ArrayFunction | None:
    if type(layer) is nn.Linear and layer.bias is not None:
        weight, bias = _view(layer.weight).T, _view(layer.bias)
        return lambda values: values @ weight + bias
    if type(layer) is nn.Tanh:
        return np.tanh
    if type(layer) is nn.ReLU:
        return lambda values: np.maximum(values, 0.0, out=values)
    if type(layer) is nn.LayerNorm and len(list(layer.parameters())) == 2:
        weight, bias, eps = _view(layer.weight), _view(layer.bias), layer.eps
        return lambda values: _normalised(values, eps) * weight + bias
    return None


def _view(parameter: Tensor) -> Array:
    return parameter.detach().numpy()


def _normalised(values: Array, eps: float) -> Array:
    centred = values - values.mean(-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + np.float32(eps))
