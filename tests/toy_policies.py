"""Toy policies of a user's own."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from zoo.algorithms.sac import SACPolicy
from zoo.policies.actor_critic import ActorCritic


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


class BatchNormCritics(SACPolicy):
    """SAC's networks with batch normalisation of what each critic reads."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for critic in self.critics.critics:
            assert isinstance(critic, nn.Sequential)
            critic.insert(0, nn.BatchNorm1d(critic[0].in_features))
