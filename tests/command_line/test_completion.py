"""Completion in a real bash, zsh and fish, and the words that shells are told."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zoo.cli import VERBS
from zoo.config.keys import candidates

ASK = """
eval "$(zoo --completion bash)"
COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}
compopt() { :; }
_zoo
printf '%s\\n' "${COMPREPLY[@]}"
"""


LINES = [
    ("zoo tr", "train"),
    ("zoo train algo=recurr", "recurrent_ppo"),
    ("zoo train callbacks.eval.ev", "callbacks.eval.every="),
    ("zoo train algo=ppo2 algo.clip_range_", "algo.clip_range_vf="),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_bash_completes(line: str, expected: str) -> None:
    told = subprocess.run(
        ["bash", "-c", ASK, "bash", line], capture_output=True, text=True, check=True, env=with_zoo()
    )
    assert expected in told.stdout.split(), told.stderr


@pytest.mark.parametrize(("line", "expected"), LINES[1:2])
def test_fish_completes(line: str, expected: str) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    command = f"zoo --completion fish | source; complete -C '{line}'"
    told = subprocess.run(
        ["fish", "--no-config", "-c", command], capture_output=True, text=True, check=True, env=with_zoo()
    )
    assert any(word.endswith(expected) for word in told.stdout.split()), told.stderr


@pytest.mark.parametrize(("line", "expected"), LINES[1:2])
def test_zsh_completes(line: str, expected: str) -> None:
    """It completes only at a terminal: a line is typed, up to its tabulator."""
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**with_zoo(), "TERM": "vt100", "COLUMNS": "200"})
    try:
        typed(
            terminal,
            'autoload -Uz compinit; compinit -u -D; eval "$(zoo --completion zsh)"; echo rea""dy\n',
            "ready",
        )
        assert expected in typed(terminal, f"{line}\t\t", expected)
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def typed(terminal: int, text: str, awaited: str) -> str:
    """Type something, and return what the terminal shows until what is awaited is there, or for 20 s."""
    os.write(terminal, text.encode())
    shown, deadline = "", time.monotonic() + 20
    while awaited not in shown and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):
                shown += os.read(terminal, 65536).decode(errors="replace")
    return shown


def with_zoo() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["algo=recurrent"], ["algo=recurrent_ppo"]),
        (["algo=ppo2", "policy=MlpLn"], ["policy=MlpLnLstmPolicy"]),
        (["algo=ppo2", "algo.clip"], ["algo.clip_range=", "algo.clip_range_vf="]),
        (["algo=recurrent_ppo", "algo.clip_range_"], ["algo.clip_range_vf="]),
        (["algo=ppo2", "algo.gamma="], []),
    ],
)
def test_names_are_completed(words: list[str], expected: list[str]) -> None:
    assert candidates(["train", *words], VERBS) == expected
