"""Many policies that differ in their weights only, acting at once: each row of what is seen by its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter

import numpy as np
import torch
from torch import nn

from zoo.memory.arrays import Column, transform
from zoo.optim.parameters import Parameters
from zoo.policies.acting import ActingPolicy
from zoo.policies.deterministic_actor import Deterministic, Direct
from zoo.policies.heads import Array, Categorical, Head
from zoo.policies.multi_heads import Bernoulli, MultiCategorical
from zoo.policies.networks import Mlp
from zoo.policies.numpy_forward import encoder_in_numpy
from zoo.policies.searched_policy import SearchedPolicy

Layer = Callable[[Array], Array]
"""Of features (n_rows, …) to features, or to the parameters of the head."""

LAST_LAYERS = {
    Categorical: "logits",
    MultiCategorical: "logits",
    Bernoulli: "logits",
    Deterministic: "action",
    Direct: "action",
}


class SideBySide:
    """Acts in ``n_rows`` environments with a policy of its own in each: the weights that `put` wrote there.

    Linear layers of all rows are one batched product where every layer is known; else each row goes through
    a copy of the module. What comes of a row never depends on the others, to the last bit.
    """

    def __init__(self, parameters: Parameters, n_rows: int) -> None:
        vectors = torch.zeros((n_rows, parameters.size))
        self.head: Head = parameters.module.head  # type: ignore[assignment]
        self._forward = _batched(parameters, vectors.numpy())
        self._apart: list[ActingPolicy] = []
        device = parameters.flat.device
        self._rows = list(vectors if self._forward is not None else vectors.to(device))
        if self._forward is None:
            self._apart = [ActingPolicy(parameters.module_at(row), device) for row in self._rows]

    def put(self, row: int, vector: Array) -> None:
        """Let a row act with these weights, (parameters,), from now on."""
        self._rows[row].copy_(torch.from_numpy(vector))

    def act(self, seen: Mapping[str, Column]) -> Column:
        """Return the likeliest actions (n_rows, …), each by the weights of its row."""
        if self._forward is None:
            return self.head.mode(self._row_by_row(seen))
        return self.head.mode(self.head.masked(self._forward(seen["observations"]), seen.get("action_masks")))

    def _row_by_row(self, seen: Mapping[str, Column]) -> Array:
        rows = []
        for i, acting in enumerate(self._apart):
            row = itemgetter(slice(i, i + 1))
            rows.append(acting.parameters({name: transform(row, column) for name, column in seen.items()})[0])
        return np.concatenate(rows)


def _batched(parameters: Parameters, vectors: Array) -> Layer | None:
    """Return the forward pass of all rows at once, observations to parameters of the head, if it is known."""
    policy = parameters.module
    if type(policy) is not SearchedPolicy or type(policy.trunk) is not Mlp:
        return None
    encode, last = encoder_in_numpy(policy.encoder), LAST_LAYERS.get(type(policy.head))
    if encode is None or last is None:
        return None
    named = [(f"trunk.{name}", layer) for name, layer in policy.trunk.named_children()]
    named.append((f"head.{last}", getattr(policy.head, last)))
    if type(policy.head) is Deterministic:
        named.append(("", nn.Tanh()))
    found = [_layer(name, layer, parameters, vectors) for name, layer in named]
    layers = [layer for layer in found if layer is not None]
    if len(layers) < len(named):
        return None

    def forward(observations: Array) -> Array:
        values = encode(observations)
        for layer in layers:
            values = layer(values)
        return values

    return forward


def _layer(name: str, layer: nn.Module, parameters: Parameters, vectors: Array) -> Layer | None:
    """Return what a layer does to each row with the weights that stand in the row's vector."""
    if type(layer) is nn.Tanh:
        return np.tanh
    if type(layer) is nn.ReLU:
        return lambda values: np.maximum(values, 0.0)
    if type(layer) is not nn.Linear:
        return None
    own = [kind for kind, _ in layer.named_parameters()]
    if any(f"{name}.{kind}" not in parameters.slices for kind in own):
        return None  # it is frozen
    weights = vectors[:, parameters.slices[f"{name}.weight"]].reshape(len(vectors), *layer.weight.shape)
    if "bias" not in own:
        return lambda values: np.matmul(weights, values[:, :, np.newaxis])[:, :, 0]
    biases = vectors[:, parameters.slices[f"{name}.bias"]]
    return lambda values: np.matmul(weights, values[:, :, np.newaxis])[:, :, 0] + biases
