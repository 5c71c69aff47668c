"""Every tuned file composes into a config that its algorithm accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

import zoo
from zoo.algorithms.registry import algorithm_class
from zoo.config.fields import build

HYPERPARAMS = Path(__file__).resolve().parents[2] / "hyperparams"
TUNED = sorted(HYPERPARAMS.glob("*/*.yaml"))


@pytest.mark.parametrize("path", TUNED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_tuned_file_builds_for_its_algorithm(path: Path) -> None:
    env = "ALE/Pong-v5" if path.stem == "atari" else path.stem
    config = OmegaConf.to_container(
        zoo.compose("train", [f"algo={path.parent.name}", f"env={env}"]), resolve=True
    )
    assert isinstance(config, dict)
    assert str(config["tuned"]).endswith(f"{path.parent.name}/{path.name}")
    hyperparameters = dict(config["algo"])
    assert hyperparameters.pop("preset", path.parent.name) == path.parent.name
    build(algorithm_class(hyperparameters.pop("name")).config_class, hyperparameters, "algo")


CONTROL = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "LunarLander-v3")
NUMBERS = (
    *("Pendulum-v1", "MountainCarContinuous-v0", "LunarLanderContinuous-v3", "BipedalWalker-v3"),
    *("AntBulletEnv-v0", "HalfCheetahBulletEnv-v0", "HopperBulletEnv-v0", "Walker2DBulletEnv-v0"),
    *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Swimmer-v5", "Walker2d-v5"),
)
HIDDEN_VELOCITIES = (
    *("CartPoleNoVel-v1", "PendulumNoVel-v1", "MountainCarContinuousNoVel-v0"),
    *("LunarLanderNoVel-v3", "LunarLanderContinuousNoVel-v3"),
)
PROMISED = {
    **dict.fromkeys(("ars", "ppo1", "trpo"), (*CONTROL, *NUMBERS)),
    **dict.fromkeys(("a2c", "acer", "acktr", "ppo", "ppo2"), (*CONTROL, *NUMBERS, "atari")),
    **dict.fromkeys(("dqn", "qrdqn"), (*CONTROL, "atari")),
    **dict.fromkeys(("ddpg", "sac", "td3", "tqc"), NUMBERS),
    "bc": ("CartPole-v1", "Pendulum-v1", "atari"),
    "recurrent_ppo": HIDDEN_VELOCITIES,
    "her_ddpg": ("Zoo-BitFlippingContinuous-v0",),
    "her_dqn": ("Zoo-BitFlipping-v0",),
    "her_sac": ("PandaPush-v3", "PandaReach-v3", "Zoo-BitFlippingContinuous-v0", "parking-v0"),
    "her_td3": ("PandaReach-v3", "Zoo-BitFlippingContinuous-v0"),
    "her_tqc": ("PandaPush-v3", "PandaReach-v3", "parking-v0"),
    "gail": ("CartPole-v1", "Pendulum-v1", "HalfCheetahBulletEnv-v0", "Hopper-v5"),
}


@pytest.mark.parametrize("algo", PROMISED)
def test_algorithm_has_a_tuned_file_for_each_usual_environment(algo: str) -> None:
    assert [env for env in PROMISED[algo] if not (HYPERPARAMS / algo / f"{env}.yaml").exists()] == []


def test_every_algorithm_with_tuned_files_promises_some() -> None:
    assert {path.parent.name for path in TUNED} == set(PROMISED)


def test_collection_has_a_tuned_file_for_every_agent() -> None:
    agents = (HYPERPARAMS.parent / "trained_agents").glob("*/*/config.yaml")
    missing = [
        agent.parent.parent.name + "/" + agent.parent.name
        for agent in agents
        if not (HYPERPARAMS / agent.parent.parent.name / f"{agent.parent.name}.yaml").exists()
    ]
    assert missing == []
