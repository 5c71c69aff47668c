"""What an agent keeps when its environments are reset."""

from __future__ import annotations

from typing import Any

import pytest

from zoo import A2C, DQN

SMALL: dict[str, Any] = {"policy": {"net_arch": [4]}, "seed": 0, "compile": False, "threads": 1}


@pytest.mark.parametrize("env", ["CartPole-v1", "Zoo/Masked-v0"])
def test_memory_is_kept_at_a_reset_that_shows_masks_as_before(env: str) -> None:
    model = DQN(env=env, n_envs=1, learning_starts=10, batch_size=4, buffer_size=50, **SMALL).learn(20)
    memory = model.memory
    model._reset_envs()
    assert model.memory is memory
    assert len(memory) == 20
    assert model.masks_actions == (env == "Zoo/Masked-v0")


def test_memory_is_made_anew_at_a_reset_that_shows_other_masks() -> None:
    model = A2C(env="CartPole-v1", n_envs=1, n_steps=5, **SMALL)
    memory, model._mask_size = model.memory, 2
    model._reset_envs()
    assert model.memory is not memory
    assert model._mask_size is None
