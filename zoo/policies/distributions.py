"""Action distributions: from features to the parameters of a distribution, and what follows from them.

A head is a module with the last layers before an action. Its parameters are the numbers (…,
``parameter_size``) that its forward pass returns, after `ActionDistribution.masked`: all else is computed
from them alone, on arrays for acting (with noise drawn ahead), on tensors for updates. Those of Gaussians
(…, 2n) are n means, then n log standard deviations; a head may put more behind them. Actions are flat and
count from zero.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from zoo.buffers.arrays import Array
from zoo.envs.spaces import Space, choice_sizes, leaf_spaces, nested
from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig


def total(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of the parts."""
    return functools.reduce(operator.add, parts)


def gather(values: Tensor, index: Tensor) -> Tensor:
    """Return the entry of each row (…, n) at ``index`` (…), without a scatter in its gradient."""
    is_picked = torch.arange(values.shape[-1], device=values.device) == index.unsqueeze(-1)
    return torch.where(is_picked, values, 0.0).sum(-1)


def softmax(logits: Array) -> Array:
    """Return probabilities that add up to one along the last axis."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def where(masks: Any, parameters: Any, otherwise: float) -> Any:
    """Return ``parameters``, or the other value where a mask is false; tensors or arrays."""
    if isinstance(parameters, Tensor):
        return torch.where(masks, parameters, otherwise)
    return np.where(masks, parameters, otherwise)


INVALID = -1e8
"""The logit of an action that a mask forbids: its probability is exactly 0, and so is its gradient."""


class ActionDistribution(nn.Module, ABC):
    """How actions of one space are drawn, and how likely they are.

    ``noise_size`` numbers of noise make one action. What has no density (a deterministic action, or one that
    was squashed) raises `TypeError` where it is asked for.
    """

    parameter_size: int
    noise_size: int
    choice_sizes: Sequence[int] = ()
    """How many alternatives each choice has; masks stand side by side in this order."""

    @functools.cached_property
    def mask_size(self) -> int | None:
        """How wide a mask is, None where actions can't be masked."""
        return sum(self.choice_sizes) or None

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """Return parameters (…, ``parameter_size``)."""

    def masked(self, parameters: Any, masks: Any | None) -> Any:
        """Return parameters by which only valid actions are drawn; each choice must have one."""
        return parameters if masks is None else self._masked(parameters, masks)

    def _masked(self, parameters: Any, masks: Any) -> Any:
        return where(masks, parameters, INVALID)

    @abstractmethod
    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Draw what `sample` needs, (*shape, ``noise_size``)."""

    @abstractmethod
    def sample(self, parameters: Array, noise: Array) -> Any:
        """Return actions drawn with this noise."""

    @abstractmethod
    def mode(self, parameters: Array) -> Any:
        """Return the likeliest actions."""

    @abstractmethod
    def describe(self, parameters: Array) -> Any:
        """Return probabilities, or mean and standard deviation."""

    def log_prob(self, parameters: Tensor, actions: Any) -> Tensor:
        """Return the actions' log-probabilities (…)."""
        return self.log_prob_and_entropy(parameters, actions)[0]

    def entropy(self, parameters: Tensor) -> Tensor:
        """Return the distributions' entropies (…)."""
        raise TypeError(f"{type(self).__name__} has no density")

    def log_prob_and_entropy(self, parameters: Tensor, actions: Any) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy, with shared terms computed once."""
        raise TypeError(f"{type(self).__name__} has no density")

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Return KL(old ‖ new) (…), summed over action dimensions."""
        raise TypeError(f"{type(self).__name__} has no density")

    def imitation_loss(self, parameters: Tensor, actions: Any) -> Tensor:
        """Return the loss (…) of cloning an expert's actions: minus their log-probability."""
        return -self.log_prob(parameters, actions)


class DiscreteDistribution(ActionDistribution):
    """Finitely many actions, by logits, which without ``features_dim`` are the features themselves."""

    def __init__(self, space: Space, features_dim: int | None) -> None:
        super().__init__()
        self.choice_sizes = choice_sizes(space)
        is_bits = isinstance(space, spaces.MultiBinary)
        n_logits = len(self.choice_sizes) if is_bits else sum(self.choice_sizes)
        self.parameter_size = self.noise_size = n_logits
        self.logits = nn.Identity() if features_dim is None else nn.Linear(features_dim, n_logits)

    def forward(self, features: Tensor) -> Tensor:
        return self.logits(features)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        # Standard Gumbel noise: added to logits, its argmax is a sample of their categorical.
        exponential = rng.standard_exponential((*shape, self.noise_size), dtype=np.float32)
        return -np.log(np.maximum(exponential, np.float32(1e-30)))

    def sample(self, parameters: Array, noise: Array) -> Array:
        return self.mode(parameters + noise)

    @abstractmethod
    def _log_probs(self, parameters: Tensor) -> Sequence[Tensor]: ...

    @abstractmethod
    def _select(self, log_probs: Sequence[Tensor], actions: Tensor) -> Tensor: ...

    def _mean(self, log_probs: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
        """Return Σ p·value over all alternatives and choices."""
        return total([(log.exp() * value).sum(-1) for log, value in zip(log_probs, values, strict=True)])

    def entropy(self, parameters: Tensor) -> Tensor:
        log_probs = self._log_probs(parameters)
        return -self._mean(log_probs, log_probs)

    def log_prob_and_entropy(self, parameters: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = self._log_probs(parameters)
        return self._select(log_probs, actions), -self._mean(log_probs, log_probs)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        log_probs = self._log_probs(old)
        return self._mean(log_probs, [a - b for a, b in zip(log_probs, self._log_probs(new), strict=True)])


class Categorical(DiscreteDistribution):
    """One choice out of n; a Q-network's is the best action, or one by the softmax of the action values."""

    def mode(self, parameters: Array) -> Array:
        return parameters.argmax(-1)

    def describe(self, parameters: Array) -> Any:
        """Return the probabilities (…, n)."""
        return softmax(parameters)

    def _log_probs(self, parameters: Tensor) -> Sequence[Tensor]:
        return (F.log_softmax(parameters, dim=-1),)

    def _select(self, log_probs: Sequence[Tensor], actions: Tensor) -> Tensor:
        return gather(log_probs[0], self.index(actions))

    def index(self, actions: Tensor) -> Tensor:
        """Return the logits' places (…) of actions."""
        return actions


MOST_COMBINATIONS = 10_000


class JointCategorical(Categorical):
    """Several choices as one choice among all their combinations; the last one varies fastest.

    Masks are the choices' masks, side by side. Raises `ZooError` for too many combinations.
    """

    def __init__(self, space: spaces.MultiDiscrete, features_dim: int | None) -> None:
        sizes = choice_sizes(space)
        n = math.prod(sizes)
        if n > MOST_COMBINATIONS:
            raise ZooError(
                f"the env's actions {space} have {n:,} combinations, each with a value of its own: at most"
                f" {MOST_COMBINATIONS:,}; ppo2 takes more"
            )
        super().__init__(spaces.Discrete(n), features_dim)
        self.choice_sizes = sizes
        self.strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]

    def _masked(self, parameters: Any, masks: Any) -> Any:
        first, *others = split(masks, list(self.choice_sizes))
        for mask in others:
            pairs = first[..., :, None] & mask[..., None, :]
            first = pairs.reshape(*pairs.shape[:-2], -1)
        return where(first, parameters, INVALID)

    def choices(self, index: Any) -> list[Any]:
        """Return the choices (…) that make these combinations, the inverse of `index`; tensors or arrays."""
        return [index // stride % n for stride, n in zip(self.strides, self.choice_sizes, strict=True)]

    def index(self, actions: Tensor) -> Tensor:
        return (actions * actions.new_tensor(self.strides)).sum(-1)

    def mode(self, parameters: Array) -> Array:
        return np.stack(self.choices(parameters.argmax(-1)), axis=-1)

    def describe(self, parameters: Array) -> list[Array]:
        """Return a list of probabilities (…, n), one array for each choice."""
        joint = softmax(parameters).reshape(*parameters.shape[:-1], *self.choice_sizes)
        axes = range(-len(self.choice_sizes), 0)
        return [joint.sum(tuple(other for other in axes if other != axis)) for axis in axes]


def make_single_choice(space: Space, features_dim: int | None) -> Categorical:
    """Return the head of one choice among all actions of a Discrete or MultiDiscrete space."""
    if isinstance(space, spaces.MultiDiscrete):
        return JointCategorical(space, features_dim)
    return Categorical(space, features_dim)


class MultiCategorical(DiscreteDistribution):
    """Several independent choices; their logits, and their masks, side by side."""

    def __init__(self, space: spaces.MultiDiscrete, features_dim: int) -> None:
        super().__init__(space, features_dim)
        ends = itertools.accumulate(self.choice_sizes)
        self.slices = [slice(end - size, end) for size, end in zip(self.choice_sizes, ends, strict=True)]

    def mode(self, parameters: Array) -> Array:
        actions = np.empty((*parameters.shape[:-1], len(self.choice_sizes)), np.int64)
        for index, part in enumerate(self._parts(parameters)):
            actions[..., index] = part.argmax(-1)
        return actions

    def describe(self, parameters: Array) -> list[Array]:
        """Return a list of probabilities (…, n), one array for each choice."""
        return [softmax(part) for part in self._parts(parameters)]

    def _parts(self, parameters: Array) -> list[Array]:
        return [parameters[..., part] for part in self.slices]

    def _log_probs(self, parameters: Tensor) -> Sequence[Tensor]:
        return [F.log_softmax(logits, dim=-1) for logits in parameters.split(list(self.choice_sizes), dim=-1)]

    def _select(self, log_probs: Sequence[Tensor], actions: Tensor) -> Tensor:
        return total(
            [gather(table, action) for table, action in zip(log_probs, actions.unbind(-1), strict=True)]
        )


class Bernoulli(DiscreteDistribution):
    """Independent bits, by the logit of being one; a mask has two entries a bit: may it be 0, may it be 1."""

    def _masked(self, parameters: Any, masks: Any) -> Any:
        may_be_zero, may_be_one = masks[..., ::2], masks[..., 1::2]
        return where(may_be_one, where(may_be_zero, parameters, -INVALID), INVALID)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.logistic(size=(*shape, self.noise_size)).astype(np.float32)

    def mode(self, parameters: Array) -> Array:
        return (parameters > 0).view(np.int8)

    def describe(self, parameters: Array) -> Array:
        """Return the probability of each bit (…, bits)."""
        return softmax(np.stack([parameters, np.zeros_like(parameters)], axis=-1))[..., 0]

    def _log_probs(self, parameters: Tensor) -> Sequence[Tensor]:
        return F.logsigmoid(-parameters), F.logsigmoid(parameters)

    def _select(self, log_probs: Sequence[Tensor], actions: Tensor) -> Tensor:
        log_zero, log_one = log_probs
        return torch.where(actions > 0, log_one, log_zero).sum(-1)

    def _mean(self, log_probs: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
        return total([log.exp() * value for log, value in zip(log_probs, values, strict=True)]).sum(-1)


LOG_STD_RANGE = (-20.0, 2.0)
"""Between these lies a log standard deviation that depends on the state."""

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
LARGEST_BELOW_ONE = 1.0 - 2.0**-24

QUADRATURE = np.polynomial.hermite_e.hermegauss(48)
"""Points and weights that integrate against a standard normal density (up to its factor)."""


class Gaussian(ActionDistribution):
    """Independent normal distributions of ``n_actions`` numbers."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.n_actions = self.noise_size = math.prod(space.shape)
        self.parameter_size = 2 * self.n_actions

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.standard_normal((*shape, self.noise_size), dtype=np.float32)

    def sample(self, parameters: Array, noise: Array) -> Array:
        actions = np.exp(self._log_std(parameters))
        actions *= noise
        actions += self._mean(parameters)
        return actions

    def mode(self, parameters: Array) -> Array:
        return self._mean(parameters)

    def describe(self, parameters: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation (…, n), before any squashing."""
        return self._mean(parameters), np.exp(self._log_std(parameters))

    def entropy(self, parameters: Tensor) -> Tensor:
        return self._log_std(parameters).sum(-1) + self.n_actions * (HALF_LOG_2PI + 0.5)

    def log_prob_and_entropy(self, parameters: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self._mean_and_log_std(parameters)
        total_log_std = log_std.sum(-1)
        deviation = (actions - mean) / log_std.exp()
        negative_log_density = torch.add(total_log_std, deviation.square().sum(-1), alpha=0.5)
        n = self.n_actions
        return -n * HALF_LOG_2PI - negative_log_density, total_log_std + n * (HALF_LOG_2PI + 0.5)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        (old_mean, old_log_std), (mean, log_std) = (self._mean_and_log_std(p) for p in (old, new))
        ratio = (2.0 * (old_log_std - log_std)).exp()
        moved = ((old_mean - mean) / log_std.exp()).square()
        return (log_std - old_log_std + 0.5 * (ratio + moved - 1.0)).sum(-1)

    def imitation_loss(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Return the mean squared error (…) of the mean action; the standard deviation is left alone."""
        return (self._mean(parameters) - actions).square().mean(-1)

    def _mean(self, parameters: Any) -> Any:
        return parameters[..., : self.n_actions]

    def _log_std(self, parameters: Any) -> Any:
        return parameters[..., self.n_actions : 2 * self.n_actions]

    def _mean_and_log_std(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = parameters.split(self.n_actions, dim=-1)
        return mean, log_std


class DiagonalGaussian(Gaussian):
    """A Gaussian with a standard deviation that does not depend on the state."""

    def __init__(self, space: spaces.Box, features_dim: int, log_std_init: float) -> None:
        super().__init__(space)
        self.mean = nn.Linear(features_dim, self.n_actions)
        self.log_std = nn.Parameter(torch.full((self.n_actions,), float(log_std_init)))

    def forward(self, features: Tensor) -> Tensor:
        mean = self.mean(features)
        return torch.cat([mean, self.log_std.expand_as(mean)], dim=-1)


class TanhGaussian(Gaussian):
    """tanh of a Gaussian; actions lie in [−1, 1]."""

    def sample(self, parameters: Array, noise: Array) -> Array:
        return np.tanh(super().sample(parameters, noise))

    def mode(self, parameters: Array) -> Array:
        return np.tanh(super().mode(parameters))

    def rsample(self, parameters: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions drawn with ``noise``, and log-probabilities (Haarnoja et al. 2018, appendix C)."""
        mean, log_std = self._mean_and_log_std(parameters)
        unsquashed = mean + log_std.exp() * noise
        negative_log_density = 0.5 * noise.square() + HALF_LOG_2PI + log_std + log_tanh_derivative(unsquashed)
        return torch.tanh(unsquashed), -negative_log_density.sum(-1)

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        unsquashed = torch.atanh(actions.clamp(-LARGEST_BELOW_ONE, LARGEST_BELOW_ONE))
        log_prob, _ = super().log_prob_and_entropy(parameters, unsquashed)
        return log_prob - log_tanh_derivative(unsquashed).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Return the Gaussian's entropy plus the mean log volume of tanh, by Gauss–Hermite quadrature."""
        mean, log_std = self._mean_and_log_std(parameters)
        points, weights = (mean.new_tensor(values) for values in QUADRATURE)
        unsquashed = mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * points
        mean_log_derivative = (log_tanh_derivative(unsquashed) * (weights / weights.sum())).sum(-1)
        return super().entropy(parameters) + mean_log_derivative.sum(-1)

    def log_prob_and_entropy(self, parameters: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        return self.log_prob(parameters, actions), self.entropy(parameters)

    def imitation_loss(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Return the mean squared error (…) of the squashed mean, in units of actions in [−1, 1]."""
        return (torch.tanh(self._mean(parameters)) - actions).square().mean(-1)


class SquashedGaussian(TanhGaussian):
    """tanh of a Gaussian whose mean and standard deviation are functions of the state."""

    def __init__(self, space: spaces.Box, features_dim: int) -> None:
        super().__init__(space)
        self.mean = nn.Linear(features_dim, self.n_actions)
        self.log_std = nn.Linear(features_dim, self.n_actions)

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([self.mean(features), self.log_std(features).clamp(*LOG_STD_RANGE)], dim=-1)


def log_tanh_derivative(unsquashed: Tensor) -> Tensor:
    """Return log(1 − tanh²u), how tanh shrinks volume, in a form that stays finite where tanh saturates."""
    return 2.0 * (math.log(2.0) - unsquashed - F.softplus(-2.0 * unsquashed))


class Deterministic(ActionDistribution):
    """Always the same action: the parameters (…, n) are the actions themselves, squashed into [−1, 1]."""

    noise_size = 0

    def __init__(self, space: spaces.Box, features_dim: int) -> None:
        super().__init__()
        self.n_actions = self.parameter_size = math.prod(space.shape)
        self.action = nn.Linear(features_dim, self.n_actions)

    def forward(self, features: Tensor) -> Tensor:
        return torch.tanh(self.action(features))

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Return nothing, (*shape, 0), and draw nothing."""
        return np.empty((*shape, 0), np.float32)

    def sample(self, parameters: Array, noise: Array) -> Array:
        return parameters

    def mode(self, parameters: Array) -> Array:
        return parameters

    def describe(self, parameters: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation (…, n): the actions, and zero."""
        return parameters, np.zeros_like(parameters)

    def imitation_loss(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Return the mean squared error (…), in units of the parameters."""
        return (parameters - actions).square().mean(-1)


class UnboundedDeterministic(Deterministic):
    """The same without a bound: the action is linear in the features, in the environment's own units."""

    def forward(self, features: Tensor) -> Tensor:
        return self.action(features)


LEAST_VARIANCE = 1e-6
"""Added to the variance of an action, which would vanish with the features."""


class StateDependentGaussian(Gaussian):
    """A Gaussian whose noise is φ(s)·W.

    ``noise`` gives W itself, (…, features × actions), at today's σ. That of an off-policy algorithm lets the
    gradients of the deviations through to the features, and has other defaults: see `PolicyConfig`.
    """

    def __init__(
        self, space: spaces.Box, features_dim: int, config: PolicyConfig, *, off_policy: bool
    ) -> None:
        super().__init__(space)
        self.features_dim = features_dim
        self.parameter_size = 2 * self.n_actions + features_dim
        self.noise_size = features_dim * self.n_actions
        self.learns_features, self.use_expln = off_policy, config.use_expln
        log_std_init, clip_mean = (-3.0, 2.0) if off_policy else (0.0, 0.0)
        self.clip_mean = clip_mean if config.clip_mean is None else config.clip_mean
        start = log_std_init if config.log_std_init is None else config.log_std_init
        self.mean = nn.Linear(features_dim, self.n_actions)
        columns = self.n_actions if config.full_std else 1
        self.log_std = nn.Parameter(torch.full((features_dim, columns), float(start)))

    def forward(self, features: Tensor) -> Tensor:
        mean = self.mean(features)
        if self.clip_mean > 0:
            mean = mean.clamp(-self.clip_mean, self.clip_mean)
        if not self.learns_features:
            features = features.detach()
        variance = features.square() @ self.deviations().square()
        log_std = 0.5 * (variance + LEAST_VARIANCE).log()
        return torch.cat([mean, log_std.expand_as(mean), features], dim=-1)

    def deviations(self) -> Tensor:
        """Return σ (features, actions), or (features, 1) where all actions share it."""
        return expln(self.log_std) if self.use_expln else self.log_std.exp()

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        with torch.no_grad():
            deviations = self.deviations().cpu().numpy()
        standard = rng.standard_normal((*shape, self.features_dim, self.n_actions), dtype=np.float32)
        return (standard * deviations).reshape(*shape, self.noise_size)

    def sample(self, parameters: Array, noise: Array) -> Array:
        features = parameters[..., None, 2 * self.n_actions :]
        weights = noise.reshape(*noise.shape[:-1], self.features_dim, self.n_actions)
        return self._mean(parameters) + (features @ weights)[..., 0, :]

    def _mean_and_log_std(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std, _ = parameters.split([self.n_actions, self.n_actions, self.features_dim], dim=-1)
        return mean, log_std


class SdeNoise:
    """State-dependent noise of a collection, drawn anew every ``every`` steps; -1: once."""

    def __init__(self, head: ActionDistribution, every: int) -> None:
        self.head, self.every = head, every
        self._n_steps = 0
        self._noise: Array | None = None

    def next(self, rng: np.random.Generator, n_envs: int) -> Array:
        """Return the noise (n_envs, …) of the next step."""
        if self._noise is None or self._n_steps == self.every:
            self._noise, self._n_steps = self.head.noise(rng, (n_envs,)), 0
        self._n_steps += 1
        return self._noise


class SquashedStateDependentGaussian(TanhGaussian, StateDependentGaussian):
    """tanh of a Gaussian whose noise is φ(s)·W; actions lie in [−1, 1].

    `rsample` takes a number of noise for each action: the same distribution as with a W for each sample, and
    gradients that are means over all W that give the same action, so that they scatter less.
    """


def expln(values: Tensor) -> Tensor:
    """Return exp(x), above 0 the slower 1 + log(1 + x): positive, and smooth between both."""
    below = values.clamp(max=0)  # also where it is not chosen: an infinite gradient would become NaN
    return torch.where(values > 0, values.clamp(min=0).log1p() + 1.0, below.exp())


def make_distribution(
    space: Space, features_dim: int, config: PolicyConfig, *, use_sde: bool = False
) -> ActionDistribution:
    """Return the head of an action space, on ``features_dim`` features; ``use_sde`` is for Box."""
    if use_sde:
        assert isinstance(space, spaces.Box)
        head_class = SquashedStateDependentGaussian if config.squash_output else StateDependentGaussian
        return head_class(space, features_dim, config, off_policy=False)
    if isinstance(space, spaces.Discrete):
        return Categorical(space, features_dim)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space, features_dim)
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(space, features_dim)
    if isinstance(space, spaces.Box):
        return DiagonalGaussian(space, features_dim, config.log_std_init or 0.0)
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return CompositeDistribution(space, features_dim, config)
    raise ZooError(f"actions of {space} are not supported; wrap the env to flatten them")


class CompositeDistribution(ActionDistribution):
    """Independent parts of a Tuple or Dict action, nested at will; a head each, on the same features.

    Parameters, noise and masks of the parts stand side by side, in the order of the space; a part that can't
    be masked has none. Actions are a dictionary by path, as in `zoo.policies.acting`.
    """

    def __init__(
        self, space: spaces.Tuple[Any] | spaces.Dict, features_dim: int, config: PolicyConfig
    ) -> None:
        super().__init__()
        self.space = space
        self.heads = {
            path: make_distribution(leaf, features_dim, config) for path, leaf in leaf_spaces(space)
        }
        heads = self.heads.values()
        self.parts = nn.ModuleList(heads)
        self.parameter_sizes = [head.parameter_size for head in heads]
        self.noise_sizes = [head.noise_size for head in heads]
        self.mask_sizes = [head.mask_size or 0 for head in heads]
        self.parameter_size, self.noise_size = sum(self.parameter_sizes), sum(self.noise_sizes)
        self.choice_sizes = choice_sizes(space)

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([head(features) for head in self.heads.values()], dim=-1)

    def _masked(self, parameters: Any, masks: Any) -> Any:
        parts = zip(self._parts(parameters), split(masks, self.mask_sizes), strict=True)
        masked = [
            part if head.mask_size is None else head._masked(part, mask) for (_, head, part), mask in parts
        ]
        return torch.cat(masked, -1) if isinstance(parameters, Tensor) else np.concatenate(masked, -1)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.concatenate([head.noise(rng, shape) for head in self.heads.values()], axis=-1)

    def sample(self, parameters: Array, noise: Array) -> dict[str, Array]:
        parts = zip(self._parts(parameters), split(noise, self.noise_sizes), strict=True)
        return {path: head.sample(part, own_noise) for (path, head, part), own_noise in parts}

    def mode(self, parameters: Array) -> dict[str, Array]:
        return {path: head.mode(part) for path, head, part in self._parts(parameters)}

    def describe(self, parameters: Array) -> Any:
        """Return the parts' descriptions, in tuples and dictionaries like the actions."""
        return nested(self.space, {path: head.describe(part) for path, head, part in self._parts(parameters)})

    def entropy(self, parameters: Tensor) -> Tensor:
        return total([head.entropy(part) for _, head, part in self._parts(parameters)])

    def log_prob_and_entropy(self, parameters: Tensor, actions: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        parts = self._parts(parameters)
        both = [head.log_prob_and_entropy(part, actions[path]) for path, head, part in parts]
        return total([log_prob for log_prob, _ in both]), total([entropy for _, entropy in both])

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        parts = zip(self._parts(old), self._parts(new), strict=True)
        return total([head.kl(old_part, new_part) for (_, head, old_part), (_, _, new_part) in parts])

    def imitation_loss(self, parameters: Tensor, actions: dict[str, Tensor]) -> Tensor:
        """Return the sum (…) of the parts' losses."""
        parts = self._parts(parameters)
        return total([head.imitation_loss(part, actions[path]) for path, head, part in parts])

    def _parts(self, parameters: Any) -> list[tuple[str, ActionDistribution, Any]]:
        """Return path, head and parameters of each part."""
        parts = split(parameters, self.parameter_sizes)
        return list(zip(self.heads, self.heads.values(), parts, strict=True))


def split(values: Any, sizes: list[int]) -> list[Any]:
    """Return the parts of these sizes along the last axis, of a tensor or an array."""
    if isinstance(values, Tensor):
        return list(values.split(sizes, dim=-1))
    return np.split(values, np.cumsum(sizes)[:-1], axis=-1)
