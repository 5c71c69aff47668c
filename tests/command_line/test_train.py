"""`zoo train` and `zoo check` as a user types them, also with goals and masks."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import zoo
from zoo.buffers import replay
from zoo.cli import status_of
from zoo.commands import check, enjoy, evaluate
from zoo.config.compose import ConfigLoader

ZOO = str(Path(sys.executable).with_name("zoo"))

SHORT = [
    *("n_timesteps=512", "n_envs=2", "algo.n_steps=32", "algo.batch_size=64", "algo.n_epochs=1"),
    *("compile=false", "progress_bar=false"),
]
BARE = [*SHORT, "callbacks=none", "logger=none"]
CARTPOLE = ["algo=ppo2", "env=CartPole-v1", *SHORT, "callbacks.eval.n_episodes=2"]


def train(*arguments: str) -> Path:
    """Train in this process and return the folder of the newest run."""
    before = set(runs())
    assert status_of(["train", *arguments]) == 0
    new = set(runs()) - before
    assert len(new) == 1
    return new.pop()


def runs() -> list[Path]:
    return [path.parent for path in Path("runs").glob("*/*/*/run.json")]


def record(run: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((run / "run.json").read_text())
    return values


def weights(agent: Path) -> dict[str, Any]:
    return dict(load_file(agent / "policy.safetensors"))


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize(
    ("n_timesteps", "line"),
    [
        (640, ""),
        (520, "zoo: rollouts of 64 (n_steps × n_envs) are never split: trains 576 steps, not 520\n"),
        (50, "are never split: trains 64 steps, not 50; evaluations: 1, not 2\n"),
        (64, "are never split: evaluations: 1, not 2\n"),
    ],
)
def test_run_tells_its_whole_rollouts(
    n_timesteps: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    every = f"callbacks.eval.every={max(25, n_timesteps // 8)}"
    train(*CARTPOLE, f"n_timesteps={n_timesteps}", every)
    printed = capsys.readouterr().err
    assert printed.endswith(line) if line else "never split" not in printed


def test_run_says_where_its_tuned_values_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text("algo: {gamma: 0.5}")
    train("algo=ppo2", "env=Zoo/Identity-v0", *BARE, "tuned=mine.yaml")
    assert "tuned   mine.yaml\n" in capsys.readouterr().out
    train("algo=ppo2", "env=CartPole-v1", *BARE, "tuned=none")
    assert "tuned   left out by tuned=none; defaults of the algorithm\n" in capsys.readouterr().out


def test_config_of_a_run_gives_the_same_run_again() -> None:
    first = train(*CARTPOLE, "algo.learning_rate=lin_1e-2", "env.max_episode_steps=20")
    again = train(f"experiment={first}/config.yaml")
    assert (first / "config.yaml").read_text() == (again / "config.yaml").read_text()
    assert same(weights(first / "agent"), weights(again / "agent"))


def test_preset_names_its_run_folder_and_agent(capsys: pytest.CaptureFixture[str]) -> None:
    run = train("algo=ppo", "env=CartPole-v1", *BARE)
    assert run.parent == Path("runs/ppo/CartPole-v1")
    card = json.loads((run / "agent" / "card.json").read_text())
    assert (card["algo"], "preset" in card["hyperparameters"]) == ("ppo", False)
    assert status_of(["evaluate", "algo=ppo", "env=CartPole-v1", "n_episodes=1"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["algo"] == "ppo"


def test_init_from_copies_weights_and_prints_changes(capsys: pytest.CaptureFixture[str]) -> None:
    first = train(*CARTPOLE, "seed=1")
    capsys.readouterr()
    second = train(*CARTPOLE, "seed=2", f"init_from={first}/agent", "algo.learning_rate=0", "algo.gamma=0.5")
    assert same(weights(first / "agent"), weights(second / "agent"))
    printed = capsys.readouterr().out
    assert f"start   with the weights of {first}/agent" in printed
    assert "algo.gamma: 0.98 → 0.5" in printed
    assert "algo.n_steps" not in printed


def test_error_for_large_buffer_names_size_that_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay, "free_bytes", lambda: 10_000_000)
    dqn = ["train", "algo=dqn", "env=CartPole-v1", "n_timesteps=100", "tuned=none", "progress_bar=false"]
    dqn.append("algo.learning_starts=50")
    assert status_of([*dqn, "algo.buffer_size=1e9"]) == 2
    message = capsys.readouterr().err
    fitting = int(message.rpartition("algo.buffer_size=")[2].split()[0])
    assert 100_000 < fitting < 1_000_000
    assert not Path("runs").exists()
    assert status_of([*dqn, f"algo.buffer_size={fitting}", "callbacks=none", "logger=none"]) == 0


OWN_ENV = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

gym.register("Mine-v0", CartPoleEnv, max_episode_steps=50)
"""


@pytest.mark.slow
def test_command_finds_module_in_working_folder(working_folder: Path) -> None:
    (working_folder / "my_envs.py").write_text(OWN_ENV)
    done = subprocess.run(
        [ZOO, "train", "-m", "algo=ppo2", "env=my_envs:Mine-v0,CartPole-v1", *SHORT, "logger=none"],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
    assert len(list(working_folder.glob("runs/multirun/*/*/*/*/run.json"))) == 2
    assert list(working_folder.glob("runs/multirun/*/ppo2/my_envs-Mine-v0"))


def test_finished_run_is_not_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    run = train(*CARTPOLE)
    assert status_of(["train", f"resume={run}"]) == 2
    message = capsys.readouterr().err
    assert "is finished" in message
    assert f"init_from={run}" in message


def test_run_killed_before_checkpoint_restarts(capsys: pytest.CaptureFixture[str]) -> None:
    whole = train(*CARTPOLE, "seed=5")
    killed = whole.with_name("killed_s5")
    whole_weights = weights(whole / "agent")
    killed.mkdir()
    (killed / "config.yaml").write_text((whole / "config.yaml").read_text())
    (killed / "run.json").write_text(json.dumps({"status": "running", "seed": 5}))
    capsys.readouterr()
    assert status_of(["train", f"resume={killed}", "verbose=1"]) == 0
    assert "resume  from the start" in capsys.readouterr().out
    assert same(whole_weights, weights(killed / "agent"))
    assert record(killed)["status"] == "finished"


BROKEN_ENV = """
import gymnasium as gym
import numpy as np


class Broken(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(4, np.float32), 0.0, False, False, {}


gym.register("Broken-v0", Broken)
"""


@pytest.mark.parametrize("command", ["check", "train algo=ppo2"])
def test_broken_env_is_refused_before_first_step(
    command: str, working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (working_folder / "broken_env.py").write_text(BROKEN_ENV)
    assert status_of([*command.split(), "env=broken_env:Broken-v0"]) == 2
    message = capsys.readouterr().err
    assert "(4,)" in message
    assert "Traceback" not in message
    assert not Path("runs").exists()


def test_successes_are_told_wherever_returns_are(capsys: pytest.CaptureFixture[str]) -> None:
    bits = ["algo=her_dqn", "env=Zoo/BitFlipping-v0", "env.kwargs.n_bits=2", "n_timesteps=200", "n_envs=2"]
    small = ["policy.net_arch=[8]", "algo.learning_starts=50", "algo.batch_size=10", "compile=false"]
    quiet = ["progress_bar=false", "logger=csv", "callbacks.eval.every=100", "seed=0"]
    result = zoo.train(zoo.compose("train", [*bits, *small, *quiet]))
    assert result.evaluation is not None
    rate = result.evaluation.success_rate
    assert rate is not None

    (run,) = Path("runs/her_dqn/Zoo-BitFlipping-v0").iterdir()
    with open(run / "monitor" / "0.monitor.csv") as file:
        _, header, *rows = list(csv.reader(file))
    assert header == ["r", "l", "t", "is_success"]
    assert {(float(row[0]) == -2.0, row[3]) for row in rows} == {(True, "False"), (False, "True")}
    with np.load(run / "evaluations.npz") as file:
        assert file["successes"].shape == (2, 10)
        assert file["successes"][-1].mean() == rate
    scalars = (run / "progress.csv").read_text().splitlines()[0]
    assert "rollout/success_rate" in scalars
    assert "eval/success_rate" in scalars
    assert json.loads((run / "agent" / "card.json").read_text())["success_rate"] == rate
    assert f"over 10 episodes, success {rate:.0%}" in (run / "agent" / "README.md").read_text()

    capsys.readouterr()
    evaluate.run(ConfigLoader("evaluate").settings([f"agent={run}", "n_episodes=5", "seed=1"]))
    out = capsys.readouterr().out
    measured = json.loads(out.splitlines()[-1])
    assert f"successes                  {measured['success_rate']:.0%}" in out
    enjoy.run(ConfigLoader("enjoy").settings([f"agent={run}", "n_episodes=5", "seed=1", "render=false"]))
    assert capsys.readouterr().out.endswith(f"5 episodes, success {measured['success_rate']:.0%}\n")


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
    evaluate.run(ConfigLoader("evaluate").settings([f"agent={run}", "n_episodes=5", "seed=1"]))
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert measured["mean_length"] == 20  # nothing invalid was done, which would have ended it
    enjoy.run(ConfigLoader("enjoy").settings([f"agent={run}", "n_episodes=2", "seed=1", "render=false"]))
    assert "in 20.0 steps, 2 episodes" in capsys.readouterr().out


def test_mask_actions_false_applies_to_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of("algo=ppo2", "env=Zoo/Masked-v0", "env.mask_actions=false")
    assert "masks_actions" not in (run / "agent" / "config.yaml").read_text()
    capsys.readouterr()
    evaluate.run(ConfigLoader("evaluate").settings([f"agent={run}", "n_episodes=5", "seed=1"]))
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["mean_length"] < 10


def test_check_says_whether_there_are_masks(capsys: pytest.CaptureFixture[str]) -> None:
    for overrides, masks in (
        (["env=Zoo/MaskedComposite-v0"], "7 values, one for each choice"),
        (["env=CartPole-v1"], "none: every action is valid"),
        (["env=Zoo/Masked-v0", "env.mask_actions=false"], "not asked for (env.mask_actions=false)"),
    ):
        check.run(zoo.compose("check", overrides))
        out = capsys.readouterr().out
        assert f"  masks         {masks}\n" in out
    check.run(zoo.compose("check", ["env=Zoo/Composite-v0"]))
    assert "Dict(arm: Tuple(Discrete(3, start=1), Box(1,) float32), bits: Mul" in capsys.readouterr().out
