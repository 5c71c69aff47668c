"""Off-policy algorithms: exploration, replay, and the ratio of gradient steps to environment steps."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.arguments import Policy
from zoo.algorithms.categorical import Categorical, CategoricalConfig, distribution_of
from zoo.algorithms.saving import Attributes, RecurrentState
from zoo.algorithms.search_space import NET_ARCHS, choices, ranges, searched
from zoo.buffers.arrays import Array, Arrays
from zoo.buffers.config import ReplayConfig, replay_config
from zoo.buffers.hindsight import EpisodeIndex, Hindsight
from zoo.buffers.prioritized import BYTES_EACH, PrioritizedSampler
from zoo.buffers.replay import ReplayBuffer, keep_or_discard_buffer, refuse_too_large_buffer, replay_bytes
from zoo.config.fields import ScheduleValue, hyperparameter
from zoo.envs.goals import GoalRewards
from zoo.errors import ZooError, ZooWarning
from zoo.optim.optimizers import OPTIMIZERS, Adam, FunctionalModule, Updater, adam_like
from zoo.optim.update_runner import Rates, State, Step, StepResult, Tree, tree_map, tree_row
from zoo.policies.acting import ActingPolicy, make_mirror
from zoo.policies.actor_critic import PolicyInput
from zoo.policies.continuous import DropoutNoise
from zoo.policies.exploration import (
    Acted,
    ActionNoiseConfig,
    Exploration,
    NormalNoise,
    StochasticExploration,
    make_action_noise,
)

FEW_STEPS = (0.2, "n_timesteps")
"""What `learning_starts` is at most, where it is searched."""
NOISES = {"action_noise": choices(type=["normal", "ornstein-uhlenbeck"]) | ranges("even", std=(0.05, 0.8))}

BATCH_BYTES = 64 * 2**20  # bytes of sampled transitions that one call of the update runner may hold


@dataclass
class OffPolicyConfig:
    """Hyperparameters that all off-policy algorithms have; each sets its own defaults."""

    learning_rate: ScheduleValue = hyperparameter(3e-4, "step size of the optimizer", ge=0)
    buffer_size: int = hyperparameter(50_000, "transitions kept for replay", unit="transitions", ge=1)
    learning_starts: int = hyperparameter(
        100, "random steps before the first update", unit="environment steps", ge=0
    )
    batch_size: int = hyperparameter(64, "transitions in a gradient step", unit="transitions", ge=1)
    gamma: float = hyperparameter(0.99, "discount factor", ge=0, le=1)
    tau: float = hyperparameter(0.005, "share of new weights in a target update; 1: a copy", gt=0, le=1)
    train_freq: int | list[Any] | dict[str, Any] = hyperparameter(
        1, "environment steps between updates; [1, episode] counts episodes", ge=1
    )
    gradient_steps: int = hyperparameter(
        1, "gradient steps after every train_freq environment steps; -1: as many as steps were taken", ge=-1
    )
    optimize_memory_usage: bool = hyperparameter(
        False, "store each observation once instead of twice, and each frame of a stack (worth it for images)"
    )


@dataclass
class ContinuousConfig(OffPolicyConfig):
    """Hyperparameters common to those whose actions are numbers and whose targets follow slowly."""

    action_noise: ActionNoiseConfig | dict[str, Any] | None = hyperparameter(
        None,
        "noise added to the actions while learning: {type: normal | ornstein-uhlenbeck, std: 0.1}; with"
        " std_max each episode draws its own deviation",
    )
    random_exploration: float = hyperparameter(
        0.0, "share of steps with a uniformly random action while learning", ge=0, le=1
    )
    actor_learning_rate: ScheduleValue | None = hyperparameter(
        None, "step size of the actor's optimizer; null: learning_rate", ge=0
    )
    optimizer: str = hyperparameter("adam", "optimizer of actor and critics", choices=OPTIMIZERS)
    betas: list[float] = hyperparameter(
        default_factory=lambda: [0.9, 0.999], help="decay rates of the optimizer's two moment estimates"
    )
    weight_decay: float | None = hyperparameter(
        None, "decoupled weight decay of adamw; null: 0.01", ge=0, is_finite=True
    )


@dataclass
class SeveralCriticsConfig(CategoricalConfig, ContinuousConfig):
    """Hyperparameters of continuous off-policy algorithms with several critics."""

    n_critics: int = hyperparameter(
        2,
        "number of critics; targets take the smallest of their values (tqc: the quantiles of all)",
        ge=1,
        le=1_000,
    )
    n_target_critics: int | None = hyperparameter(
        None, "critics that targets use, a random subset for each gradient step; null: all", ge=1
    )
    actor_critics: str | None = hyperparameter(
        None,
        "value that the actor maximises: min or mean of all critics; null: min (td3: first, tqc: mean)",
        choices=("min", "mean"),
    )
    policy_delay: int = hyperparameter(
        1,
        "critic updates per update of the actor and ent_coef (td3: of the actor and all targets)",
        unit="gradient steps",
        ge=1,
    )
    critic_reset_every: int | list[int] | None = hyperparameter(
        None,
        "environment steps between resets of actor, critics and their optimizers, or a list of steps at which"
        " they are reset; the buffer and ent_coef are kept; null: never",
        unit="environment steps",
        ge=1,
    )

    def __post_init__(self) -> None:
        drawn, resets = self.n_target_critics, self.critic_reset_every
        if drawn is not None and drawn > self.n_critics:
            raise ZooError(f"`algo.n_target_critics={drawn}` is more than `algo.n_critics={self.n_critics}`")
        first = min(resets, default=None) if isinstance(resets, list) else resets
        if first is not None and first <= self.learning_starts:
            raise ZooError(
                f"`algo.critic_reset_every={resets}`: expected more than"
                f" `algo.learning_starts={self.learning_starts}`, before which nothing is learned"
            )


class ReplayBatch(TypedDict, total=False):
    """Sampled transitions, (batch_size, …) for a gradient step, (n_steps, batch_size, …) for several.

    ``discounts`` are those of n-step replay, ``weights`` of prioritised replay. The last ones are what an
    algorithm adds: noise, what it computed ahead, and how far each step's target update goes.
    """

    observations: Any
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    next_observations: Any
    action_masks: Tensor
    next_action_masks: Tensor
    discounts: Tensor
    weights: Tensor
    noise: Tensor
    fractions: Tensor
    target_fractions: Tensor
    critic_noise: Tensor
    target_critics: Tensor
    target_values: Tensor
    tau: Tensor


class OffPolicyAlgorithm(Algorithm):
    """Keeps transitions in a replay buffer and learns from random batches of them.

    All counts are environment steps: with several environments a step of all of them is that many, and
    ``gradient_steps`` is scaled with what was collected, so the ratio of updates to data stays the same.
    ``replay`` configures the buffer: prioritised, n-step or hindsight replay.
    """

    config: OffPolicyConfig
    replay_config: ReplayConfig
    buffer: ReplayBuffer
    exploration: Exploration
    recurrent: RecurrentState

    has_replay = True
    search_space: ClassVar[Mapping[str, Any]] = searched(
        Algorithm.search_space,
        ranges("log complement", gamma=(0.9, 0.9999)),
        ranges("powers", train_freq=(1, 256)),
        choices(gradient_steps=[1, -1]),
    )
    targets_of: ClassVar[Mapping[str, str]] = {}
    """Target networks: the name of each target vector in the state, and of the vector that it follows."""
    usual_replay: ClassVar[Mapping[str, Any]] = {}
    """What ``replay`` holds where it is not a whole `ReplayConfig` and says nothing else."""

    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        learning_rate: ScheduleValue | None = None,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if replay is None or isinstance(replay, Mapping):
            replay = {**self.usual_replay, **(replay or {})}
        self.replay_config = replay_config(replay)
        super().__init__(policy, env, learning_rate, **options)

    def _initial_state(self, *updaters: Updater) -> State:
        """Return the networks that these update, and the targets that follow some of them."""
        state = State()
        for updater in updaters:
            state |= updater.initial_state()
        for target, online in self.targets_of.items():
            state[target] = state[online].clone()
        return state

    def _make_exploration(self) -> Exploration:
        raise NotImplementedError

    def _learn_from(self, batches: ReplayBatch, n_steps: int) -> Mapping[str, Tensor]:
        """Take ``n_steps`` gradient steps, each on a row of ``batches``; return each sample's `td_errors`."""
        raise NotImplementedError

    def _buffer_shape(self) -> tuple[int, int]:
        """Return how many transitions the buffer has room for, and of how many environments."""
        return self.config.buffer_size, self.n_envs

    def _make_buffer(self) -> None:
        """Allocate the buffer; keep the one that is there, with all episodes cut, where it fits."""
        config, replay = self.config, self.replay_config
        if config.gradient_steps == 0:
            raise ZooError("`algo.gradient_steps=0` would never learn; expected -1 or at least 1")
        self._train_freq, self._train_unit = _parse_train_freq(config.train_freq)
        specs, relabelling, hindsight = self._specs(), None, replay.hindsight
        if hindsight is not None:
            rewards = GoalRewards(self.collector.envs.env, with_infos=hindsight.copy_info_dict)
            relabelling = Hindsight(rewards, hindsight.goal_selection_strategy, hindsight.n_sampled_goal)
        capacity, n_envs = self._buffer_shape()
        buffer = keep_or_discard_buffer(getattr(self, "buffer", None), n_envs, specs)
        if buffer is None:
            once, n_frames = config.optimize_memory_usage, self.collector.envs.n_frames
            bytes_beside = 0 if replay.prioritized is None else BYTES_EACH
            bytes_beside += 0 if hindsight is None else EpisodeIndex.BYTES_EACH
            needed = replay_bytes(capacity, specs, optimize_memory_usage=once, n_frames=n_frames)
            needed += bytes_beside * capacity
            refuse_too_large_buffer(needed, capacity, once=once)
            buffer = ReplayBuffer(
                *(capacity, n_envs, specs),
                optimize_memory_usage=once,
                n_frames=n_frames,
                sampler=None if replay.prioritized is None else PrioritizedSampler(replay.prioritized),
                n_step=replay.n_step,
                gamma=config.gamma,
                relabelling=relabelling,
                keeps_infos=hindsight is not None and hindsight.copy_info_dict,
            )
            self._first_update = config.learning_starts
        buffer.relabelling = relabelling
        buffer.transforms = () if self.normalizer is None else (self.normalizer.normalize_transitions,)
        self.buffer = buffer
        bytes_each = replay_bytes(1, specs) + self._bytes_ahead()
        self._steps_per_call = max(1, BATCH_BYTES // (bytes_each * config.batch_size))
        self.exploration = self._make_exploration()
        self.recurrent = RecurrentState(self.acting.initial_state(self.n_envs))
        self._collected_since_update = 0

    def _bytes_ahead(self) -> int:
        """Return the bytes that are computed for each transition before the gradient steps."""
        return 0

    def _check_budget(self, n_steps: int) -> None:
        at_once = self.n_envs * self.distributed.size
        # An agent that was loaded without its buffer fills one before it learns again.
        if not len(self.buffer) or not self.num_timesteps:
            self._first_update = self.num_timesteps + self.config.learning_starts
        if self.num_timesteps + -(-n_steps // at_once) * at_once <= self._first_update:
            warnings.warn(
                f"nothing will be learned in {n_steps:,} steps: learning_starts="
                f"{self.config.learning_starts} leaves no update",
                ZooWarning,
                stacklevel=4,
            )

    # -- collecting -------------------------------------------------------------------------------------

    def collect(self) -> None:
        self._progress_before = self.progress
        self.exploration.start()
        steps_before, episodes = self.num_timesteps, 0
        while True:
            transition = self._interact(self._explore, self.buffer.add)
            if len(transition.finished):
                self.exploration.reset(transition.finished)
            steps = self.num_timesteps - steps_before
            if self._train_unit == "episode":
                episodes += self.distributed.total(len(transition.episodes))
            passed = steps if self._train_unit == "step" else episodes
            if passed >= self._train_freq or self.num_timesteps >= self.total_timesteps:
                break
        self._collected = steps
        self._collected_since_update += passed

    def _explore(self, policy_input: PolicyInput) -> dict[str, Arrays]:
        def choose(inputs: PolicyInput, state: Array | None) -> Acted:
            if self.num_timesteps < self.config.learning_starts:
                return self.exploration.warm_up(inputs, self.rng, state)
            return self.exploration.act(inputs, self.rng, self.progress, state)

        return self.recurrent.act(self.collector, policy_input, choose)

    def _reset_envs(self) -> None:
        super()._reset_envs()
        self.exploration.reset()

    def _cut_episodes(self, envs: Sequence[int]) -> None:
        self.buffer.cut(envs)
        self.exploration.reset(np.array(envs, np.int64))

    # -- updates ----------------------------------------------------------------------------------------

    def update(self) -> None:
        """Take the gradient steps that the collected environment steps ask for."""
        if self.num_timesteps <= self._first_update or self.distributed.total(len(self.buffer) == 0):
            self._collected_since_update = 0
            return
        remaining = self._gradient_steps_due()
        while remaining:
            n_steps = min(remaining, self._steps_per_call)
            shape = n_steps, self.config.batch_size
            batches = self.buffer.sample(self.rng, shape, self._progress_before)
            outputs = self._learn_from(self._tensors(batches), n_steps)
            if self.replay_config.prioritized is not None:
                self.buffer.update_priorities(outputs["td_errors"].cpu().numpy())
            remaining -= n_steps

    def _gradient_steps_due(self) -> int:
        periods, self._collected_since_update = divmod(self._collected_since_update, self._train_freq)
        n_steps = self.config.gradient_steps
        return self._collected if n_steps == -1 else periods * n_steps

    def _bootstrapped(self, batch: ReplayBatch, next_values: Tensor) -> Tensor:
        """Return rewards plus discounted ``next_values`` (batch, …), which a terminal state has none of."""
        discounts = batch.get("discounts", self.config.gamma) * (1.0 - batch["terminated"])
        rewards = batch["rewards"]
        if next_values.dim() > 1:  # those of quantiles or atoms
            rewards, discounts = rewards[:, None], discounts[:, None]
        return rewards + discounts * next_values

    def gradient_steps_in(self, total_timesteps: int) -> float:
        steps = max(0, total_timesteps - self.config.learning_starts)
        if self.config.gradient_steps == -1:
            return steps
        per_update = self._train_freq if self._train_unit == "step" else 200 * self._train_freq
        return steps / per_update * self.config.gradient_steps

    def _batch_size(self) -> int:
        return self.config.batch_size

    def copy_to_targets(self) -> None:
        for target, online in self.targets_of.items():
            self.runner.state[target].copy_(self.runner.state[online])

    def _parts(self) -> dict[str, Any]:
        return {
            **super()._parts(),
            **self.recurrent.parts(),
            "buffer": self.buffer,
            "exploration": self.exploration,
            "credit": Attributes(self, ("_collected_since_update", "_first_update")),
        }


class ContinuousAlgorithm(OffPolicyAlgorithm):
    """Has an actor, whose actions are numbers in [−1, 1], and critics that value them."""

    supported_actions: ClassVar[tuple[type[spaces.Space[Any]], ...]] = (spaces.Box,)
    scales_actions = True
    search_space = searched(
        OffPolicyAlgorithm.search_space,
        ranges("log falling", learning_rate=(3e-5, 3e-3)),
        ranges("powers", batch_size=(32, 1024)),
        ranges("log", FEW_STEPS, learning_starts=(100, 20_000)),
        ranges("log", tau=(0.001, 0.1)),
        choices(buffer_size=[50_000, 100_000, 200_000, 300_000, 1_000_000]),
        policy=choices(net_arch={**NET_ARCHS, "pair": [128, 128], "large": [400, 300]}),
    )

    config: ContinuousConfig
    policy: Any
    actor_updater: Updater
    critics_updater: Updater
    _dropout: DropoutNoise | None = None

    def _make_optimizer(self) -> Adam:
        """Return the optimizer of actor and critics. Raises `ZooError` for conflicting settings."""
        return adam_like(self.config.optimizer, self.config.betas, self.config.weight_decay)

    def _make_acting(self) -> ActingPolicy:
        actor = self.policy.actor
        return ActingPolicy(actor, self.device, mirror=make_mirror(actor, self.device, self.n_envs))

    def _critic_noise(self, n_steps: int) -> dict[str, Tensor]:
        """Return rows with the noise of each step's `critic_passes`, where the critics take any."""
        critics = self.policy.critics
        if not getattr(critics, "noise_size", 0):
            return {}
        if self._dropout is None:
            self._dropout = DropoutNoise(critics.dropout)
        shape = (n_steps, N_CRITIC_PASSES, self.config.batch_size, critics.noise_size)
        return {"critic_noise": self._tensors(self._dropout.draw(self.rng, shape))}

    def _bytes_ahead(self) -> int:
        return N_CRITIC_PASSES * 4 * getattr(self.policy.critics, "noise_size", 0)

    def _make_exploration(self) -> Exploration:
        return StochasticExploration(self.acting, self._action_noise(), self.config.random_exploration)

    def _action_noise(self) -> NormalNoise | None:
        return make_action_noise(self.config.action_noise, math.prod(self.action_adapter.spec.shape))


class SeveralCriticsAlgorithm(ContinuousAlgorithm):
    """Has several critics of the same form, of values, or with ``critic_loss=categorical`` of distributions.

    One `_round` is some steps of the critics and one of the actor.
    """

    loss_factor: ClassVar[float] = 1.0
    """Factor of the squared error in the critics' loss."""
    has_projection = True

    config: SeveralCriticsConfig

    @property
    def distribution(self) -> Categorical | None:
        """Distribution whose logits the critics predict; None for plain values."""
        return distribution_of(self.config)

    def _policy_options(self) -> dict[str, Any]:
        distribution = self.distribution
        atoms = {} if distribution is None else {"n_atoms": distribution.n_atoms}
        return {"n_critics": self.config.n_critics, **atoms}

    def _take_rounds(self, samples: Tree, n_steps: int, policy_delay: int) -> dict[str, Tensor]:
        """Take steps of the critics, with one of the actor after each ``policy_delay`` of them."""
        rates, start, outputs = self.rates(self._progress_before), 0, []
        for n_rows, length, moves_actor in split_by_policy_delay(self.n_updates, n_steps, policy_delay):
            step: Step = self._round if moves_actor else self._critic_steps
            outputs.append(self.take_steps(step, rates, _rows(samples, start, n_rows, length)))
            self.n_updates += n_rows * (length - 1)
            start += n_rows * length
        return {name: torch.cat([output[name].flatten(0, 1) for output in outputs]) for name in outputs[0]}

    def _round(self, state: State, rates: Rates, batches: ReplayBatch) -> StepResult:
        """Take a step of the critics on each batch (steps, batch_size, …), then one of the actor."""
        raise NotImplementedError

    def _critic_steps(self, state: State, rates: Rates, batches: ReplayBatch) -> StepResult:
        """Take a step of the critics on each batch (steps, batch_size, …)."""
        losses, means, errors = [], [], []
        for index in range(len(batches["rewards"])):
            batch = tree_row(batches, index)
            critics = self.critics_updater.module(state)
            values, targets = self._values_and_targets(state, critics, batch)
            sums, distances = self._losses_and_errors(values, targets)
            loss = mean_loss(sums, batch.get("weights"))
            state, _ = self.critics_updater.step(state, critics, loss, rates["learning_rate"])
            state = self._move_targets(state, batch)
            losses.append(loss.detach())
            means.append(self._expected(values).mean().detach())
            errors.append(td_errors(batch, distances))
        metrics = {"critic_loss": torch.stack(losses).mean(), "q_value": torch.stack(means).mean()}
        outputs = {name: torch.stack([error[name] for error in errors]) for name in errors[0]}
        return StepResult(state, metrics, outputs)

    def _values_and_targets(
        self, state: State, critics: FunctionalModule, batch: ReplayBatch
    ) -> tuple[Tensor, Tensor]:
        """Return the critics' values (critics, batch, …) of the batch's actions, and their targets."""
        targets = self.targets(state, batch)
        return critics(batch["observations"], batch["actions"], **critic_passes(batch)[1]), targets

    def targets(self, state: State, batch: ReplayBatch) -> Tensor:
        """Return the critics' targets (batch, …)."""
        raise NotImplementedError

    def _losses_and_errors(self, values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the critics' losses, and their errors, by which replay is prioritised, (batch,) each."""
        if self.distribution is not None:
            return self.distribution.losses_and_errors(values, targets)
        errors = values - targets
        return self.loss_factor * errors.square().sum(0), errors.abs().mean(0)

    def _move_targets(self, state: State, batch: ReplayBatch) -> State:
        """Return the state with targets moved after a step of the critics alone."""
        return state

    def _target_draws(self, n_steps: int) -> dict[str, Tensor]:
        """Return rows with the critics (n_target_critics,) of each step's targets, where not all are used."""
        n_critics, n_drawn = self.config.n_critics, self.config.n_target_critics
        if n_drawn is None or n_drawn == n_critics:
            return {}
        orders = self.rng.permuted(np.tile(np.arange(n_critics), (n_steps, 1)), axis=1)
        return {"target_critics": self._tensors(orders[:, :n_drawn])}

    def _expected(self, values: Tensor) -> Tensor:
        return values if self.distribution is None else self.distribution.expected(values)

    def _distribution_targets(self, batch: ReplayBatch, logits: Tensor, cost: Tensor | float) -> Tensor:
        """Return the target distributions (batch, atoms), of next ones' logits (critics, batch, atoms).

        They are those of the critic that expects the least then, whose returns lose ``cost`` (batch, 1).
        """
        assert self.distribution is not None
        returns = self._bootstrapped(batch, self.distribution.atoms(logits)[None] - cost)
        projected = [self.distribution.projected(row, returns) for row in torch.softmax(logits, -1)]
        return self.distribution.smallest(torch.stack(projected))

    def _actor_values(self, values: Tensor) -> Tensor:
        """Return the value (batch,) that the actor maximises."""
        values = self._expected(values)
        return values.mean(0) if self.config.actor_critics == "mean" else values.amin(0)

    def update(self) -> None:
        n_before = self._n_resets(self.num_timesteps - self._collected)
        is_due = self._n_resets(self.num_timesteps) > n_before
        # Neither before the first update nor at the end, when reset networks would not learn.
        if is_due and self._first_update < self.num_timesteps < self.total_timesteps:
            self._reset_networks()
        super().update()

    def _n_resets(self, timesteps: int) -> int:
        every = self.config.critic_reset_every
        if isinstance(every, list):
            return sum(step <= timesteps for step in every)
        return 0 if every is None else timesteps // every

    def _reset_networks(self) -> None:
        """Draw new weights for actor and critics, the same on all ranks, and reset their optimizers."""
        rng = np.random.default_rng((self.seed, self._n_resets(self.num_timesteps)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**31)))
            fresh: Any = self._make_policy()
        self.policy.actor.load_state_dict(fresh.actor.state_dict())
        self.policy.critics.load_state_dict(fresh.critics.state_dict())
        self.copy_to_targets()
        for updater in (self.actor_updater, self.critics_updater):
            self.runner.state.overwrite(updater.initial_slots())

    def _apply_changed(self, changed: Collection[str]) -> None:
        super()._apply_changed(changed)
        if "value_range" in changed and self.distribution is not None:
            raise ZooError("`algo.value_range`: the critics of this agent learned returns of another range")


HINDSIGHT: Mapping[str, Any] = {"hindsight": {}}
"""The ``replay`` of presets with hindsight."""


def with_hindsight(algorithm: type[OffPolicyAlgorithm]) -> dict[str, Any]:
    """Return an algorithm's search space with the dimensions of hindsight replay."""
    base, widths = algorithm.search_space, {"wide": [256], "triple": 3 * [256], "deep": 3 * [512]}
    net_archs = {**base["policy"]["net_arch"]["choices"], "pair": [128, 128], **widths}
    goals = choices(goal_selection_strategy=["future", "final", "episode"])
    return searched(
        base,
        ranges("powers", batch_size=(base["algo"]["batch_size"]["low"], 2048)),
        policy=choices(net_arch=net_archs),
        replay={"hindsight": goals | ranges("even", n_sampled_goal=(1, 8))},
    )


N_CRITIC_PASSES = 3
LONGEST_ROW = 4
"""Steps of the critics that one compiled graph holds."""


def critic_passes(batch: ReplayBatch) -> list[dict[str, Tensor]]:
    """Return the noise arguments of the critics' passes: for targets, critic loss and actor loss."""
    noise = batch.get("critic_noise")
    return [{}] * N_CRITIC_PASSES if noise is None else [{"noise": part} for part in noise.unbind(0)]


def chosen_critics(values: Tensor, batch: ReplayBatch) -> Tensor:
    """Return the values (critics, …) of the critics that were drawn for the targets, else of all."""
    drawn = batch.get("target_critics")
    return values if drawn is None else values[drawn]


def _rows(samples: Tree, start: int, n_rows: int, length: int) -> Tree:
    """Return samples (steps, …) from ``start`` on as (n_rows, length, …)."""
    end = start + n_rows * length
    if n_rows == 1:  # one row needs no unflatten, which is faster
        return tree_map(lambda tensor: tensor[None, start:end], samples)
    return tree_map(lambda tensor: tensor[start:end].unflatten(0, (n_rows, length)), samples)


def split_by_policy_delay(n_before: int, n_steps: int, delay: int) -> list[tuple[int, int, bool]]:
    """Return how ``n_steps`` steps of the critics divide after ``n_before`` of them: rows, and their length.

    The third value is whether the actor takes a step after each row. First comes the rest of a round that an
    earlier update began, then whole rounds of ``delay`` steps, then the beginning of another. A long round is
    not one row, which is one graph: its last step is a row of its own.
    """
    missing = -n_before % delay
    head = min(missing, n_steps)
    n_rounds, rest = divmod(n_steps - head, delay)
    if delay <= LONGEST_ROW:
        parts = [(1, head, head == missing), (n_rounds, delay, True), (1, rest, False)]
    else:
        ends = head == missing and head > 0
        parts = [(head - ends, 1, False), (int(ends), 1, True)]
        parts += n_rounds * [(delay - 1, 1, False), (1, 1, True)] + [(rest, 1, False)]
    return [(n_rows, length, moves) for n_rows, length, moves in parts if n_rows * length > 0]


def mean_loss(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean over samples (batch,), each weighted by its importance where a sampler gives one."""
    return losses.mean() if weights is None else (weights * losses).mean()


def td_errors(batch: ReplayBatch, errors: Tensor) -> dict[str, Tensor]:
    """Return |errors| (batch,) as outputs of a step, where a sampler that prefers large ones wants them."""
    return {} if batch.get("weights") is None else {"td_errors": errors.detach().abs()}


def _parse_train_freq(value: Any) -> tuple[int, str]:
    """Read ``4``, ``[1, episode]`` or ``{frequency: 1, unit: episode}``."""
    if isinstance(value, Mapping):
        value = [value.get("frequency"), value.get("unit", "step")]
    count, unit = value if isinstance(value, Sequence) and len(value) == 2 else (value, "step")
    if type(count) is not int or count < 1 or unit not in ("step", "episode"):
        raise ZooError(
            f"`algo.train_freq={value}`: expected a number of environment steps, or one of episodes, such as"
            " [1, episode]"
        )
    return count, unit
