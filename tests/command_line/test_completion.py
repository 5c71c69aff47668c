"""Completion in a real bash, and the words that shells are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.cli import VERBS, status_of
from zoo.config.completion import SCRIPTS, candidates

ASK = """
eval "$(zoo --completion bash)"
COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}
compopt() { :; }
_zoo
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("zoo tr", "train"),
        ("zoo train algo=recurr", "recurrent_ppo"),
        ("zoo train env=CartPole-v", "CartPole-v1"),
        ("zoo train callbacks.eval.ev", "callbacks.eval.every="),
        ("zoo train algo=ppo2 algo.clip_range_", "algo.clip_range_vf="),
    ],
)
def test_bash_completes(line: str, expected: str) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    told = subprocess.run(
        ["bash", "-c", ASK, "bash", line], capture_output=True, text=True, check=True, env=environment
    )
    assert expected in told.stdout.split(), told.stderr


def test_nothing_is_offered_for_what_there_is_not() -> None:
    assert candidates(["train", "algo=nothing"], VERBS) == []
    assert candidates(["trian"], VERBS) == []


@pytest.mark.parametrize("shell", SCRIPTS)
def test_each_script_asks_zoo(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["--completion", shell]) == 0
    assert "zoo --complete " in capsys.readouterr().out


def test_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["--completion", "csh"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["algo=recurrent_ppo", "policy.critic_lstm=s"], ["separate", "shared"]),
        (["init_with=o"], ["optimizer"]),
        (["algo=gail", "algo.generator=p"], ["ppo1", "ppo2"]),
        (["algo=acktr", "algo.kfac_inverse="], ["cholesky", "eigen"]),
        (["compile=f"], ["false"]),
        (["algo=dqn", "algo.double="], ["false", "true"]),
        (["algo=ppo2", "algo.gamma="], []),
    ],
)
def test_values_of_closed_sets_are_completed(words: list[str], expected: list[str]) -> None:
    key = words[-1].partition("=")[0]
    assert candidates(["train", *words], VERBS) == [f"{key}={value}" for value in expected]


def test_hyperparameters_of_a_generator_are_completed() -> None:
    assert candidates(["train", "algo=gail", "algo.generator=ppo2", "algo.clip"], VERBS) == [
        "algo.clip_range=",
        "algo.clip_range_vf=",
    ]
    assert candidates(["train", "algo=gail", "algo.clip"], VERBS) == []
