"""Algorithms under names, and with defaults, that they have elsewhere: what ``algo=ppo`` is in Python.

The same values stand in ``conf/algo/``, where the command line finds them; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zoo.algorithms.arguments import Policy
from zoo.algorithms.ddpg import DDPG
from zoo.algorithms.dqn import DQN
from zoo.algorithms.off_policy import OffPolicyAlgorithm
from zoo.algorithms.ppo import PPO2, PPO2Config
from zoo.algorithms.sac import SAC
from zoo.algorithms.td3 import TD3
from zoo.algorithms.tqc import TQC
from zoo.buffers.config import ReplayConfig
from zoo.config.fields import with_defaults
from zoo.policies.config import check_is_recurrent


@dataclass
@with_defaults(
    learning_rate=3e-4,
    n_steps=2048,
    batch_size=64,
    n_epochs=10,
    clip_range_vf=None,
    ent_coef=0.0,
    vf_coef=0.5,
)
class PPOConfig(PPO2Config):
    """Hyperparameters of PPO: Stable-Baselines3's defaults."""


@dataclass
@with_defaults(n_steps=128, batch_size=128)
class RecurrentPPOConfig(PPOConfig):
    """Hyperparameters of RecurrentPPO: SB3-Contrib's defaults."""


class PPO(PPO2):
    """PPO2 with the defaults of Stable-Baselines3's PPO."""

    of_preset = "ppo"
    config_class = PPOConfig


class MaskablePPO(PPO):
    """PPO2 with the defaults of SB3-Contrib's MaskablePPO; masks come from the environment."""

    of_preset = "maskable_ppo"


class RecurrentPPO(PPO2):
    """PPO2 with the defaults of SB3-Contrib's RecurrentPPO, for policies that remember."""

    of_preset = "recurrent_ppo"
    usual_policy = "MlpLstmPolicy"
    config_class = RecurrentPPOConfig

    def __init__(self, policy: Policy = "MlpLstmPolicy", env: Any = None, **options: Any) -> None:
        super().__init__(policy, env, **options)
        if options.get("config") is None:  # agents that were saved act as they do
            check_is_recurrent(self.policy_config)


class _WithHindsight(OffPolicyAlgorithm[Any]):
    """Relabels goals, unless ``replay`` says None of ``hindsight``; what else it says is added.

    A `ReplayConfig` is taken as it is.
    """

    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if replay is None or isinstance(replay, Mapping):
            replay = {"hindsight": {}, **(replay or {})}
        super().__init__(policy, env, replay=replay, **options)


class HerDDPG(_WithHindsight, DDPG):
    """DDPG with hindsight replay."""

    of_preset = "her_ddpg"


class HerDQN(_WithHindsight, DQN):
    """DQN with hindsight replay."""

    of_preset = "her_dqn"


class HerSAC(_WithHindsight, SAC):
    """SAC with hindsight replay."""

    of_preset = "her_sac"


class HerTD3(_WithHindsight, TD3):
    """TD3 with hindsight replay."""

    of_preset = "her_td3"


class HerTQC(_WithHindsight, TQC):
    """TQC with hindsight replay."""

    of_preset = "her_tqc"
