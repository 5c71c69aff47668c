"""Exploring by noise on a policy's parameters (Plappert et al. 2018, https://arxiv.org/abs/1706.01905).

Each environment acts with a perturbed copy of its own, drawn anew with its episode, so that within an episode
the same is done where the same is seen. How strong the noise is follows from how much it changes actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoo.buffers.arrays import n_rows
from zoo.config.fields import hyperparameter
from zoo.optim.optimizers import Parameters
from zoo.optim.update_runner import average_number
from zoo.policies.acting import ActingPolicy, BatchedPolicy
from zoo.policies.actor_critic import PolicyInput
from zoo.policies.exploration import EpsilonGreedy, Exploration, NormalNoise, StochasticExploration

Array = np.ndarray

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
    as it was drawn, whatever updates do to the parameters meanwhile, until `reset` asks for another one,
    which the next `redraw` makes.
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
        return self._copies.parameters(inputs), None

    def with_and_without_noise(self, inputs: PolicyInput, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return the parameters of the head without noise, and with as much as the next copies get."""
        self._perturb(self._comparison.vectors[0], rng)
        return super().parameters(inputs)[0], self._comparison.parameters(inputs)

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
        """Return the noise's size, the copies (n_envs, parameters), and which are to be drawn anew."""
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
    norms = [name for name, each in parameters.module.named_modules() if isinstance(each, nn.LayerNorm)]
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

    def act(self, inputs: PolicyInput, rng: np.random.Generator, progress: float) -> Array:
        self.perturbed.redraw(rng, n_rows(inputs))
        return super().act(inputs, rng, progress)

    def adapt(self, inputs: PolicyInput, rng: np.random.Generator) -> dict[str, float]:
        """Let the noise follow how far it moves actions for these inputs; return both, to be logged.

        That is the root of the mean squared difference over rows, of all workers, and dimensions (the paper's
        appendix C.1).
        """
        perturbed, coefficient = self.perturbed, self.config.adaptation_coefficient
        without, with_noise = map(perturbed.head.mode, perturbed.with_and_without_noise(inputs, rng))
        square = float(np.square(without - with_noise, dtype=np.float64).mean())
        distance = math.sqrt(average_number(square))
        is_too_far = distance > self.config.desired_action_std
        perturbed.std = perturbed.std / coefficient if is_too_far else perturbed.std * coefficient
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

    def act(self, inputs: PolicyInput, rng: np.random.Generator, progress: float) -> Array:
        perturbed, masks = self.perturbed, inputs.get("action_masks")
        perturbed.redraw(rng, n_rows(inputs))
        without, with_noise = perturbed.with_and_without_noise(inputs, rng)
        n_valid = np.full(len(without), without.shape[-1]) if masks is None else np.asarray(masks).sum(-1)
        if (n_valid > 1).any():
            desired = float(epsilon_greedy_kl(self.rate(progress), n_valid).mean())
            is_too_far = mean_softmax_kl(without, with_noise) >= desired
            perturbed.std = (
                perturbed.std / GREEDY_ADAPTATION if is_too_far else perturbed.std * GREEDY_ADAPTATION
            )
        return perturbed.act(inputs, None)[0]


def mean_softmax_kl(values: Array, others: Array) -> float:
    """Return the mean over rows of KL(softmax values ‖ softmax others), both (n, actions)."""
    log, other_log = _log_softmax(values), _log_softmax(others)
    return float((np.exp(log) * (log - other_log)).sum(-1).mean())


def epsilon_greedy_kl(rate: float, n_actions: Array) -> Array:
    """Return δ = −log(1 − ε + ε/n), the KL divergence of greedy from ε-greedy acting (appendix C.1).

    It is that among each of these numbers of actions.
    """
    return -np.log(1.0 - rate + rate / n_actions)


def _log_softmax(values: Array) -> Array:
    shifted = values.astype(np.float64) - values.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
