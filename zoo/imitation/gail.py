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

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import Self

from zoo.agents.agent_folder import AgentFiles
from zoo.algorithms.collector import PolicyInput
from zoo.algorithms.on_policy import ANY_ACTIONS, OnPolicyAlgorithm
from zoo.algorithms.registry import ALGORITHMS, algorithm_class
from zoo.algorithms.state_parts import Attributes
from zoo.buffers.arrays import Arrays, observation_spec, transform
from zoo.config.fields import TaggedUnion, hyperparameter, with_defaults
from zoo.errors import ZooError, nearest
from zoo.imitation.demonstrations import chosen_episodes
from zoo.imitation.discriminator import Discriminator, DiscriminatorConfig, by_path
from zoo.imitation.expert_data import ExpertData
from zoo.optim.runtime import torch_settings
from zoo.optim.state import State
from zoo.optim.update_runner import UpdateRunner
from zoo.policies.config import PolicyConfig

Array = np.ndarray

GENERATORS = ("trpo", "ppo2", "ppo1", "a2c", "acktr")

RAW = "raw_observations"
"""The column of a rollout with what the discriminator sees, where the policy sees it normalised."""


@dataclass
class GAILConfig(DiscriminatorConfig, TaggedUnion):
    """Hyperparameters of GAIL, beside those of its generator."""

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
        name = values.get("generator", cls.generator)
        if name in GENERATORS:
            found: type[Any] = generated_by(name).config_class
            _refuse_anothers(values, found, where)
            return found
        known = ", ".join(GENERATORS)
        raise ZooError(
            f"`{where}.generator={name}`: a generator learns from its own rollouts; expected one of {known}"
            f"{nearest(str(name), GENERATORS) if name not in ALGORITHMS else ''}"
        )


class GAIL(OnPolicyAlgorithm[Any]):
    """Imitates the expert of ``dataset``: `ExpertData`, or the path of a file that `read_expert` reads.

    ``generator`` names the algorithm that learns, "trpo" unless another is given; hyperparameters are the
    discriminator's and that algorithm's. Without a dataset it can act, not learn.
    """

    name = "gail"
    supported_actions = ANY_ACTIONS
    learns_from_experts = True
    generator: ClassVar[type[OnPolicyAlgorithm[Any]]]

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        if cls is not GAIL:
            return object.__new__(cls)
        config = options.get("config")
        found = GAILConfig.variant(options if config is None else vars(config), cls.name)
        return object.__new__(generated_by(found.generator))  # type: ignore[return-value]

    def __init__(
        self,
        policy: str | PolicyConfig | Mapping[str, Any] = "MlpPolicy",
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
        generated_by(config.generator).generator.check_workers(config, n_workers)

    def set_expert(self, dataset: ExpertData | str | Path) -> None:
        """Imitate this expert from now on, judged by a new discriminator.

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
        return self._judge().rewards(observations, by_path(self.action_space, actions))

    def _judge(self) -> Discriminator:
        if self.discriminator is None:
            raise ZooError("gail learns from expert data: dataset=PATH (zoo expert agent=… records them)")
        return self.discriminator

    # -- collecting -------------------------------------------------------------------------------------

    def _specs(self) -> dict[str, Any]:
        raw = {} if self.normalizer is None else {RAW: observation_spec(self.observation_space)}
        return {**super()._specs(), **raw}

    def _make_buffer(self) -> None:
        super()._make_buffer()
        self.under_way = EpisodesUnderWay(self.n_envs)

    def collect(self) -> None:
        self._judge()
        super().collect()

    def _act_with(self, noise: Array, seen: PolicyInput) -> dict[str, Arrays]:
        acted = super()._act_with(noise, seen)
        return acted if self.normalizer is None else {**acted, RAW: self.collector.raw_observations}

    def _cut_episodes(self, envs: Sequence[int]) -> None:
        super()._cut_episodes(envs)
        self.under_way.cut(list(envs))

    # -- learning ---------------------------------------------------------------------------------------

    def finished_rollout(self) -> dict[str, Any]:
        """Return the rollout with the rewards of imitation; see `OnPolicyAlgorithm.finished_rollout`."""
        self._reward_imitation()
        rollout = super().finished_rollout()
        rollout.pop(RAW, None)
        return rollout

    def update(self) -> None:
        super().update()  # type: ignore[safe-super]  # the generator's
        self.n_rollouts += 1
        if self.n_rollouts % self.config.g_step == 0:
            self._train_discriminator()

    def _reward_imitation(self) -> None:
        """Put the rewards of imitation in the place of the environment's."""
        buffer, discriminator = self.buffer, self._judge()
        steps = self._steps_of_policy()
        rewards = discriminator.rewards(steps["observations"], steps["actions"]).reshape(buffer.rewards.shape)
        rewards[~buffer.valid] = 0.0
        buffer.rewards[:] = rewards
        self.record("rollout/imitation_reward", float(rewards[buffer.valid].mean()))
        ended = buffer.ended & buffer.valid
        sums, lengths = self.under_way.add(rewards, buffer.valid, ended)
        if ended.any():
            self.record("rollout/ep_imitation_rew_mean", float(sums[ended].mean()))
        if self.config.absorbing_states:
            gamma, by_itself = self.config.gamma, self._ended_by_itself()
            buffer.rewards[by_itself] += gamma / (1.0 - gamma) * discriminator.absorbing_reward()
            self.n_absorbed = discriminator.order.absorbed(lengths[by_itself])

    def _ended_by_itself(self) -> Array:
        """Return which steps (n_steps, n_envs) ended their episode without a time limit."""
        ended = self.buffer.ended & self.buffer.valid
        truncations = self.buffer.truncations()
        if truncations is not None:
            ended[truncations.steps, truncations.envs] = False
        return ended

    def _steps_of_policy(self) -> dict[str, Arrays]:
        """Return what the environments showed and were given, (n_steps × n_envs, …)."""
        columns = self.buffer.columns

        def flat(column: Arrays) -> Arrays:
            return transform(lambda array: array.reshape(-1, *array.shape[2:]), column)

        actions = self.action_adapter.to_env(flat(columns["actions"]))
        seen = columns["observations" if self.normalizer is None else RAW]
        return {"observations": flat(seen), "actions": by_path(self.action_space, actions)}

    def _train_discriminator(self) -> None:
        """Show it the last rollout, and as much of the expert."""
        discriminator, shape = self._judge(), (self.config.d_step, self._pairs())
        steps, real = self._steps_of_policy(), self.buffer.valid.reshape(-1)
        if not real.all():
            steps = transform(lambda array: array[real], steps)
        batches = discriminator.minibatches(steps, self.n_absorbed, shape, self.rng, self.distributed.rows)
        if discriminator.spectral is not None:
            discriminator.spectral.follow()
        learning_rate = self.rates(self._progress_before)["d_learning_rate"]
        self._take_steps(discriminator.step, discriminator.shared(learning_rate), batches)

    def _pairs(self) -> int:
        """Return how many pairs of the policy a step of the discriminator sees."""
        size = self.buffer.n_steps * self.n_envs
        return self.config.d_batch_size or max(1, size // int(self.config.d_step))

    def gradient_steps_in(self, total_timesteps: int) -> float:
        own = total_timesteps / (self.buffer.n_steps * self.n_envs * self.config.g_step) * self.config.d_step
        return super().gradient_steps_in(total_timesteps) + own  # type: ignore[safe-super]

    # -- exact resume -----------------------------------------------------------------------------------

    def _parts(self) -> dict[str, Any]:
        own = {"n_rollouts": Attributes(self, ("n_rollouts",)), "under_way": self.under_way}
        judge = {} if self.discriminator is None else {"discriminator": self.discriminator}
        return {**super()._parts(), **own, **judge}


class EpisodesUnderWay:
    """How long each episode under way is, and what it has got for imitating so far, (n_envs,)."""

    def __init__(self, n_envs: int) -> None:
        self.rewards = np.zeros(n_envs)
        self.lengths = np.zeros(n_envs, np.int64)

    def add(self, rewards: Array, valid: Array, ended: Array) -> tuple[Array, Array]:
        """Take in steps, (n_steps, n_envs); return what episodes had got, and how long they were, at each."""
        sums, lengths = np.zeros(rewards.shape), np.zeros(rewards.shape, np.int64)
        for step, over in enumerate(ended):
            self.rewards += rewards[step]
            self.lengths += valid[step]
            sums[step], lengths[step] = self.rewards, self.lengths
            if over.any():
                self.cut(over)
        return sums, lengths

    def cut(self, envs: Any) -> None:
        """Forget the episodes under way in these environments."""
        self.rewards[envs], self.lengths[envs] = 0.0, 0

    def state(self) -> dict[str, Any]:
        """Return both, for `load_state`."""
        return {"rewards": self.rewards.copy(), "lengths": self.lengths.copy()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to there."""
        self.rewards, self.lengths = np.array(state["rewards"]), np.array(state["lengths"])


def _refuse_anothers(values: Mapping[str, Any], config_class: type[Any], where: str) -> None:
    """Raise `ZooError` for a hyperparameter that only other generators have."""
    foreign = [key for key in values if not hasattr(config_class, key)]
    for key in foreign:
        owners = [name for name in GENERATORS if hasattr(algorithm_class(name).config_class, key)]
        if owners:
            raise ZooError(
                f"unknown key `{where}.{key}`: it belongs to {' and '.join(owners)}, but the generator is"
                f" {config_class.generator}"
            )


@functools.cache
def generated_by(name: str) -> type[GAIL]:
    """Return GAIL on the generator of that name: a class that is both, as its config is."""
    generator = algorithm_class(name)
    title = f"GAILOn{generator.__name__}"
    places = {"__module__": __name__, "__doc__": f"{title}, and its hyperparameters."}
    config = type(f"{title}Config", (generator.config_class, GAILConfig), dict(places))
    members = {
        **places,
        "config_class": dataclass(with_defaults(generator=name)(config)),
        "generator": generator,
        "supported_actions": generator.supported_actions,
    }
    return type(title, (GAIL, generator), members)


def __getattr__(name: str) -> Any:
    """Return a class that `generated_by` makes, or its config, by the name under which pickles have it."""
    for generator in GENERATORS if name.startswith("GAILOn") else ():
        for made in (generated_by(generator), generated_by(generator).config_class):
            if made.__name__ == name:
                return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


GAIL.config_class = generated_by(GAILConfig.generator).config_class
GAIL.show_hyperparameters()
