"""Runs killed with SIGKILL at a random moment, resumed from the command line, and compared bit for bit."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from forked import Forked
from safetensors.numpy import load_file

from zoo.cli import status_of

RUNS = {
    "ppo2": ["algo=ppo2", "env=CartPole-v1", "n_timesteps=5000", "n_envs=4", "env.normalize=true"],
    "a2c": ["algo=a2c", "env=CartPole-v1", "n_timesteps=12000", "n_envs=4"],
    "ars": [
        *("algo=ars", "env=CartPole-v1", "n_timesteps=20000", "n_envs=4", "env.normalize=true"),
        "algo.n_delta=2",
    ],
    "dqn": [
        *("algo=dqn", "env=CartPole-v1", "n_timesteps=4000", "policy.net_arch=[32]"),
        "algo.optimize_memory_usage=true",
    ],
    "ddpg": [
        *("algo=ddpg", "env=Pendulum-v1", "n_timesteps=2000", "policy=LnMlpPolicy", "policy.net_arch=[32]"),
        *("algo.parameter_noise={}", "algo.normalize_returns=true", "algo.enable_popart=true"),
    ],
    "sac": ["algo=sac", "env=Pendulum-v1", "n_timesteps=500", "policy.net_arch=[32]", "env.normalize=true"],
    "recurrent_ppo": [
        *("algo=recurrent_ppo", "env=CartPole-v1", "n_timesteps=3000", "n_envs=2"),
        *("policy.lstm_hidden_size=16", "algo.n_epochs=2"),
    ],
    "trpo": ["algo=trpo", "env=CartPole-v1", "n_timesteps=12000", "n_envs=4", "algo.n_steps=256"],
}
"""Each algorithm; all episodes go over several checkpoints, and seeds come anew in the middle."""

ENVIRONMENTS = {
    "frames": ["algo=ppo2", "env=CartPole-v1", "env.frame_stack=3", "n_timesteps=8000", "n_envs=2"],
    "time": [
        *("algo=sac", "env=Pendulum-v1", "env.time_feature=true", "n_timesteps=900", "policy.net_arch=[32]")
    ],
    "atari": [
        *("algo=ppo2", "env=ALE/Pong-v5", "policy=CnnPolicy", "n_timesteps=1500", "n_envs=2"),
        "algo.n_steps=32",
    ],
    "mujoco": ["algo=ppo2", "env=Hopper-v5", "n_timesteps=8000", "n_envs=2", "env.normalize=true"],
    "walker": ["algo=ppo2", "env=BipedalWalker-v3", "n_timesteps=8000", "n_envs=2"],
    "bullet": ["algo=ppo2", "env=HopperBulletEnv-v0", "n_timesteps=8000", "n_envs=2"],
    "native": [
        *("algo=ppo2", "env=CartPole-v1", "env.vectorization=native", "n_timesteps=12000", "n_envs=4"),
        "env.normalize=true",
    ],
    "wrapped": [
        *("algo=a2c", "env=CartPole-v1", "env.frame_stack=2", "env.time_feature=true", "n_envs=2"),
        *("env.action_repeat=2", "env.normalize=true", "n_timesteps=4000"),
    ],
}
"""What wrappers and simulators keep between episodes.

Walkers and PyBullet are made anew where they are seeded; native vector environments are reset at checkpoints.
"""

MEMORIES = {
    "prioritized": [
        *("algo=td3", "env=Pendulum-v1", "n_timesteps=500", "policy.net_arch=[32]", "algo.buffer_size=300"),
        *("replay=prioritized", "replay.n_step=3"),
    ],
    "hindsight": [
        *("algo=her_sac", "env=Zoo/BitFlippingContinuous-v0", "n_timesteps=900", "policy.net_arch=[32]"),
        *("n_envs=2", "algo.buffer_size=500"),
    ],
}
"""Rings that are full before the end, with priorities, and with episodes that are drawn from anew."""

EVERY = {
    "ppo2": 900,
    "a2c": 2000,
    "dqn": 700,
    "ddpg": 300,
    "sac": 150,
    "wrapped": 900,
    "recurrent_ppo": 700,
    "frames": 1500,
    "time": 200,
    "atari": 300,
    "prioritized": 150,
    "hindsight": 200,
}
QUICK = [("ppo2", "here"), ("prioritized", "here")]
"""One that learns from rollouts and one with a buffer: not every change has to try the others."""

EVERYTHING = {**RUNS, **ENVIRONMENTS, **MEMORIES}

WORKERS = ["env.vectorization=workers", "env.n_workers=2", "n_envs=4"]


def command(what: str, *overrides: str) -> list[str]:
    every = EVERY.get(what, 2000)
    reseed = [] if what == "native" else ["env.reseed_every=400"]
    return [
        *("train", *EVERYTHING[what], "tuned=none", "seed=3", *reseed, "threads=1"),
        *("compile=false", "verbose=0", "logger=csv", "callbacks.eval.n_episodes=2"),
        *(f"callbacks.eval.every={every}", f"callbacks.checkpoint.every={every}", *overrides),
    ]


Process = Forked | subprocess.Popen[bytes]


def started(arguments: list[str], folder: Path) -> Process:
    """Start `zoo`; one with worker processes has to start them all itself, to be killed with them."""
    if WORKERS[0] not in arguments and not list(folder.glob("in_workers")):
        return Forked(lambda: status_of(arguments), folder)
    (folder / "in_workers").touch()
    zoo = str(Path(sys.executable).with_name("zoo"))
    return subprocess.Popen([zoo, *arguments], cwd=folder, start_new_session=True)


class Span(NamedTuple):
    """Between which moments of its own computing a process trains, in seconds; the same on a busy machine."""

    began: float
    ended: float

    def between(self, start: float, end: float, draws: random.Random) -> float:
        """Return a random moment between two parts of the training."""
        return self.began + draws.uniform(start, end) * (self.ended - self.began)

    def any_moment(self, draws: random.Random) -> float:
        """Return a random moment: mostly of the training, now and then before it."""
        return draws.uniform(0.0, self.began) if draws.random() < 0.2 else self.between(0.0, 1.0, draws)


def cpu_seconds(process: Process) -> float:
    """Return how long a process that has not been waited for has computed, without its workers."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def has_ended_by(process: Process, moment: float) -> bool:
    """Wait until a process has computed for so many seconds; tell whether it has ended by then."""
    deadline = time.monotonic() + 600
    while process.poll() is None and cpu_seconds(process) < moment:
        assert time.monotonic() < deadline, "the run hangs"
        time.sleep(0.005)
    return process.poll() is not None


def train_whole(algo: str, folder: Path, *overrides: str) -> tuple[Path, Span]:
    """Train without a break; return the run's folder and when it trained."""
    folder.mkdir()
    process = started(command(algo, *overrides), folder)
    began = ended = 0.0
    while process.poll() is None:
        ended = cpu_seconds(process)
        if not list(folder.glob("runs/*/*/*/run.json")):
            began = ended
        time.sleep(0.005)
    assert process.returncode == 0
    return run_folder(folder), Span(began, ended)


def train_killed(algo: str, folder: Path, moments: list[float], *overrides: str) -> Path:
    """Train, killing the whole process group after each of these seconds and resuming, to the end."""
    folder.mkdir()
    arguments = command(algo, *overrides)
    for moment in moments:
        process = started(arguments, folder)
        if has_ended_by(process, moment):
            assert process.returncode == 0
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if has_finished(folder):
            break
        if list(folder.glob("runs/*/*/*/config.yaml")):
            arguments = ["train", f"resume={run_folder(folder)}"]
    else:
        assert started(arguments, folder).wait(300) == 0
    return run_folder(folder)


def has_finished(folder: Path) -> bool:
    """Whether the kill came only after the run had done everything."""
    return any('"finished"' in path.read_text() for path in folder.glob("runs/*/*/*/run.json"))


def run_folder(folder: Path) -> Path:
    """Return the newest run in a folder: a run killed before it wrote its config left nothing to resume."""
    return max(path.parent for path in folder.glob("runs/*/*/*/config.yaml"))


def assert_same_end(killed: Path, whole: Path) -> None:
    for name in (
        "agent/policy.safetensors",
        "best_agent/policy.safetensors",
        "agent/normalization.safetensors",
    ):
        assert (killed / name).exists() == (whole / name).exists()
        if (whole / name).exists():
            ours, theirs = load_file(killed / name), load_file(whole / name)
            assert all(np.array_equal(ours[key], theirs[key]) for key in theirs), name
    for path in sorted((whole / "monitor").iterdir()):
        ours, theirs = (
            [row[:2] for row in csv.reader(each.open()) if not row[0].startswith("#")]
            for each in (killed / "monitor" / path.name, path)
        )
        assert ours == theirs, path.name
    ours, theirs = np.load(killed / "evaluations.npz"), np.load(whole / "evaluations.npz")
    assert all(np.array_equal(ours[key], theirs[key]) for key in ("timesteps", "results", "ep_lengths"))
    assert logged(killed) == logged(whole)


def logged(run: Path) -> list[dict[str, str]]:
    """Return the rows of progress.csv without what a clock decides."""
    rows = list(csv.DictReader((run / "progress.csv").open()))
    return [
        {key: value for key, value in row.items() if key not in ("time/fps", "time/time_elapsed")}
        for row in rows
    ]


@pytest.mark.parametrize(
    ("what", "where"),
    [
        pytest.param(what, where, marks=[] if (what, where) in QUICK else pytest.mark.slow)
        for what, where in (*((each, "here") for each in EVERYTHING), *((each, "workers") for each in RUNS))
    ],
)
def test_killed_run_ends_as_if_never_stopped(what: str, where: str, tmp_path: Path) -> None:
    overrides = WORKERS if where == "workers" else []
    whole, span = train_whole(what, tmp_path / "whole", *overrides)
    moment = span.between(0.1, 0.95, random.Random(f"{what}{overrides}"))
    assert_same_end(train_killed(what, tmp_path / "killed", [moment], *overrides), whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "overrides"),
    [
        *(pytest.param(what, [], id=what) for what in EVERYTHING),
        *(pytest.param(what, WORKERS, id=f"{what}-workers") for what in RUNS),
    ],
)
def test_run_killed_20_times_ends_as_if_never_stopped(
    what: str, overrides: list[str], tmp_path: Path
) -> None:
    """Up to three times in a row: also soon after it was resumed."""
    whole, span = train_whole(what, tmp_path / "whole", *overrides)
    draws = random.Random(f"{what}{overrides}")
    n_kills, n_runs = 0, 0
    while n_kills < 20:
        moments = [span.any_moment(draws) for _ in range(draws.randint(1, 3))]
        killed = train_killed(what, tmp_path / f"killed {n_runs}", moments, *overrides)
        assert_same_end(killed, whole)
        assert not list(killed.rglob("*.partial*")), "nothing half-written stays"
        record = json.loads((killed / "run.json").read_text())
        n_kills, n_runs = n_kills + len(record.get("resumed", [])), n_runs + 1


def train_terminated(algo: str, folder: Path, moment: float, *overrides: str) -> Path:
    """Train, ask for the end at a moment, and go on from there, with checkpoints at other steps."""
    folder.mkdir()
    process = started(command(algo, *overrides), folder)
    while not list(folder.glob("runs/*/*/*/run.json")) and process.poll() is None:
        time.sleep(0.02)  # before there is a run nobody has promised anything
    if not has_ended_by(process, moment):
        process.send_signal(signal.SIGTERM)
    status = process.wait(60)
    run = run_folder(folder)
    record = json.loads((run / "run.json").read_text())
    if record["status"] == "finished":
        return run  # the signal came after everything was done
    assert (status, record["status"]) == (130, "preempted")
    checkpoint = json.loads((run / "checkpoint" / "checkpoint.json").read_text())
    assert checkpoint["timesteps"] == record["timesteps"], "the checkpoint is where the run stopped"
    again = ["train", f"resume={run}", "callbacks.checkpoint.every=777", "verbose=1"]
    resumed = Forked(lambda: status_of(again), folder)
    printed, _ = resumed.communicate()
    assert resumed.returncode == 0
    assert f"from step {record['timesteps']:,}, its last checkpoint" in printed
    return run


@pytest.mark.slow
@pytest.mark.parametrize("algo", RUNS)
def test_run_that_a_signal_ended_goes_on_where_it_was(algo: str, tmp_path: Path) -> None:
    whole, span = train_whole(algo, tmp_path / "whole")
    moment = span.between(0.1, 0.7, random.Random(algo))
    assert_same_end(train_terminated(algo, tmp_path / "terminated", moment), whole)


def test_checkpoints_do_not_change_logs_or_weights(tmp_path: Path) -> None:
    """CartPole's logged return and its weights are those of a run without any."""
    without, _ = train_whole("ppo2", tmp_path / "without", "callbacks.checkpoint=null")
    often, _ = train_whole("ppo2", tmp_path / "often", "callbacks.checkpoint.every=300")
    assert logged(without) == logged(often)
    returns = [row["rollout/ep_rew_mean"] for row in logged(without)]
    assert float([each for each in returns if each][-1]) > 20
    assert_same_end(often, without)


@pytest.mark.slow
@pytest.mark.parametrize("algo", RUNS)
def test_killed_compiled_run_ends_as_if_never_stopped(algo: str, tmp_path: Path) -> None:
    train_whole(algo, tmp_path / "first", "compile=true")
    whole, span = train_whole(algo, tmp_path / "whole", "compile=true")  # the compiler's cache is filled
    moment = span.between(0.1, 0.95, random.Random(algo))
    assert_same_end(train_killed(algo, tmp_path / "killed", [moment], "compile=true"), whole)
