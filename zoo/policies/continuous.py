"""Actors and critics (SAC, TD3, DDPG, TQC), and the policy that ARS searches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.buffers.arrays import Array
from zoo.envs.spaces import Space
from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig
from zoo.policies.distributions import (
    ActionDistribution,
    Categorical,
    Deterministic,
    SquashedGaussian,
    SquashedStateDependentGaussian,
    TanhGaussian,
    UnboundedDeterministic,
    gather,
    make_distribution,
    make_single_choice,
)
from zoo.policies.encoders import default_hidden_sizes, make_encoder
from zoo.policies.networks import keep_unit_norm, layer_sizes, make_trunk, orthogonal, uniform

OFF_POLICY_WIDTHS = (256, 256)
DETERMINISTIC_WIDTHS = (400, 300)


class Actor(nn.Module):
    """Encoder, hidden layers (ReLU, ``default`` widths) and head; the config may name ``networks``."""

    head: ActionDistribution

    def __init__(
        self,
        observation_space: Space,
        config: PolicyConfig,
        make_distribution: Callable[[int], ActionDistribution],
        default: Sequence[int] | None = None,
        networks: Sequence[str] = ("pi", "qf"),
    ) -> None:
        super().__init__()
        config = config.of("actor")
        self.encoder = make_encoder(observation_space, config, ortho_init=bool(config.ortho_init))
        default = default_hidden_sizes(self.encoder) if default is None else default
        hidden = layer_sizes(config, networks, list(default))["pi"]
        self.trunk = make_trunk(config, self.encoder.features_dim, hidden, None, "relu")
        if config.ortho_init:
            orthogonal(self.trunk)
        self.head = make_distribution(self.trunk.output_size)
        if config.has_unit_norm:
            if config.block == "hyperspherical":
                orthogonal(self.head, 1.0)
            keep_unit_norm(self.trunk)
            keep_unit_norm(self.head)

    def forward(self, observations: Any) -> Tensor:
        """Return the parameters of the head (…, ``parameter_size``)."""
        return self.head(self.trunk(self.encoder(observations)))

    def action_parameters(self, inputs: dict[str, Any], state: Tensor | None = None) -> tuple[Tensor, None]:
        """Return the same for policy inputs, masked."""
        return self.head.masked(self(inputs["observations"]), inputs.get("action_masks")), None


class SquashedActor(Actor):
    """The actor of SAC: a Gaussian squashed into [−1, 1]; ``use_sde``: noise of the last features."""

    head: TanhGaussian

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: PolicyConfig,
        *,
        use_sde: bool = False,
        widths: Sequence[int] = OFF_POLICY_WIDTHS,
    ) -> None:
        assert isinstance(action_space, spaces.Box)
        make: Callable[[int], ActionDistribution] = partial(SquashedGaussian, action_space)
        if use_sde:
            make = partial(SquashedStateDependentGaussian, action_space, config=config, off_policy=True)
        super().__init__(observation_space, config, make, widths)


class DiscreteActor(Actor):
    """The actor of SAC where actions are choices: logits of all of them."""

    head: Categorical

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: PolicyConfig,
        *,
        widths: Sequence[int] = OFF_POLICY_WIDTHS,
    ) -> None:
        super().__init__(observation_space, config, partial(make_single_choice, action_space), widths)


class DeterministicActor(Actor):
    """The actor of TD3: one action in [−1, 1], without randomness.

    ``last_layer_range`` is that of the last layer's first weights, so that actions begin near zero (DDPG).
    """

    head: Deterministic

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: PolicyConfig,
        *,
        last_layer_range: float | None = None,
        widths: Sequence[int] = DETERMINISTIC_WIDTHS,
    ) -> None:
        assert isinstance(action_space, spaces.Box)
        make = partial(Deterministic, action_space)
        super().__init__(observation_space, config, make, widths)
        if last_layer_range is not None:
            uniform(self.head.action, last_layer_range)


class LinearPolicy(Actor):
    """The policy of ARS, whose weights are searched for: hidden layers are 64-64, none after images.

    Box actions are what the last layer gives, ``squash``ed into [−1, 1] by tanh or as they are. Without
    ``with_bias`` no linear layer adds a bias; with ``zero`` all weights but those of layer normalisation
    are 0 at first.
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: PolicyConfig,
        *,
        squash: bool,
        with_bias: bool,
        zero: bool,
    ) -> None:
        config.check_networks("actor")
        make: Callable[[int], ActionDistribution] = partial(make_distribution, action_space, config=config)
        if isinstance(action_space, spaces.Box):
            make = partial(Deterministic if squash else UnboundedDeterministic, action_space)
        super().__init__(observation_space, config, make, networks=("pi",))
        if config.ortho_init:
            orthogonal(self.head, 0.01)
        for layer in self.modules():
            if isinstance(layer, nn.Linear) and not with_bias:
                layer.bias = None  # type: ignore[assignment]
            if zero and not isinstance(layer, nn.LayerNorm):
                for parameter in layer.parameters(recurse=False):
                    nn.init.zeros_(parameter)


class DropoutNoise:
    """Factors of hidden units, which are 0 with probability ``rate`` and have mean 1.

    All draws share one array, so that only the units that are dropped, or no longer, are written.
    """

    def __init__(self, rate: float) -> None:
        self.rate, self.kept = rate, 1.0 / (1.0 - rate)
        self._factors, self._dropped = np.empty(0, np.float32), np.empty(0, np.int64)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Return factors of this shape, which hold until the next draw.

        The generator draws the gaps between dropped units, which are far fewer numbers.
        """
        size = math.prod(shape)
        if len(self._factors) < size:
            self._factors, self._dropped = np.full(size, self.kept, np.float32), self._dropped[:0]
        self._factors[self._dropped] = self.kept
        places, last = [], -1
        while last < size:
            places.append(last + np.cumsum(rng.geometric(self.rate, 1 + int(size * self.rate))))
            last = int(places[-1][-1])
        dropped = np.concatenate(places)
        self._dropped = dropped[: dropped.searchsorted(size)]
        self._factors[self._dropped] = 0.0
        return self._factors[:size].reshape(shape)


class ContinuousCritics(nn.Module):
    """Several action values of the same form (ReLU, ``widths`` where the config has none) on one encoder.

    With dropout a pass may take ``noise`` (…, ``noise_size``), which `DropoutNoise` draws; without noise
    nothing is dropped.
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: PolicyConfig,
        *,
        n_critics: int,
        widths: Sequence[int] = OFF_POLICY_WIDTHS,
        n_outputs: int = 1,
    ) -> None:
        super().__init__()
        config.check_networks("actor", "critic", "dropout")
        config, self.dropout = config.of("critic"), 0.0 if config.critic is None else config.critic.dropout
        if self.dropout and config.block != "plain":
            raise ZooError("`policy.critic.dropout` needs plain hidden layers: policy.critic.block=plain")
        self.encoder = make_encoder(observation_space, config, ortho_init=bool(config.ortho_init))
        size = self.encoder.features_dim
        if isinstance(action_space, spaces.Box):
            size += math.prod(action_space.shape)
        hidden = layer_sizes(config, ("pi", "qf"), list(widths))["qf"]
        self.critics = nn.ModuleList(
            make_trunk(config, size, hidden, n_outputs, "relu") for _ in range(n_critics)
        )
        self.noise_size = n_critics * sum(hidden) if self.dropout else 0
        if config.ortho_init:
            for critic in self.critics:
                orthogonal(critic, output_gain=1.0)
        if config.has_unit_norm:
            keep_unit_norm(self.critics)

    def forward(
        self, observations: Any, actions: Tensor, first: int | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """Return the value of each pair by each critic, or by the ``first`` ones alone, (critics, …)."""
        return self.outputs(observations, actions, first, noise).squeeze(-1)

    def outputs(
        self, observations: Any, actions: Tensor | None, first: int | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """Return the outputs (critics, …, ``n_outputs``) for each pair, or for observations alone."""
        pairs = self.encoder(observations)
        if actions is not None:
            pairs = torch.cat([pairs, actions], dim=-1)
        critics: list[Any] = list(self.critics)
        if noise is None:
            return torch.stack([critic(pairs) for critic in critics[:first]])
        factors = noise.chunk(len(critics), dim=-1)
        parts = list(zip(critics, factors, strict=True))[:first]
        return torch.stack([critic.with_noise(pairs, factor) for critic, factor in parts])


class DistributionalCritics(ContinuousCritics):
    """Several distributions of returns of the same form, each as ``n_outputs`` quantiles or logits."""

    def forward(
        self, observations: Any, actions: Tensor, first: int | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """Return the quantiles or logits for each pair by each critic, (critics, …, n_outputs)."""
        return self.outputs(observations, actions, first, noise)


class DiscreteCritics(ContinuousCritics):
    """Several Q-networks of the same form, which give the values of all discrete actions."""

    def __init__(
        self, observation_space: Space, action_space: Space, config: PolicyConfig, **options: Any
    ) -> None:
        head = make_single_choice(action_space, None)
        options |= {"n_outputs": head.parameter_size}
        super().__init__(observation_space, action_space, config, **options)
        self.head = head

    def forward(
        self,
        observations: Any,
        actions: Tensor | None = None,
        first: int | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Return the values of these actions, (critics, …), or without any of all, (critics, …, actions)."""
        values = self.outputs(observations, None, first, noise)
        return values if actions is None else gather(values, self.head.index(actions))


def make_critics(
    observation_space: Space,
    action_space: Space,
    config: PolicyConfig,
    n_critics: int,
    n_outputs: int | None,
    widths: Sequence[int],
) -> ContinuousCritics:
    """Return critics of values, or with ``n_outputs`` of distributions."""
    options: dict[str, Any] = {"n_critics": n_critics, "widths": widths}
    if not isinstance(action_space, spaces.Box):
        return DiscreteCritics(observation_space, action_space, config, **options)
    if n_outputs is None:
        return ContinuousCritics(observation_space, action_space, config, **options)
    return DistributionalCritics(observation_space, action_space, config, n_outputs=n_outputs, **options)


class LogEntropyCoefficient(nn.Module):
    """The logarithm of SAC's entropy coefficient α."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.empty(1))
        self.set(start)

    def set(self, value: float) -> None:
        """Set α; 0 becomes the smallest normal number, whose logarithm is finite."""
        nn.init.constant_(self.log, math.log(max(value, torch.finfo(torch.float32).tiny)))

    def forward(self) -> Tensor:
        """Return log α, a scalar."""
        return self.log[0]


class DeterministicPolicy(nn.Module):
    """Actor and critics; ``last_layer_range`` as in `DeterministicActor`.

    With ``n_atoms`` the critics give logits of distributions.
    """

    actor_widths: ClassVar[tuple[int, ...]] = DETERMINISTIC_WIDTHS
    critic_widths: ClassVar[tuple[int, ...]] = DETERMINISTIC_WIDTHS
    """Hidden layers (ReLU), where the config has none."""

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: PolicyConfig,
        *,
        n_critics: int,
        n_atoms: int | None = None,
        last_layer_range: float | None = None,
    ) -> None:
        super().__init__()
        spaces_and_config = observation_space, action_space, config
        options: dict[str, Any] = {"last_layer_range": last_layer_range, "widths": self.actor_widths}
        self.actor = DeterministicActor(*spaces_and_config, **options)
        self.critics = make_critics(*spaces_and_config, n_critics, n_atoms, self.critic_widths)
        if last_layer_range is not None:
            for critic in self.critics.critics:
                uniform(critic[-1], last_layer_range)  # type: ignore[index]
