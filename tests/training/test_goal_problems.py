"""What keeps hindsight from asking an environment ends a run in one line, which is told once."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest

import zoo
from zoo.envs.toys import BitFlipping
from zoo.errors import ZooError


class Unanswering(BitFlipping):
    def compute_reward(self, *goals_and_info: object) -> float:
        raise ValueError("no such\ngoal")


@pytest.fixture(autouse=True)
def _registered() -> None:
    if "Unanswering-v0" not in gym.registry:
        gym.register("Unanswering-v0", Unanswering, max_episode_steps=8)


@pytest.mark.parametrize(("memory", "n_told"), [("hindsight", 0), ("uniform", 1)])
def test_what_ends_the_run_is_not_told_by_the_trial_before(
    memory: str, n_told: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train() -> None:
        zoo.train(
            algo="dqn",
            env="Unanswering-v0",
            memory=memory,
            n_timesteps=20,
            **{"algo.learning_starts": 8},
            callbacks="none",
            logger="none",
            compile=False,
            runs_dir=str(tmp_path),
        )

    if memory == "hindsight":
        with pytest.raises(ZooError, match=r"it raised ValueError: no such goal$"):
            train()
    else:
        train()
    assert capsys.readouterr().err.count("ValueError: no such goal") == n_told
