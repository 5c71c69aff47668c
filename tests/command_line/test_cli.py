"""The command `zoo`: help, completion, versions, and what a bug report needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.cli import VERBS, status_of

ZOO = str(Path(sys.executable).with_name("zoo"))


@pytest.mark.parametrize("arguments", [[], *([verb] for verb in VERBS)])
def test_help_fits_a_terminal_of_80_columns(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of([*arguments, "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def test_python_m_zoo_ignores_libraries_in_folder(tmp_path: Path) -> None:
    for library in ("hydra", "yaml", "omegaconf"):
        (tmp_path / f"{library}.py").write_text("raise SystemExit('taken from the working folder')")
    command = [sys.executable, "-m", "zoo", "train", "n_timestep=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "`n_timesteps`" in done.stderr


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from zoo.cli import status_of; status_of(['--help']); print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {"torch", "numpy", "hydra", "omegaconf", "gymnasium", "yaml"}
    assert heavy.isdisjoint(modules.splitlines()[-1].split())


def test_closed_pipe_ends_command_quietly(tmp_path: Path) -> None:
    command = f"'{ZOO}' train --help | head -n 1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "Train an agent.\n"
    assert done.stderr == ""


@pytest.mark.parametrize("streams", ["> /dev/full", "2>&-", "<&- >&- 2>&-", "> /dev/full 2> /dev/full"])
def test_stream_that_takes_nothing_fails_no_training(tmp_path: Path, streams: str) -> None:
    settings = "algo=a2c env=CartPole-v1 n_timesteps=40 n_envs=2 compile=false callbacks.eval=null"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = f"'{ZOO}' train {settings} {streams}"
    done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0
    assert len(list(tmp_path.glob("runs/*/*/*/agent/card.json"))) == 1


def test_ascii_stdout_shows_scores() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([ZOO, "agents"], env=environment, capture_output=True, text=True, check=True)
    assert re.search(r"[0-9] \? [0-9.]+ over 100 episodes", done.stdout)


@pytest.mark.parametrize(("given", "found"), [(None, "1"), ("3", "3")])
def test_openblas_defaults_to_one_thread(given: str | None, found: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if given is not None:
        environment["OPENBLAS_NUM_THREADS"] = given
    code = "import os, zoo.cli; print(os.environ['OPENBLAS_NUM_THREADS'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{found}\n"


ASK = """
eval "$(zoo --completion bash)"
COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}
compopt() { :; }
_zoo
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_bash_completes() -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    line = "zoo train algo=ppo2 algo.clip_range_"
    told = subprocess.run(
        ["bash", "-c", ASK, "bash", line], capture_output=True, text=True, check=True, env=environment
    )
    assert "algo.clip_range_vf=" in told.stdout.split(), told.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["algo=recurrent"], ["algo=recurrent_ppo"]),
        (["callbacks.eval.ev"], ["callbacks.eval.every="]),
        (["algo=ppo2", "policy=MlpLn"], ["policy=MlpLnLstmPolicy"]),
        (["algo=ppo2", "algo.clip"], ["algo.clip_range=", "algo.clip_range_vf="]),
        (["algo=recurrent_ppo", "algo.clip_range_"], ["algo.clip_range_vf="]),
        (["algo=ppo2", "algo.gamma="], []),
        (["policy.activation=t"], ["policy.activation=tanh"]),
        (["algo=ppo2", "compile="], ["compile=auto", "compile=false", "compile=true"]),
        (["env=CartPole-v"], ["env=CartPole-v0", "env=CartPole-v1"]),
        (["init_from=runs/"], ["init_from=runs/ppo2/CartPole-v1/20260131-120000_s1"]),
        (["hydra/launcher=sl"], ["hydra/launcher=slurm"]),
        (["hydra/sweeper="], []),
        (["--c"], ["--cfg"]),
    ],
)
def test_names_and_values_are_completed(
    words: list[str], expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "runs" / "ppo2" / "CartPole-v1" / "20260131-120000_s1"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    code = "import sys, zoo.cli; zoo.cli.run(sys.argv[1:]); assert 'torch' not in sys.modules"
    asked = [sys.executable, "-c", code, "--complete", "train", *words]
    assert subprocess.check_output(asked, text=True).split() == expected


def test_bug_report() -> None:
    environment = {**os.environ, "WANDB_API_KEY": "hidden-1", "HTTPS_PROXY": "http://me:hidden-2@127.0.0.1:9"}
    report = subprocess.check_output([ZOO, "doctor"], text=True, env=environment)
    assert "hidden" not in report
    for word in ("zoo", "gymnasium", "hydra-core", "cores", "window", "wandb", "PyTorch version:"):
        assert re.search(rf"^ *{word} ", report, re.MULTILINE), word
