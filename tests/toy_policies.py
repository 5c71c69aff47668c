"""Toy policies of a user's own: one that changes its observations, and some with a memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from zoo.policies.actor_critic import ActionValuePolicy, ActorCritic, StochasticDuelingPolicy
from zoo.policies.recurrent import RecurrentCore


class ChangedObservations(ActorCritic):
    """An actor-critic that acts on ``changed(observations)``, which a test defines."""

    def changed(self, observations: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, seen: Any, state: Any = None) -> Any:
        return super().forward(self._seen(seen), state)

    def action_parameters(self, seen: Any, state: Any = None) -> Any:
        return super().action_parameters(self._seen(seen), state)

    def values(self, seen: Any, state: Any = None) -> Any:
        return super().values(self._seen(seen), state)

    def _seen(self, seen: Any) -> Any:
        return {**seen, "observations": self.changed(seen["observations"])}


class LeakyIntegrator(RecurrentCore):
    """Remembers a fading sum of its input, and reads it by a linear layer."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.state_size, self.output_size = size, 6
        self.leak = nn.Parameter(torch.rand(size))
        self.read = nn.Linear(size, self.output_size)

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.leak * state + features
        return self.read(state), state


class GruCore(RecurrentCore):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.state_size = self.output_size = 5
        self.cell = nn.GRUCell(size, self.state_size)

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.cell(features, state)
        return state, state


class IntegratingActorCritic(ActorCritic):
    def _make_core(self, size: int) -> RecurrentCore:
        return LeakyIntegrator(size)


class GruActorCritic(ActorCritic):
    def _make_core(self, size: int) -> RecurrentCore:
        return GruCore(size)


class GruActionValuePolicy(ActionValuePolicy):
    def _make_core(self, size: int) -> RecurrentCore:
        return GruCore(size)


class GruStochasticDuelingPolicy(StochasticDuelingPolicy):
    def _make_core(self, size: int) -> RecurrentCore:
        return GruCore(size)
