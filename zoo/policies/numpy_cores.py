"""Recurrent policies on float32 arrays, for acting: one step of all rows; see `numpy_forward`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor, nn

from zoo.policies import recurrence
from zoo.policies.heads import Array
from zoo.policies.recurrent_cores import GatedCore, GruLayer, LstmLayer, NormalizedLstmLayer

CoreFunction = Callable[[Array, Array, Array], tuple[Array, Array]]
"""From features (n, f), state (n, s) and where it is kept (n, 1) to features and the next state."""


def core_in_numpy(core: nn.Module | None) -> CoreFunction | None:
    """Return one step of a core; None if it is not known."""
    if type(core) is not GatedCore:
        return None
    layers = [_layer(layer) for layer in core.layers]
    known = [layer for layer in layers if layer is not None]
    if len(known) < len(layers):
        return None

    def step(features: Array, state: Array, keep: Array) -> tuple[Array, Array]:
        states = []
        for layer, before in zip(known, np.split(state, len(known), axis=-1), strict=True):
            features, after = layer(features, before, keep)
            states.append(after)
        return features, states[0] if len(states) == 1 else np.concatenate(states, axis=-1)

    return step


def _layer(layer: nn.Module) -> CoreFunction | None:
    if type(layer) not in (LstmLayer, GruLayer, NormalizedLstmLayer):
        return None
    assert isinstance(layer, LstmLayer | GruLayer | NormalizedLstmLayer)
    forward = recurrence.KINDS[layer.kind].forward
    weights = [_view(weight) for weight in layer.recurrent_weights()]
    weight = _view(layer.weight_ih).T
    biases = [_view(layer.bias_ih)] if isinstance(layer, LstmLayer | GruLayer) else []
    biases += [_view(layer.bias_hh)] if isinstance(layer, LstmLayer) else []
    norm = None
    if isinstance(layer, NormalizedLstmLayer):
        norm = _view(layer.norm_ih.weight), _view(layer.norm_ih.bias), np.float32(layer.norm_ih.eps)

    def step(features: Array, state: Array, keep: Array) -> tuple[Array, Array]:
        read = features.dot(weight)
        for bias in biases:
            read += bias
        if norm is not None:
            gain, bias, eps = norm
            read -= read.mean(-1, keepdims=True)
            read /= np.sqrt(np.square(read).mean(-1, keepdims=True) + eps)
            read *= gain
            read += bias
        outputs, last, _ = forward(read[None], state, keep[None], weights)
        return outputs[0], last

    return step


def _view(parameter: Tensor) -> Array:
    return parameter.detach().numpy()
