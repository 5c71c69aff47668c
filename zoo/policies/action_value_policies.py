"""Policies of ACER: an actor, and a critic of its actions."""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from zoo.policies.actor_critic import ActorCritic, Seen
from zoo.policies.config import PolicyConfig
from zoo.policies.encoders import hidden_after
from zoo.policies.networks import LayerStyle, Mlp, layer_sizes, orthogonal


class ActionValuePolicy(ActorCritic):
    """An actor of Discrete actions, and a critic with a value for each of them.

    All but the critic's last layer is as in `ActorCritic`.
    """

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], config: PolicyConfig
    ) -> None:
        super().__init__(observation_space, action_space, config)
        hidden = _critic_layers(self, config)
        self.critic = _critic(config, self.critic.input_size, hidden, self.head.parameter_size, 0.01)

    def forward(self, seen: Seen, state: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return masked logits, action values, both (…, actions), and the state afterwards."""
        parameters, values, next_state = super().forward(seen, state)
        return parameters, values.reshape(parameters.shape), next_state

    def values(self, seen: Seen, state: Tensor | None = None) -> Tensor:
        """Return the mean action values (…) under the policy."""
        parameters, values, _ = self(seen, state)
        return (torch.softmax(parameters, -1) * values).sum(-1)


class StochasticDuelingPolicy(ActorCritic):
    """A Gaussian actor, a critic V(s), and advantages A(s, a) (Wang et al. 2017, section 3.2).

    The value of an action is Q̃(s, a) = V(s) + A(s, a) − 1/n Σᵢ A(s, uᵢ), with uᵢ drawn from the policy: so
    its mean under the policy is V(s), whatever the advantages are. Their hidden layers are like the critic's,
    or 64-64 where it has none: what is linear in state and action prefers the same action in every state.
    """

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], config: PolicyConfig
    ) -> None:
        super().__init__(observation_space, action_space, config)
        size = self.critic.input_size + math.prod(action_space.shape or ())
        self.advantage = _critic(config, size, _critic_layers(self, config) or [64, 64], 1, 1.0)

    def forward(
        self,
        seen: Seen,
        state: Tensor | None = None,
        actions: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return parameters, values (…), and the state afterwards.

        With ``actions`` (…, n) and standard normal ``noise`` (1 + m, …, n) there are three kinds of values,
        (3, …): V(s), Q̃(s, a), and Q̃(s, a′) of actions a′ that are `drawn` with the first noise. The mean
        advantage is taken over those that are drawn with the rest.
        """
        features, critic_features, next_state = self._read(seen, state)
        parameters, values = self._masked(features, seen), self.critic(critic_features).squeeze(-1)
        if actions is None or noise is None:
            return parameters, values, next_state
        judged = torch.cat([actions[None], self.drawn(parameters, noise)])
        pairs = torch.cat([critic_features.expand(len(judged), *critic_features.shape), judged], dim=-1)
        advantages = self.advantage(pairs).squeeze(-1)
        action_values = values + advantages[:2] - advantages[2:].mean(0)
        return parameters, torch.cat([values[None], action_values]), next_state

    def drawn(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Return actions drawn with standard normal noise, through which no gradient flows."""
        mean, log_std = parameters.detach().chunk(2, dim=-1)
        return mean + log_std.exp() * noise


def _critic_layers(policy: ActorCritic, config: PolicyConfig) -> list[int]:
    return layer_sizes(config, ("shared", "pi", "vf"), hidden_after(policy.encoder))["vf"]


def _critic(config: PolicyConfig, size: int, hidden: list[int], n_outputs: int, gain: float) -> Mlp:
    """Return hidden layers of these widths on ``size`` features, and an output layer."""
    network = Mlp(size, hidden, n_outputs, LayerStyle.of(config, "tanh"))
    if config.ortho_init is not False:
        orthogonal(network, output_gain=gain)
    return network
