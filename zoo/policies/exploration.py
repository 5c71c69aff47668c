"""Exploration while learning: ε-greedy, action noise, state-dependent noise, random actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.buffers.arrays import Array, Arrays, n_rows
from zoo.config.fields import build, hyperparameter
from zoo.errors import ZooError
from zoo.policies.acting import ActingPolicy
from zoo.policies.actor_critic import PolicyInput
from zoo.policies.distributions import Categorical, Deterministic, Gaussian, SdeNoise


@dataclass
class ActionNoiseConfig:
    """Noise in units of actions scaled to [−1, 1]."""

    type: str = hyperparameter(
        "normal",
        "normal, or ornstein-uhlenbeck (correlated in time)",
        choices=("normal", "ornstein-uhlenbeck"),
    )
    std: float = hyperparameter(0.1, "standard deviation of a draw", ge=0, is_finite=True)
    theta: float = hyperparameter(0.15, "pull of the correlated noise back to zero", ge=0, is_finite=True)
    dt: float = hyperparameter(0.01, "time between two draws of the correlated noise", gt=0, is_finite=True)


class Exploration(ABC):
    """Chooses stored actions (n_envs, …) for policy inputs, at a ``progress`` from 0 to 1."""

    def __init__(self, acting: ActingPolicy) -> None:
        self.acting = acting

    @abstractmethod
    def act(self, inputs: PolicyInput, rng: np.random.Generator, progress: float) -> Arrays:
        """Return actions while learning."""

    def warm_up(self, inputs: PolicyInput, rng: np.random.Generator) -> Arrays:
        """Return actions before learning starts: random ones, unless a subclass has others."""
        return self.random(inputs, rng)

    def random(self, inputs: PolicyInput, rng: np.random.Generator) -> Arrays:
        """Return uniformly random actions; valid ones where ``inputs`` has masks."""
        masks, n, head = inputs.get("action_masks"), n_rows(inputs), self.acting.head
        if masks is None and isinstance(head, Categorical):
            return rng.integers(head.parameter_size, size=n)
        if masks is None:
            assert isinstance(head, Gaussian | Deterministic)
            return rng.uniform(-1.0, 1.0, (n, head.n_actions)).astype(np.float32)
        indifferent = np.zeros((n, head.parameter_size), np.float32)
        return head.sample(head.masked(indifferent, masks), head.noise(rng, (n,)))

    # What most kinds have nothing to do for:

    def start(self) -> None:  # noqa: B027
        """Begin a collection, at whose end there may be an update."""

    def reset(self, env_indices: Array | None = None) -> None:  # noqa: B027
        """Begin anew where an episode ended: in these environments, or in all."""

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:  # noqa: B027
        """Go back to where `state` was."""


class EpsilonGreedy(Exploration):
    """The best action, or with probability ``rate(progress)`` a random one, in each environment by itself."""

    def __init__(self, acting: ActingPolicy, rate: Callable[[float], float]) -> None:
        super().__init__(acting)
        self.rate = rate

    def act(self, inputs: PolicyInput, rng: np.random.Generator, progress: float) -> Array:
        is_random = rng.random(n_rows(inputs)) < self.rate(progress)
        n_random = np.count_nonzero(is_random)  # quicker than any()
        if not n_random:
            return self.acting.act(inputs, None)[0]
        random_actions: Array = self.random(inputs, rng)
        if n_random == len(is_random):
            return random_actions
        return np.where(is_random, random_actions, self.acting.act(inputs, None)[0])


class StochasticExploration(Exploration):
    """Actions in [−1, 1] that the policy draws itself, with ``noise`` added, and some random ones instead.

    With ``sde_sample_freq`` the policy's own noise is state-dependent: its weights are held for so many steps
    (-1: for a whole collection); with ``sde_at_warmup`` it takes the place of random actions.
    """

    def __init__(
        self,
        acting: ActingPolicy,
        noise: NormalNoise | None = None,
        random_share: float = 0.0,
        *,
        sde_sample_freq: int | None = None,
        sde_at_warmup: bool = False,
    ) -> None:
        super().__init__(acting)
        self.noise, self.random_share = noise, random_share
        self.sde_sample_freq, self.sde_at_warmup = sde_sample_freq, sde_at_warmup
        self.start()

    def start(self) -> None:
        every = 1 if self.sde_sample_freq is None else self.sde_sample_freq
        self._policy_noise = SdeNoise(self.acting.head, every)

    def act(self, inputs: PolicyInput, rng: np.random.Generator, progress: float) -> Array:
        n = n_rows(inputs)
        actions, _ = self.acting.act(inputs, self._policy_noise.next(rng, n))
        if self.noise is not None:
            actions = (actions + self.noise.draw(rng, n)).clip(-1.0, 1.0)
        if self.random_share > 0:
            is_random = rng.random((n, 1)) < self.random_share
            actions = np.where(is_random, self.random(inputs, rng), actions)
        return actions

    def warm_up(self, inputs: PolicyInput, rng: np.random.Generator) -> Arrays:
        if self.sde_at_warmup:
            return self.act(inputs, rng, 0.0)
        if self.sde_sample_freq is not None:
            self._policy_noise.next(rng, n_rows(inputs))
        return self.random(inputs, rng)

    def reset(self, env_indices: Array | None = None) -> None:
        if self.noise is not None:
            self.noise.reset(env_indices)

    def state(self) -> dict[str, Any]:
        return {} if self.noise is None else {"noise": self.noise.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        if self.noise is not None:
            self.noise.load_state(state["noise"])


class NormalNoise:
    """Independent normal draws."""

    def __init__(self, std: float, n_actions: int) -> None:
        self.std, self.n_actions = std, n_actions

    def draw(self, rng: np.random.Generator, n_envs: int) -> Array:
        """Return noise (n_envs, actions)."""
        return np.float32(self.std) * rng.standard_normal((n_envs, self.n_actions), dtype=np.float32)

    def reset(self, env_indices: Array | None = None) -> None:
        """Begin anew in these environments, or in all, of which there may be another number then."""

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to where `state` was."""


class OrnsteinUhlenbeckNoise(NormalNoise):
    """x ← x − θ·x·dt + σ·√dt·N(0, 1), starting at zero in each episode (Lillicrap et al. 2016)."""

    def __init__(self, std: float, theta: float, dt: float, n_actions: int) -> None:
        super().__init__(std * dt**0.5, n_actions)
        self.remaining = np.float32(1 - theta * dt)
        self._noise: Array | None = None

    def draw(self, rng: np.random.Generator, n_envs: int) -> Array:
        fresh = super().draw(rng, n_envs)
        self._noise = fresh if self._noise is None else self._noise * self.remaining + fresh
        return self._noise.copy()

    def reset(self, env_indices: Array | None = None) -> None:
        if env_indices is None:
            self._noise = None
        elif self._noise is not None:
            self._noise[env_indices] = 0.0

    def state(self) -> dict[str, Any]:
        return {"noise": None if self._noise is None else self._noise.copy()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._noise = None if state["noise"] is None else np.array(state["noise"], np.float32)


def make_action_noise(
    config: ActionNoiseConfig | Mapping[str, Any] | None, n_actions: int
) -> NormalNoise | None:
    """Return the process that a config asks for. Raises `ZooError` for an unknown key or type."""
    if config is None:
        return None
    if isinstance(config, Mapping):
        config = build(ActionNoiseConfig, config, "algo.action_noise")
    if config.type == "ornstein-uhlenbeck":
        return OrnsteinUhlenbeckNoise(config.std, config.theta, config.dt, n_actions)
    for name in ("theta", "dt"):
        if getattr(config, name) != getattr(ActionNoiseConfig, name):
            raise ZooError(f"`algo.action_noise.{name}` is of noise with `type: ornstein-uhlenbeck` alone")
    return NormalNoise(config.std, n_actions)
