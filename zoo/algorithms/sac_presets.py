"""Presets of SAC whose critics bear many updates: DroQ, REDQ, SimBa and SimbaV2."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from zoo.algorithms.arguments import Policy
from zoo.algorithms.sac import SAC, SACConfig, SACPolicy
from zoo.algorithms.search_space import choices
from zoo.config.fields import with_defaults
from zoo.errors import ZooError, ZooWarning
from zoo.policies.config import PolicyConfig

MANY_UPDATES = {
    **SAC.search_space,
    "algo": {
        name: dimension
        for name, dimension in SAC.search_space["algo"].items()
        if name not in ("train_freq", "gradient_steps")
    },
}
"""SAC's search space without the ratio of updates to steps, which defines these presets."""


class SACWithNetworks(SAC):
    """A preset with the networks of `usual_policy`; a dictionary overrides its fields."""

    def __init__(
        self, policy: Policy | None = None, env: Any = None, learning_rate: Any = None, **options: Any
    ) -> None:
        if isinstance(policy, Mapping):
            policy = {"name": self.usual_policy, **policy}
        super().__init__(self.usual_policy if policy is None else policy, env, learning_rate, **options)
        if options.get("config") is None:  # agents that were saved act as they do
            self.check_policy(self.policy_config)

    @classmethod
    def check_policy(cls, policy: PolicyConfig) -> None:
        """Raise `ZooError` for the networks of SAC."""
        if policy._target_ is None and not cls.has_its_critics(policy, policy.of("critic")):
            raise ZooError(
                f"{cls.of_preset} has networks of its own, {cls.usual_policy}: leave the policy out;"
                f" with {policy.name} it is sac"
            )

    @staticmethod
    def has_its_critics(policy: PolicyConfig, critic: PolicyConfig) -> bool:
        """Return whether a policy has the preset's critics."""
        raise NotImplementedError


@dataclass
@with_defaults(
    buffer_size=1_000_000,
    batch_size=256,
    learning_starts=5_000,
    gradient_steps=20,
    policy_delay=20,
    actor_critics="mean",
)
class DroQConfig(SACConfig):
    """Hyperparameters of DroQ."""


class DroQ(SACWithNetworks):
    """SAC with 20 updates a step, by critics with dropout and layer normalisation (Hiraoka et al. 2022)."""

    of_preset = "droq"
    usual_policy = "DroQPolicy"
    config_class = DroQConfig
    search_space = MANY_UPDATES

    @staticmethod
    def has_its_critics(policy: PolicyConfig, critic: PolicyConfig) -> bool:
        has_dropout = policy.critic is not None and policy.critic.dropout > 0
        return has_dropout or critic.hidden_norm != "none"


@dataclass
@with_defaults(n_critics=10, n_target_critics=2)
class REDQConfig(DroQConfig):
    """Hyperparameters of REDQ."""


class REDQ(SAC):
    """SAC with 20 updates a step, whose targets are of two of ten critics (Chen et al. 2021)."""

    of_preset = "redq"
    config_class = REDQConfig
    search_space = MANY_UPDATES


class SimBaNetworks(SACPolicy):
    """An actor with one block of 128, and critics with two of 512."""

    actor_widths = (128,)
    critic_widths = (512, 512)


@dataclass
@with_defaults(
    learning_rate=1e-4,
    buffer_size=1_000_000,
    batch_size=256,
    learning_starts=5_000,
    gradient_steps=2,
    optimizer="adamw",
    ent_coef="auto_0.01",
    target_entropy="auto_0.5",
)
class SimBaConfig(SACConfig):
    """Hyperparameters of SimBa."""


class SimBa(SACWithNetworks):
    """SAC with residual networks of normalised observations, and two updates a step (Lee et al. 2025)."""

    of_preset = "simba"
    usual_policy = "SimbaPolicy"
    usual_normalize: ClassVar[dict[str, Any]] = {"rewards": False, "clip_obs": float("inf")}
    config_class = SimBaConfig
    search_space: ClassVar[dict[str, Any]] = {
        **MANY_UPDATES,
        "policy": choices(net_arch={"default": None, "narrow": [64], "two": [64, 64]}),
    }
    policy_class = SimBaNetworks

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        rewards = None if self.normalizer is None else self.normalizer.rewards
        if self.envs is not None and (rewards is None or rewards != self.usual_normalize["rewards"]):
            wanted = f"{{rewards: {self.usual_normalize['rewards']}, clip_obs: .inf}}".lower()
            warnings.warn(
                f"{self.of_preset} expects the observations and rewards of 'env.normalize={wanted}';"
                " with others it may not learn",
                ZooWarning,
                stacklevel=3,
            )

    @staticmethod
    def has_its_critics(policy: PolicyConfig, critic: PolicyConfig) -> bool:
        return critic.block == "residual"


@dataclass
@with_defaults(
    learning_rate={"type": "linear", "start": 1e-4, "end": 5e-5},
    optimizer="adam",
    critic_loss="categorical",
)
class SimBaV2Config(SimBaConfig):
    """Hyperparameters of SimbaV2."""


class SimBaV2(SimBa):
    """SimBa with features and weights of length 1, and critics of distributions (Lee et al. 2025)."""

    of_preset = "simba_v2"
    usual_policy = "SimbaV2Policy"
    usual_normalize: ClassVar[dict[str, Any]] = {"rewards": "scaled", "clip_obs": float("inf")}
    config_class = SimBaV2Config
    search_space = SimBa.search_space

    @staticmethod
    def has_its_critics(policy: PolicyConfig, critic: PolicyConfig) -> bool:
        return critic.block == "hyperspherical"
