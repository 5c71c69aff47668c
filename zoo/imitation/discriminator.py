"""The reward model of generative adversarial imitation: the discriminator's network, loss, data and rewards.

It is trained to distinguish an expert's state-action pairs (label 1) from the policy's (label 0). The reward
of a pair grows with the probability that it is the expert's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.on_policy import OnPolicyAlgorithm
from zoo.algorithms.reward_model import RewardModel, RewardRollout
from zoo.algorithms.saving import Attributes
from zoo.buffers.arrays import Arrays, n_rows, observation_spec, split_rows, transform
from zoo.config.fields import ScheduleValue, hyperparameter
from zoo.envs.config import NormalizeConfig
from zoo.envs.normalize import Normalizer
from zoo.envs.spaces import is_composite, leaf_spaces
from zoo.envs.spaces import leaves as parts_of
from zoo.imitation.demonstrations import EpisodeChoice, stored
from zoo.imitation.expert_data import ExpertData
from zoo.optim.optimizers import Adam, Parameters, Updater
from zoo.optim.runtime import torch_settings
from zoo.optim.update_runner import State, StepResult
from zoo.policies.acting import to_tensors
from zoo.policies.config import ACTIVATIONS, PolicyConfig
from zoo.policies.encoders import NatureCnn, VectorEncoder, suits_cnn
from zoo.policies.networks import SpectralNorm, make_trunk

Array = np.ndarray
Numbers = Mapping[str, Tensor]

ACTIONS = "actions"
"""Name of the actions among the inputs; an observation's inputs are named ``seen`` and its key."""

NUMBERS_AT_ONCE = 2**24  # numbers of observations in one forward pass without gradients

SMALLEST_VARIANCE = 1e-4
"""Added to the variance of observations, so that a nearly constant input is not magnified."""


@dataclass
class DiscriminatorConfig(EpisodeChoice):
    """Hyperparameters of the discriminator."""

    d_step: int = hyperparameter(1, "gradient steps of the discriminator per training", ge=1)
    d_learning_rate: ScheduleValue = hyperparameter(3e-4, "step size of the discriminator's Adam", ge=0)
    d_batch_size: int | None = hyperparameter(
        None,
        "policy's pairs per gradient step, and as many of the expert's; null: a rollout's size / d_step",
        unit="steps",
        ge=1,
    )
    d_net_arch: list[int] = hyperparameter(
        help="hidden layers of the discriminator, after the encoder", default_factory=lambda: [100, 100]
    )
    d_activation: str = hyperparameter("tanh", "non-linearity of the hidden layers", choices=ACTIVATIONS)
    d_ent_coef: float = hyperparameter(1e-3, "coefficient of the entropy bonus of its outputs", ge=0)
    d_gradient_penalty: float = hyperparameter(
        0.0, "coefficient of (‖∇D‖ − 1)² between pairs of policy and expert; often 10, 0: none", ge=0
    )
    d_spectral_norm: bool = hyperparameter(False, "divide its weights by their largest singular value")


class Discriminator(RewardModel):
    """Discriminator of ``agent`` with the expert's data; it is trained after every ``g_step`` rollouts."""

    def __init__(self, config: Any, data: ExpertData, agent: OnPolicyAlgorithm) -> None:
        super().__init__(config, agent)
        self.data, self.device = data, agent.device
        self.spec = observation_spec(agent.observation_space, normalized=True)
        with agent.generators.torch_of_this_run(), torch_settings(threads=1):
            self.network = DiscriminatorNetwork(
                *(agent.observation_space, agent.action_space, agent.policy_config),
                *(config.d_net_arch, config.d_activation),
            ).to(agent.device)
            self.spectral = SpectralNorm(self.network) if config.d_spectral_norm else None
            self.updater = Updater(Parameters("discriminator", self.spectral or self.network), Adam())
        settings = NormalizeConfig(rewards=False, epsilon=SMALLEST_VARIANCE)
        self.statistics = Normalizer(agent.observation_space, settings)
        self.statistics.update_observations(data.observations)
        self.statistics.share()
        self._rows_at_once = max(1, NUMBERS_AT_ONCE // spaces.flatdim(agent.observation_space))
        self.n_rollouts = 0

    def initial_state(self) -> State:
        return self.updater.initial_state()

    def start(self, n_envs: int) -> None:
        self.returns = EpisodeSums(n_envs)

    def cut(self, envs: Sequence[int]) -> None:
        self.returns.rewards[list(envs)] = 0.0

    def rewards(self, rollout: RewardRollout) -> Array:
        rewards = self.rewards_of(**self._pairs(rollout)).reshape(rollout.rewards.shape)
        self.agent.record("rollout/imitation_reward", float(rewards.mean()))
        returns = self.returns.add(rewards, rollout.dones)
        if len(returns):
            self.agent.record("rollout/ep_imitation_rew_mean", float(returns.mean()))
        return rewards

    @torch.no_grad()
    def rewards_of(self, observations: Arrays, actions: Arrays) -> Array:
        """Return −log(1 − D), (n,), of raw observations and actions: large for expert-like pairs."""
        rewards = []
        for rows in split_rows(self._seen(observations, actions), self._rows_at_once):
            numbers = self.network.numbers(to_tensors(rows, self.device))
            logits = self.logits(self.spectral or self.network, numbers, self.shared())
            rewards.append(F.softplus(logits).cpu().numpy())
        return np.concatenate(rewards)

    def _pairs(self, rollout: RewardRollout) -> dict[str, Arrays]:
        actions = by_path(self.agent.action_space, rollout.actions)
        return {"observations": rollout.observations, "actions": actions}

    # -- learning ---------------------------------------------------------------------------------------

    def update(self, rollout: RewardRollout) -> None:
        """Learn from the last of ``g_step`` rollouts and as many of the expert's steps."""
        self.n_rollouts += 1
        if self.n_rollouts % self.config.g_step:
            return
        config, agent = self.config, self.agent
        batch_size = config.d_batch_size or max(1, rollout.rewards.size // config.d_step)
        shape = config.d_step, batch_size
        batches = self.minibatches(self._pairs(rollout), shape, agent.rng, agent.distributed.rows)
        if self.spectral is not None:
            self.spectral.update_directions()
        rates = agent.rates(agent._progress_before)
        agent.take_steps(self.step, self.shared(rates["d_learning_rate"]), batches)

    def minibatches(
        self,
        policy: Mapping[str, Arrays],
        shape: tuple[int, int],
        rng: np.random.Generator,
        share: Callable[[Array], Array],
    ) -> dict[str, Any]:
        """Return rows of policy and expert for `step`; ``shape`` is (steps, batch size).

        ``policy`` holds the policy's raw ``observations`` and its ``actions`` as the environment takes them,
        (n, …). All ranks' pairs update the statistics, the expert's too: ``share`` turns this rank's vector
        (m,) into all ranks' vectors, (ranks, m).
        """
        pairs, batches = {}, {}
        expert = {"observations": self.data.observations, "actions": self.data.actions}
        for name, columns in (("policy", policy), ("expert", expert)):
            rows = drawn_rows(n_rows(columns["observations"]), shape[0] * shape[1], rng)
            pairs[name] = transform(itemgetter(rows), dict(columns))
            self.statistics.update_observations(pairs[name]["observations"])
        self.statistics.merge_shared(share(self.statistics.local_statistics()))
        for name, columns in pairs.items():
            seen = self._seen(**columns)
            arrays = transform(lambda array: array.reshape(*shape, *array.shape[1:]), seen)
            batches[name] = to_tensors(arrays, self.device)
        if self.config.d_gradient_penalty:
            batches["mix"] = to_tensors(rng.random(shape, dtype=np.float32), self.device)
        return batches

    def shared(self, learning_rate: Tensor | None = None) -> dict[str, Any]:
        """Return tensors shared by all steps of an update: spectral directions, learning rate."""
        directions = {} if self.spectral is None else {"directions": self.spectral.directions}
        return directions if learning_rate is None else {**directions, "learning_rate": learning_rate}

    def step(self, state: State, shared: Any, row: Any) -> StepResult:
        network = self.updater.module(state)
        policy, expert = (self.network.numbers(row[name]) for name in ("policy", "expert"))
        loss, metrics = self.loss(network, policy, expert, row.get("mix"), shared)
        state, norm = self.updater.step(state, network, loss, shared["learning_rate"])
        metrics |= {"discriminator_loss": loss, "discriminator_grad_norm": norm}
        return StepResult(state, {name: metric.detach() for name, metric in metrics.items()})

    def loss(
        self, network: Any, policy: Numbers, expert: Numbers, mix: Tensor | None, shared: Any
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss on equally many pairs of policy and expert, encoded as floats, and its terms.

        ``mix`` (n,) is the expert's share in the mixtures at which the gradient is penalised.
        """
        config = self.config
        both = {name: torch.cat([policy[name], expert[name]]) for name in policy}
        logits = self.logits(network, both, shared)
        policy_logits, expert_logits = logits.chunk(2)
        bonus = entropy(logits).mean()
        loss = cross_entropy(policy_logits, expert_logits) - config.d_ent_coef * bonus
        metrics = {
            "discriminator_entropy": bonus,
            "policy_accuracy": (policy_logits < 0).float().mean(),
            "expert_accuracy": (expert_logits > 0).float().mean(),
        }
        if mix is not None:
            penalty = self._gradient_penalty(network, policy, expert, mix, shared)
            loss = loss + config.d_gradient_penalty * penalty
            metrics["gradient_penalty"] = penalty
        return loss, metrics

    def logits(self, network: Any, numbers: Numbers, shared: Any) -> Tensor:
        """Return the discriminator's logits (n,) with the parameters of ``network``."""
        return network(numbers) if self.spectral is None else network(numbers, shared["directions"])

    def _gradient_penalty(
        self, network: Any, policy: Numbers, expert: Numbers, mix: Tensor, shared: Any
    ) -> Tensor:
        """Return the mean of (‖∇D‖ − 1)² at mixtures of a policy's and an expert's pair.

        It is equation 3 of Gulrajani et al. 2017 (https://arxiv.org/abs/1704.00028), with logits as D.
        """
        mixed = {}
        for name, numbers in policy.items():
            share = mix.reshape(-1, *[1] * (numbers.dim() - 1))
            mixed[name] = (numbers + share * (expert[name] - numbers)).detach().requires_grad_()
        logits = self.logits(network, mixed, shared)
        grads = torch.autograd.grad(logits.sum(), list(mixed.values()), create_graph=True)
        squares = torch.stack([grad.flatten(1).square().sum(1) for grad in grads]).sum(0)
        return ((squares + 1e-12).sqrt() - 1.0).square().mean()

    def _seen(self, observations: Arrays, actions: Arrays) -> dict[str, Arrays]:
        """Return the discriminator's inputs: normalised observations, and actions."""
        observations = self.statistics.normalize_observations(observations)
        return {"observations": stored(observations, self.spec), "actions": actions}

    # -- exact resume -----------------------------------------------------------------------------------

    def parts(self) -> dict[str, Any]:
        rollouts, sums = Attributes(self, ("n_rollouts",)), Attributes(self.returns, ("rewards",))
        return {"n_rollouts": rollouts, "under_way": sums, "discriminator": self}

    def state(self) -> dict[str, Any]:
        directions = {} if self.spectral is None else self.spectral.state()
        return {"statistics": self.statistics.state(), "directions": directions}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.statistics.load_state(state["statistics"])
        self.statistics.share()
        if self.spectral is not None:
            self.spectral.load_state(state["directions"])


class EpisodeSums:
    """Sums of rewards over the running episode of each environment, ``rewards`` (n_envs,)."""

    def __init__(self, n_envs: int) -> None:
        self.rewards = np.zeros(n_envs)

    def add(self, rewards: Array, dones: Array) -> Array:
        """Add steps (n_steps, n_envs); return the sums of the episodes that ended, in order of time."""
        finished = []
        for step_rewards, is_done in zip(rewards, dones, strict=True):
            self.rewards += step_rewards
            finished.append(self.rewards[is_done])
            self.rewards[is_done] = 0.0
        return np.concatenate(finished)


def drawn_rows(n_rows: int, n: int, rng: np.random.Generator) -> Array:
    """Draw ``n`` of ``n_rows`` rows in random order, without repetition if there are enough."""
    return rng.choice(n_rows, n, replace=False) if n <= n_rows else np.resize(rng.permutation(n_rows), n)


def cross_entropy(policy_logits: Tensor, expert_logits: Tensor) -> Tensor:
    """Return mean −log(1 − D) of the policy's pairs plus mean −log D of the expert's (equation 17)."""
    return F.softplus(policy_logits).mean() + F.softplus(-expert_logits).mean()


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy (n,) of the label, expert or policy, from the logits of the expert."""
    return F.softplus(logits) - logits * torch.sigmoid(logits)


def by_path(space: Any, actions: Any) -> Arrays:
    """Return actions as the environment takes them; of a Tuple or Dict space by path, as in expert data."""
    return dict(parts_of(space, actions)) if is_composite(space) else actions


# -- the network ----------------------------------------------------------------------------------------


class BoxActions(nn.Module):
    """Scales Box actions to −1 to 1 where their bounds are finite."""

    middle: Tensor
    half_width: Tensor

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
        is_bounded = np.isfinite(low) & np.isfinite(high) & (high > low)
        middle = np.where(is_bounded, 0.5 * low + 0.5 * high, 0.0)
        half = np.where(is_bounded, 0.5 * high - 0.5 * low, 1.0)
        self.register_buffer("middle", torch.from_numpy(middle.astype(np.float32)), persistent=False)
        self.register_buffer("half_width", torch.from_numpy(half.astype(np.float32)), persistent=False)
        self.features_dim = len(low)

    def forward(self, actions: Tensor) -> Tensor:
        return (actions.reshape(len(actions), -1).float() - self.middle) / self.half_width


class DiscriminatorNetwork(nn.Module):
    """Network with one logit: positive if the expert more likely took the action than the policy did.

    Observations are encoded as in policies, images by a CNN if ``policy`` has one. Discrete actions are
    one-hot. Hidden layers have the widths ``net_arch`` and Glorot initialisation.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        policy: PolicyConfig,
        net_arch: list[int],
        activation: str,
    ) -> None:
        super().__init__()
        self.is_dict = isinstance(observation_space, spaces.Dict)
        reads_images = self.is_dict or policy.encoder == "cnn" or policy._target_ is not None
        parts = dict(leaf_spaces(observation_space))
        self.keys = list(parts)
        self.readers = nn.ModuleList(
            NatureCnn(part, PolicyConfig(features_dim=policy.features_dim), ortho_init=True)
            if reads_images and suits_cnn(part)
            else VectorEncoder(part)
            for part in parts.values()
        )
        leaf = dict(leaf_spaces(action_space))
        self.paths = list(leaf)
        self.writers = nn.ModuleList(
            BoxActions(part) if isinstance(part, spaces.Box) else VectorEncoder(part)
            for part in leaf.values()
        )
        size: Any = sum(part.features_dim for part in (*self.readers, *self.writers))
        self.layers = make_trunk(PolicyConfig(), size, net_arch, 1, activation)
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

    def numbers(self, rows: Mapping[str, Any]) -> dict[str, Tensor]:
        """Encode inputs as floats (actions one-hot), so that policy and expert can be interpolated.

        ``rows`` holds ``observations`` (n, *shape), already normalised, and ``actions`` as the environment
        takes them, for a Tuple or Dict space keyed by path.
        """
        observations, actions = rows["observations"], rows["actions"]
        numbers: dict[str, Tensor] = {}
        for key, reader in zip(self.keys, self.readers, strict=True):
            column = observations[key] if self.is_dict else observations
            if isinstance(reader, NatureCnn):
                column = column.float() / 255.0 if column.dtype == torch.uint8 else column.float()
            numbers[f"seen {key}"] = column if isinstance(reader, NatureCnn) else reader(column)
        written = [
            writer(actions[path] if path else actions)
            for path, writer in zip(self.paths, self.writers, strict=True)
        ]
        return {**numbers, ACTIONS: torch.cat(written, dim=-1)}

    def forward(self, numbers: Numbers) -> Tensor:
        """Return the logits (n,) for the output of `numbers`."""
        features = [
            reader(numbers[f"seen {key}"]) if isinstance(reader, NatureCnn) else numbers[f"seen {key}"]
            for key, reader in zip(self.keys, self.readers, strict=True)
        ]
        return self.layers(torch.cat([*features, numbers[ACTIONS]], dim=-1)).squeeze(-1)
