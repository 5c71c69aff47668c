"""Generative adversarial imitation learning (Ho and Ermon 2016, https://arxiv.org/abs/1606.03476).

A discriminator learns to distinguish the expert's actions from the policy's. The policy, called *generator*,
learns to imitate the expert: the discriminator replaces the environment's reward by one that is larger for
expert-like pairs of observation and action. The generator is any on-policy algorithm. `GAIL` is the generator
with the discriminator as its reward model, and one config holds the hyperparameters of both.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from zoo.algorithms.agent_files import reduced
from zoo.algorithms.arguments import Policy
from zoo.algorithms.on_policy import OnPolicyAlgorithm
from zoo.algorithms.registry import algorithm_class
from zoo.algorithms.search_space import choices, ranges, searched
from zoo.buffers.arrays import Array, Arrays
from zoo.config.fields import hyperparameter, with_defaults
from zoo.errors import ZooError
from zoo.imitation.demonstrations import chosen_episodes, without_dataset
from zoo.imitation.discriminator import Discriminator, DiscriminatorConfig, by_path
from zoo.imitation.expert_data import Dataset

GENERATORS = ("trpo", "ppo2", "ppo1", "a2c", "acktr")  # the algorithms that can be the generator


@dataclass
class GAILConfig(DiscriminatorConfig):
    """Hyperparameters of GAIL, in addition to its generator's."""

    generator: str = hyperparameter(
        "trpo",
        "algorithm that learns from the imitation reward; its hyperparameters are in this section, too",
        choices=GENERATORS,
    )
    g_step: int = hyperparameter(
        3, "generator updates, each on a new rollout, per training of the discriminator", ge=1
    )

    @classmethod
    def variant(cls, values: Mapping[str, Any], where: str) -> type[Any]:
        """Return the config class of GAIL with the generator named in ``values``, by default TRPO."""
        name = values.get("generator", cls.generator)
        if name in GENERATORS:
            return config_with(name, vars(cls).get("declared", cls))
        raise ZooError(
            f"`{where}.generator={name}`: a generator learns from its own rollouts; expected one of"
            f" {', '.join(GENERATORS)}"
        )


@functools.cache
def config_with(generator: str, declared: type[GAILConfig] = GAILConfig) -> type[Any]:
    """Make the config class with the hyperparameters of GAIL, or of a subclass, and of a generator."""
    absent = ("reward_model", "intrinsic")  # the discriminator is the reward model
    names: dict[str, Any] = {"__module__": __name__, "__doc__": GAILConfig.__doc__, **dict.fromkeys(absent)}
    names["declared"] = declared
    names["__annotations__"] = dict.fromkeys(absent, "ClassVar[None]")
    bases = algorithm_class(generator).config_class, declared
    return dataclass(with_defaults(generator=generator)(type("GAILConfig", bases, names)))


class GAIL(OnPolicyAlgorithm):
    """Generative adversarial imitation of the expert in ``dataset``: `ExpertData` or the path of its file.

    ``generator`` names the algorithm that learns, by default "trpo"; the model is an instance of its class,
    too. `__new__` picks this class since agents of format 1 call a PPO2 with a discriminator ``gail``.
    Hyperparameters are the discriminator's and the generator's. Without a dataset it can act, but not learn.
    """

    name = "gail"
    config_class: ClassVar[type[Any]] = config_with("trpo")
    learns_from_experts = True
    search_space = searched(  # the discriminator's, and those of every generator
        OnPolicyAlgorithm.search_space,
        ranges("powers", n_steps=(128, 2048)) | ranges("even", g_step=(1, 4), ent_coef=(0.0, 0.1)),
        ranges("log", d_step=(1, 16), d_ent_coef=(1e-4, 0.1)),
        ranges("log falling", d_learning_rate=(1e-5, 3e-3)),
        choices(d_gradient_penalty=[0.0, 0.1, 1.0, 10.0], d_spectral_norm=[False, True]),
    )

    config: Any

    def __new__(cls, *args: Any, config: Any = None, **options: Any) -> GAIL:
        generator = options.get("generator", "trpo") if config is None else config.generator
        if generator in GENERATORS:
            cls = with_generator(cls, generator)  # type: ignore[arg-type]
        return object.__new__(cls)  # an unknown generator: `GAILConfig.variant` raises

    def __init__(
        self, policy: Policy = "MlpPolicy", env: Any = None, dataset: Dataset | None = None, **options: Any
    ) -> None:
        super().__init__(policy, env, **options)
        if dataset is not None:
            self.set_expert(dataset)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(self, type(self).__mro__[1])  # the class that its module has by name

    def gradient_steps_in(self, total_timesteps: int) -> float:
        n_trainings = total_timesteps / (self.buffer.n_steps * self.n_envs * self.config.g_step)
        return super().gradient_steps_in(total_timesteps) + n_trainings * self.config.d_step

    @property
    def discriminator(self) -> Discriminator | None:
        return cast("Discriminator | None", self.reward_model)

    def set_expert(self, dataset: Dataset) -> None:
        """Imitate this expert from now on, with a new discriminator.

        Raises `ZooError` for data of other spaces, or if no episode is good enough.
        """
        self.set_reward_model(Discriminator(self.config, chosen_episodes(dataset, self, self.config), self))

    def imitation_rewards(self, observations: Arrays, actions: Any) -> Array:
        """Return the rewards (n,) of raw observations (n, …) and actions as the environment takes them."""
        return self._with_expert().rewards_of(observations, by_path(self.action_space, actions))

    def _with_expert(self) -> Discriminator:
        """Return the discriminator. Raises `ZooError` without an expert to learn from."""
        if self.discriminator is None:
            raise without_dataset(self)
        return self.discriminator

    def collect(self) -> None:
        self._with_expert()
        super().collect()


@functools.cache
def with_generator(cls: type[GAIL], generator: str) -> type[GAIL]:
    """Make the class that combines GAIL, or a subclass of it, with a generator's class."""
    config_class = cls.config_class.variant({"generator": generator}, cls.name)
    return type(cls.__name__, (cls, algorithm_class(generator)), {"config_class": config_class})
