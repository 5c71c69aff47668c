"""Generative adversarial imitation learning (Ho and Ermon 2016, https://arxiv.org/abs/1606.03476).

A discriminator learns to tell what an expert did from what the policy does, and the policy, the *generator*,
learns to be taken for the expert: in the place of the environment's reward it gets one that grows with how
expert-like the discriminator finds a pair of observation and action. The generator is any algorithm that
learns from its own rollouts: each class of GAIL here derives from one of them, puts other rewards into its
rollouts, and leaves all else to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from zoo.algorithms.a2c import A2C, A2CConfig
from zoo.algorithms.acktr import ACKTR, ACKTRConfig
from zoo.algorithms.arguments import Policy
from zoo.algorithms.on_policy import OnPolicyAlgorithm
from zoo.algorithms.ppo import PPO1, PPO2, PPO1Config, PPO2Config
from zoo.algorithms.saving import Attributes
from zoo.algorithms.trpo import TRPO, TRPOConfig
from zoo.buffers.arrays import Arrays, merge_leading, observation_spec
from zoo.config.fields import hyperparameter, with_defaults
from zoo.errors import ZooError
from zoo.imitation.demonstrations import chosen_episodes
from zoo.imitation.discriminator import Discriminator, DiscriminatorConfig, by_path
from zoo.imitation.expert_data import ExpertData
from zoo.optim.runtime import torch_settings
from zoo.optim.update_runner import State, UpdateRunner
from zoo.policies.actor_critic import PolicyInput

Array = np.ndarray

RAW = "raw_observations"
"""The column of a rollout with what the discriminator sees, where the policy sees it normalised."""


GENERATORS = ("trpo", "ppo2", "ppo1", "a2c", "acktr")  # the algorithms that can be the generator


@dataclass
class GAILConfig(DiscriminatorConfig):
    """Hyperparameters of GAIL, in addition to those of its generator."""

    generator: str = hyperparameter(
        "trpo",
        "the algorithm that learns from the imitation reward; its hyperparameters stand beside these",
        choices=GENERATORS,
    )
    g_step: int = hyperparameter(
        3, "updates of the generator, each on a new rollout, between those of the discriminator", ge=1
    )

    @classmethod
    def variant(cls, values: Mapping[str, Any], where: str) -> type[Any]:
        """Return the config of the generator that ``values`` name, TRPO's if they name none."""
        name = values.get("generator", cls.generator)
        if name in CLASSES:
            return CLASSES[name].config_class
        raise ZooError(
            f"`{where}.generator={name}`: a generator learns from its own rollouts; expected one of"
            f" {', '.join(GENERATORS)}"
        )


@dataclass
class GAILOnTRPOConfig(TRPOConfig, GAILConfig):
    """Hyperparameters of GAIL and TRPO."""


@dataclass
@with_defaults(generator="ppo2")
class GAILOnPPO2Config(PPO2Config, GAILConfig):
    """Hyperparameters of GAIL and PPO2."""


@dataclass
@with_defaults(generator="ppo1")
class GAILOnPPO1Config(PPO1Config, GAILConfig):
    """Hyperparameters of GAIL and PPO1."""


@dataclass
@with_defaults(generator="a2c")
class GAILOnA2CConfig(A2CConfig, GAILConfig):
    """Hyperparameters of GAIL and A2C."""


@dataclass
@with_defaults(generator="acktr")
class GAILOnACKTRConfig(ACKTRConfig, GAILConfig):
    """Hyperparameters of GAIL and ACKTR."""


class GAIL(OnPolicyAlgorithm):
    """Imitates the expert of ``dataset``: `ExpertData`, or the path of a file that `read_expert` reads.

    ``generator`` names the algorithm that learns, "trpo" unless another is given: the model is of the class
    that joins the two. Hyperparameters are the discriminator's and that algorithm's. Without a dataset it can
    act, not learn.
    """

    name = "gail"
    config_class: ClassVar[type[Any]] = GAILOnTRPOConfig
    learns_from_experts = True

    config: Any
    imitation_returns: EpisodeSums

    def __new__(cls, *args: Any, config: Any = None, **options: Any) -> GAIL:
        generator = options.get("generator", "trpo") if config is None else config.generator
        return object.__new__(CLASSES.get(generator, cls))  # of no class that is known: see `GAILConfig`

    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        dataset: ExpertData | str | Path | None = None,
        **options: Any,
    ) -> None:
        self.discriminator: Discriminator | None = None
        self.n_rollouts = 0
        super().__init__(policy, env, **options)
        if dataset is not None:
            self.set_expert(dataset)

    def gradient_steps_in(self, total_timesteps: int) -> float:
        own = total_timesteps / (self.buffer.n_steps * self.n_envs * self.config.g_step) * self.config.d_step
        return super().gradient_steps_in(total_timesteps) + own

    # -- the expert -------------------------------------------------------------------------------------

    def set_expert(self, dataset: ExpertData | str | Path) -> None:
        """Imitate this expert from now on, with a new discriminator.

        Raises `ZooError` for data of other spaces, and where no episode is good enough.
        """
        data = chosen_episodes(dataset, self, self.config)
        with self.generators.torch_of_this_run(), torch_settings(threads=1):
            self.discriminator = Discriminator(self.config, data, self)
        before = {name: tensor for name, tensor in self.runner.state.items() if "discriminator" not in name}
        state = State({**before, **self.discriminator.updater.initial_state()})
        self.runner = UpdateRunner(state, self.runtime)

    def imitation_rewards(self, observations: Arrays, actions: Any) -> Array:
        """Return the rewards (n,) of raw observations (n, …) and actions as the environment takes them."""
        return self._with_expert().rewards(observations, by_path(self.action_space, actions))

    def _with_expert(self) -> Discriminator:
        """Return the discriminator. Raises `ZooError` where there is no expert to learn from."""
        if self.discriminator is None:
            raise ZooError("gail learns from expert data: dataset=PATH (zoo expert agent=… records them)")
        return self.discriminator

    # -- collecting -------------------------------------------------------------------------------------

    def _specs(self, *, normalized: bool = False) -> dict[str, Any]:
        raw = {} if self.normalizer is None else {RAW: observation_spec(self.observation_space)}
        return {**super()._specs(normalized=normalized), **raw}

    def _make_buffer(self) -> None:
        super()._make_buffer()
        self.imitation_returns = EpisodeSums(self.n_envs)

    def collect(self) -> None:
        self._with_expert()
        super().collect()

    def _act_with(self, noise: Array, policy_input: PolicyInput) -> dict[str, Arrays]:
        acted = super()._act_with(noise, policy_input)
        return acted if self.normalizer is None else {**acted, RAW: self.collector.raw_observations}

    def _cut_episodes(self, envs: Sequence[int]) -> None:
        super()._cut_episodes(envs)
        self.imitation_returns.rewards[list(envs)] = 0.0

    # -- learning ---------------------------------------------------------------------------------------

    def update(self) -> None:
        """Let the generator learn from the rollout with imitation rewards; train the discriminator if due."""
        columns = self.buffer.columns
        self.relabel_rewards()
        raw = columns.pop(RAW, None)  # which the generator does not learn from
        super().update()
        if raw is not None:
            columns[RAW] = raw
        self.n_rollouts += 1
        if self.n_rollouts % self.config.g_step == 0:
            self._train_discriminator()

    def relabel_rewards(self) -> None:
        """Replace the environment's rewards by imitation rewards."""
        buffer = self.buffer
        rewards = self._with_expert().rewards(**self._policy_pairs()).reshape(buffer.rewards.shape)
        buffer.rewards[:] = rewards
        self.record("rollout/imitation_reward", float(rewards.mean()))
        returns = self.imitation_returns.add(rewards, buffer.dones)
        if len(returns):
            self.record("rollout/ep_imitation_rew_mean", float(returns.mean()))

    def _policy_pairs(self) -> dict[str, Arrays]:
        """Return raw observations and actions as the environment takes them, (n_steps × n_envs, …)."""
        columns = self.buffer.columns
        actions = self.action_adapter.to_env(merge_leading(columns["actions"]))
        observations = columns["observations" if self.normalizer is None else RAW]
        return {"observations": merge_leading(observations), "actions": by_path(self.action_space, actions)}

    def _train_discriminator(self) -> None:
        """Train it on the last rollout, and as much of the expert."""
        discriminator, config, pairs = self._with_expert(), self.config, self._policy_pairs()
        batch_size = config.d_batch_size or max(1, self.buffer.n_steps * self.n_envs // config.d_step)
        batches = discriminator.minibatches(
            pairs, (config.d_step, batch_size), self.rng, self.distributed.rows
        )
        if discriminator.spectral is not None:
            discriminator.spectral.update_directions()
        learning_rate = self.rates(self._progress_before)["d_learning_rate"]
        self._take_steps(discriminator.step, discriminator.shared(learning_rate), batches)

    # -- exact resume -----------------------------------------------------------------------------------

    def _parts(self) -> dict[str, Any]:
        sums = Attributes(self.imitation_returns, ("rewards",))
        parts = {"n_rollouts": Attributes(self, ("n_rollouts",)), "under_way": sums}
        discriminator = {} if self.discriminator is None else {"discriminator": self.discriminator}
        return {**super()._parts(), **parts, **discriminator}


class GAILOnTRPO(GAIL, TRPO):
    config_class = GAILOnTRPOConfig  # type: ignore[assignment]


class GAILOnPPO2(GAIL, PPO2):
    config_class = GAILOnPPO2Config


class GAILOnPPO1(GAIL, PPO1):
    config_class = GAILOnPPO1Config  # type: ignore[assignment]


class GAILOnA2C(GAIL, A2C):
    config_class = GAILOnA2CConfig  # type: ignore[assignment]


class GAILOnACKTR(GAIL, ACKTR):
    config_class = GAILOnACKTRConfig  # type: ignore[assignment]


CLASSES: dict[str, type[GAIL]] = dict(
    zip(GENERATORS, (GAILOnTRPO, GAILOnPPO2, GAILOnPPO1, GAILOnA2C, GAILOnACKTR), strict=True)
)
"""GAIL with each generator."""


class EpisodeSums:
    """Sums of rewards over the episode that is under way in each environment, ``rewards`` (n_envs,)."""

    def __init__(self, n_envs: int) -> None:
        self.rewards = np.zeros(n_envs)

    def add(self, rewards: Array, ended: Array) -> Array:
        """Add steps (n_steps, n_envs); return the sums of the episodes that ended, step by step."""
        finished = []
        for of_step, over in zip(rewards, ended, strict=True):
            self.rewards += of_step
            finished.append(self.rewards[over])
            self.rewards[over] = 0.0
        return np.concatenate(finished)
