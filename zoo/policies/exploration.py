"""Exploration while learning: ε-greedy, action noise, state-dependent noise, parameter noise.

All randomness comes from the generator that is passed in. Each class says in which order it draws.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoo.buffers.arrays import Array, Arrays, n_rows
from zoo.config.fields import build, hyperparameter
from zoo.errors import ZooError
from zoo.optim.optimizers import Parameters
from zoo.optim.update_runner import average_number
from zoo.policies.acting import ActingPolicy, BatchedPolicy
from zoo.policies.actor_critic import PolicyInput
from zoo.policies.distributions import Categorical, Deterministic, Gaussian, SdeNoise
from zoo.policies.networks import factor_noise


@dataclass
class ActionNoiseConfig:
    """Noise in units of actions scaled to [−1, 1]."""

    type: str = hyperparameter(
        "normal",
        "normal, or ornstein-uhlenbeck (correlated in time)",
        choices=("normal", "ornstein-uhlenbeck"),
    )
    std: float = hyperparameter(0.1, "standard deviation of a draw", ge=0, is_finite=True)
    std_max: float | None = hyperparameter(
        None, "with normal noise: each episode draws its deviation between std and this; null: std", ge=0
    )
    theta: float = hyperparameter(0.15, "pull of the correlated noise back to zero", ge=0, is_finite=True)
    dt: float = hyperparameter(0.01, "time between two draws of the correlated noise", gt=0, is_finite=True)


Acted = tuple[Arrays, Array | None]
"""Actions, and the state of a recurrent policy after them; None of any other."""


class Exploration(ABC):
    """Chooses stored actions (n_envs, …) for policy inputs and a policy's state.

    ``progress`` goes from 0 to 1.
    """

    def __init__(self, acting: ActingPolicy) -> None:
        self.acting = acting

    @abstractmethod
    def act(
        self, inputs: PolicyInput, rng: np.random.Generator, progress: float, state: Array | None = None
    ) -> Acted:
        """Return actions while learning, and the next state."""

    def warm_up(self, inputs: PolicyInput, rng: np.random.Generator, state: Array | None = None) -> Acted:
        """Return actions before learning starts: random ones, unless a subclass has others."""
        actions = self.random(inputs, rng)
        return actions, None if state is None else self.acting.act(inputs, None, state)[1]

    def random(self, inputs: PolicyInput, rng: np.random.Generator) -> Arrays:
        """Return uniformly random actions; valid ones where ``inputs`` has masks."""
        masks, n, head = inputs.get("action_masks"), n_rows(inputs), self.acting.head
        if masks is None and isinstance(head, Categorical) and len(head.choice_sizes) == 1:
            return rng.integers(head.parameter_size, size=n)
        if isinstance(head, Gaussian | Deterministic):
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
    """The best action, or with probability ``rate(progress)`` a random one, in each environment by itself.

    Draws one number for each environment; then, if any acts randomly, a random action for each.
    """

    def __init__(self, acting: ActingPolicy, rate: Callable[[float], float]) -> None:
        super().__init__(acting)
        self.rate = rate

    def act(
        self, inputs: PolicyInput, rng: np.random.Generator, progress: float, state: Array | None = None
    ) -> Acted:
        is_random = rng.random(n_rows(inputs)) < self.rate(progress)
        n_random = np.count_nonzero(is_random)  # quicker than any()
        if not n_random:
            return self.acting.act(inputs, None, state)
        random_actions: Array = self.random(inputs, rng)
        if n_random == len(is_random) and state is None:
            return random_actions, None
        greedy, state = self.acting.act(inputs, None, state)
        return np.where(is_random, random_actions, greedy), state


class NoisyGreedy(EpsilonGreedy):
    """The best action of a network with noisy layers; draws noise for each environment at each step."""

    def __init__(self, acting: ActingPolicy) -> None:
        super().__init__(acting, lambda _: 0.0)

    def act(
        self, inputs: PolicyInput, rng: np.random.Generator, progress: float, state: Array | None = None
    ) -> Acted:
        noise = factor_noise(rng, (n_rows(inputs), self.acting.policy.noise_size))  # type: ignore[arg-type]
        return self.acting.act({**inputs, "noise": noise}, None, state)


class StochasticExploration(Exploration):
    """Actions drawn from the policy, with ``noise`` added to Box actions, and a share of random ones.

    With ``sde_sample_freq`` the policy's own noise is state-dependent: its weights are held for so many steps
    (-1: for a whole collection); with ``sde_at_warmup`` it takes the place of random actions.

    Draws the policy's noise, then the added one, then, if ``random_share`` is above 0, a number for each
    environment and a random action for each.
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

    def act(
        self, inputs: PolicyInput, rng: np.random.Generator, progress: float, state: Array | None = None
    ) -> Acted:
        n = n_rows(inputs)
        actions, state = self.acting.act(inputs, self._policy_noise.next(rng, n), state)
        if self.noise is not None:
            actions = (actions + self.noise.draw(rng, n)).clip(-1.0, 1.0)
        if self.random_share > 0:
            is_random = rng.random((n, *[1] * (actions.ndim - 1))) < self.random_share
            actions = np.where(is_random, self.random(inputs, rng), actions)
        return actions, state

    def warm_up(self, inputs: PolicyInput, rng: np.random.Generator, state: Array | None = None) -> Acted:
        if self.sde_at_warmup:
            return self.act(inputs, rng, 0.0, state)
        if self.sde_sample_freq is not None:
            self._policy_noise.next(rng, n_rows(inputs))
        return super().warm_up(inputs, rng, state)

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
        """Reset the noise of these environments, or of all; their number may have changed then."""

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to where `state` was."""


class EpisodeNoise(NormalNoise):
    """Normal draws, whose deviation is drawn from U(std, std_max) for each episode (Seo et al. 2025)."""

    def __init__(self, std: float, std_max: float, n_actions: int) -> None:
        super().__init__(1.0, n_actions)
        self.range = std, std_max
        self._stds: Array | None = None  # (n_envs, 1), NaN where an episode begins

    def draw(self, rng: np.random.Generator, n_envs: int) -> Array:
        if self._stds is None:
            self._stds = np.full((n_envs, 1), np.nan, np.float32)
        begins = np.isnan(self._stds)
        self._stds[begins] = rng.uniform(*self.range, np.count_nonzero(begins))
        return self._stds * super().draw(rng, n_envs)

    def reset(self, env_indices: Array | None = None) -> None:
        if env_indices is None:
            self._stds = None
        elif self._stds is not None:
            self._stds[env_indices] = np.nan

    def state(self) -> dict[str, Any]:
        return {"stds": None if self._stds is None else self._stds.copy()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._stds = None if state["stds"] is None else np.array(state["stds"], np.float32)


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
    highest = config.std_max
    if highest is not None and (config.type != "normal" or not config.std <= highest < math.inf):
        raise ZooError(f"`algo.action_noise.std_max={highest}`: expected at least std, and normal noise")
    if config.type == "ornstein-uhlenbeck":
        return OrnsteinUhlenbeckNoise(config.std, config.theta, config.dt, n_actions)
    for name in ("theta", "dt"):
        if getattr(config, name) != getattr(ActionNoiseConfig, name):
            raise ZooError(f"`algo.action_noise.{name}` is of noise with `type: ornstein-uhlenbeck` alone")
    if highest is not None:
        return EpisodeNoise(config.std, highest, n_actions)
    return NormalNoise(config.std, n_actions)


# -- noise on the parameters of a copy for each environment (Plappert et al. 2018, arXiv:1706.01905) ------

GREEDY_INITIAL_STD = 0.01
GREEDY_ADAPTATION = 1.01


@dataclass
class ParameterNoiseConfig:
    """Adaptive noise on an actor's parameters."""

    initial_std: float = hyperparameter(
        0.1, "standard deviation on each parameter at the start", gt=0, is_finite=True
    )
    desired_action_std: float = hyperparameter(
        0.1,
        "how far actions, scaled to [−1, 1], shall be from those without noise (root mean square)",
        gt=0,
        le=1,
    )
    adaptation_coefficient: float = hyperparameter(
        1.01, "factor by which the noise grows or shrinks before every update", gt=1, is_finite=True
    )


class PerturbedPolicy(ActingPolicy):
    """Acts with perturbed copies of the parameters that ``acting`` acts with, one for each environment.

    All are perturbed but those of layer normalisation, and of the modules that ``spared`` names. A copy stays
    as it was drawn until `reset` asks for another one, which the next `redraw` makes.
    """

    def __init__(
        self, acting: ActingPolicy, parameters: Parameters, std: float, *, spared: Sequence[str] = ()
    ) -> None:
        super().__init__(acting.policy, acting.device)
        self.std = std
        self._parameters = parameters
        self._noisy = perturbable(parameters, spared)
        self._comparison = BatchedPolicy(parameters, 1, self.device)
        self._make_copies(0)

    def parameters(self, inputs: PolicyInput, state: Array | None = None) -> tuple[Array, Array | None]:
        """Return the parameters of the head (n_envs, …), each row by the copy of its environment."""
        if not self._copies.vectors:  # before learning starts
            return super().parameters(inputs, state)
        return self._copies.parameters(inputs, state)

    def with_and_without_noise(
        self, inputs: PolicyInput, rng: np.random.Generator, state: Array | None = None
    ) -> tuple[Array, Array]:
        """Return the parameters of the head without noise, and with as much as the next copies get."""
        self._perturb(self._comparison.vectors[0], rng)
        return super().parameters(inputs, state)[0], self._comparison.parameters(inputs, state)[0]

    def adapt(self, is_too_far: bool, factor: float) -> None:
        """Let the noise shrink by the factor where it moves actions too far, else grow."""
        self.std = self.std / factor if is_too_far else self.std * factor

    def redraw(self, rng: np.random.Generator, n_envs: int) -> None:
        """Perturb the parameters of now for the environments that begin an episode, one after the other."""
        if len(self._copies.vectors) != n_envs:
            self._make_copies(n_envs)
        for i in sorted(self._to_redraw):
            self._perturb(self._copies.vectors[i], rng)
        self._to_redraw.clear()

    def reset(self, env_indices: Array | None = None) -> None:
        """Ask for new copies where an episode ended: in these environments, or in all."""
        if env_indices is None:
            self._make_copies(0)
        else:
            self._to_redraw.update(env_indices.tolist())

    def state(self) -> dict[str, Any]:
        vectors = self._copies.vectors
        copies = torch.stack(vectors).cpu().numpy() if vectors else None
        return {"std": self.std, "copies": copies, "to_redraw": sorted(self._to_redraw)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        copies = [] if state["copies"] is None else state["copies"]
        self._make_copies(len(copies))
        for vector, saved in zip(self._copies.vectors, copies, strict=True):
            vector.copy_(torch.from_numpy(np.array(saved)))
        self.std, self._to_redraw = float(state["std"]), set(state["to_redraw"])

    def _make_copies(self, n_envs: int) -> None:
        self._copies = BatchedPolicy(self._parameters, n_envs, self.device)
        self._to_redraw = set(range(n_envs))

    def _perturb(self, vector: Tensor, rng: np.random.Generator) -> None:
        """Overwrite the vector; draws a number for each parameter that is perturbed, in their order."""
        vector.copy_(self._parameters.flat.detach())
        for part in self._noisy:
            noise = rng.standard_normal(part.stop - part.start, dtype=np.float32)
            vector[part] += torch.from_numpy(np.float32(self.std) * noise).to(vector.device)


def perturbable(parameters: Parameters, spared: Sequence[str] = ()) -> list[slice]:
    """Return where parameters lie in the vector that take noise."""
    norms = [name for name, module in parameters.module.named_modules() if isinstance(module, nn.LayerNorm)]
    left_alone = tuple(f"{name}." for name in (*norms, *spared))
    return [part for name, part in parameters.slices.items() if not name.startswith(left_alone)]


class ParameterNoise(Exploration):
    """What both kinds of exploring by parameter noise share: the ``perturbed`` policy."""

    perturbed: PerturbedPolicy

    def reset(self, env_indices: Array | None = None) -> None:
        super().reset(env_indices)
        self.perturbed.reset(env_indices)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "perturbed": self.perturbed.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.perturbed.load_state(state["perturbed"])


class ParameterNoiseActor(ParameterNoise, StochasticExploration):
    """Explores by a perturbed actor; the noise grows or shrinks by how far it moves actions."""

    def __init__(
        self,
        perturbed: PerturbedPolicy,
        noise: NormalNoise | None,
        random_share: float,
        config: ParameterNoiseConfig,
    ) -> None:
        super().__init__(perturbed, noise, random_share)
        self.perturbed, self.config = perturbed, config

    def act(
        self, inputs: PolicyInput, rng: np.random.Generator, progress: float, state: Array | None = None
    ) -> Acted:
        self.perturbed.redraw(rng, n_rows(inputs))
        return super().act(inputs, rng, progress, state)

    def adapt(self, inputs: PolicyInput, rng: np.random.Generator) -> dict[str, float]:
        """Let the noise follow how far it moves actions for these inputs (appendix C.1); return both."""
        perturbed, config = self.perturbed, self.config
        without, with_noise = map(perturbed.head.mode, perturbed.with_and_without_noise(inputs, rng))
        square = float(np.square(without - with_noise, dtype=np.float64).mean())
        distance = math.sqrt(average_number(square))
        perturbed.adapt(distance > config.desired_action_std, config.adaptation_coefficient)
        return {"parameter_noise_std": perturbed.std, "parameter_noise_distance": distance}


class ParameterNoiseGreedy(ParameterNoise, EpsilonGreedy):
    """The best action of a perturbed Q-network, which is as far from the greedy policy as ε-greedy would be.

    The distance is the KL divergence of the softmax of action values; the noise grows or shrinks at every
    step, by the mean over environments, unless masks leave none of them a choice. As in Stable-Baselines,
    what reads images takes no noise. First draws new copies where an episode began, then the noise that is
    compared.
    """

    def __init__(self, acting: ActingPolicy, parameters: Parameters, rate: Callable[[float], float]) -> None:
        self.perturbed = PerturbedPolicy(acting, parameters, GREEDY_INITIAL_STD, spared=["encoder"])
        super().__init__(self.perturbed, rate)

    def act(
        self, inputs: PolicyInput, rng: np.random.Generator, progress: float, state: Array | None = None
    ) -> Acted:
        perturbed, masks = self.perturbed, inputs.get("action_masks")
        perturbed.redraw(rng, n_rows(inputs))
        without, with_noise = perturbed.with_and_without_noise(inputs, rng, state)
        n_valid = np.full(len(without), without.shape[-1]) if masks is None else np.asarray(masks).sum(-1)
        if (n_valid > 1).any():
            desired = float(epsilon_greedy_kl(self.rate(progress), n_valid).mean())
            perturbed.adapt(mean_softmax_kl(without, with_noise) >= desired, GREEDY_ADAPTATION)
        return perturbed.act(inputs, None, state)


def mean_softmax_kl(values: Array, others: Array) -> float:
    """Return the mean over rows of KL(softmax values ‖ softmax others), both (n, actions)."""
    log, other_log = _log_softmax(values), _log_softmax(others)
    return float((np.exp(log) * (log - other_log)).sum(-1).mean())


def epsilon_greedy_kl(rate: float, n_actions: Array) -> Array:
    """Return −log(1 − ε + ε/n), the KL divergence of greedy from ε-greedy acting among n actions (C.1)."""
    return -np.log(1.0 - rate + rate / n_actions)


def _log_softmax(values: Array) -> Array:
    shifted = values.astype(np.float64) - values.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
