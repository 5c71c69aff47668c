"""Recurrent layers over time on arrays, forwards and backwards.

What a layer reads of its input is given for all steps, (time, rows, gates): see `GatedLayer.read`. ``state``
(rows, …) holds its vectors side by side, ``keep`` (time, rows, 1) is 0 where an episode starts, and
``weights`` are those of the recurrent part. Forwards gives what comes out (time, rows, hidden), the last
state, and a tape (time, rows, …) for the way back.

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

    The tape holds the gates after their non-linearities (4 h), the cell and the hidden state before the step,
    and tanh of the cell after it; with normalisation also what came out of it, and by which it divided.
    """
    n_steps, n_rows, size = read.shape[0], read.shape[1], read.shape[2] // 4
    weight = weights[0].T
    outputs = np.empty((n_steps, n_rows, size), read.dtype)
    tape = np.empty((n_steps, n_rows, (12 * size + 2) if normalized else 7 * size), read.dtype)
    hidden, cell = state[:, :size], state[:, size:]
    for t in range(n_steps):
        gates, cell_in = tape[t, :, : 4 * size], tape[t, :, 4 * size : 5 * size]
        hidden_in, shown = tape[t, :, 5 * size : 6 * size], tape[t, :, 6 * size : 7 * size]
        np.multiply(hidden, keep[t], out=hidden_in)
        np.multiply(cell, keep[t], out=cell_in)
        recalled = hidden_in.dot(weight)
        if normalized:
            whitened, scale = _whitened(recalled)
            tape[t, :, 7 * size : 11 * size], tape[t, :, -2:-1] = whitened, scale
            recalled = whitened * weights[1] + weights[2]
        recalled += read[t]
        recalled[:, : 2 * size] *= 0.5
        recalled[:, 3 * size :] *= 0.5
        np.tanh(recalled, out=gates)
        for part in (gates[:, : 2 * size], gates[:, 3 * size :]):  # σ(x) = (tanh(x / 2) + 1) / 2
            part += 1.0
            part *= 0.5
        cell = gates[:, size : 2 * size] * cell_in
        cell += gates[:, :size] * gates[:, 2 * size : 3 * size]
        if normalized:
            whitened, scale = _whitened(cell)
            tape[t, :, 11 * size : 12 * size], tape[t, :, -1:] = whitened, scale
            np.tanh(whitened * weights[3] + weights[4], out=shown)
        else:
            np.tanh(cell, out=shown)
        hidden = np.multiply(gates[:, 3 * size :], shown, out=outputs[t])
    return outputs, np.concatenate([hidden, cell], axis=-1), tape


def lstm_backward(
    slope: Array,
    last_slope: Array,
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
    along_gates = np.empty((n_steps, n_rows, 4 * size), slope.dtype)
    along_recalled = np.empty_like(along_gates) if normalized else along_gates
    along_shown = np.empty_like(slope) if normalized else None
    along_hidden, along_cell = last_slope[:, :size], last_slope[:, size:]
    gates = tape[..., : 4 * size]
    opened, forgotten, new, shows = (gates[..., i * size : (i + 1) * size] for i in range(4))
    cell_in, hidden_in, shown = (tape[..., i * size : (i + 1) * size] for i in (4, 5, 6))
    derivative = gates * (1 - gates)
    derivative[..., 2 * size : 3 * size] = 1 - np.square(new)
    factors = np.concatenate([new, cell_in, opened, shown], axis=-1) * derivative
    shown_factor = shows * (1 - np.square(shown))
    for t in range(n_steps - 1, -1, -1):
        along_hidden = along_hidden + slope[t]
        through = along_hidden * shown_factor[t]
        if along_shown is not None:
            along_shown[t] = through
            through = _whitened_backward(
                through * weights[3], tape[t, :, 11 * size : 12 * size], tape[t, :, -1:]
            )
        along_cell = along_cell + through
        here = along_gates[t]
        for part in range(3):
            here[:, part * size : (part + 1) * size] = along_cell
        here[:, 3 * size :] = along_hidden
        here *= factors[t]
        if normalized:
            along_recalled[t] = _whitened_backward(
                here * weights[1], tape[t, :, 7 * size : 11 * size], tape[t, :, -2:-1]
            )
        along_hidden = along_recalled[t].dot(weights[0]) * keep[t]
        along_cell = along_cell * forgotten[t] * keep[t]
    along_weights = [_over_time(along_recalled, hidden_in)]
    if along_shown is not None:
        whitened, whitened_cell = tape[..., 7 * size : 11 * size], tape[..., 11 * size : 12 * size]
        along_weights += [(along_gates * whitened).sum((0, 1)), along_gates.sum((0, 1))]
        along_weights += [(along_shown * whitened_cell).sum((0, 1)), along_shown.sum((0, 1))]
    return along_gates, np.concatenate([along_hidden, along_cell], axis=-1), along_weights


def gru(read: Array, state: Array, keep: Array, weights: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Run a GRU, see `GruLayer`. The tape holds reset, update and new (3 h), what is recalled, the state."""
    n_steps, n_rows, size = read.shape[0], read.shape[1], read.shape[2] // 3
    weight, bias = weights[0].T, weights[1]
    outputs = np.empty((n_steps, n_rows, size), read.dtype)
    tape = np.empty((n_steps, n_rows, 5 * size), read.dtype)
    hidden = state
    for t in range(n_steps):
        gates, new = tape[t, :, : 2 * size], tape[t, :, 2 * size : 3 * size]
        hidden_in = np.multiply(hidden, keep[t], out=tape[t, :, 4 * size :])
        recalled = hidden_in.dot(weight)
        recalled += bias
        tape[t, :, 3 * size : 4 * size] = recalled[:, 2 * size :]
        np.add(recalled[:, : 2 * size], read[t, :, : 2 * size], out=gates)
        gates *= 0.5
        np.tanh(gates, out=gates)
        gates += 1.0
        gates *= 0.5
        np.multiply(gates[:, :size], recalled[:, 2 * size :], out=new)
        new += read[t, :, 2 * size :]
        np.tanh(new, out=new)
        hidden = np.subtract(hidden_in, new, out=outputs[t])
        hidden *= gates[:, size:]
        hidden += new
    return outputs, hidden.copy(), tape


def gru_backward(
    slope: Array, last_slope: Array, keep: Array, weights: Sequence[Array], tape: Array
) -> tuple[Array, Array, list[Array]]:
    """Return the gradients of what was read, of the first state, and of the weights; see `lstm_backward`."""
    n_steps, _, size = slope.shape
    reset, update, new, recalled, hidden_in = (tape[..., i * size : (i + 1) * size] for i in range(5))
    along_read = np.empty((*slope.shape[:2], 3 * size), slope.dtype)
    along_recalled = np.empty_like(along_read)
    new_factor = (1 - update) * (1 - np.square(new))
    update_factor = (hidden_in - new) * update * (1 - update)
    reset_factor = recalled * reset * (1 - reset)
    along_hidden = last_slope
    for t in range(n_steps - 1, -1, -1):
        along_hidden = along_hidden + slope[t]
        along_new = along_hidden * new_factor[t]
        along_read[t, :, :size] = along_new * reset_factor[t]
        along_read[t, :, size : 2 * size] = along_hidden * update_factor[t]
        along_read[t, :, 2 * size :] = along_new
        along_recalled[t, :, : 2 * size] = along_read[t, :, : 2 * size]
        along_recalled[t, :, 2 * size :] = along_new * reset[t]
        along_hidden = (along_hidden * update[t] + along_recalled[t].dot(weights[0])) * keep[t]
    return along_read, along_hidden, [_over_time(along_recalled, hidden_in), along_recalled.sum((0, 1))]


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
