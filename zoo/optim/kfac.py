"""Natural gradients by Kronecker-factored curvature (Martens and Grosse 2015, https://arxiv.org/abs/1503.05671).

The Fisher matrix is taken for a matrix of blocks, one for each layer, and that of a linear layer for A ⊗ G: A
is the mean of a·aᵀ over its inputs a, and G the mean of g·gᵀ over the gradients g of its outputs. So a
matrix of all pairs of weights is never made: (A ⊗ G)⁻¹ vec(V) = vec(G⁻¹ V A⁻¹).

A layer is a weight and its bias, whatever module they belong to. To linear functions and convolutions it is a
matrix (outputs, inputs). The few parameters of a layer normalisation, or of a vector that is repeated for
each row, are a matrix (size, 1): its rows are the gradients of the parameters themselves, and its block is
exact where each sample uses it once. The uses at each step of an LSTM are taken for independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from zoo.errors import ZooError
from zoo.optim.optimizers import Parameters, Updater
from zoo.optim.update_runner import LiveState, State, average

COUNT = "kfac.count"  # the state entry that counts the batches whose statistics are in the averages
LEAST_EIGENVALUE = 1e-12  # what a mean eigenvalue counts for at least where damping is shared out by them


class KFac:
    """The curvature of what ``updater`` moves: running averages of factors, and inverses made of them.

    The averages are plain means of the first ``n_plain`` batches; after those each batch has a weight of
    1 − ``decay``. ``damping`` is added to the diagonal of every block: exactly so with ``inverse="eigen"``,
    by the eigenvalues of A ⊗ G; with ``"cholesky"`` it is shared out between A and G by their mean
    eigenvalues (section 6.3), which damps more, and costs a fraction for wide layers. All its tensors are
    entries of the state; the inverses only change where what `inverses` returns is put there.
    """

    def __init__(
        self,
        updater: Updater,
        *,
        n_plain: int,
        decay: float,
        damping: float,
        inverse: Literal["eigen", "cholesky"],
    ) -> None:
        self.updater = updater
        self.layers = layers_of(updater.parameters)
        self.n_plain, self.decay, self.damping, self.inverse = n_plain, decay, damping, inverse

    def initial_state(self) -> State:
        """Return averages of nothing, and inverses of zero."""
        flat = self.updater.parameters.flat
        state = State({COUNT: flat.new_zeros(())})
        for layer in self.layers:
            n_outputs, n_inputs = layer.matrix(self.updater.parameters.named(flat)).shape
            state[_entry(layer, "outputs")] = flat.new_zeros(n_outputs, n_outputs)
            if not layer.is_exact:
                state[_entry(layer, "inputs")] = flat.new_zeros(n_inputs, n_inputs)
            inverses = self._inverses(layer, state)
            state.update({name: torch.zeros_like(inverse) for name, inverse in inverses.items()})
        return state

    # -- statistics -------------------------------------------------------------------------------------

    def recording(self) -> CallRecorder:
        """Return a context that records the calls of all layers."""
        return CallRecorder(self.layers)

    def factors(self, recorder: CallRecorder, loss: Tensor, n_samples: int) -> dict[str, Tensor]:
        """Return the factors of a batch, averaged over ranks.

        ``loss`` is the mean over ``n_samples`` of minus the log-likelihoods of outputs that were drawn from
        the model itself: so the mean square of its gradients is the Fisher matrix. Its graph stays.

        Of a layer that is used several times for each sample (a convolution at each place, a recurrent
        layer at each step) uses are taken for independent: the block is the number of uses for each sample
        times E[a·aᵀ] ⊗ E[g·gᵀ], with means over all uses. G holds that number.
        """
        calls = {layer.name: recorder.calls_of(layer) for layer in self.layers}
        outputs = [call.outputs for uses in calls.values() for call in uses]
        grads = iter(
            torch.autograd.grad(loss, outputs, retain_graph=True, allow_unused=True, materialize_grads=True)
        )
        factors = {}
        for layer in self.layers:
            uses = calls[layer.name]
            rows = torch.cat([call.output_rows(next(grads)) for call in uses]).to(layer.parameter.dtype)
            if layer.is_exact and not layer.biases:
                rows = rows[:, : layer.parameter.numel()]
            factors[_entry(layer, "outputs")] = n_samples * (rows.T @ rows)
            if not layer.is_exact:
                factors[_entry(layer, "inputs")] = _mean_square(uses, layer.parameter.dtype)
        flat = average(torch.cat([factor.reshape(-1) for factor in factors.values()]))
        parts = flat.split([factor.numel() for factor in factors.values()])
        return {name: part.view_as(factors[name]) for name, part in zip(factors, parts, strict=True)}

    def update_averages(self, state: State, factors: dict[str, Tensor]) -> State:
        """Return the state with a batch's factors in its running averages."""
        count = state[COUNT]
        weight = torch.where(count < self.n_plain, 1.0 / (count + 1.0), 1.0 - self.decay)
        if isinstance(state, LiveState):
            for name, factor in factors.items():
                state[name].lerp_(factor, weight)
            count += 1.0
            return state
        new = {name: torch.lerp(state[name], factor, weight) for name, factor in factors.items()}
        return state.replaced({**new, COUNT: count + 1.0})

    # -- inverses ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def inverses(self, state: State) -> dict[str, Tensor]:
        """Return the state's entries with inverses of today's averages, computed in double precision.

        They are put into the state between updates: no graph holds a decomposition. Raises
        `torch.linalg.LinAlgError` where the averages are not finite.
        """
        return {
            name: inverse for layer in self.layers for name, inverse in self._inverses(layer, state).items()
        }

    def _inverses(self, layer: Layer, state: State) -> dict[str, Tensor]:
        outputs = state[_entry(layer, "outputs")]
        if layer.is_exact:
            return {_entry(layer, "outputs_inverse"): _inverse(outputs, self.damping)}
        inputs = state[_entry(layer, "inputs")]
        if self.inverse == "cholesky":
            ratio = (_mean_eigenvalue(inputs) / _mean_eigenvalue(outputs)).sqrt()
            root = math.sqrt(self.damping)
            return {
                _entry(layer, "inputs_inverse"): _inverse(inputs, root * ratio),
                _entry(layer, "outputs_inverse"): _inverse(outputs, root / ratio),
            }
        input_values, input_basis = _eigen(inputs)
        output_values, output_basis = _eigen(outputs)
        scale = 1.0 / (torch.outer(output_values, input_values) + self.damping)
        return {
            _entry(layer, "inputs_basis"): input_basis.to(inputs.dtype),
            _entry(layer, "outputs_basis"): output_basis.to(inputs.dtype),
            _entry(layer, "scale"): scale.to(inputs.dtype),
        }

    def natural_gradient(self, state: State, gradient: Tensor) -> Tensor:
        """Return (F + damping)⁻¹ · ``gradient``, by the inverses that the state has."""
        named = self.updater.parameters.named(gradient)
        by_key: dict[str, Tensor] = {}
        for layer in self.layers:
            by_key |= layer.named(self._preconditioned(layer, state, layer.matrix(named)))
        return torch.cat([by_key[key].reshape(-1) for key in named])

    def _preconditioned(self, layer: Layer, state: State, matrix: Tensor) -> Tensor:
        def own(name: str) -> Tensor:
            return state[_entry(layer, name)]

        if not layer.is_exact and self.inverse == "eigen":
            inputs, outputs = own("inputs_basis"), own("outputs_basis")
            return outputs @ ((outputs.T @ matrix @ inputs) * own("scale")) @ inputs.T
        if not layer.is_exact:
            matrix = matrix @ own("inputs_inverse")
        return own("outputs_inverse") @ matrix


def _entry(layer: Layer, name: str) -> str:
    return f"kfac.{layer.name}.{name}"


def _mean_square(calls: list[LayerCall], dtype: torch.dtype) -> Tensor:
    """Return the mean of a·aᵀ over the input rows a of all calls of a layer."""
    all_rows = [call.input_rows for call in calls if call.input_rows is not None]
    rows = torch.cat(all_rows).to(dtype)  # of bfloat16 they would not be positive
    return rows.T @ rows / len(rows)


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors; what rounding leaves of eigenvalues below zero is zero."""
    values, vectors = torch.linalg.eigh(matrix.double())
    return values.clamp(min=0.0), vectors


def _inverse(matrix: Tensor, damping: Tensor | float) -> Tensor:
    """Return the inverse of matrix + damping · I, by Cholesky's decomposition."""
    damped = matrix.double() + damping * torch.eye(len(matrix), dtype=torch.float64, device=matrix.device)
    return torch.cholesky_inverse(torch.linalg.cholesky(damped)).to(matrix.dtype)


def _mean_eigenvalue(matrix: Tensor) -> Tensor:
    return matrix.double().trace().clamp(min=LEAST_EIGENVALUE) / len(matrix)


class LayerCall(NamedTuple):
    """One call of a function with the parameters of a layer."""

    outputs: Tensor
    version: int
    """PyTorch's count of writes to the outputs."""
    input_rows: Tensor | None
    """What the weights were multiplied with, (rows, inputs); None for a matrix (size, 1)."""
    output_rows: Callable[[Tensor], Tensor]
    """Turns the gradient of the outputs into rows, (rows, outputs); of a layer norm with those of a bias."""


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

    @property
    def parameter(self) -> Tensor:
        """The weight as the module has it now."""
        return getattr(self.owner, self.own_name)

    def matrix(self, named: Mapping[str, Tensor]) -> Tensor:
        """Return the layer's part of a parameter vector as a matrix."""
        weight = named[self.name]
        parts = [weight[:, None] if self.is_exact else weight.flatten(1)]
        parts += [named[bias][:, None] for bias in self.biases]
        return torch.cat(parts, dim=0 if self.is_exact else 1)

    def named(self, matrix: Tensor) -> dict[str, Tensor]:
        """Return the entries of a matrix by the parameters' names in the vector, in any shape."""
        names = [self.name, *self.biases]
        if self.is_exact:
            return dict(zip(names, matrix.chunk(len(names)), strict=True))
        weight = matrix[:, : matrix.shape[1] - len(self.biases)]
        return dict(zip(names, (weight, *matrix[:, weight.shape[1] :].unbind(1)), strict=True))


def layers_of(parameters: Parameters) -> list[Layer]:
    """Return a layer for each trained weight with its biases, and for all other parameters.

    What is called ``weight…`` has the bias ``bias…`` of its module, unless the module says by ``biases_of``
    which its weights have. Raises `ZooError` for parameters that can't be a layer.
    """
    keys = {id(leaf): key for key, leaf in parameters.leaves.items()}
    layers: dict[str, Layer] = {}
    for module in parameters.module.modules():
        named = dict(module.named_parameters(recurse=False))
        trained = {name: keys[id(tensor)] for name, tensor in named.items() if id(tensor) in keys}
        defaults = {
            name: ("bias" + name.removeprefix("weight"),) for name in named if name.startswith("weight")
        }
        biases_of: Mapping[str, tuple[str, ...]] = getattr(module, "biases_of", defaults)
        taken = {bias for name, biases in biases_of.items() if name in trained for bias in biases}
        for name, key in trained.items():
            if key not in layers and name not in taken:
                biases = [trained[bias] for bias in biases_of.get(name, ()) if bias in trained]
                layers[key] = Layer(module, name, key, biases)
    return list(layers.values())


class CallRecorder(TorchFunctionMode):
    """Within its block, records each call of the layers by a function that K-FAC knows."""

    def __init__(self, layers: list[Layer]) -> None:
        super().__init__()
        self.calls: dict[str, list[LayerCall]] = {layer.name: [] for layer in layers}
        self._layers = layers
        self._by_parameter: dict[int, Layer] = {}

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        outputs = function(*args, **kwargs)
        if function in _READERS:
            self._by_parameter = self._by_parameter or {id(layer.parameter): layer for layer in self._layers}
            for layer in (self._by_parameter.get(id(arg)) for arg in (*args, *kwargs.values())):
                if layer is not None:
                    self._record(layer, outputs, _READERS[function](*args, **kwargs))
        return outputs

    def _record(self, layer: Layer, outputs: Tensor, read: _Read) -> None:
        bias, input_rows, output_rows = read
        if bias is layer.parameter:  # whose weight is not trained
            return
        if layer.biases and bias is None:
            raise ZooError(
                f"K-FAC knows no curvature of `{layer.biases[0]}`, which is not used along with"
                f" `{layer.name}`"
            )
        if input_rows is not None:
            input_rows = F.pad(input_rows, (0, len(layer.biases)), value=1.0)
        self.calls[layer.name].append(LayerCall(outputs, outputs._version, input_rows, output_rows))

    def calls_of(self, layer: Layer) -> list[LayerCall]:
        """Return the calls of a layer. Raises `ZooError` where they do not tell its curvature."""
        calls = self.calls[layer.name]
        if not calls:
            names = ", ".join(function.__name__ for function in _READERS)
            raise ZooError(
                f"K-FAC knows no curvature of `{layer.name}`, which no forward pass uses by one of {names}"
            )
        if any(call.outputs._version != call.version for call in calls):
            raise ZooError(f"K-FAC needs the outputs of `{layer.name}`, but they are overwritten in place")
        return calls


# Each reader returns what stands for the bias, `LayerCall.input_rows` and `LayerCall.output_rows`.
_Read = tuple[Tensor | None, Tensor | None, Callable[[Tensor], Tensor]]


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> _Read:
    return bias, inputs.detach().flatten(0, -2), lambda grads: grads.flatten(0, -2)


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> _Read:
    """A linear function of a patch of the input at each place (https://arxiv.org/abs/1602.01407)."""
    if groups != 1 or isinstance(padding, str):
        raise ZooError("K-FAC knows no convolutions with groups, or with padding by a word; use numbers")
    patches = F.unfold(input.detach(), weight.shape[2:], dilation, padding, stride)
    rows = patches.transpose(1, 2).flatten(0, 1)
    return bias, rows, lambda grads: grads.flatten(2).transpose(1, 2).flatten(0, 1)


def _layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> _Read:
    normalized = F.layer_norm(input.detach(), normalized_shape, eps=eps)
    return bias, None, lambda grads: torch.cat([grads * normalized, grads], dim=-1).flatten(0, -2)


def _expand_as(vector: Tensor, other: Tensor) -> _Read:
    return None, None, lambda grads: grads.flatten(0, -2)


_READERS: dict[Any, Callable[..., _Read]] = {
    F.linear: _linear,
    F.conv2d: _convolution,
    F.layer_norm: _layer_norm,
    Tensor.expand_as: _expand_as,
}
