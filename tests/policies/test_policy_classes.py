"""A policy given as a class, as in Stable-Baselines3, is named by its path."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_policies import ResidualActorCritic

import zoo
from zoo.errors import ZooError


def test_policy_may_be_a_class(tmp_path: Path) -> None:
    own = zoo.PPO2(ResidualActorCritic, "CartPole-v1", compile=False, threads=1).learn(128)
    assert isinstance(own.policy, ResidualActorCritic)
    own.save(tmp_path / "agent")
    assert isinstance(zoo.load(tmp_path / "agent", trust=True).policy, ResidualActorCritic)

    class Inside(ResidualActorCritic):
        pass

    with pytest.raises(ZooError, match="top of a module"):
        zoo.PPO2(Inside, "CartPole-v1")
    with pytest.raises(ZooError, match="is no policy"):
        zoo.PPO2(Path, "CartPole-v1")  # type: ignore[arg-type]
    with pytest.raises(ZooError, match="policy is a int"):
        zoo.PPO2(3, "CartPole-v1")  # type: ignore[arg-type]
