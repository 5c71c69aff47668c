"""Masks and actions with parts on the command line: trained, evaluated, played, checked, and ignored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import zoo
from zoo.commands import check, enjoy, evaluate

SMALL = ["policy.net_arch=[8]", "n_envs=2", "algo.n_steps=32", "algo.batch_size=32", "algo.n_epochs=2"]
QUIET = ["compile=false", "progress_bar=false", "logger=none", "callbacks.eval.every=64", "seed=0"]


def run_of(*overrides: str) -> Path:
    zoo.train(zoo.compose("train", [*SMALL, *QUIET, "n_timesteps=128", *overrides]))
    (run,) = Path("runs").glob("*/*/*")
    return run


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
