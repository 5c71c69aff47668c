"""What a recurrent core is: a memory between a policy's encoder and its heads."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class RecurrentCore(nn.Module, ABC):
    """Turns features and a state into features (…, ``output_size``) and the next state.

    A state is one tensor (rows, ``state_size``), zeros where an episode starts. A core with more than one
    (an LSTM) keeps them side by side. Only `step` has to be written; a core that can read whole sequences
    faster overrides `forward`.
    """

    state_size: int
    output_size: int

    @abstractmethod
    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Read features (rows, f) of one step; return features (rows, ``output_size``) and the next state."""

    def forward(
        self, features: Tensor, state: Tensor | None = None, episode_starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Read one step (rows, f), or sequences (rows, time, f) from the state before their first step.

        The state is multiplied by 1 − ``episode_starts`` (rows) or (rows, time) before each step.
        """
        if state is None:
            state = self.initial_state(len(features))
        if features.dim() == 2:
            return self.step(features, fresh(state, episode_starts))
        starts = [None] * features.shape[1] if episode_starts is None else episode_starts.unbind(1)
        outputs = []
        for step_features, step_starts in zip(features.unbind(1), starts, strict=True):
            output, state = self.step(step_features, fresh(state, step_starts))
            outputs.append(output)
        return torch.stack(outputs, dim=1), state

    def initial_state(self, n: int) -> Tensor:
        """Return the state of ``n`` rows before anything was seen."""
        return torch.zeros(n, self.state_size, device=next(self.parameters()).device)


def fresh(state: Tensor, episode_starts: Tensor | None) -> Tensor:
    """Return a state (rows, …) with zeros where an episode starts, (rows)."""
    if episode_starts is None:
        return state
    return state * (1.0 - episode_starts.to(state.dtype))[:, None]
