"""Recurrent layers over time on arrays, forwards and backwards.

What a layer reads of its input is given for all steps, (time, rows, gates): see `GatedLayer.read`. ``state``
(rows, …) holds its vectors side by side, ``keep`` (time, rows, 1) is 0 where an episode starts, and
``weights`` are those of the recurrent part. Forwards gives what comes out (time, rows, hidden), the last
state, and a tape (one vector) for the way back.

For a few rows of a few hundred numbers this takes a fraction of the time of PyTorch's operations, whose
calls cost more than their arithmetic; and a compiled update holds one call instead of every step's
operations, which would take minutes to compile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray

EPS = 1e-5
"""What layer normalisation adds to a variance."""


def lstm(
    read: Array, state: Array, keep: Array, weights: Sequence[Array], *, normalized: bool = False
) -> tuple[Array, Array, Array]:
    """Run an LSTM, see `LstmLayer` and `NormalizedLstmLayer`.

    The tape holds the gates after their non-linearities (4 h), the cell after the step and its tanh; with
    normalisation also what came out of it, and by which it divided.
    """
    n_steps, n_rows, size = read.shape[0], read.shape[1], read.shape[2] // 4
    weight, half, rest = _transposed(weights[0]), *_halves(size, keep.dtype)
    outputs = np.empty((n_steps, n_rows, size), read.dtype)
    tape = np.empty(n_steps * n_rows * lstm_tape(size, normalized), read.dtype)
    gates, cells, shown, white_gates, white_cells, scales = _lstm_parts(tape, outputs.shape, normalized)
    restarts = (keep != 1).any((1, 2))
    hidden, cell = state[:, :size], state[:, size:]
    for t in range(n_steps):
        if restarts[t]:
            hidden, cell = hidden * keep[t], cell * keep[t]
        here = hidden.dot(weight)
        if normalized:
            white_gates[t], scales[t, :, :1] = _whitened(here)
            here = white_gates[t] * weights[1]
            here += weights[2]
        here += read[t]
        here *= half
        here = np.tanh(here, out=gates[t])
        here *= half  # σ(x) = (tanh(x / 2) + 1) / 2
        here += rest
        cell = np.multiply(here[:, size : 2 * size], cell, out=cells[t])
        cell += here[:, :size] * here[:, 2 * size : 3 * size]
        inner = cell
        if normalized:
            white_cells[t], scales[t, :, 1:] = _whitened(cell)
            inner = white_cells[t] * weights[3] + weights[4]
        np.tanh(inner, out=shown[t])
        hidden = np.multiply(here[:, 3 * size :], shown[t], out=outputs[t])
    return outputs, np.concatenate([hidden, cell], axis=-1), tape


def lstm_backward(
    slope: Array,
    last_slope: Array,
    state: Array,
    keep: Array,
    weights: Sequence[Array],
    tape: Array,
    *,
    normalized: bool = False,
) -> tuple[Array, Array, list[Array]]:
    """Return the gradients of what was read, of the first state, and of the weights.

    ``slope`` is that of the outputs, ``last_slope`` that of the last state.
    """
    n_steps, n_rows, size = slope.shape
    gates, cells, shown, white_gates, white_cells, scales = _lstm_parts(tape, slope.shape, normalized)
    by_gate = gates.reshape(n_steps, n_rows, 4, size)
    opened, forgotten, new, shows = (by_gate[:, :, i] for i in range(4))
    hidden_in = _before(state[:, :size], shows * shown, keep)
    factors = by_gate * (1 - by_gate)
    factors[:, :, 2] = 1 - np.square(new)
    for part, other in enumerate((new, _before(state[:, size:], cells, keep), opened, shown)):
        factors[:, :, part] *= other
    through_shown, through_cell = shows * (1 - np.square(shown)), forgotten * keep
    restarts = (keep != 1).any((1, 2))
    along_gates = np.empty_like(by_gate)
    along_recalled = np.empty_like(gates) if normalized else along_gates.reshape(gates.shape)
    along_inner = np.empty_like(slope)
    along_hidden, along_cell = last_slope[:, :size], last_slope[:, size:]
    for t in range(n_steps - 1, -1, -1):
        along_hidden = along_hidden + slope[t]
        through = np.multiply(along_hidden, through_shown[t], out=along_inner[t])
        if normalized:
            through = _whitened_backward(through * weights[3], white_cells[t], scales[t, :, 1:])
        along_cell = along_cell + through
        np.multiply(along_cell[:, None], factors[t, :, :3], out=along_gates[t, :, :3])
        np.multiply(along_hidden, factors[t, :, 3], out=along_gates[t, :, 3])
        if normalized:
            here = along_gates[t].reshape(n_rows, -1) * weights[1]
            along_recalled[t] = _whitened_backward(here, white_gates[t], scales[t, :, :1])
        along_hidden = along_recalled[t].dot(weights[0])
        if restarts[t]:
            along_hidden *= keep[t]
        along_cell = along_cell * through_cell[t]
    along_read = along_gates.reshape(gates.shape)
    along_weights = [_over_time(along_recalled, hidden_in)]
    if normalized:
        for along, white in ((along_read, white_gates), (along_inner, white_cells)):
            along_weights += [(along * white).sum((0, 1)), along.sum((0, 1))]
    return along_read, np.concatenate([along_hidden, along_cell], axis=-1), along_weights


def lstm_tape(size: int, normalized: bool) -> int:
    """Return how many numbers an LSTM's tape holds of each row at each step."""
    return 11 * size + 2 if normalized else 6 * size


def _lstm_parts(tape: Array, shape: tuple[int, ...], normalized: bool) -> list[Array]:
    size = shape[-1]
    widths = [4 * size, size, size, *([4 * size, size, 2] if normalized else [0, 0, 0])]
    return _parts(tape, shape[:2], widths)


def _transposed(weight: Array) -> Array:
    """Return the transpose, lying in memory as products of a few rows are fastest with."""
    return np.ascontiguousarray(weight.T)


def _halves(size: int, dtype: np.dtype) -> tuple[Array, Array]:
    """Return ½ for the sigmoid gates and 1 for the new cell, and what adds up to 1."""
    half = np.full(4 * size, 0.5, dtype)
    half[2 * size : 3 * size] = 1
    return half, 1 - half


def gru(read: Array, state: Array, keep: Array, weights: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Run a GRU, see `GruLayer`. The tape holds reset and update (2 h), new, and what is recalled for it."""
    n_steps, n_rows, size = read.shape[0], read.shape[1], read.shape[2] // 3
    weight, bias = _transposed(weights[0]), weights[1]
    outputs = np.empty((n_steps, n_rows, size), read.dtype)
    tape = np.empty(n_steps * n_rows * gru_tape(size), read.dtype)
    gates, news, olds = _parts(tape, outputs.shape[:2], [2 * size, size, size])
    restarts = (keep != 1).any((1, 2))
    hidden = state
    for t in range(n_steps):
        if restarts[t]:
            hidden = hidden * keep[t]
        recalled = hidden.dot(weight)
        recalled += bias
        olds[t] = recalled[:, 2 * size :]
        here = np.add(recalled[:, : 2 * size], read[t, :, : 2 * size], out=gates[t])
        here *= 0.5
        np.tanh(here, out=here)
        here += 1.0
        here *= 0.5
        new = np.multiply(here[:, :size], olds[t], out=news[t])
        new += read[t, :, 2 * size :]
        np.tanh(new, out=new)
        hidden = np.subtract(hidden, new, out=outputs[t])
        hidden *= here[:, size:]
        hidden += new
    return outputs, hidden.copy(), tape


def gru_backward(
    slope: Array, last_slope: Array, state: Array, keep: Array, weights: Sequence[Array], tape: Array
) -> tuple[Array, Array, list[Array]]:
    """Return the gradients of what was read, of the first state, and of the weights; see `lstm_backward`."""
    n_steps, n_rows, size = slope.shape
    gates, new, old = _parts(tape, slope.shape[:2], [2 * size, size, size])
    reset, update = gates[..., :size], gates[..., size:]
    hidden_in = np.empty_like(slope)
    hidden = state
    for t in range(n_steps):
        hidden_in[t] = hidden * keep[t]
        hidden = new[t] + update[t] * (hidden_in[t] - new[t])
    along_read, along_recalled = (np.empty((n_steps, n_rows, 3 * size), slope.dtype) for _ in range(2))
    new_factor = (1 - update) * (1 - np.square(new))
    update_factor = (hidden_in - new) * update * (1 - update)
    reset_factor = old * reset * (1 - reset)
    along_hidden = last_slope
    for t in range(n_steps - 1, -1, -1):
        along_hidden = along_hidden + slope[t]
        along_new = np.multiply(along_hidden, new_factor[t], out=along_read[t, :, 2 * size :])
        np.multiply(along_new, reset_factor[t], out=along_read[t, :, :size])
        np.multiply(along_hidden, update_factor[t], out=along_read[t, :, size : 2 * size])
        along_recalled[t, :, : 2 * size] = along_read[t, :, : 2 * size]
        np.multiply(along_new, reset[t], out=along_recalled[t, :, 2 * size :])
        along_hidden = (along_hidden * update[t] + along_recalled[t].dot(weights[0])) * keep[t]
    return along_read, along_hidden, [_over_time(along_recalled, hidden_in), along_recalled.sum((0, 1))]


def gru_tape(size: int) -> int:
    """Return how many numbers a GRU's tape holds of each row at each step."""
    return 4 * size


def _parts(tape: Array, leading: tuple[int, ...], widths: Sequence[int]) -> list[Array]:
    """Return the parts of a tape (n) as arrays (*leading, width), one after the other."""
    parts, start = [], 0
    for width in widths:
        end = start + leading[0] * leading[1] * width
        parts.append(tape[start:end].reshape(*leading, width))
        start = end
    return parts


def _before(first: Array, following: Array, keep: Array) -> Array:
    """Return what each step began with: what is ``first``, then what followed from the step before."""
    return np.concatenate([first[None], following[:-1]]) * keep


def _over_time(left: Array, right: Array) -> Array:
    """Return Σ leftᵀ·right over steps and rows."""
    return left.reshape(-1, left.shape[-1]).T.dot(right.reshape(-1, right.shape[-1]))


def _whitened(values: Array) -> tuple[Array, Array]:
    """Return rows with mean 0 and variance 1, and 1 / standard deviation of each."""
    centred = values - values.mean(-1, keepdims=True)
    scale = 1 / np.sqrt(np.square(centred).mean(-1, keepdims=True) + EPS)
    return centred * scale, scale


def _whitened_backward(slope: Array, whitened: Array, scale: Array) -> Array:
    along = (slope * whitened).mean(-1, keepdims=True)
    return (slope - slope.mean(-1, keepdims=True) - whitened * along) * scale
