"""Toy policies of a user's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from zoo.algorithms.ddpg import DDPGPolicy
from zoo.algorithms.sac import SACPolicy
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.continuous import DeterministicActor, SquashedActor
from zoo.policies.q_networks import QNetwork
from zoo.policies.recurrent import zero_at_starts


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


class StepCounter(nn.Module):
    """A recurrent part of a network: its state is the number of steps in the episode, a factor of outputs."""

    state_size = 1

    def initial_state(self, n: int) -> Tensor:
        return torch.zeros(n, 1)

    def action_parameters(self, inputs: Any, state: Any = None) -> Any:
        before = self.initial_state(len(inputs["observations"])) if state is None else state
        after = zero_at_starts(before, inputs.get("episode_starts")) + 1.0
        return self(inputs["observations"]) * after, after


class CountingSquashed(StepCounter, SquashedActor):
    pass


class CountingDeterministic(StepCounter, DeterministicActor):
    pass


class CountingQNetwork(StepCounter, QNetwork):
    """DQN's network with a state."""


class CountingSAC(SACPolicy):
    """SAC's networks with a recurrent actor."""

    def __init__(self, *spaces_and_config: Any, **options: Any) -> None:
        super().__init__(*spaces_and_config, **options)
        self.actor = CountingSquashed(*spaces_and_config)


class CountingDDPG(DDPGPolicy):
    """DDPG's networks with a recurrent actor."""

    def __init__(self, *spaces_and_config: Any) -> None:
        super().__init__(*spaces_and_config)
        self.actor = CountingDeterministic(*spaces_and_config)


class BatchNormCritics(SACPolicy):
    """SAC's networks with batch normalisation of what each critic reads."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for critic in self.critics.critics:
            assert isinstance(critic, nn.Sequential)
            critic.insert(0, nn.BatchNorm1d(critic[0].in_features))
