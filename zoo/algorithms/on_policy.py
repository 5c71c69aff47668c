"""On-policy algorithms: hyperparameters, rollouts by any way of acting, values and advantages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, cast

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.arguments import Policy, sde_options
from zoo.algorithms.collector import Act, Array
from zoo.algorithms.saving import RecurrentState
from zoo.algorithms.search_space import ranges, searched
from zoo.buffers.arrays import Arrays, ArraySpec, observation_spec, split_rows, transform
from zoo.buffers.rollout import RolloutBuffer, generalized_advantages
from zoo.config.fields import ScheduleValue, hyperparameter
from zoo.envs.adapter import VecEnvAdapter
from zoo.envs.config import EnvConfig
from zoo.envs.transition import Transition
from zoo.errors import ZooError
from zoo.optim.optimizers import Optimizer, Parameters, Updater
from zoo.optim.update_runner import State, UpdateRunner, average, n_ranks
from zoo.policies.actor_critic import ActorCritic, PolicyInput
from zoo.policies.distributions import SdeNoise

if TYPE_CHECKING:
    from zoo.algorithms.reward_model import RewardModel

PLAIN_ACTIONS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
ANY_ACTIONS = (*PLAIN_ACTIONS, spaces.Tuple, spaces.Dict)
"""For algorithms that only need the log-probability of an action."""

RAW, FOLLOWING, EARNED = "raw_observations", "next_observations", "environment_rewards"
"""Columns for a reward model: raw observations, where the policy's are normalised, raw next ones, rewards."""

USUAL_CHUNK = 32  # the longest sequences that a recurrent policy learns from by default

IN_ROLLOUT = ("algo.n_steps", "n_envs")
"""What a minibatch is at most, where its size is searched."""

PIECE_BYTES = 64 * 2**20
"""Bytes that the observations of one forward pass without gradients may take, as floats."""


@dataclass
class RolloutConfig:
    """Hyperparameters shared by algorithms that learn from rollouts."""

    learning_rate: ScheduleValue = hyperparameter(3e-4, "step size of the optimizer", ge=0)
    n_steps: int = hyperparameter(128, "steps of each environment in a rollout", unit="steps", ge=1)
    gamma: float = hyperparameter(0.99, "discount factor", ge=0, le=1)
    max_grad_norm: float | None = hyperparameter(0.5, "bound of the gradient's norm; null: none", gt=0)
    chunk_length: int | None = hyperparameter(
        None,
        "length of the sequences that a recurrent policy learns from, which divides n_steps;"
        f" null: the longest up to {USUAL_CHUNK}",
        unit="steps",
        ge=1,
    )
    reward_model: dict[str, Any] | None = hyperparameter(
        None, "rewards of your own, a `RewardModel`: {_target_: module.Class, …}; null: the environment's"
    )


@dataclass
class RNDConfig:
    """Intrinsic rewards for new observations, by random network distillation: see `zoo.algorithms.rnd`."""

    kind: str = hyperparameter("rnd", "random network distillation", choices=("rnd",))
    coef: float = hyperparameter(
        0.5, "weight of intrinsic advantages, or rewards; more explores longer, 0.1 to 2", ge=0
    )
    gamma: float = hyperparameter(0.99, "discount factor of intrinsic rewards", ge=0, le=1)
    value_head: bool = hyperparameter(
        True,
        "a critic for intrinsic rewards, which do not end with episodes; false: add them to the rewards",
    )
    features_dim: int = hyperparameter(128, "outputs that are predicted; 512 for images", ge=1)
    learning_rate: float = hyperparameter(
        1e-4, "step size, also of their critic; larger: rewards fade sooner", ge=0
    )
    n_epochs: int = hyperparameter(
        1, "passes over each rollout; more: a better critic, and rewards fade sooner", ge=1
    )
    batch_size: int = hyperparameter(256, "steps in a gradient step", unit="steps", ge=1)
    update_share: float | None = hyperparameter(
        None, "share of steps that the predictor learns from; null: 1, above 32 envs 32 / n_envs", gt=0, le=1
    )


@dataclass
class OnPolicyConfig(RolloutConfig):
    """Hyperparameters of all on-policy algorithms with a critic."""

    intrinsic: RNDConfig | None = hyperparameter(None, "rewards for exploring; `intrinsic=rnd` sets it")

    gae_lambda: float = hyperparameter(
        0.95, "bias (0) against variance (1) of the advantages; 1: n-step returns", ge=0, le=1
    )
    normalize_advantage: bool = hyperparameter(
        False, "standardise the advantages of each batch that is learned from"
    )
    ent_coef: float = hyperparameter(0.01, "weight of the entropy bonus", ge=0)
    value_normalization: bool = hyperparameter(
        False,
        "the critic learns in units of the running mean and standard deviation of returns (PopArt); for"
        " large or changing rewards",
    )


class RolloutBatch(TypedDict, total=False):
    """Columns of a rollout with one row a step, (n_steps × n_envs, …), or some of these rows.

    For a recurrent policy there is one row a sequence, (n_sequences, chunk_length, …), besides them
    ``episode_starts``, and ``states`` (n_sequences, …) before each sequence.
    """

    observations: Any
    actions: Any
    action_masks: Tensor
    episode_starts: Tensor
    states: Tensor
    values: Tensor
    log_prob: Tensor
    parameters: Tensor
    advantages: Tensor
    returns: Tensor
    mirrored: Any


class OnPolicyAlgorithm(Algorithm):
    """Collects ``n_steps`` steps of every environment, then learns from them once.

    By default actions are sampled from the distribution of an `ActorCritic`. Another way of acting is another
    `_acts`; its policy needs ``values`` for `advantages`.
    """

    supported_actions: ClassVar[tuple[type[spaces.Space[Any]], ...]] = ANY_ACTIONS
    policy_class: ClassVar[type[nn.Module]] = ActorCritic
    has_recurrence = True
    search_space: ClassVar[Mapping[str, Any]] = searched(
        Algorithm.search_space,
        ranges("log falling", learning_rate=(1e-5, 1e-2)),
        ranges("log complement", gamma=(0.9, 0.9999)),
        ranges("even", gae_lambda=(0.8, 1.0)),
    )
    uses_old_log_prob: ClassVar[bool] = False
    """Whether a finished rollout has the log-probabilities of its actions."""

    config: OnPolicyConfig
    policy: ActorCritic
    buffer: RolloutBuffer
    recurrent: RecurrentState

    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: str | EnvConfig | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Any = None,
        learning_rate: Any = None,
        **options: Any,
    ) -> None:
        self.reward_model: RewardModel | None = None
        super().__init__(policy, env, learning_rate, **options)
        if self.config.reward_model is not None:
            from zoo.algorithms.reward_model import make_reward_model

            self.set_reward_model(make_reward_model(self))

    def _use_envs(self, envs: VecEnvAdapter) -> None:
        super()._use_envs(envs)
        intrinsic = getattr(self.config, "intrinsic", None)  # that of a Q-learner has none
        if intrinsic is None:
            return
        if self.config.reward_model is not None:
            raise ZooError("`algo.intrinsic` does not go with `algo.reward_model`; leave one out")
        from zoo.algorithms.rnd import RND

        if not isinstance(self.reward_model, RND) or self.reward_model.n_frames != envs.n_frames:
            self.set_reward_model(RND(intrinsic, self, envs.n_frames))

    def set_reward_model(self, model: RewardModel) -> None:
        """Learn from this model's rewards from now on."""
        self.reward_model = model
        self.runner = UpdateRunner(State({**self.runner.state, **model.initial_state()}), self.runtime)
        if self.envs is not None:
            self._make_buffer()

    def _optimizer(self) -> Optimizer:
        raise NotImplementedError

    def _uses_old_parameters(self) -> bool:
        """Whether a finished rollout has the ``parameters`` of its action distributions."""
        return False

    def _policy_options(self) -> dict[str, Any]:
        return sde_options(getattr(self.config, "use_sde", False), self.action_space)

    def _make_state(self) -> State:
        self.updater = Updater(
            Parameters("policy", self.policy), self._optimizer(), max_grad_norm=self.config.max_grad_norm
        )
        return State({**self.updater.initial_state(), **self._return_moments()})

    def _return_moments(self) -> State:
        """Make the normaliser of returns, if there is to be one, and return its first state."""
        if not getattr(self.config, "value_normalization", False):
            return State()
        from zoo.optim.popart import RunningReturnNormalizer, output_layer

        layer = f"critic.{output_layer(self.policy.critic, '`algo.value_normalization` needs')}"
        self.return_normalizer = RunningReturnNormalizer(
            self.updater.parameters, ("policy",), preserve=True, layer=layer
        )
        return self.return_normalizer.initial_state()

    def _specs(self, *, normalized: bool = False) -> dict[str, Any]:
        specs = super()._specs(normalized=normalized)
        has_convolutions = any(isinstance(module, nn.Conv2d) for module in self.policy.modules())
        is_slow = has_convolutions and self.device.type == "cpu" and isinstance(self.policy, ActorCritic)
        is_slow &= not self._uses_old_parameters()
        if is_slow and self.recurrent.array is None:  # then values are cheapest with the actions
            specs["values"] = ArraySpec((), np.float32)
            if self.uses_old_log_prob:
                specs["log_prob"] = ArraySpec((), np.float32)
        raw, model = observation_spec(self.observation_space), self.reward_model
        specs |= {RAW: raw} if self._keeps_raw and self.normalizer is not None else {}
        specs |= {EARNED: ArraySpec((), np.float32)} if model is not None else {}
        specs |= {FOLLOWING: raw} if model is not None and model.uses_next_observations else {}
        return specs

    @property
    def _keeps_raw(self) -> bool:
        """Whether observations are stored before normalisation, too."""
        return self.reward_model is not None or getattr(self.config, "symmetry", None) is not None

    def _make_buffer(self) -> None:
        self.recurrent = RecurrentState(self.acting.initial_state(self.n_envs))
        specs = self._specs(normalized=self.normalizer is not None)
        chunks: dict[str, Any] = {}
        if self.recurrent.array is not None:
            specs["episode_starts"] = ArraySpec((), bool)
            chunks = {
                "chunk_length": chunk_length(self.config.n_steps, self.config.chunk_length),
                "state_size": self.recurrent.array.shape[1],
            }
        elif self.config.chunk_length is not None:
            raise ZooError("`algo.chunk_length` is of recurrent policies, like MlpLstmPolicy; leave it out")
        self.buffer = RolloutBuffer(self.config.n_steps, self.n_envs, specs, **chunks)
        floats = spaces.flatdim(self.observation_space) * self.buffer.steps_a_row
        self._rows_at_once = max(1, PIECE_BYTES // (np.dtype(np.float32).itemsize * floats))
        if self.reward_model is not None:
            self.reward_model.start(self.n_envs)

    def _cut_episodes(self, envs: Sequence[int]) -> None:
        if self.reward_model is not None:
            self.reward_model.cut(envs)

    def _parts(self) -> dict[str, Any]:
        learned = {} if self.reward_model is None else self.reward_model.parts()
        return {**super()._parts(), **self.recurrent.parts(), **learned}

    # -- collecting -------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Step until each environment has ``n_steps`` steps; the first to have them step on meanwhile."""
        self._progress_before = self.progress
        self.buffer.start()
        acts, resets_later = self._acts(), self.collector.envs.next_step_autoreset
        is_filling = True
        while is_filling:
            self._interact(next(acts), self._store)
            is_filling = not self.buffer.is_full
            if resets_later:  # ranks step as often as the slowest of them
                is_filling = self.distributed.total(is_filling) > 0
        if self.reward_model is not None:
            rewards = np.asarray(self.reward_model.rewards(self.reward_model.rollout()), np.float32)
            if rewards.shape != self.buffer.rewards.shape or not np.isfinite(rewards).all():
                raise ZooError(
                    f"{type(self.reward_model).__name__}.rewards returned an array of shape {rewards.shape};"
                    f" expected finite numbers of shape {self.buffer.rewards.shape}"
                )
            self.buffer.rewards[:] = rewards

    def after_update(self) -> None:
        if self.reward_model is not None:
            self.reward_model.update(self.reward_model.rollout())

    def _store(self, transition: Transition) -> None:
        buffer, rewards, normalizer = self.buffer, transition.rewards, self.normalizer
        sizes = buffer.sizes.copy()
        if self._keeps_raw:
            transition.columns[RAW] = transition.observations
        if self.reward_model is not None:
            following = transition.following()["next_observations"]
            transition.columns |= {FOLLOWING: following, EARNED: rewards}
        buffer.add(transition, rewards if normalizer is None else normalizer.normalize_rewards(rewards))
        is_cut = transition.truncated
        if transition.stepped is not None:  # the steps to come of an environment that is full don't count
            is_cut = (is_cut | (buffer.sizes == buffer.n_steps)) & ~transition.terminated
            is_cut &= buffer.sizes > sizes
        if np.count_nonzero(is_cut):
            envs, state = np.flatnonzero(is_cut), self.recurrent.array
            following = transition.following()
            final = transform(lambda array: array[envs], following["next_observations"])
            states, masks = (
                None if rows is None else rows[envs] for rows in (state, following.get("next_action_masks"))
            )
            buffer.add_truncations(envs, self.collector.normalized(final), states, masks)

    def _acts(self) -> Iterator[Act]:
        """Yield what acts in all environments, anew for each step of a rollout."""
        head, config = self.acting.head, cast(Any, self.config)
        held = SdeNoise(head, config.sde_sample_freq) if getattr(config, "use_sde", False) else None
        while held is not None:
            yield partial(self._act_with, held.next(self.rng, self.n_envs))
        while True:
            for noise in head.noise(self.rng, (self.buffer.n_steps, self.n_envs)):
                yield partial(self._act_with, noise)

    def _act_with(self, noise: Array, policy_input: PolicyInput) -> dict[str, Arrays]:
        if "values" in self.buffer.columns:
            return self.acting.act_and_evaluate(policy_input, noise)
        if self.recurrent.array is None:
            return {"actions": self.acting.act(policy_input, noise)[0]}
        choose = lambda inputs, state: self.acting.act(inputs, noise, state)  # noqa: E731
        return self.recurrent.act(self.collector, policy_input, choose)

    # -- the finished rollout ---------------------------------------------------------------------------

    def collected(self) -> RolloutBatch:
        """Return the rollout's stored policy inputs and actions as tensors, without values."""
        rows = self.buffer.rows()
        rows = {name: column for name, column in rows.items() if name not in (RAW, FOLLOWING, EARNED)}
        rollout: RolloutBatch = self._tensors(rows)
        return rollout

    def finished_rollout(self) -> RolloutBatch:
        """Return the stored rollout with the policy's ``values``, ``advantages`` and ``returns``.

        It has ``log_prob`` too if `uses_old_log_prob`. With `value_normalization` values and returns are
        normalised, with statistics that include these returns, and the critic's last layer is corrected.
        """
        rollout, buffer = self.collected(), self.buffer
        units, state = self.return_normalizer, self.runner.state
        if "values" in buffer.columns:
            values = buffer.columns["values"]
        elif self.uses_old_log_prob or self.recurrent.array is not None:
            rollout |= self._values_and_log_prob(rollout)
            values = buffer.as_steps(rollout["values"].cpu().numpy())
        else:
            values = self.values_of_steps()
            rollout["values"] = self._tensors(buffer.as_rows(values))
        values = self._denormalized(values)
        advantages = self.advantages(values, self.config.gae_lambda)
        rollout["returns"] = self._tensors(buffer.as_rows(advantages + values))
        if units is not None:
            units.update(state, rollout["returns"])
            rollout["returns"] = units.normalize(state, rollout["returns"])
            rollout["values"] = units.normalize(state, self._tensors(buffer.as_rows(values)))
            for name, value in units.metrics(state).items():
                self.record(f"train/{name}", value)
        if self.reward_model is not None:
            advantages = self.reward_model.advantages(advantages)
        rollout["advantages"] = self._tensors(buffer.as_rows(advantages))
        return rollout

    @torch.inference_mode()
    def _values_and_log_prob(self, rollout: RolloutBatch) -> RolloutBatch:
        """Return the policy's values, and where needed the log-probabilities of the actions, of a rollout."""
        parts = []
        for rows in split_rows(rollout, self._rows_at_once):
            parameters, values, _ = self.policy(rows, rows.get("states"))
            parts.append({"values": values})
            if self.uses_old_log_prob:
                parts[-1]["log_prob"] = self.policy.head.log_prob(parameters, rows["actions"])
            if self._uses_old_parameters():
                parts[-1]["parameters"] = parameters
        return cast(RolloutBatch, {name: torch.cat([part[name] for part in parts]) for name in parts[0]})

    def values_of_steps(self) -> Array:
        """Return the critic's outputs (n_steps, n_envs) for all observations."""
        parts = split_rows(self.buffer.rows(), self._rows_at_once)
        return self.buffer.as_steps(
            np.concatenate([self.acting.values(part, part.get("states")) for part in parts])
        )

    def advantages(self, values: Array, gae_lambda: float) -> Array:
        """Return GAE(λ) for values (n_steps, n_envs), in the same shape; the sum of both is the λ-return.

        Values are in units of rewards, as advantages are. A truncated episode goes on as far as the reward
        is concerned: γ·V(final observation) is added to it.
        """
        buffer, gamma = self.buffer, self.config.gamma
        rewards, dones, truncations = buffer.rewards, buffer.dones, buffer.truncations()
        if truncations is not None:
            final: dict[str, Arrays] = {"observations": truncations.final_observations}
            if truncations.states is not None:
                final["states"] = truncations.states
            if truncations.action_masks is not None:
                final["action_masks"] = truncations.action_masks
            parts = split_rows(final, self._rows_at_once)
            outputs = np.concatenate([self.acting.values(part, part.get("states")) for part in parts])
            final_values = self._denormalized(outputs)
            rewards, dones = rewards.copy(), dones.copy()
            rewards[truncations.steps, truncations.envs] += gamma * final_values
            dones[truncations.steps, truncations.envs] = True
        policy_input, state = self.collector.policy_input, self.recurrent.array
        if state is not None:
            policy_input = {**policy_input, "episode_starts": self.collector.episode_starts}
        last_values = self._denormalized(self.acting.values(policy_input, state))
        return generalized_advantages(rewards, values, last_values, dones, gamma, gae_lambda)

    def _denormalized(self, outputs: Array) -> Array:
        """Return the values that outputs of the critic stand for."""
        if self.return_normalizer is None:
            return outputs
        tensor = self.return_normalizer.denormalize(self.runner.state, self._tensors(outputs))
        return tensor.cpu().numpy()

    def _record_explained_variance(self, rollout: RolloutBatch) -> None:
        self.record("train/explained_variance", explained_variance(rollout["values"], rollout["returns"]))

    def _normalizes_advantage(self) -> bool:
        return bool(getattr(self.config, "normalize_advantage", False))

    def gradient_steps_in(self, total_timesteps: int) -> float:
        return total_timesteps / self._batch_size()

    def _batch_size(self) -> int:
        size = self.buffer.n_steps * self.n_envs
        if self._normalizes_advantage() and size < 2:
            raise ZooError("`algo.normalize_advantage` needs rollouts of n_steps × n_envs ≥ 2 steps")
        return size

    def _minibatches(self) -> tuple[int, int]:
        """Return how many minibatches of ``batch_size`` steps a pass over the rollout has, and their rows."""
        buffer = self.buffer
        n_steps: int = self.config.batch_size  # type: ignore[attr-defined]
        batch_size = min(n_steps, buffer.n_rows * buffer.steps_a_row)
        n_rows, rest = divmod(batch_size, buffer.steps_a_row)
        if rest or n_rows == 0:
            raise self._minibatch_error(f"minibatches of `algo.batch_size={batch_size}` steps", "batch_size")
        return math.ceil(buffer.n_rows / n_rows), n_rows

    def _minibatch_error(self, requested: str, option: str) -> ZooError:
        """Return the error for minibatches, set by an option, that a rollout can't be split into."""
        buffer = self.buffer
        parts, others = f"n_steps × n_envs = {buffer.n_rows} steps", "algo.n_steps, n_envs"
        if buffer.chunk_length is not None:
            parts = f"{buffer.n_rows} sequences of {buffer.chunk_length} steps"
            others += ", algo.chunk_length"
        return ZooError(f"{requested} can't be made of {parts}; change {others} or algo.{option}")


def standardized(advantages: Tensor) -> Tensor:
    """Return advantages with mean 0 and deviation 1 over the batches of all ranks."""
    if n_ranks() == 1:
        return (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    exact, n = advantages.double(), advantages.numel() * n_ranks()
    total, squares = (average(torch.stack([exact.sum(), exact.square().sum()])) * n_ranks()).unbind()
    mean = total / n
    variance = (squares - n * mean.square()).clamp(min=0.0) / max(n - 1, 1)
    return (advantages - mean.to(advantages.dtype)) / (variance.sqrt().to(advantages.dtype) + 1e-8)


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """Return the share of the returns' variance that the values explain: 1 − Var(R − V) / Var(R)."""
    variance = returns.var(correction=0)
    if variance == 0:
        return float("nan")
    return float(1 - (returns - values).var(correction=0) / variance)


def chunk_length(n_steps: int, chosen: int | None) -> int:
    """Return the length of the sequences that rollouts of ``n_steps`` are cut into.

    ``chosen`` must divide ``n_steps``, else `ZooError`. None: the longest divisor up to `USUAL_CHUNK`.
    """
    divisors = [length for length in range(1, n_steps + 1) if n_steps % length == 0]
    if chosen in divisors:
        return chosen
    if chosen is not None:
        raise ZooError(
            f"`algo.chunk_length={chosen}` does not divide the rollouts of `algo.n_steps={n_steps}`;"
            f" expected one of {', '.join(map(str, divisors))}"
        )
    longest = max(length for length in divisors if length <= USUAL_CHUNK)
    if longest < USUAL_CHUNK // 4 and longest < n_steps:
        raise ZooError(
            f"for a recurrent policy rollouts of `algo.n_steps={n_steps}` are cut into sequences of at"
            f" most {USUAL_CHUNK} steps, but would give {longest}; take a multiple of {USUAL_CHUNK}, or"
            " set `algo.chunk_length`"
        )
    return longest
