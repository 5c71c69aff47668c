"""Recurrent layers: LSTM, layer-normalised LSTM, GRU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig


def zero_at_starts(state: Tensor, episode_starts: Tensor | None) -> Tensor:
    """Return a state (rows, …) with zeros where an episode starts, (rows)."""
    if episode_starts is None:
        return state
    return state * (1.0 - episode_starts.to(state.dtype))[:, None]


_unrolled: list[bool] = []


@contextmanager
def unrolled() -> Iterator[None]:
    """Within the block cores read sequences step by step, each product a call of `F.linear`.

    For K-FAC, which has to see the products, and for second derivatives, which PyTorch's layers lack.
    """
    _unrolled.append(True)
    try:
        yield
    finally:
        _unrolled.pop()


class LSTMLayer(nn.LSTMCell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997) with forget gates (Gers et al. 2000)."""

    n_states: ClassVar = 2
    biases_of: ClassVar = {"weight_ih": ("bias_ih", "bias_hh"), "weight_hh": ()}
    """To which product each bias is added, for K-FAC."""

    def input_gates(self, features: Tensor) -> Tensor:
        """Return the input's part of the gates, of any number of steps at once."""
        return F.linear(features, self.weight_ih, self.bias_ih + self.bias_hh)

    def step(self, gates: Tensor, states: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the next h and c (rows, hidden); h is the output."""
        h, c = states
        i, f, g, o = (gates + F.linear(h, self.weight_hh)).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class LayerNormLSTMLayer(nn.LSTMCell):
    """An LSTM with layer normalisation (Ba et al. 2016, equations 20 to 22), which brings the biases."""

    n_states: ClassVar = 2

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size, bias=False)
        self.norm_ih = nn.LayerNorm(4 * hidden_size)
        self.norm_hh = nn.LayerNorm(4 * hidden_size)
        self.norm_cell = nn.LayerNorm(hidden_size)

    def input_gates(self, features: Tensor) -> Tensor:
        return self.norm_ih(F.linear(features, self.weight_ih))

    def step(self, gates: Tensor, states: Sequence[Tensor]) -> Sequence[Tensor]:
        h, c = states
        i, f, g, o = (gates + self.norm_hh(F.linear(h, self.weight_hh))).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * self.norm_cell(c).tanh(), c


class GRULayer(nn.GRUCell):
    """Gated recurrent unit (Cho et al. 2014), in PyTorch's form: the reset gate comes after the product."""

    n_states: ClassVar = 1

    def input_gates(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight_ih, self.bias_ih)

    def step(self, gates: Tensor, states: Sequence[Tensor]) -> Sequence[Tensor]:
        (h,) = states
        r, z, n = gates.chunk(3, dim=-1)
        h_r, h_z, h_n = F.linear(h, self.weight_hh, self.bias_hh).chunk(3, dim=-1)
        n = (n + (r + h_r).sigmoid() * h_n).tanh()
        return (n + (z + h_z).sigmoid() * (h - n),)


Layer = LSTMLayer | LayerNormLSTMLayer | GRULayer


class RecurrentLayers(nn.Module):
    """Layers of one kind on top of each other: features and a state to features and the next state.

    A state is one tensor (rows, ``state_size``), zeros where an episode starts: that of each layer in turn,
    of an LSTM h, then c.
    """

    def __init__(self, layer_class: type[Layer], input_size: int, hidden_size: int, n_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for index in range(n_layers):  # one by one, so that a limit on parameters is met early
            self.layers.append(layer_class(hidden_size if index else input_size, hidden_size))
        self.output_size = hidden_size
        self.state_size = n_layers * layer_class.n_states * hidden_size
        self.is_lstm = layer_class is LSTMLayer

    def initial_state(self, n: int) -> Tensor:
        """Return the state of ``n`` rows before anything was seen."""
        return torch.zeros(n, self.state_size, device=next(self.parameters()).device)

    def forward(
        self, features: Tensor, state: Tensor | None = None, episode_starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Read one step (rows, f), or sequences (rows, time, f) from the state before their first step.

        The state is multiplied by 1 − ``episode_starts`` (rows) or (rows, time) before each step. Gradients
        through the sequences of an LSTM are those of PyTorch's own layers, which are several times as fast;
        the state after the sequences is not returned then (None).
        """
        if state is None:
            state = self.initial_state(len(features))
        if features.dim() == 2:
            state = zero_at_starts(state, episode_starts)
            outputs, state = self._step_by_step(features[:, None], state, None)
            return outputs[:, 0], state
        if not self.is_lstm or _unrolled or not torch.is_grad_enabled():
            return self._step_by_step(features, state, episode_starts)
        if episode_starts is None:
            episode_starts = torch.zeros(features.shape[:2], dtype=torch.bool, device=state.device)
        weights = [getattr(layer, name) for layer in self.layers for name in LSTM_WEIGHTS]
        return lstm(features.to(state.dtype), state, episode_starts.bool(), weights), None

    def _step_by_step(
        self, features: Tensor, state: Tensor, episode_starts: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Read (rows, time, f) by PyTorch's elementary operations."""
        goes_on = None if episode_starts is None else 1.0 - episode_starts.to(state.dtype).T[..., None]
        last: list[Tensor] = []
        for layer, before in zip(self.layers, state.chunk(len(self.layers), dim=-1), strict=True):
            assert isinstance(layer, Layer)
            states: Sequence[Tensor] = before.chunk(layer.n_states, dim=-1)
            outputs = []
            for t, gates in enumerate(layer.input_gates(features.transpose(0, 1)).to(state.dtype).unbind(0)):
                if goes_on is not None:
                    states = [tensor * goes_on[t] for tensor in states]
                states = layer.step(gates, states)
                outputs.append(states[0])
            features = torch.stack(outputs, dim=1)
            last += states
        return features, torch.cat(last, dim=-1)


LSTM_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def lstm(features: Tensor, state: Tensor, episode_starts: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Return the outputs of PyTorch's LSTM for (rows, time, f), each part of an episode by itself."""
    rows, time = episode_starts.shape
    if not episode_starts[:, 1:].any():
        return _lstm_sequences(features, zero_at_starts(state, episode_starts[:, 0]), weights)
    begins = episode_starts.clone()
    begins[:, 0] = True
    row, first = begins.nonzero(as_tuple=True)
    sequence = begins.flatten().cumsum(0) - 1
    step = torch.arange(time, device=state.device).repeat(rows) - first[sequence]
    padded = features.new_zeros(len(row), int(step.max()) + 1, features.shape[-1])
    padded = padded.index_put((sequence, step), features.flatten(0, 1))
    outputs = _lstm_sequences(padded, zero_at_starts(state[row], episode_starts[row, first]), weights)
    return outputs[sequence, step].reshape(rows, time, -1)


def _lstm_sequences(features: Tensor, state: Tensor, weights: Sequence[Tensor]) -> Tensor:
    n_layers = len(weights) // len(LSTM_WEIGHTS)
    h, c = (tensor.contiguous() for tensor in state.reshape(len(state), n_layers, 2, -1).permute(2, 1, 0, 3))
    has_biases, dropout, training, bidirectional, batch_first = True, 0.0, True, False, True
    outputs, _, _ = torch.lstm(
        *(features, (h, c), list(weights), has_biases, n_layers, dropout, training),
        *(bidirectional, batch_first),
    )
    return outputs


def make_core(config: PolicyConfig, input_size: int) -> RecurrentLayers | None:
    """Return the recurrent layers that ``config`` names; None without any. Raises `ZooError`."""
    if config.recurrent is None:
        return None
    if config.recurrent == "gru" and config.lstm_layer_norm:
        raise ZooError("`policy.lstm_layer_norm=true` is of an LSTM: set `policy.recurrent=lstm`")
    lstm_class = LayerNormLSTMLayer if config.lstm_layer_norm else LSTMLayer
    layer_class: type[Layer] = GRULayer if config.recurrent == "gru" else lstm_class
    return RecurrentLayers(layer_class, input_size, config.lstm_hidden_size, config.n_lstm_layers)
