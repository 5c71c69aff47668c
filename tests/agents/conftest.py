"""An agent as training writes it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from zoo.agents.agent_folder import AgentFiles

CONFIG: dict[str, Any] = {
    "algo": {"name": "ppo2", "learning_rate": "lin_3e-4", "clip_range": 0.2, "target_kl": None},
    "policy": {"name": "MlpPolicy", "net_arch": [64, 64], "activation": None, "_target_": None},
    "env": {"id": "CartPole-v1", "kwargs": {}, "wrappers": [], "normalize": True, "n_workers": None},
    "n_envs": 8,
    "observation_space": {"type": "Box", "shape": [4], "low": -1.0, "high": 1.0, "dtype": "float32"},
    "action_space": {"type": "Discrete", "n": 2, "start": 0},
}


SCORE = {"mean_return": 487.25, "std_return": 2.5, "n_eval_episodes": 100}


@pytest.fixture
def agent() -> AgentFiles:
    generator = np.random.default_rng(0)
    return AgentFiles(
        config=copy.deepcopy(CONFIG),
        tensors={
            "actor.0.weight": generator.standard_normal((64, 4)).astype(np.float32),
            "actor.0.bias": np.zeros(64, dtype=np.float32),
            "log_std": np.float32(-0.5) * np.ones((), dtype=np.float32),
        },
        normalization=(
            {"observations.mean": generator.standard_normal(4), "observations.count": np.array(1e-4)},
            {"clip_obs": 10.0, "observations": True},
        ),
        card={"seed": 3, "timesteps": 50_000, **SCORE},
    )
