"""The networks of TD3 and DDPG: an actor without randomness, and what judges its actions."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from torch import nn

from zoo.policies.config import PolicyConfig
from zoo.policies.critics import ContinuousCritics
from zoo.policies.deterministic_actor import DETERMINISTIC_WIDTHS, DeterministicActor
from zoo.policies.networks import uniform


class DeterministicPolicy(nn.Module):
    """Actor and critics (400-300 ReLU by default).

    ``last_layer_range`` draws the weights of all last layers from within ± this, without biases.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PolicyConfig,
        *,
        n_critics: int,
        last_layer_range: float | None = None,
    ) -> None:
        super().__init__()
        spaces_and_config = observation_space, action_space, config
        self.actor = DeterministicActor(*spaces_and_config, last_layer_range=last_layer_range)
        self.critics = ContinuousCritics(*spaces_and_config, n_critics=n_critics, widths=DETERMINISTIC_WIDTHS)
        if last_layer_range is not None:
            for critic in self.critics.critics:
                uniform(critic[-1], last_layer_range)  # type: ignore[index]
