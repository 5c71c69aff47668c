"""Masks and actions with parts on the command line: trained, evaluated, played, checked, and ignored."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

import zoo
from zoo.commands import check, enjoy, evaluate
from zoo.config.fields import build
from zoo.envs.config import EnvConfig
from zoo.training.recording import Look, camera

SMALL = ["policy.net_arch=[8]", "n_envs=2", "algo.n_steps=32", "algo.batch_size=32", "algo.n_epochs=2"]
QUIET = ["compile=false", "progress_bar=false", "logger=none", "callbacks.eval.every=64", "seed=0"]


def run_of(*overrides: str) -> Path:
    zoo.train(zoo.compose("train", [*SMALL, *QUIET, "n_timesteps=128", *overrides]))
    (run,) = Path("runs").glob("*/*/*")
    return run


def test_preset_has_the_defaults_of_the_peer() -> None:
    sb3_contrib = pytest.importorskip("sb3_contrib")
    config: Any = OmegaConf.to_container(zoo.compose("train", ["algo=maskable_ppo", "env=Zoo/Masked-v0"]))
    algo = config["algo"]
    assert (algo["name"], algo["preset"]) == ("ppo2", "maskable_ppo")
    theirs = inspect.signature(sb3_contrib.MaskablePPO.__init__).parameters
    shared = [name for name in algo if name in theirs]
    assert len(shared) >= 12
    assert {name: algo[name] for name in shared} == {name: theirs[name].default for name in shared}
    assert config["env"]["mask_actions"] is True


def test_masked_parts_are_trained_evaluated_and_played(capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of("algo=maskable_ppo", "env=Zoo/MaskedComposite-v0")
    assert "masks_actions: true" in (run / "agent" / "config.yaml").read_text()
    capsys.readouterr()
    evaluate.run(zoo.compose("evaluate", [f"agent={run}", "n_episodes=5", "seed=1"]))
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert measured["mean_length"] == 20  # nothing invalid was done, which would have ended it
    enjoy.run(zoo.compose("enjoy", [f"agent={run}", "n_episodes=2", "seed=1", "render=false"]))
    assert "in 20.0 steps, 2 episodes" in capsys.readouterr().out


def test_masks_are_ignored_on_request_wherever_the_agent_acts(capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of("algo=ppo2", "env=Zoo/Masked-v0", "env.mask_actions=false")
    assert "masks_actions" not in (run / "agent" / "config.yaml").read_text()
    capsys.readouterr()
    evaluate.run(zoo.compose("evaluate", [f"agent={run}", "n_episodes=5", "seed=1"]))
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["mean_length"] < 10


@pytest.mark.parametrize("mask_actions", [True, False])
def test_films_are_of_the_same_masks(mask_actions: bool, tmp_path: Path) -> None:
    everything = {"_target_": "ActionMasker", "action_mask_fn": f"{__name__}.everything"}
    values = {"id": "CartPole-v1", "wrappers": [everything], "mask_actions": mask_actions}
    with camera(build(EnvConfig, values, "env"), [tmp_path / "film.gif"], Look()) as (envs, _):
        envs.reset([0])
        assert envs.mask_size == (2 if mask_actions else None)


def everything(env: Any) -> Any:
    return np.ones(2, np.bool_)


def test_check_says_whether_there_are_masks(capsys: pytest.CaptureFixture[str]) -> None:
    for overrides, masks in (
        (["env=Zoo/MaskedComposite-v0"], "7 values, for all that can be chosen"),
        (["env=CartPole-v1"], "none: every action is valid"),
        (["env=Zoo/Masked-v0", "env.mask_actions=false"], "not asked for (env.mask_actions=false)"),
    ):
        check.run(zoo.compose("check", overrides))
        out = capsys.readouterr().out
        assert f"  masks         {masks}\n" in out
    check.run(zoo.compose("check", ["env=Zoo/Composite-v0"]))
    assert "Dict(arm: Tuple(Discrete(3, start=1), Box(1,) float32), bits: Mul" in capsys.readouterr().out
