"""`init_with`: a new run takes optimizer and replay buffer of another along, or says why it can't."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zoo.algorithms.state_parts import run_tensors
from zoo.cli import status_of
from zoo.config.compose import compose
from zoo.experiment.checkpoint import read_checkpoint
from zoo.experiment.experiment import Experiment, Result, train

USUAL = [
    *("tuned=none", "compile=false", "threads=1", "logger=none", "callbacks.eval.n_episodes=1"),
    *("policy.net_arch=[16]", "verbose=0", "progress_bar=false"),
]
PPO2 = [
    *("algo=ppo2", "env=CartPole-v1", "n_envs=2", "algo.n_steps=32", "algo.batch_size=64", *USUAL),
    *("env.normalize=true", "n_timesteps=256"),
]
DQN = ["algo=dqn", "env=CartPole-v1", "algo.learning_starts=50", "n_timesteps=200", *USUAL]


@pytest.fixture(autouse=True)
def _working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trained(*overrides: str) -> Result:
    return train(compose("train", [*overrides, "seed=1"]))


def begun(*overrides: str) -> Experiment:
    """Return what a run begins with; it is closed."""
    with Experiment(compose("train", [*overrides, "seed=2"])) as experiment:
        return experiment


def stored(result: Result) -> dict[str, Any]:
    tensors: dict[str, Any] = read_checkpoint(result.run.checkpoint).algorithm["tensors"]
    return tensors


def has(experiment: Experiment, tensors: dict[str, Any]) -> dict[str, bool]:
    ours = run_tensors(experiment.algorithm.runner.state, experiment.algorithm.policy)
    return {name: np.array_equal(ours[name].numpy(), values) for name, values in tensors.items()}


def test_optimizer_and_statistics_come_along_with_the_weights_of_the_last_checkpoint() -> None:
    first = trained(*PPO2)
    for what in ("optimizer", "all"):
        second = begun(*PPO2, f"init_from={first.run.path}", f"init_with={what}")
        equal = has(second, stored(first))
        assert {"policy", "policy.mean", "policy.square"} <= equal.keys()
        assert all(equal.values())
        assert second.algorithm.num_timesteps == 0
        ours, theirs = (each.algorithm.normalizer for each in (second, first))
        assert ours is not None
        assert theirs is not None
        expected = theirs.state()["arrays"]
        found = ours.state()["arrays"]
        assert all(np.array_equal(found[name], expected[name]) for name in expected if name != "returns")


@pytest.mark.parametrize(
    "more", [["replay=prioritized"], ["algo.optimize_memory_usage=true", "replay.n_step=2"]]
)
def test_replay_memory_comes_along_and_is_learned_from_at_once(more: list[str]) -> None:
    first = trained(*DQN, *more)
    agent = first.run.path / "agent"
    second = begun(*DQN, *more, f"init_from={agent}", "init_with=all", "algo.learning_starts=0")
    memory, before = second.algorithm.buffer, first.algorithm.buffer
    assert len(memory) == len(before) == 200
    assert np.array_equal(memory.columns["rewards"][:200], before.columns["rewards"][:200])
    assert np.array_equal(memory.columns["observations"][:200], before.columns["observations"][:200])
    assert memory.columns["ended"][199, 0], "the episode under way does not go on in another run"
    assert all(has(second, stored(first)).values())
    third = trained(
        *DQN, *more, f"init_from={agent}", "init_with=all", "algo.learning_starts=0", "n_timesteps=8"
    )
    assert third.algorithm.n_updates == 8
    assert len(third.algorithm.buffer) == 208
    only = begun(*DQN, *more, f"init_from={agent}", "init_with=optimizer")
    assert len(only.algorithm.buffer) == 0
    assert all(has(only, stored(first)).values())


def test_what_begins_anew_all_the_same_is_said() -> None:
    first = trained(*DQN)
    said = begun(*DQN, f"init_from={first.run.path}", "init_with=all").changed_settings
    assert "algo.learning_starts=50: steps at random come first again; 0 leaves them out" in said
    assert any(
        line.startswith("algo.exploration_initial_eps=1.0: it explores as at a start") for line in said
    )
    calm = ["algo.learning_starts=0", "algo.exploration_initial_eps=0.1"]
    said = begun(*DQN, f"init_from={first.run.path}", "init_with=all", *calm).changed_settings
    assert said == ["algo.learning_starts: 50 → 0", "algo.exploration_initial_eps: 1.0 → 0.1"]


def test_what_does_not_fit_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    dqn, a2c = (
        trained(*DQN).run.path,
        trained("algo=a2c", "env=CartPole-v1", "n_timesteps=64", *USUAL).run.path,
    )
    gone = trained(*DQN, "callbacks.checkpoint.keep=false").run.path
    wrong = {
        (
            *DQN,
            f"init_from={a2c}",
        ): "can't take all from .*: it is of a2c, this run of dqn; init_with=weights",
        (*DQN, f"init_from={dqn}", "env=Acrobot-v1"): "its observations and the environment's differ",
        (
            *DQN,
            f"init_from={dqn}",
            "policy.net_arch=[8]",
        ): "its networks or its optimizer are others: .*q_network has shape",
        (
            *DQN,
            f"init_from={dqn}",
            "n_envs=2",
        ): "its replay buffer is of n_envs=1, not 2; init_with=optimizer",
        (*DQN, f"init_from={dqn}", "algo.buffer_size=99"): "of algo.buffer_size=50000, not 99",
        (*DQN, f"init_from={dqn}", "replay=prioritized"): "of replay.prioritized=None, not prioritized",
        (*DQN, f"init_from={dqn}", "algo.optimize_memory_usage=true"): "of algo.optimize_memory_usage=False",
        (*DQN, f"init_from={dqn}", "workers=2"): "each of workers=2 has a memory; init_with=optimizer",
        (
            *DQN,
            f"init_from={gone}",
        ): "the run has kept no checkpoint .callbacks.checkpoint.keep=true keeps it.",
        (*DQN,): "`init_with=all` says what to take of init_from=RUN, which is missing",
        ("algo=a2c", "env=CartPole-v1", *USUAL, f"init_from={a2c}", "algo.use_rms_prop=false"): (
            "its networks or its optimizer are others: "
        ),
    }
    for given, expected in wrong.items():
        assert status_of(["train", *given, "init_with=all"]) == 2, given
        message = capsys.readouterr().err
        assert message.count("\n") == 1, message
        assert re.search(expected, message), message
    assert status_of(["train", *DQN, f"init_from={dqn}", "init_with=everything"]) == 2
    assert "is not one of weights, optimizer, all" in capsys.readouterr().err
    assert status_of(["train", *DQN, f"init_from={dqn}", "init_from.what=all"]) == 2
    assert "init_from.what" in capsys.readouterr().err
