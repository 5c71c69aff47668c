"""The off-policy algorithms with hindsight replay: what ``algo=her_sac`` is in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.algorithms.arguments import Policy
from zoo.algorithms.ddpg import DDPG
from zoo.algorithms.dqn import DQN
from zoo.algorithms.off_policy import OffPolicyAlgorithm
from zoo.algorithms.sac import SAC
from zoo.algorithms.td3 import TD3
from zoo.algorithms.tqc import TQC
from zoo.buffers.config import ReplayConfig


class _WithHindsight(OffPolicyAlgorithm):
    """Relabels goals unless ``replay`` is a `ReplayConfig`, or says ``hindsight`` is None."""

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
