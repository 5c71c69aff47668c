"""Which of an expert's episodes are learned from, and what is said where they are others than one thinks."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zoo.algorithms.bc import BC
from zoo.algorithms.gail import GAIL
from zoo.algorithms.ppo2 import PPO2
from zoo.cli import status_of
from zoo.envs.config import EnvConfig
from zoo.envs.registry import task_name
from zoo.errors import ZooWarning
from zoo.memory.expert_data import ExpertData
from zoo.memory.expert_files import write_expert
from zoo.training.expert_recording import record_expert

RUN: dict[str, Any] = {"seed": 0, "compile": False, "threads": 1}


@pytest.fixture(scope="module")
def cartpole() -> ExpertData:
    config = EnvConfig("CartPole-v1", max_episode_steps=10)
    return record_expert(lambda observation: int(observation[2] > 0), config, 2, seed=0)


def of_env(data: ExpertData, env: str | None) -> ExpertData:
    return dataclasses.replace(data, card={**data.card, "env": env})


def pretrained(data: ExpertData, env: Any) -> Any:
    return PPO2({"net_arch": [4]}, env, n_steps=8, **RUN).pretrain(data, n_epochs=1)


LEARNERS: list[Callable[[ExpertData, Any], Any]] = [
    pretrained,
    lambda data, env: BC({"net_arch": [4]}, env, dataset=data, **RUN),
    lambda data, env: GAIL({"net_arch": [4]}, env, data, **RUN),
]


@pytest.mark.parametrize("learner", LEARNERS, ids=["pretrain", "bc", "gail"])
def test_data_of_another_environment_are_told_of(learner: Any, cartpole: ExpertData) -> None:
    with pytest.warns(ZooWarning) as told:
        learner(of_env(cartpole, "my_envs:Tightrope-v0"), "CartPole-v1")
    assert [str(each.message) for each in told if each.category is ZooWarning] == [
        "the expert data are of my_envs:Tightrope-v0, and CartPole-v1 is learned: their spaces are the same"
    ]


@pytest.mark.parametrize("env", ["CartPole-v1", "CartPole-v0", "my_envs:CartPole-v3", None])
def test_data_of_the_same_environment_are_not(env: str | None, cartpole: ExpertData) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for learner in LEARNERS:
            learner(of_env(cartpole, env), "CartPole-v1")
            learner(of_env(cartpole, env), EnvConfig("CartPole-v1", max_episode_steps=10))


def test_task_is_an_id_without_module_and_version() -> None:
    assert [task_name(each) for each in ("A-v1", "m.n:A-v22", "ALE/Pong-v5", "A", "A-very-v0")] == [
        *("A", "A", "ALE/Pong", "A", "A-very")
    ]


def test_remarks_about_the_data_are_one_line_each(
    cartpole: ExpertData,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_expert(tmp_path / "other.npz", of_env(cartpole, "Other-v0"))
    small = ["n_timesteps=16", "algo.n_steps=16", "callbacks=none", "logger=none", "tuned=none", "threads=1"]
    for arguments in (
        ["algo=ppo2", *small, f"pretrain.dataset={path}", "pretrain.n_episodes=9", "pretrain.n_epochs=1"],
        ["algo=bc", "n_timesteps=16", *small[2:], f"dataset={path}", "algo.n_episodes=9"],
    ):
        command = ["train", "env=CartPole-v1", "compile=false", "progress_bar=false", *arguments]
        assert status_of(command) == 0
        lines = [line for line in capsys.readouterr().err.splitlines() if "expert data" in line]
        assert lines == [
            "zoo: the expert data are of Other-v0, and CartPole-v1 is learned: their spaces are the same",
            "zoo: the expert data have 2 episodes; 9 were wanted",
        ]
