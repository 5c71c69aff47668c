"""A recurrent layer over time as one operation of PyTorch, for updates on a CPU.

A graph holds one call for all steps, forwards and backwards, whatever the length of the sequences; so
compiling takes no longer than without a memory. So it is for second derivatives, of Fisher-vector products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.policies import numpy_recurrence

Step = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]


def lstm_step(read: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor]) -> Sequence[Tensor]:
    """Take one step of an LSTM; ``weights``: (W_hh,)."""
    hidden, cell = states
    opened, forgotten, new, shown = (read + F.linear(hidden, weights[0])).chunk(4, dim=-1)
    cell = forgotten.sigmoid() * cell + opened.sigmoid() * new.tanh()
    return shown.sigmoid() * cell.tanh(), cell


def normalized_lstm_step(
    read: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor]
) -> Sequence[Tensor]:
    """Take one step of a layer-normalised LSTM; ``weights``: W_hh, then gain and bias of h's part, of c."""
    hidden, cell = states
    weight, gain, bias, cell_gain, cell_bias = weights
    recalled = F.layer_norm(F.linear(hidden, weight), gain.shape, gain, bias)
    opened, forgotten, new, shown = (read + recalled).chunk(4, dim=-1)
    cell = forgotten.sigmoid() * cell + opened.sigmoid() * new.tanh()
    return shown.sigmoid() * F.layer_norm(cell, cell_gain.shape, cell_gain, cell_bias).tanh(), cell


def gru_step(read: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor]) -> Sequence[Tensor]:
    """Take one step of a GRU; ``weights``: (W_hh, b_hh)."""
    (hidden,) = states
    (reset, update, new) = read.chunk(3, dim=-1)
    (old_reset, old_update, old) = F.linear(hidden, *weights).chunk(3, dim=-1)
    kept = (update + old_update).sigmoid()
    new = (new + (reset + old_reset).sigmoid() * old).tanh()
    return (new + kept * (hidden - new),)


class Kind(NamedTuple):
    """A kind of layer: its step, and all steps on arrays, forwards and backwards."""

    n_gates: int
    n_states: int
    tape_size: Callable[[int], int]
    step: Step
    forward: Callable[..., Any]
    backward: Callable[..., Any]


KINDS = {
    "lstm": Kind(
        *(4, 2, partial(numpy_recurrence.lstm_tape, normalized=False), lstm_step),
        *(numpy_recurrence.lstm, numpy_recurrence.lstm_backward),
    ),
    "normalized_lstm": Kind(
        *(4, 2, partial(numpy_recurrence.lstm_tape, normalized=True), normalized_lstm_step),
        partial(numpy_recurrence.lstm, normalized=True),
        partial(numpy_recurrence.lstm_backward, normalized=True),
    ),
    "gru": Kind(
        *(3, 1, numpy_recurrence.gru_tape, gru_step), *(numpy_recurrence.gru, numpy_recurrence.gru_backward)
    ),
}


def run(
    kind: str, read: Tensor, state: Tensor, keep: Tensor, weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return what comes out (time, rows, h) and the last state (rows, …).

    ``read`` is (time, rows, gates); ``keep`` (time, rows, 1) is 0 where an episode starts and 1 elsewhere.
    """
    if read.device.type != "cpu" or _taken_apart:
        return step_by_step(kind, read, state, keep, weights)
    outputs, last, _ = _forward(kind, read.contiguous(), state.contiguous(), keep.contiguous(), list(weights))
    return outputs, last


_taken_apart: list[bool] = []


@contextmanager
def taken_apart() -> Iterator[None]:
    """Within the block layers run `step_by_step`, for whoever wants to see each product (K-FAC)."""
    _taken_apart.append(True)
    try:
        yield
    finally:
        _taken_apart.pop()


def step_by_step(
    kind: str, read: Tensor, state: Tensor, keep: Tensor, weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Do the same by PyTorch's own operations."""
    step, n_states = KINDS[kind].step, KINDS[kind].n_states
    outputs = []
    for read_now, keep_now in zip(read.unbind(0), keep.unbind(0), strict=True):
        states = step(read_now, (state * keep_now).chunk(n_states, dim=-1), weights)
        outputs.append(states[0])
        state = torch.cat(list(states), dim=-1)
    return torch.stack(outputs), state


@torch.library.custom_op("zoo::recurrence", mutates_args=())
def _forward(
    kind: str, read: Tensor, state: Tensor, keep: Tensor, weights: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    arrays = [weight.numpy() for weight in weights]
    outputs, last, tape = KINDS[kind].forward(read.numpy(), state.numpy(), keep.numpy(), arrays)
    return torch.from_numpy(outputs), torch.from_numpy(last), torch.from_numpy(tape)


@torch.library.custom_op("zoo::recurrence_backward", mutates_args=())
def _backward(
    kind: str,
    slope: Tensor,
    last_slope: Tensor,
    read: Tensor,
    state: Tensor,
    keep: Tensor,
    weights: list[Tensor],
    tape: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of what was read, of the state, and of all weights in one vector.

    (What a compiled graph calls may return tensors, but no lists of them.)
    """
    arrays = [weight.numpy() for weight in weights]
    along_read, along_state, along_weights = KINDS[kind].backward(
        slope.numpy(), last_slope.numpy(), state.numpy(), keep.numpy(), arrays, tape.numpy()
    )
    return torch.from_numpy(along_read), torch.from_numpy(along_state), _flat(along_weights)


@torch.library.custom_op("zoo::recurrence_backward_twice", mutates_args=())
def _backward_twice(
    kind: str, along: list[Tensor], slopes: list[Tensor], inputs: list[Tensor], keep: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of `_backward` by its slopes and inputs: read, state, and weights in one vector.

    `_backward` is the gradient of ⟨slopes, outputs⟩ by the inputs, and a Hessian is symmetric: so these are
    the derivatives of outputs and gradients where the inputs move along ``along``. They are taken by a step
    in the imaginary direction, which is exact to rounding (Squire and Trapp 1998).
    """
    layer, step = KINDS[kind], 1e-20
    moved = [each.numpy() + 1j * step * way.numpy() for each, way in zip(inputs, along, strict=True)]
    slope, last_slope = (each.numpy().astype(np.complex128) for each in slopes)
    read, state, *weights = moved
    outputs, last, tape = layer.forward(read, state, keep.numpy(), weights)
    along_read, along_state, along_weights = layer.backward(
        slope, last_slope, state, keep.numpy(), weights, tape
    )
    results = (outputs, last, along_read, along_state)
    others = (torch.from_numpy(each.imag / step).to(keep.dtype) for each in results)
    return *others, _flat([each.imag / step for each in along_weights]).to(keep.dtype)  # type: ignore[return-value]


def _flat(arrays: Sequence[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate([array.reshape(-1) for array in arrays]))


def _parts(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    parts = flat.split([each.numel() for each in like])
    return [part.view(each.shape) for part, each in zip(parts, like, strict=True)]


@_forward.register_fake
def _(kind: str, read: Tensor, state: Tensor, keep: Tensor, weights: list[Tensor]) -> Any:
    n_steps, n_rows, size = *read.shape[:2], read.shape[2] // KINDS[kind].n_gates
    tape_size = KINDS[kind].tape_size(size)
    return (
        read.new_empty(n_steps, n_rows, size),
        state.new_empty(state.shape),
        read.new_empty(n_steps * n_rows * tape_size),
    )


@_backward.register_fake
def _(
    kind: str,
    slope: Tensor,
    last_slope: Tensor,
    read: Tensor,
    state: Tensor,
    keep: Tensor,
    weights: list[Tensor],
    tape: Tensor,
) -> Any:
    return read.new_empty(read.shape), state.new_empty(state.shape), read.new_empty(_size(weights))


@_backward_twice.register_fake
def _(kind: str, along: list[Tensor], slopes: list[Tensor], inputs: list[Tensor], keep: Tensor) -> Any:
    same = (each.new_empty(each.shape) for each in (*slopes, *inputs[:2]))
    return *same, keep.new_empty(_size(inputs[2:]))


def _size(weights: Sequence[Tensor]) -> int:
    return sum(weight.numel() for weight in weights)


def _remember(ctx: Any, inputs: Any, output: Any) -> None:
    kind, read, state, keep, weights = inputs
    ctx.kind = kind
    ctx.save_for_backward(read, state, keep, output[2], *weights)


def _derived(ctx: Any, slope: Tensor, last_slope: Tensor, tape_slope: Tensor | None) -> Any:
    read, state, keep, tape, *weights = ctx.saved_tensors
    along_read, along_state, along_weights = _backward(
        *(ctx.kind, slope.contiguous(), last_slope.contiguous(), read, state, keep, weights, tape)
    )
    return None, along_read, along_state, None, _parts(along_weights, weights)


def _remember_slopes(ctx: Any, inputs: Any, output: Any) -> None:
    kind, slope, last_slope, read, state, keep, weights, _ = inputs
    ctx.kind = kind
    ctx.save_for_backward(slope, last_slope, keep, read, state, *weights)


def _derived_twice(ctx: Any, along_read: Tensor, along_state: Tensor, along_weights: Tensor) -> Any:
    slope, last_slope, keep, *inputs = ctx.saved_tensors
    along = [along_read, along_state, *_parts(along_weights.contiguous(), inputs[2:])]
    slope, last_slope, read, state, weights = _backward_twice(
        ctx.kind, [each.contiguous() for each in along], [slope, last_slope], inputs, keep
    )
    return None, slope, last_slope, read, state, None, _parts(weights, inputs[2:]), None


_forward.register_autograd(_derived, setup_context=_remember)
_backward.register_autograd(_derived_twice, setup_context=_remember_slopes)
