"""Natural gradients by Kronecker-factored curvature (Martens and Grosse 2015, https://arxiv.org/abs/1503.05671).

The Fisher matrix is taken for a matrix of blocks, one for each layer, and that of a linear layer for A ⊗ G: A
is the mean of a·aᵀ over its inputs a, and G the mean of g·gᵀ over the gradients g of its outputs. So a
matrix of all pairs of weights is never made: (A ⊗ G)⁻¹ vec(V) = vec(G⁻¹ V A⁻¹).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from zoo.optim.descent import Descent
from zoo.optim.kfac_layers import Layer, Use, Watch, layers_of
from zoo.optim.state import LiveState, State

COUNT = "kfac.count"
"""The state entry that counts the batches whose statistics are in the averages."""

LEAST_EIGENVALUE = 1e-12
"""What a mean eigenvalue counts for at least where damping is shared out by them."""


class KFac:
    """The curvature of what ``descent`` moves: running averages of factors, and inverses made of them.

    The averages are plain means of the first ``n_plain`` batches; after those each batch has a weight of
    1 − ``decay``. ``damping`` is added to the diagonal of every block: exactly so with ``inverse="eigen"``,
    by the eigenvalues of A ⊗ G; with ``"cholesky"`` it is shared out between A and G by their mean
    eigenvalues (section 6.3), which damps more, and costs a fraction for wide layers. Blocks of one factor
    are damped exactly by both. The inverses only change in `refresh`.

    All its tensors are entries of the state. It puts nothing on the modules: `watching` sees what is computed
    within its block, and nothing else.
    """

    def __init__(
        self,
        descent: Descent,
        *,
        n_plain: int,
        decay: float,
        damping: float,
        inverse: Literal["eigen", "cholesky"],
    ) -> None:
        self.descent = descent
        self.layers = layers_of(descent.parameters)
        self.n_plain, self.decay, self.damping, self.inverse = n_plain, decay, damping, inverse

    def initial_state(self) -> State:
        """Return averages of nothing, and inverses of zero."""
        flat = self.descent.parameters.flat
        state = State({COUNT: flat.new_zeros(())})
        for layer in self.layers:
            n_outputs, n_inputs = layer.matrix(self.descent.parameters.named(flat)).shape
            state[_entry(layer, "outputs")] = flat.new_zeros(n_outputs, n_outputs)
            if not layer.is_exact:
                state[_entry(layer, "inputs")] = flat.new_zeros(n_inputs, n_inputs)
            inverses = self._inverses(layer, state)
            state.update({name: torch.zeros_like(inverse) for name, inverse in inverses.items()})
        return state

    # -- statistics -------------------------------------------------------------------------------------

    def watching(self) -> Watch:
        """Return what notes the uses of all layers within a ``with`` block."""
        return Watch(self.layers)

    def factors(
        self, watch: Watch, loss: Tensor, n_samples: Tensor | int, weights: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the factors of a batch, averaged over workers.

        ``loss`` is the mean over ``n_samples`` of minus the log-likelihoods of outputs that were drawn from
        the model itself: so the mean square of its gradients is the Fisher matrix. Its graph stays. With
        ``weights``, a 0 or 1 for each sample (samples) or (sequences, time), it leaves out some samples, and
        so do the factors; ``n_samples`` is then how many are left, as a mean over workers.

        Of a layer that is used several times for each sample (a convolution at each place, a recurrent
        layer at each step) uses are taken for independent: the block is the number of uses for each sample
        times E[a·aᵀ] ⊗ E[g·gᵀ], with means over all uses. G holds that number.
        """
        uses = {layer.name: watch.uses_of(layer) for layer in self.layers}
        outputs = [use.outputs for noted in uses.values() for use in noted]
        slopes = iter(
            torch.autograd.grad(loss, outputs, retain_graph=True, allow_unused=True, materialize_grads=True)
        )
        factors = {}
        for layer in self.layers:
            noted = uses[layer.name]
            rows = torch.cat([use.output_rows(next(slopes)) for use in noted])
            factors[_entry(layer, "outputs")] = n_samples * (rows.T @ rows)
            if not layer.is_exact:
                factors[_entry(layer, "inputs")] = _mean_square(layer, noted, n_samples, weights)
        return self._averaged_over_workers(factors)

    def _averaged_over_workers(self, factors: dict[str, Tensor]) -> dict[str, Tensor]:
        flat = self.descent.averaged(torch.cat([factor.reshape(-1) for factor in factors.values()]))
        parts = flat.split([factor.numel() for factor in factors.values()])
        return {name: part.view_as(factors[name]) for name, part in zip(factors, parts, strict=True)}

    def averaged(self, state: State, factors: dict[str, Tensor]) -> State:
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
    def refresh(self, state: State) -> State:
        """Return the state with inverses of today's averages, computed in double precision.

        Between updates: no graph holds a decomposition. Raises `torch.linalg.LinAlgError` where the averages
        are not finite.
        """
        new: dict[str, Tensor] = {}
        for layer in self.layers:
            new |= self._inverses(layer, state)
        return state.replaced(new)

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

    def natural(self, state: State, gradient: Tensor) -> Tensor:
        """Return (F + damping)⁻¹ · ``gradient``, by the inverses of the last `refresh`."""
        named = self.descent.parameters.named(gradient)
        found: dict[str, Tensor] = {}
        for layer in self.layers:
            found |= layer.parts(self._preconditioned(layer, state, layer.matrix(named)))
        return torch.cat([found[key].reshape(-1) for key in named])

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


def _mean_square(layer: Layer, uses: list[Use], n_samples: Tensor | int, weights: Tensor | None) -> Tensor:
    """Return the mean of a·aᵀ over the rows a of all uses of a layer, as far as their samples count."""
    all_rows = [use.input_rows for use in uses if use.input_rows is not None]
    rows = torch.cat(all_rows)
    if weights is None:
        return rows.T @ rows / len(rows)
    counted = layer.weights_of_rows(weights, [len(each) for each in all_rows])
    return (counted[:, None] * rows).T @ rows / (n_samples * (len(rows) / weights.numel()))


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
