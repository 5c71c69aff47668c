"""Generative adversarial imitation learning (Ho and Ermon 2016, https://arxiv.org/abs/1606.03476).

A discriminator learns to tell what an expert did from what the policy does, and the policy, the *generator*,
learns to be taken for the expert: in the place of the environment's reward it gets one that grows with how
expert-like the discriminator finds a pair of observation and action. The generator is any algorithm that
learns from its own rollouts, with that algorithm's hyperparameters.

With ``absorbing_states`` (Kostrikov et al. 2019, https://arxiv.org/abs/1809.02925) an episode that ends by
itself goes on for ever in one more state, whose reward is learned as all others are. Without, an end is worth
0: much where rewards are negative, little where they are positive, whatever the expert did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import nn
from typing_extensions import Self

from zoo.agents.agent_folder import AgentFiles
from zoo.algorithms.a2c import A2CConfig
from zoo.algorithms.acktr import ACKTRConfig
from zoo.algorithms.arguments import Policy
from zoo.algorithms.collector import PolicyInput
from zoo.algorithms.on_policy import ANY_ACTIONS, OnPolicyAlgorithm
from zoo.algorithms.ppo import PPO1Config, PPO2Config
from zoo.algorithms.registry import ALGORITHMS, algorithm_class
from zoo.algorithms.state_parts import Attributes
from zoo.algorithms.trpo import TRPOConfig
from zoo.buffers.arrays import Arrays, observation_spec, transform
from zoo.config.fields import TaggedUnion, hyperparameter, with_defaults
from zoo.errors import ZooError, nearest
from zoo.imitation.demonstrations import chosen_episodes
from zoo.imitation.discriminator import Discriminator, DiscriminatorConfig, by_path
from zoo.imitation.expert_data import ExpertData
from zoo.optim.runtime import torch_settings
from zoo.optim.state import State
from zoo.optim.update_runner import UpdateRunner

Array = np.ndarray

RAW = "raw_observations"
"""The column of a rollout with what the discriminator sees, where the policy sees it normalised."""


@dataclass
class GAILConfig(DiscriminatorConfig, TaggedUnion):
    """Hyperparameters of GAIL, beside those of its generator."""

    generator: str = hyperparameter(
        "trpo",
        "the algorithm that learns from the imitation reward; its hyperparameters stand beside these",
        choices=("trpo", "ppo2", "ppo1", "a2c", "acktr"),
    )
    g_step: int = hyperparameter(
        3, "updates of the generator, each on a new rollout, between those of the discriminator", ge=1
    )

    @classmethod
    def variant(cls, values: Mapping[str, Any], where: str) -> type[Any]:
        """Return the config of the generator that ``values`` name, TRPO's if they name none."""
        name = values.get("generator", cls.generator)
        if name in GENERATORS:
            _refuse_options_of_others(values, GENERATORS[name], where)
            return GENERATORS[name]
        known = ", ".join(GENERATORS)
        raise ZooError(
            f"`{where}.generator={name}`: a generator learns from its own rollouts; expected one of {known}"
            f"{nearest(str(name), GENERATORS) if name not in ALGORITHMS else ''}"
        )


@dataclass
@with_defaults(generator="trpo")
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


GENERATORS: dict[str, type[Any]] = {
    "trpo": GAILOnTRPOConfig,
    "ppo2": GAILOnPPO2Config,
    "ppo1": GAILOnPPO1Config,
    "a2c": GAILOnA2CConfig,
    "acktr": GAILOnACKTRConfig,
}
"""The algorithms that can be the generator, and GAIL's config with each."""


class GAIL(OnPolicyAlgorithm):
    """Imitates the expert of ``dataset``: `ExpertData`, or the path of a file that `read_expert` reads.

    ``generator`` names the algorithm that learns, "trpo" unless another is given; hyperparameters are the
    discriminator's and that algorithm's. Without a dataset it can act, not learn.
    """

    # Kept apart from the attributes, which the generator has as well: see `_make_policy`.
    __slots__ = ("generator",)

    name = "gail"
    config_class: ClassVar[type[Any]] = GAILOnTRPOConfig
    supported_actions = ANY_ACTIONS
    learns_from_experts = True

    config: Any
    generator: OnPolicyAlgorithm

    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        dataset: ExpertData | str | Path | None = None,
        **options: Any,
    ) -> None:
        self.discriminator: Discriminator | None = None
        self.n_rollouts = 0
        self.n_absorbed = 0  # steps of the last rollout's episodes in the state after their end
        super().__init__(policy, env, **options)
        if self.config.absorbing_states and self.config.gamma == 1:
            raise ZooError("algo.absorbing_states=true needs algo.gamma < 1: its rewards have no end")
        if dataset is not None:
            self.set_expert(dataset)

    @classmethod
    def from_files(cls, files: AgentFiles, env: Any = None, *, dataset: Any = None, **options: Any) -> Self:
        """Rebuild an agent from what `read_agent` returned; with a ``dataset`` it can go on learning."""
        agent = super().from_files(files, env, **options)
        if dataset is not None:
            agent.set_expert(dataset)
        return agent

    @classmethod
    def check_workers(cls, config: Any, n_workers: int) -> None:
        algorithm_class(config.generator).check_workers(config, n_workers)

    # -- the generator ----------------------------------------------------------------------------------

    def _make_policy(self) -> nn.Module:
        """Make the generator, and return its policy.

        It is an algorithm of its own class whose attributes are this one's: one policy, one rollout, one
        count of steps. So it learns by its own update from what is collected, and rewarded, here.
        """
        generator_class = algorithm_class(self.config.generator)
        self.generator = object.__new__(generator_class)
        object.__setattr__(self.generator, "__dict__", vars(self))
        self.generator._check_action_space()
        return self.generator._make_policy()

    def _make_state(self) -> State:
        return self.generator._make_state()

    def _batch_size(self) -> int:
        return self.generator._batch_size()

    def gradient_steps_in(self, total_timesteps: int) -> float:
        own = total_timesteps / (self.buffer.n_steps * self.n_envs * self.config.g_step) * self.config.d_step
        return self.generator.gradient_steps_in(total_timesteps) + own

    # -- the expert -------------------------------------------------------------------------------------

    def set_expert(self, dataset: ExpertData | str | Path) -> None:
        """Imitate this expert from now on, with a new discriminator.

        Raises `ZooError` for data of other spaces, and where no episode is good enough.
        """
        data = chosen_episodes(dataset, self, self.config)
        with self.generators.torch_of_this_run(), torch_settings(threads=1):
            self.discriminator = Discriminator(self.config, data, self)
        before = {name: each for name, each in self.runner.state.items() if "discriminator" not in name}
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

    def _specs(self) -> dict[str, Any]:
        raw = {} if self.normalizer is None else {RAW: observation_spec(self.observation_space)}
        return {**super()._specs(), **raw}

    def _make_buffer(self) -> None:
        super()._make_buffer()
        self.episode_sums = EpisodeSums(self.n_envs)

    def collect(self) -> None:
        self._with_expert()
        super().collect()

    def _act_with(self, noise: Array, policy_input: PolicyInput) -> dict[str, Arrays]:
        acted = super()._act_with(noise, policy_input)
        return acted if self.normalizer is None else {**acted, RAW: self.collector.raw_observations}

    def _cut_episodes(self, envs: Sequence[int]) -> None:
        super()._cut_episodes(envs)
        self.episode_sums.cut(list(envs))

    # -- learning ---------------------------------------------------------------------------------------

    def update(self) -> None:
        """Let the generator learn from the rollout with imitation rewards; train the discriminator if due."""
        columns = self.buffer.columns
        self.relabel_rewards()
        raw = columns.pop(RAW, None)  # which the generator does not learn from
        self.generator.update()
        if raw is not None:
            columns[RAW] = raw
        self.n_rollouts += 1
        if self.n_rollouts % self.config.g_step == 0:
            self._train_discriminator()

    def relabel_rewards(self) -> None:
        """Put the rewards of imitation in the place of the environment's."""
        buffer, discriminator = self.buffer, self._with_expert()
        pairs = self._policy_pairs()
        rewards = discriminator.rewards(pairs["observations"], pairs["actions"]).reshape(buffer.rewards.shape)
        rewards[~buffer.valid] = 0.0
        buffer.rewards[:] = rewards
        self.record("rollout/imitation_reward", float(rewards[buffer.valid].mean()))
        ended = buffer.dones & buffer.valid
        sums, lengths = self.episode_sums.add(rewards, buffer.valid, ended)
        if ended.any():
            self.record("rollout/ep_imitation_rew_mean", float(sums[ended].mean()))
        if self.config.absorbing_states:
            gamma, terminated = self.config.gamma, self._terminated()
            buffer.rewards[terminated] += gamma / (1.0 - gamma) * discriminator.absorbing_reward()
            self.n_absorbed = discriminator.order.absorbed(lengths[terminated])

    def _terminated(self) -> Array:
        """Return which steps (n_steps, n_envs) ended their episode without a time limit."""
        ended = self.buffer.dones & self.buffer.valid
        truncations = self.buffer.truncations()
        if truncations is not None:
            ended[truncations.steps, truncations.envs] = False
        return ended

    def _policy_pairs(self) -> dict[str, Arrays]:
        """Return raw observations and actions as the environment takes them, (n_steps × n_envs, …)."""
        columns = self.buffer.columns

        def flat(column: Arrays) -> Arrays:
            return transform(lambda array: array.reshape(-1, *array.shape[2:]), column)

        actions = self.action_adapter.to_env(flat(columns["actions"]))
        observations = columns["observations" if self.normalizer is None else RAW]
        return {"observations": flat(observations), "actions": by_path(self.action_space, actions)}

    def _train_discriminator(self) -> None:
        """Train it on the last rollout, and as much of the expert."""
        discriminator, shape = self._with_expert(), (self.config.d_step, self._pairs())
        pairs, valid = self._policy_pairs(), self.buffer.valid.reshape(-1)
        if not valid.all():
            pairs = transform(lambda array: array[valid], pairs)
        batches = discriminator.minibatches(pairs, self.n_absorbed, shape, self.rng, self.distributed.rows)
        if discriminator.spectral is not None:
            discriminator.spectral.update_directions()
        learning_rate = self.rates(self._progress_before)["d_learning_rate"]
        self._take_steps(discriminator.step, discriminator.shared(learning_rate), batches)

    def _pairs(self) -> int:
        """Return how many pairs of the policy a step of the discriminator sees."""
        size = self.buffer.n_steps * self.n_envs
        return self.config.d_batch_size or max(1, size // int(self.config.d_step))

    # -- exact resume -----------------------------------------------------------------------------------

    def _parts(self) -> dict[str, Any]:
        own = {"n_rollouts": Attributes(self, ("n_rollouts",)), "under_way": self.episode_sums}
        discriminator = {} if self.discriminator is None else {"discriminator": self.discriminator}
        return {**super()._parts(), **own, **discriminator}


class EpisodeSums:
    """Imitation rewards and length so far of the running episode of each environment, (n_envs,)."""

    def __init__(self, n_envs: int) -> None:
        self.rewards = np.zeros(n_envs)
        self.lengths = np.zeros(n_envs, np.int64)

    def add(self, rewards: Array, valid: Array, ended: Array) -> tuple[Array, Array]:
        """Add steps (n_steps, n_envs); return the sums of rewards and the lengths at each, in that shape."""
        sums, lengths = np.zeros(rewards.shape), np.zeros(rewards.shape, np.int64)
        for step, over in enumerate(ended):
            self.rewards += rewards[step]
            self.lengths += valid[step]
            sums[step], lengths[step] = self.rewards, self.lengths
            if over.any():
                self.cut(over)
        return sums, lengths

    def cut(self, envs: Any) -> None:
        """Begin new episodes in these environments."""
        self.rewards[envs], self.lengths[envs] = 0.0, 0

    def state(self) -> dict[str, Any]:
        """Return both, for `load_state`."""
        return {"rewards": self.rewards.copy(), "lengths": self.lengths.copy()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to there."""
        self.rewards, self.lengths = np.array(state["rewards"]), np.array(state["lengths"])


def _refuse_options_of_others(values: Mapping[str, Any], config_class: type[Any], where: str) -> None:
    """Raise `ZooError` for a hyperparameter that only other generators have."""
    foreign = [key for key in values if not hasattr(config_class, key)]
    for key in foreign:
        owners = [name for name in GENERATORS if hasattr(algorithm_class(name).config_class, key)]
        if owners:
            raise ZooError(
                f"unknown key `{where}.{key}`: it belongs to {' and '.join(owners)}, but the generator is"
                f" {config_class.generator}"
            )
