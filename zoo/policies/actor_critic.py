"""The policies of on-policy algorithms: parameters of a distribution, and values, for inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zoo.envs.spaces import Space
from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig
from zoo.policies.distributions import make_distribution
from zoo.policies.encoders import Encoder, actor_space, default_hidden_sizes, make_encoder
from zoo.policies.networks import Mlp, layer_sizes, make_trunk, orthogonal
from zoo.policies.recurrent import RecurrentLayers, make_core

PolicyInput = dict[str, Any]
"""What a policy reads: ``observations`` (…, *shape), and where there are any ``action_masks`` (…, masks) and
``episode_starts`` (…); arrays, or tensors. Leading dimensions are rows, or (sequences, time)."""


class ActorCritic(nn.Module):
    """Encoder, shared layers, core, then separate hidden layers for actor and critic, then their outputs.

    By default nothing is shared but the encoder, there is no core, and the hidden layers are 64-64 tanh
    (none after images). ``net_arch={shared: [64], pi: [64], vf: [64]}`` puts layers before both. With
    ``share_encoder=False`` actor and critic have an encoder each, and ``critic_lstm`` chooses the critic's
    core: see `PolicyConfig`. A critic that reads more than the actor (``critic.observations``) shares nothing
    with it. ``use_sde``: noise is a function of the actor's last features.
    """

    def __init__(
        self, observation_space: Space, action_space: Space, config: PolicyConfig, *, use_sde: bool = False
    ) -> None:
        super().__init__()
        config.check_networks("actor", "critic", "observations")
        actor, critic, ortho_init = config.of("actor"), config.of("critic"), config.ortho_init is not False
        actor_sees = actor_space(observation_space, config)
        self.is_asymmetric = actor_sees is not observation_space
        self.encoder: Encoder = make_encoder(actor_sees, config, ortho_init=ortho_init)
        self.critic_encoder: Encoder | None = None
        if not config.share_encoder or self.is_asymmetric:
            critic_init = critic.ortho_init is not False
            self.critic_encoder = make_encoder(observation_space, critic, ortho_init=critic_init)
        shared_sizes, actor_sizes, self._critic_sizes = (
            layer_sizes(part, ("shared", "pi", "vf"), default_hidden_sizes(self.encoder))[name]
            for part, name in ((config, "shared"), (actor, "pi"), (critic, "vf"))
        )
        self.shared = make_trunk(config, self.encoder.features_dim, shared_sizes, None, "tanh")
        size = critic_size = self.shared.output_size
        if self.is_asymmetric and self.critic_encoder is not None:
            critic_size = self.critic_encoder.features_dim
            if shared_sizes or (config.recurrent and config.critic_lstm in ("shared", "detached")):
                key = "net_arch.shared" if shared_sizes else f"critic_lstm={config.critic_lstm}"
                raise ZooError(
                    f"`policy.{key}`: a critic with observations of its own (`policy.critic.observations`)"
                    " shares no layers with the actor"
                )
        self.core, self.critic_core = make_core(config, size), None
        self.critic_reads = config.critic_lstm if self.core is not None else "separate"
        if self.core is not None:
            self.critic_core = make_core(config, critic_size) if self.critic_reads == "separate" else None
            critic_size = critic_size if self.critic_reads == "none" else self.core.output_size
            size = self.core.output_size
        if self.critic_reads in ("shared", "detached") and not config.share_encoder:
            raise ZooError(
                f"`policy.critic_lstm={self.critic_reads}` reads the actor's encoder: it needs"
                " `policy.share_encoder=true`"
            )
        self.actor = make_trunk(actor, size, actor_sizes, None, "tanh")
        self.head = make_distribution(action_space, self.actor.output_size, config, use_sde=use_sde)
        if ortho_init:
            orthogonal(self.shared)
        if actor.ortho_init is not False:
            orthogonal(self.actor)
            orthogonal(self.head, 0.01)
        self.critic = self._like_critic(config, critic_size, 1, 1.0)

    def _like_critic(
        self, config: PolicyConfig, size: int, n_outputs: int, gain: float, default: Sequence[int] = ()
    ) -> Mlp:
        """Return a network like the critic, with hidden layers of ``default`` widths if it has none."""
        config = config.of("critic")
        network = make_trunk(config, size, self._critic_sizes or default, n_outputs, "tanh")
        if config.ortho_init is not False:
            orthogonal(network, output_gain=gain)
        return network

    def forward(
        self, inputs: PolicyInput, state: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return masked parameters (…, ``head.parameter_size``), values (…), and the state afterwards."""
        features, critic_features, next_state = self._features(inputs, state)
        return self._masked_parameters(features, inputs), self.critic(critic_features).squeeze(-1), next_state

    def _features(self, inputs: PolicyInput, state: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the features that the actor reads, those that the critic reads, and the next state."""
        actor_state, critic_state = self._split(state)
        encoded = self.shared(self.encoder(inputs["observations"]))
        features, next_state = self._run_core(encoded, self.core, actor_state, inputs)
        if self.critic_reads == "shared":
            return features, features, next_state
        if self.critic_reads == "detached":
            return features, features.detach(), next_state
        if self.critic_encoder is not None:
            encoded = self._critic_encoded(inputs)
        critic_features, after = self._run_core(encoded, self.critic_core, critic_state, inputs)
        if next_state is not None and after is not None:
            next_state = torch.cat([next_state, after], dim=-1)
        return features, critic_features, next_state

    def action_parameters(
        self, inputs: PolicyInput, state: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return masked parameters and the next state, without the values."""
        if self.critic_core is not None:
            features, _, next_state = self._features(inputs, state)
            return self._masked_parameters(features, inputs), next_state
        return self.actor_parameters(inputs, state)

    def actor_parameters(self, inputs: PolicyInput, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return masked parameters and the next state of the actor's core, from its state alone."""
        encoded = self.shared(self.encoder(inputs["observations"]))
        features, next_state = self._run_core(encoded, self.core, state, inputs)
        return self._masked_parameters(features, inputs), next_state

    def values(self, inputs: PolicyInput, state: Tensor | None = None) -> Tensor:
        """Return the critic's values (…)."""
        actor_state, critic_state = self._split(state)
        encoded = self._critic_encoded(inputs)
        if self.critic_reads in ("shared", "detached"):
            features, _ = self._run_core(encoded, self.core, actor_state, inputs)
        else:
            features, _ = self._run_core(encoded, self.critic_core, critic_state, inputs)
        return self.critic(features).squeeze(-1)

    def initial_state(self, n: int) -> Tensor | None:
        """Return the recurrent state (n, …) of ``n`` rows at the start of an episode; None without a core."""
        states = [core.initial_state(n) for core in self._cores()]
        return torch.cat(states, dim=-1) if states else None

    @property
    def state_size(self) -> int:
        """The size of a row's recurrent state."""
        return sum(core.state_size for core in self._cores())

    def _cores(self) -> list[RecurrentLayers]:
        return [core for core in (self.core, self.critic_core) if core is not None]

    def _split(self, state: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Return the states of the actor's and of the critic's core."""
        if state is None or self.core is None or self.critic_core is None:
            return state, None
        return state[..., : self.core.state_size], state[..., self.core.state_size :]

    def _critic_encoded(self, inputs: PolicyInput) -> Tensor:
        features = (self.critic_encoder or self.encoder)(inputs["observations"])
        return features if self.is_asymmetric else self.shared(features)

    def _run_core(
        self, features: Tensor, core: RecurrentLayers | None, state: Tensor | None, inputs: PolicyInput
    ) -> tuple[Tensor, Tensor | None]:
        return (features, None) if core is None else core(features, state, inputs.get("episode_starts"))

    def _masked_parameters(self, features: Tensor, inputs: PolicyInput) -> Tensor:
        return self.head.masked(self.head(self.actor(features)), inputs.get("action_masks"))


class ActionValuePolicy(ActorCritic):
    """An `ActorCritic` of Discrete actions, whose critic has a value for each of them."""

    def __init__(self, observation_space: Space, action_space: Space, config: PolicyConfig) -> None:
        super().__init__(observation_space, action_space, config)
        self.critic = self._like_critic(config, self.critic.input_size, self.head.parameter_size, 0.01)

    def forward(
        self, inputs: PolicyInput, state: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return masked logits, action values, both (…, actions), and the state afterwards."""
        parameters, values, next_state = super().forward(inputs, state)
        return parameters, values.reshape(parameters.shape), next_state

    def values(self, inputs: PolicyInput, state: Tensor | None = None) -> Tensor:
        """Return the mean action values (…) under the policy."""
        parameters, values, _ = self(inputs, state)
        return (torch.softmax(parameters, -1) * values).sum(-1)


class StochasticDuelingPolicy(ActorCritic):
    """A Gaussian actor, a critic V(s), and advantages A(s, a) (Wang et al. 2017, section 3.2).

    The value of an action is Q̃(s, a) = V(s) + A(s, a) − 1/n Σᵢ A(s, uᵢ), with uᵢ drawn from the policy: so
    its mean under the policy is V(s), whatever the advantages are. Their hidden layers are like the critic's,
    or 64-64 where it has none: what is linear in state and action prefers the same action in every state.
    """

    def __init__(self, observation_space: Space, action_space: Space, config: PolicyConfig) -> None:
        super().__init__(observation_space, action_space, config)
        size = self.critic.input_size + math.prod(action_space.shape or ())
        self.advantage = self._like_critic(config, size, 1, 1.0, default=[64, 64])

    def forward(
        self,
        inputs: PolicyInput,
        state: Tensor | None = None,
        actions: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return parameters, values (…), and the state afterwards.

        With ``actions`` (…, n) and standard normal ``noise`` (1 + m, …, n) there are three kinds of values,
        (3, …): V(s), Q̃(s, a), and Q̃(s, a′) of actions a′ that are drawn with the first noise. The mean
        advantage is taken over those that are drawn with the rest.
        """
        features, critic_features, next_state = self._features(inputs, state)
        parameters = self._masked_parameters(features, inputs)
        values = self.critic(critic_features).squeeze(-1)
        if actions is None or noise is None:
            return parameters, values, next_state
        evaluated = torch.cat([actions[None], self.sample_actions(parameters, noise)])
        pairs = torch.cat([critic_features.expand(len(evaluated), *critic_features.shape), evaluated], dim=-1)
        advantages = self.advantage(pairs).squeeze(-1)
        action_values = values + advantages[:2] - advantages[2:].mean(0)
        return parameters, torch.cat([values[None], action_values]), next_state

    def sample_actions(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Return actions drawn with standard normal noise, through which no gradient flows."""
        mean, log_std = parameters.detach().chunk(2, dim=-1)
        return mean + log_std.exp() * noise
