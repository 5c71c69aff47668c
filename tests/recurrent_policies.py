"""Toy policies with a memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zoo.policies.actor_critic import ActionValuePolicy, ActorCritic, StochasticDuelingPolicy
from zoo.policies.recurrent import RecurrentCore


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
