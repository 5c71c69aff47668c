"""What K-FAC sees of a network: the functions by which parameters take part, in one forward pass.

A layer is a weight and its bias, whatever module they belong to. To linear functions and convolutions it is a
matrix (outputs, inputs), and what its block of the Fisher matrix is made of are rows of what went in and rows
of the gradients of what came out. The few parameters of a layer normalisation, or of a vector that is
repeated for each row, are a matrix (size, 1) to it: rows are then the gradients of the parameters themselves,
and the block is exact where each sample uses it once. The uses at each step of an LSTM are taken for
independent, as those of a weight are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from zoo.errors import ZooError
from zoo.optim.parameters import Parameters


class Use(NamedTuple):
    """One call of a function with the parameters of a layer."""

    outputs: Tensor
    version: int
    """Of the outputs, which grows if they are overwritten."""
    input_rows: Tensor | None
    """What the weights were multiplied with, (rows, inputs); None for a matrix (size, 1)."""
    output_rows: Callable[[Tensor], Tensor]
    """Turns the gradient of the outputs into rows, (rows, outputs)."""


class Layer:
    """A trained weight, and the trained biases added to its product, by their names in the flat vector.

    A bias is the weight of an input that is always 1 (homogeneous coordinates).
    """

    def __init__(self, owner: nn.Module, own_name: str, weight: str, biases: list[str]) -> None:
        self.owner, self.own_name = owner, own_name
        self.name, self.biases = weight, biases
        dimensions = self.parameter.dim()
        if dimensions not in (1, 2, 4):
            raise ZooError(f"K-FAC knows no curvature of `{weight}`, a parameter of {dimensions} dimensions")
        self.is_exact = dimensions == 1
        self.is_time_first: bool = getattr(owner, "is_time_first", False)

    @property
    def parameter(self) -> Tensor:
        """The weight as the module has it now."""
        found: Tensor = getattr(self.owner, self.own_name)
        return found

    def matrix(self, named: Mapping[str, Tensor]) -> Tensor:
        """Return the layer's part of a parameter vector as a matrix."""
        weight = named[self.name]
        parts = [weight[:, None] if self.is_exact else weight.flatten(1)]
        parts += [named[bias][:, None] for bias in self.biases]
        return torch.cat(parts, dim=0 if self.is_exact else 1)

    def parts(self, matrix: Tensor) -> dict[str, Tensor]:
        """Return the entries of a matrix by the parameters' names in the vector, in any shape."""
        names = [self.name, *self.biases]
        if self.is_exact:
            return dict(zip(names, matrix.chunk(len(names)), strict=True))
        weight = matrix[:, : matrix.shape[1] - len(self.biases)]
        return dict(zip(names, (weight, *matrix[:, weight.shape[1] :].unbind(1)), strict=True))

    def weights_of_rows(self, weights: Tensor, lengths: list[int]) -> Tensor:
        """Return the weight of each row of input of all uses, whose numbers of rows are ``lengths``.

        ``weights`` are those of the samples, (samples) or (sequences, time). Rows stand in their order, with
        several in succession where a sample has several (a convolution's places); or step by step, for all
        sequences at once, in modules that say by ``is_time_first`` that they read time first, and where a use
        is less than all samples: a step. Raises `ZooError` for other numbers of rows.
        """
        size = weights.numel()
        if self.is_time_first or lengths[0] < size:
            order = weights.transpose(0, -1).reshape(-1)
            n_times, rest = divmod(sum(lengths), size)
            rows = order.repeat(n_times)
        else:
            rest = sum(length % size for length in lengths)
            order = weights.reshape(-1)
            rows = torch.cat([order.repeat_interleave(length // size) for length in lengths])
        if rest:
            raise ZooError(f"K-FAC can't tell which steps `{self.name}` is used for: rows of {lengths}")
        return rows


def layers_of(parameters: Parameters) -> list[Layer]:
    """Return a layer for each trained weight with its biases, and for all other parameters.

    What is called ``weight…`` has the bias ``bias…`` of its module, unless the module says by ``biases_of``
    which its weights have. Raises `ZooError` for parameters that can't be a layer.
    """
    keys = {id(leaf): key for key, leaf in parameters.leaves.items()}
    layers: dict[str, Layer] = {}
    for module in parameters.module.modules():
        own = dict(module.named_parameters(recurse=False))
        trained = {name: keys[id(each)] for name, each in own.items() if id(each) in keys}
        usual = {name: ("bias" + name.removeprefix("weight"),) for name in own if name.startswith("weight")}
        biases_of: Mapping[str, tuple[str, ...]] = getattr(module, "biases_of", usual)
        taken = {bias for name, biases in biases_of.items() if name in trained for bias in biases}
        for name, key in trained.items():
            if key not in layers and name not in taken:
                biases = [trained[bias] for bias in biases_of.get(name, ()) if bias in trained]
                layers[key] = Layer(module, name, key, biases)
    return list(layers.values())


class Watch(TorchFunctionMode):
    """As long as it is in force, notes each use of the layers by a function that K-FAC knows."""

    def __init__(self, layers: list[Layer]) -> None:
        super().__init__()
        self.uses: dict[str, list[Use]] = {layer.name: [] for layer in layers}
        self._layers = layers
        self._by_parameter: dict[int, Layer] = {}

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        outputs = function(*args, **(kwargs or {}))
        if function in _READERS:
            call = _READERS[function](*args, **(kwargs or {}))
            self._by_parameter = self._by_parameter or {id(each.parameter): each for each in self._layers}
            layer = self._by_parameter.get(id(call.weight))
            if layer is not None:
                with torch.no_grad():
                    self.uses[layer.name].append(_use(layer, call, outputs))
        return outputs

    def uses_of(self, layer: Layer) -> list[Use]:
        """Return what was noted of a layer. Raises `ZooError` where that does not tell its curvature."""
        uses = self.uses[layer.name]
        if not uses:
            known = ", ".join(function.__name__ for function in _READERS)
            raise ZooError(
                f"K-FAC knows no curvature of `{layer.name}`, which no forward pass uses by one of {known}"
            )
        if any(use.outputs._version != use.version for use in uses):
            raise ZooError(f"K-FAC needs what comes out with `{layer.name}`, and it is overwritten in place")
        return uses


class _Call(NamedTuple):
    """A call of a known function: its parameters, and how rows are made."""

    weight: Tensor | None
    bias: Tensor | None
    input_rows: Callable[[], Tensor] | None
    output_rows: Callable[[Tensor, bool], Tensor]
    """Of the gradient, and whether the bias is trained."""


def _use(layer: Layer, call: _Call, outputs: Tensor) -> Use:
    n_biases = len(layer.biases)
    if n_biases and call.bias is None:
        raise ZooError(
            f"K-FAC knows no curvature of `{layer.biases[0]}`, which is not used along with `{layer.name}`"
        )
    rows = None if call.input_rows is None else call.input_rows()
    if rows is not None and n_biases:
        rows = F.pad(rows, (0, n_biases), value=1.0)
    return Use(outputs, outputs._version, rows, lambda gradients: call.output_rows(gradients, n_biases > 0))


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> _Call:
    return _Call(
        weight, bias, lambda: inputs.detach().flatten(0, -2), lambda slopes, _: slopes.flatten(0, -2)
    )


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> _Call:
    """A linear function of a patch of the input at each place (Grosse and Martens 2016).

    https://arxiv.org/abs/1602.01407
    """

    def patches() -> Tensor:
        if groups != 1 or isinstance(padding, str):
            raise ZooError("K-FAC knows no convolutions with groups, or with padding by a word; use numbers")
        unfolded = F.unfold(input.detach(), weight.shape[2:], dilation, padding, stride)
        return unfolded.transpose(1, 2).flatten(0, 1)

    return _Call(weight, bias, patches, lambda slopes, _: slopes.flatten(2).transpose(1, 2).flatten(0, 1))


def _layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> _Call:
    def rows(slopes: Tensor, has_bias: bool) -> Tensor:
        scaled = slopes * F.layer_norm(input.detach(), normalized_shape, eps=eps)
        return (torch.cat([scaled, slopes], dim=-1) if has_bias else scaled).flatten(0, -2)

    return _Call(weight, bias, None, rows)


def _expand_as(vector: Tensor, other: Tensor) -> _Call:
    return _Call(vector, None, None, lambda slopes, _: slopes.flatten(0, -2))


_READERS: dict[Any, Callable[..., _Call]] = {
    F.linear: _linear,
    F.conv2d: _convolution,
    F.layer_norm: _layer_norm,
    Tensor.expand_as: _expand_as,
}
