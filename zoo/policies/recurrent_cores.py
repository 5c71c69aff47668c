"""The memories that a policy may have: LSTM, layer-normalised LSTM, and GRU."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.policies import recurrence
from zoo.policies.config import PolicyConfig
from zoo.policies.recurrent_core import RecurrentCore, fresh


class GatedLayer(nn.Module):
    """A layer of a recurrent network, whose gates are linear in its input and in what it gave out before.

    It has the parameters of PyTorch's layers, by their names, with their initial values: uniform within
    ±1/√``hidden_size``. ``kind`` is its name in `recurrence.KINDS`.
    """

    kind: str
    is_time_first: ClassVar = True
    """Whether it reads (time, rows, …), for K-FAC."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.n_states = recurrence.KINDS[self.kind].n_states
        rows, bound = recurrence.KINDS[self.kind].n_gates * hidden_size, 1 / math.sqrt(hidden_size)
        shapes = {"weight_ih": (rows, input_size), "weight_hh": (rows, hidden_size)}
        for name, shape in {**shapes, **self._biases(rows)}.items():
            setattr(self, name, nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))

    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor

    def _biases(self, rows: int) -> dict[str, tuple[int, ...]]:
        return {"bias_ih": (rows,), "bias_hh": (rows,)}

    def read(self, features: Tensor) -> Tensor:
        """Return the input's part of the gates, of any number of steps at once."""
        raise NotImplementedError

    def recurrent_weights(self) -> list[Tensor]:
        """Return the weights of what depends on the step before."""
        raise NotImplementedError


class LstmLayer(GatedLayer):
    """Long short-term memory (Hochreiter and Schmidhuber 1997) with forget gates (Gers et al. 2000)."""

    kind = "lstm"
    biases_of: ClassVar = {"weight_ih": ("bias_ih", "bias_hh"), "weight_hh": ()}
    """To which product each bias is added, for K-FAC."""

    def read(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight_ih, self.bias_ih + self.bias_hh)

    def recurrent_weights(self) -> list[Tensor]:
        return [self.weight_hh]


class NormalizedLstmLayer(GatedLayer):
    """An LSTM with layer normalisation (Ba et al. 2016, equations 20 to 22), which brings the biases."""

    kind = "normalized_lstm"

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.norm_ih = nn.LayerNorm(4 * hidden_size)
        self.norm_hh = nn.LayerNorm(4 * hidden_size)
        self.norm_cell = nn.LayerNorm(hidden_size)

    def _biases(self, rows: int) -> dict[str, tuple[int, ...]]:
        return {}

    def read(self, features: Tensor) -> Tensor:
        normalized: Tensor = self.norm_ih(F.linear(features, self.weight_ih))
        return normalized

    def recurrent_weights(self) -> list[Tensor]:
        norms = (self.norm_hh, self.norm_cell)
        return [self.weight_hh, *(each for norm in norms for each in (norm.weight, norm.bias))]


class GruLayer(GatedLayer):
    """Gated recurrent unit (Cho et al. 2014), in PyTorch's form: the reset gate comes after the product."""

    kind = "gru"

    def read(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight_ih, self.bias_ih)

    def recurrent_weights(self) -> list[Tensor]:
        return [self.weight_hh, self.bias_hh]


class GatedCore(RecurrentCore):
    """Layers of one kind on top of each other.

    The state is that of the layers one after the other: of an LSTM h, then c. The input's part of the gates
    of a whole sequence is one product; only what depends on the step before is computed step by step.
    """

    def __init__(
        self, layer_class: type[GatedLayer], input_size: int, hidden_size: int, n_layers: int
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for index in range(n_layers):  # one by one, so that a limit on parameters is met early
            self.layers.append(layer_class(hidden_size if index else input_size, hidden_size))
        self.output_size = hidden_size
        self.state_size = n_layers * recurrence.KINDS[layer_class.kind].n_states * hidden_size

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        outputs, last = self._run(features[None], state, state.new_ones(1, state.shape[0], 1))
        return outputs[0], last

    def forward(
        self, features: Tensor, state: Tensor | None = None, episode_starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if state is None:
            state = self.initial_state(len(features))
        if features.dim() == 2:
            return self.step(features, fresh(state, episode_starts))
        keep = state.new_ones(features.shape[1], len(features), 1)
        if episode_starts is not None:
            keep = keep - episode_starts.to(state.dtype).T[..., None]
        outputs, last = self._run(features.transpose(0, 1), state, keep)
        return outputs.transpose(0, 1), last

    def _run(self, features: Tensor, state: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """Read (time, rows, f)."""
        last = []
        for layer, before in zip(self.layers, state.chunk(len(self.layers), dim=-1), strict=True):
            assert isinstance(layer, GatedLayer)
            read = layer.read(features).to(state.dtype)
            # One step is left to PyTorch's own operations, which can be exported.
            run = recurrence.run if len(read) > 1 else recurrence.step_by_step
            features, after = run(layer.kind, read, before, keep, layer.recurrent_weights())
            last.append(after)
        return features, torch.cat(last, dim=-1)


def make_core(config: PolicyConfig, input_size: int) -> GatedCore | None:
    """Return the memory that ``config`` names; None: none. Raises `ZooError` for one that there is not."""
    if config.recurrent is None:
        return None
    if config.recurrent == "gru" and config.lstm_layer_norm:
        raise ZooError("`policy.lstm_layer_norm=true` is of an LSTM: set `policy.recurrent=lstm`")
    lstm = NormalizedLstmLayer if config.lstm_layer_norm else LstmLayer
    layer_class: type[GatedLayer] = GruLayer if config.recurrent == "gru" else lstm
    return GatedCore(layer_class, input_size, config.lstm_hidden_size, config.n_lstm_layers)
