"""An agent as training writes it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from stranger import CONFIG

from zoo.agents.agent_folder import AgentFiles


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
        card={
            "seed": 3,
            "timesteps": 50_000,
            "mean_return": 487.25,
            "std_return": 2.5,
            "n_eval_episodes": 100,
        },
    )
