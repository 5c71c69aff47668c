"""Actor-critic with experience replay (Wang et al. 2017, https://arxiv.org/abs/1611.01224).

One update on each rollout, then a random number of updates on windows that were experienced before. Values of
actions follow Retrace's targets, which are safe for trajectories of any policy. The policy's gradient weighs
actions by how much likelier they are now than when they were taken, truncates these weights, and makes up
for that by the critic's values of other actions. Then the gradient is turned, at each step, so that the
policy does not move away faster than it may from a running average of itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.arguments import make_policy
from zoo.algorithms.collector import Array
from zoo.algorithms.saving import RecurrentState
from zoo.algorithms.search_space import choices, ranges, searched
from zoo.buffers.arrays import Arrays, ArraySpec
from zoo.buffers.replay import keep_or_discard_buffer, refuse_too_large_buffer, replay_bytes
from zoo.buffers.sequence import SequenceBuffer
from zoo.config.fields import ScheduleValue, hyperparameter
from zoo.errors import ZooError
from zoo.optim.natural_gradient import projected
from zoo.optim.optimizers import FunctionalModule, Parameters, RMSprop, Updater
from zoo.optim.update_runner import Rates, State, StepResult
from zoo.policies.actor_critic import ActionValuePolicy, PolicyInput, StochasticDuelingPolicy
from zoo.policies.distributions import gather

EPSILON = 1e-6  # added to probabilities before they are divided by, or their logarithms taken

Batch = dict[str, Any]

N_DRAWN = 6
"""Box actions drawn at each step: one to correct the policy's gradient by, five for the mean advantage."""


@dataclass
class ACERConfig:
    """Hyperparameters of ACER."""

    learning_rate: ScheduleValue = hyperparameter("lin_7e-4", "step size of RMSprop", ge=0)
    n_steps: int = hyperparameter(
        20, "steps of each environment in a rollout, and in what is replayed", unit="steps", ge=1
    )
    gamma: float = hyperparameter(0.99, "discount factor", ge=0, le=1)
    buffer_size: int = hyperparameter(50_000, "transitions kept for replay", unit="transitions", ge=1)
    replay_ratio: float = hyperparameter(
        4.0, "updates from replay after each rollout: the mean of a Poisson distribution", ge=0
    )
    replay_start: int = hyperparameter(
        1000,
        "transitions in the buffer from which on it is replayed, unless replay_ratio is 0",
        unit="transitions",
        ge=0,
    )
    correction_term: float = hyperparameter(
        10.0, "c, the largest importance weight; the rest is corrected by the critic", gt=0
    )
    trust_region: bool = hyperparameter(True, "bound how fast the policy leaves its running average")
    delta: float = hyperparameter(1.0, "that bound", gt=0)
    alpha: float = hyperparameter(0.99, "decay of the average policy at each update", ge=0, le=1)
    q_coef: float = hyperparameter(0.5, "weight of the critic's loss", ge=0)
    ent_coef: float = hyperparameter(0.01, "weight of the entropy bonus", ge=0)
    max_grad_norm: float | None = hyperparameter(10.0, "bound of the gradient's norm; null: none", gt=0)
    rms_prop_decay: float = hyperparameter(0.99, "decay of RMSprop's running square", ge=0, lt=1)
    rms_prop_eps: float = hyperparameter(1e-5, "epsilon of RMSprop", gt=0)

    def __post_init__(self) -> None:
        if self.replay_ratio > 0 and self.replay_start > self.buffer_size:
            raise ZooError(
                f"`algo.replay_start={self.replay_start}` is never reached:"
                f" `algo.buffer_size={self.buffer_size}` transitions are kept"
            )


class ACER(Algorithm):
    """Actor-critic with experience replay: Retrace, truncated importance weights, trust region."""

    name = "acer"
    config_class = ACERConfig
    search_space = searched(
        Algorithm.search_space,
        ranges("log falling", learning_rate=(1e-4, 1e-2)),
        ranges("log", n_steps=(4, 64), correction_term=(1.0, 20.0), delta=(0.05, 5.0)),
        ranges("log", max_grad_norm=(0.5, 40.0)),
        ranges("log complement", gamma=(0.9, 0.9999), alpha=(0.9, 0.999), rms_prop_decay=(0.9, 0.999)),
        ranges("even", q_coef=(0.1, 1.0), ent_coef=(0.0, 0.1)),
        choices(replay_ratio=[0, 1, 2, 4, 8]),
    )
    supported_actions = (spaces.Box, spaces.Discrete)
    can_share = False  # Ranks would draw different numbers of replays.
    has_recurrence = True

    config: ACERConfig
    policy: ActionValuePolicy | StochasticDuelingPolicy
    buffer: SequenceBuffer
    recurrent: RecurrentState

    def _make_policy(self) -> nn.Module:
        self.is_discrete = isinstance(self.action_space, spaces.Discrete)
        policy_class = ActionValuePolicy if self.is_discrete else StochasticDuelingPolicy
        return make_policy(policy_class, self.observation_space, self.action_space, self.policy_config)

    def _make_state(self) -> State:
        config = self.config
        self.updater = Updater(
            Parameters("policy", self.policy),
            RMSprop(config.rms_prop_decay, config.rms_prop_eps),
            max_grad_norm=config.max_grad_norm,
        )
        state = self.updater.initial_state()
        if config.trust_region:
            state["average"] = state["policy"].clone()
        return state

    def _make_buffer(self) -> None:
        config, specs = self.config, self._specs()
        specs["behaviour"] = ArraySpec((self.acting.head.parameter_size,), np.float32)
        self.recurrent = RecurrentState(self.acting.initial_state(self.n_envs))
        if self.recurrent.array is not None:
            specs["states"] = ArraySpec(self.recurrent.array.shape[1:], np.float32)
            specs["episode_starts"] = ArraySpec((), np.bool_)
        buffer = keep_or_discard_buffer(getattr(self, "buffer", None), self.n_envs, specs)
        if buffer is None:
            assert self.envs is not None
            size, n_frames = config.buffer_size, self.envs.n_frames
            needed = replay_bytes(size, specs, optimize_memory_usage=True, n_frames=n_frames)
            refuse_too_large_buffer(needed, size, once=True)
            buffer = SequenceBuffer(size, self.n_envs, specs, config.n_steps, n_frames)
        buffer.transforms = () if self.normalizer is None else (self.normalizer.normalize_transitions,)
        self.buffer = buffer

    # -- collecting -------------------------------------------------------------------------------------

    def collect(self) -> None:
        self._progress_before = self.progress
        n_steps = self.config.n_steps
        while n_steps:
            for noise in self.acting.head.noise(self.rng, (n_steps, self.n_envs)):
                self._interact(partial(self._act_with, noise), self.buffer.add)
            n_steps = 0 if self.buffer.has_windows else 1  # more where environments have merely reset

    def _act_with(self, noise: Array, policy_input: PolicyInput) -> dict[str, Arrays]:
        before, recurrent = self.recurrent.array, {}
        if before is not None:
            recurrent = {"states": before, "episode_starts": self.collector.episode_starts}
            policy_input = {**policy_input, "episode_starts": recurrent["episode_starts"]}
        parameters, after = self.acting.parameters(policy_input, before)
        if after is not None:
            recurrent["next_states"] = self.recurrent.array = after
        return {"actions": self.acting.head.sample(parameters, noise), "behaviour": parameters, **recurrent}

    def _cut_episodes(self, envs: Any) -> None:
        self.buffer.cut(envs)

    # -- updates ----------------------------------------------------------------------------------------

    def update(self) -> None:
        """Learn from the last rollout, then from as many replayed ones as are drawn."""
        buffer, n_steps, n_replays = self.buffer, self.config.n_steps, 0
        if len(buffer) >= self.config.replay_start:
            n_replays = int(self.rng.poisson(self.config.replay_ratio))
        firsts = np.concatenate([buffer.newest_starts(), buffer.sample_starts(self.rng, n_replays)])
        rates = self.rates(self._progress_before)
        for window in firsts[:, None]:  # as fast as all in one run, whose loop takes far longer to compile
            batch = buffer.windows(window)
            if not self.is_discrete:
                batch["noise"] = self.acting.head.noise(self.rng, (1, N_DRAWN, *window.shape[1:], n_steps))
            self.take_steps(self._gradient_step, rates, self._tensors(batch))

    def _gradient_step(self, state: State, rates: Rates, batch: Any) -> StepResult:
        policy, parameters = self.updater.module(state), self.updater.parameters
        average = None
        with self.policy_mode.evaluation():
            if self.config.trust_region:
                average, _, _ = self.updater.functional(state, "average")(batch, batch.get("states"))
            # Of next observations that are not in the window themselves.
            inputs = {name.removeprefix("next_"): batch[name] for name in batch if name.startswith("next_")}
            next_policy = self.updater.functional(state)
            distribution, next_values, _ = next_policy(inputs, inputs.get("states"))
            if self.is_discrete:  # values of all actions
                next_values = (torch.softmax(distribution, -1) * next_values).sum(-1)
        loss_terms = self._discrete_terms if self.is_discrete else self._continuous_terms
        terms = loss_terms(policy, average, next_values.detach(), batch)
        grad, metrics = self._grad(terms)
        policy_loss = -(grad * terms.statistics).sum(-1).mean()
        loss = policy_loss + self.config.q_coef * terms.critic_loss
        state, grad_norm = self.updater.step(state, policy, loss, rates["learning_rate"])
        if self.config.trust_region:
            state = parameters.polyak_update(state, "average", 1.0 - self.config.alpha)
        return StepResult(
            state, {**metrics, "critic_loss": terms.critic_loss.detach(), "grad_norm": grad_norm}
        )

    def _grad(self, terms: LossTerms) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the gradient of each step's statistics within the trust region (equation 12); metrics."""
        objective, entropy, divergence = terms.objective, terms.entropy, terms.divergence
        regularized = objective + self.config.ent_coef * entropy
        (grad,) = torch.autograd.grad(regularized.sum(), terms.free)
        metrics = {"policy_loss": -objective.detach().mean(), "entropy_loss": -entropy.detach().mean()}
        if divergence is not None:
            (normal,) = torch.autograd.grad(divergence.sum(), terms.free)
            grad = projected(grad, normal, self.config.delta)
            metrics["average_kl"] = divergence.detach().mean()
        return grad, metrics

    # Loss terms of a batch (sequences, time, …). ``average`` are the average policy's parameters there, and
    # ``next_values`` (n,) the values of next observations that are not in the batch.

    def _discrete_terms(
        self, policy: FunctionalModule, average: Tensor | None, next_values: Tensor, batch: Batch
    ) -> LossTerms:
        """Return the terms where all action values are known, and all probabilities."""
        gamma, truncation = self.config.gamma, self.config.correction_term
        logits, action_values, _ = policy(batch, batch.get("states"))
        actions, statistics = batch["actions"], torch.softmax(logits, -1)
        probabilities, q_values = statistics.detach(), action_values.detach()
        ratios = probabilities / (torch.softmax(batch["behaviour"], -1) + EPSILON)
        ratio, taken = gather(ratios, actions), gather(action_values, actions)
        values = (probabilities * q_values).sum(-1)
        bounded = ratio.clamp(max=1.0)
        targets = corrected_returns(gamma, batch, values, next_values, taken.detach(), bounded)
        # Equation 9: what truncation leaves out of the first part is in the second, over all actions.
        taken_weight = ratio.clamp(max=truncation) * (targets - values)
        other_weights = torch.relu(1.0 - truncation / (ratios + EPSILON)) * probabilities
        other_weights = other_weights * (q_values - values.unsqueeze(-1))
        # A mask leaves an action probability 0, and no gradient: nothing of it may count in the projection.
        possible = probabilities > 0

        def log(probabilities: Tensor) -> Tensor:
            return torch.where(possible, (probabilities + EPSILON).log(), 0.0)

        free, divergence = statistics.detach().requires_grad_(), None
        logs = log(free)
        objective = taken_weight * gather(logs, actions) + (other_weights * logs).sum(-1)
        entropy = -(free * log(free)).sum(-1)
        if average is not None:
            average_probabilities = torch.softmax(average, -1)
            divergence = (average_probabilities * (log(average_probabilities) - log(free))).sum(-1)
        critic_loss = 0.5 * (targets - taken).square().mean()
        return LossTerms(statistics, free, objective, entropy, divergence, critic_loss)

    def _continuous_terms(
        self, policy: FunctionalModule, average: Tensor | None, next_values: Tensor, batch: Batch
    ) -> LossTerms:
        """Return the terms where action values come from a stochastic dueling network."""
        assert isinstance(self.policy, StochasticDuelingPolicy)
        gamma, truncation, head = self.config.gamma, self.config.correction_term, self.policy.head
        actions, behaviour, noise = batch["actions"], batch["behaviour"], batch["noise"]
        statistics, all_values, _ = policy(batch, batch.get("states"), actions, noise)
        values, taken, _ = all_values
        state_values, taken_values, fresh_values = all_values.detach()
        fresh = self.policy.sample_actions(statistics, noise[0])
        free = statistics.detach().requires_grad_()

        def ratio_of(actions: Tensor) -> Tensor:
            log_ratio = head.log_prob(statistics.detach(), actions) - head.log_prob(behaviour, actions)
            return log_ratio.exp()

        ratio = ratio_of(actions)
        trajectories = gamma, batch, state_values, next_values, taken_values
        targets = corrected_returns(*trajectories, ratio.pow(1.0 / actions.shape[-1]).clamp(max=1.0))
        taken_weight = ratio.clamp(max=truncation) * (corrected_returns(*trajectories) - state_values)
        fresh_weight = torch.relu(1.0 - truncation / ratio_of(fresh)) * (fresh_values - state_values)
        objective = taken_weight * head.log_prob(free, actions) + fresh_weight * head.log_prob(free, fresh)
        divergence = None if average is None else head.kl(average, free)
        value_targets = state_values + ratio.clamp(max=1.0) * (targets - taken_values)
        losses = (targets - taken).square() + (value_targets - values).square()
        return LossTerms(statistics, free, objective, head.entropy(free), divergence, 0.5 * losses.mean())

    def gradient_steps_in(self, total_timesteps: int) -> float:
        return total_timesteps / self._batch_size() * (1.0 + self.config.replay_ratio)

    def _batch_size(self) -> int:
        return self.config.n_steps * self.n_envs

    def copy_to_targets(self) -> None:
        if self.config.trust_region:
            self.runner.state["average"].copy_(self.runner.state["policy"])

    def _parts(self) -> dict[str, Any]:
        return {**super()._parts(), "buffer": self.buffer, **self.recurrent.parts()}


# -- targets and losses ----------------------------------------------------------------------------------


class LossTerms(NamedTuple):
    """Terms of an update: of each step the policy's objective, entropy and divergence from its average.

    ``statistics`` (…, k) are what the policy's distribution is made of, and what the trust region bounds the
    movement of: probabilities (algorithm 2 of the paper), or means and log standard deviations (algorithm 3).
    The terms are functions of ``free``, the same numbers cut off from the network, but for the scalar
    ``critic_loss``. Without a trust region there is no divergence.
    """

    statistics: Tensor
    free: Tensor
    objective: Tensor
    entropy: Tensor
    divergence: Tensor | None
    critic_loss: Tensor


def corrected_returns(
    gamma: float,
    batch: Batch,
    values: Tensor,
    next_values: Tensor,
    taken: Tensor,
    coefficients: Tensor | None = None,
) -> Tensor:
    """Return Q^ret (sequences, time), with these truncated importances (equation 5); with all 1: Q^opc.

    ``values`` are those of the states, ``taken`` those of the actions that were taken there.
    """
    next_index = batch["next_index"]
    following = torch.where(next_index >= 0, next_values[next_index.clamp(min=0)], _later(values, 1))
    td_errors = batch["rewards"] + gamma * torch.where(batch["terminated"], 0.0, following) - taken
    weights = gamma * (~batch["dones"]).to(taken.dtype)
    if coefficients is not None:
        weights = weights * _later(coefficients, 1)
    return taken + retrace(td_errors, weights)


def retrace(td_errors: Tensor, weights: Tensor) -> Tensor:
    """Return corrections Σ_k (w_t … w_{t+k−1})·δ_{t+k}, to be added to Q(s_t, a_t), (sequences, time).

    ``td_errors`` are δ_t = r_t + γ·V(s_{t+1}) − Q(s_t, a_t); ``weights`` w_t say how much of what comes after
    step t counts at it: γ·c_{t+1}, where c truncates the importance of the next action, or 0 where an episode
    ended. The last weight of a sequence is not read. This is y_t = δ_t + w_t·y_{t+1}, by doubling: after n
    rounds y_t has 2ⁿ terms.
    """
    length, reach = td_errors.shape[-1], 1
    result = td_errors
    weights = torch.cat([weights[..., :-1], torch.zeros_like(weights[..., :1])], dim=-1)
    while reach < length:
        result = result + weights * _later(result, reach)
        weights = weights * _later(weights, reach)
        reach *= 2
    return result


def _later(column: Tensor, n: int) -> Tensor:
    """Return the column shifted by ``n`` steps, 0 behind the end."""
    return F.pad(column[..., n:], (0, n))
