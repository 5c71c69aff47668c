"""What a user types, and what comes back: text, one line of JSON, one message and exit status 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.cli import status_of

ZOO = "from zoo.cli import main; main()"
"""Python as it is started by ``-c`` has the working folder on its path: the worst case."""


def mistake(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert status_of(arguments) == 2
    message = capsys.readouterr().err
    assert message.startswith("zoo: ")
    assert message.count("\n") == 1
    assert "Traceback" not in message
    return message


def test_evaluate_in_a_process_of_its_own_ends_with_json(run_folder: Path) -> None:
    """In a folder with a space in its name, as anybody's may have."""
    Path("my agents").mkdir()
    run_folder.rename("my agents/run")
    done = subprocess.run(
        [sys.executable, "-c", ZOO, "evaluate", "agent='my agents/run'", "n_episodes=3", "seed=1"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert list(result) == [
        "algo",
        "env",
        "mean_return",
        "std_return",
        "iqm_return",
        "ci95",
        "mean_length",
        "n_episodes",
    ]
    assert "agent  my agents/run/best_agent" in done.stdout


def test_commands_leave_nothing_behind(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path().rglob("*"))
    for verb in ("evaluate", "enjoy"):
        assert status_of([verb, "algo=ppo2", "env=CartPole-v1", "n_episodes=1"]) == 0
    assert status_of(["agents"]) == 0
    assert status_of(["agents", f"agent={run_folder}"]) == 0
    assert sorted(Path().rglob("*")) == before
    assert "312.5" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["enjoy", "evaluate"])
def test_mistakes_are_one_message(run_folder: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no agent at nowhere" in mistake(capsys, verb, "agent=nowhere")
    assert "can't act in Acrobot-v1" in mistake(capsys, verb, f"agent={run_folder}", "env=Acrobot-v1")
    assert "did you mean 'CartPole-v1'?" in mistake(capsys, verb, "algo=ppo2", "env=CartPol-v1")
    assert "unknown algorithm 'ppo3'" in mistake(capsys, verb, "algo=ppo3", "env=CartPole-v1")
    assert "no_such_module" in mistake(capsys, verb, f"agent={run_folder}", "env=no_such_module:Id-v0")
    assert "n_episodes" in mistake(capsys, verb, f"agent={run_folder}", "n_episode=3")

    tensors = run_folder / "best_agent" / "policy.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:1000])
    assert "policy.safetensors: it is truncated" in mistake(capsys, verb, f"agent={run_folder}")
