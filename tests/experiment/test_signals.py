"""Signals end a run after the update under way, and an environment that hangs ends it, too."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import zoo
from zoo.algorithms.callback import PREEMPTED, Callback
from zoo.algorithms.ppo import PPO2
from zoo.errors import ZooError
from zoo.experiment.experiment import TrainingInterrupted
from zoo.experiment.run_folder import RunFolder
from zoo.experiment.signals import stop_on_signals


class Kill(Callback):
    """Sends signals to this process at the first chance."""

    def __init__(self, *numbers: int) -> None:
        self.every = 64
        self.numbers = numbers

    def on_steps(self, algorithm: Any) -> None:
        for number in self.numbers:
            os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_learning_after_current_update(
    ppo2: Callable[..., PPO2], number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    model = ppo2()
    with stop_on_signals(model):
        model.learn(10_000, Kill(number))
    assert model.stop_reason == PREEMPTED
    assert model.num_timesteps == 64
    assert f"zoo: {number.name}: ending after this update" in capfd.readouterr().err


def test_signal_while_compiling_says_what_it_waits_for(
    ppo2: Callable[..., PPO2], capfd: pytest.CaptureFixture[str]
) -> None:
    model = ppo2()
    with stop_on_signals(model), model.runtime.compile_clock.running():
        os.kill(os.getpid(), signal.SIGINT)
    waits = "ending after this update, once it is compiled; Ctrl-C again stops at once"
    assert waits in capfd.readouterr().err
    assert not model.runtime.compile_clock.is_running


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_slurm_timeout_signal_ends_learning(
    ppo2: Callable[..., PPO2], number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    model = ppo2()
    with stop_on_signals(model):
        model.learn(10_000, Kill(number, number))
    assert (model.stop_reason, model.num_timesteps) == (PREEMPTED, 64)


def test_second_interrupt_raises_at_once(ppo2: Callable[..., PPO2]) -> None:
    model = ppo2()
    with pytest.raises(KeyboardInterrupt), stop_on_signals(model):
        model.learn(10_000, Kill(signal.SIGINT, signal.SIGINT))


SIGNALLING = """
import atexit, os, signal
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

def signal_at(moment):
    for sent in os.environ["SIGNALS"].split():
        where, number = sent.split(":")
        if where == moment:
            os.kill(os.getpid(), getattr(signal, number))

class Signalling(CartPoleEnv):
    n_steps = 0

    def step(self, action):
        Signalling.n_steps += 1
        if Signalling.n_steps == 2000:
            signal_at("step")
        return super().step(action)

    def close(self):
        if Signalling.n_steps >= 2000:
            signal_at("close")
        super().close()

gym.register("Signalling-v0", Signalling, max_episode_steps=100)
atexit.register(signal_at, "exit")
"""


@pytest.mark.parametrize(
    ("signals", "status"),
    [
        ("step:SIGINT close:SIGINT exit:SIGINT exit:SIGTERM", 130),
        pytest.param("close:SIGINT exit:SIGTERM exit:SIGINT", 0, marks=pytest.mark.slow),
    ],
)
def test_signalled_run_exits_with_status_130(signals: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "signalling.py").write_text(SIGNALLING)
    command = [
        *(str(Path(sys.executable).with_name("zoo")), "train", "algo=ppo2", "env=signalling:Signalling-v0"),
        *("n_timesteps=4096", "algo.n_steps=64", "algo.n_epochs=1", "algo.batch_size=64", "n_envs=1"),
        *("compile=false", "threads=1", "callbacks.eval=null", "logger=none", "verbose=0"),
    ]
    environment = {**os.environ, "SIGNALS": signals}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    records = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/*/*/run.json")]
    expected = ["preempted" if "step" in signals else "finished"]
    assert [record["status"] for record in records] == expected


HANG_AFTER = 150
"""Steps of one environment: in the third rollout of 64, and after a checkpoint at the second."""


class HangingOnce(CartPoleEnv):
    """Waits for ever in one step if there is a file, which the first environment takes for itself."""

    n_steps = 0

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        if self.n_steps == HANG_AFTER:
            with contextlib.suppress(FileNotFoundError):
                Path("hang").unlink()
                threading.Event().wait()
        return super().step(action)


@pytest.fixture(autouse=True)
def _env() -> Iterator[None]:
    gym.register("HangingOnce-v0", HangingOnce, max_episode_steps=100)
    yield
    gym.registry.pop("HangingOnce-v0")


HANGING = (
    *("algo=ppo2", "env=HangingOnce-v0", "n_timesteps=512", "n_envs=2", "algo.n_steps=64", "seed=3"),
    *("algo.batch_size=64", "algo.n_epochs=1", "tuned=none", "threads=1", "compile=false", "logger=csv"),
    *("progress_bar=false", "callbacks.eval=null", "callbacks.checkpoint.every=128", "env.check=false"),
    *("env.vectorization=workers", "env.n_workers=2", "env.start_method=fork", "env.step_timeout=0.5"),
)


def test_hanging_env_fails_run_and_keeps_checkpoint() -> None:
    Path("hang").touch()
    with pytest.raises(ZooError, match=r"^env \d \(step \d+ after seed \d+\) has not come back for 0\.5 s"):
        zoo.train(*HANGING)
    run = RunFolder(next(Path("runs").glob("*/*/*/run.json")).parent)
    assert run.read_record()["status"] == "failed"
    assert "has not come back" in run.read_record()["error"]
    assert run.has_checkpoint


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_run_whose_env_hangs(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.envs.subproc_vec_env.SECONDS_AFTER_SIGNAL", 1)
    Path("hang").touch()

    def interrupt() -> None:
        while Path("hang").exists():
            time.sleep(0.1)
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(TrainingInterrupted) as raised:
        zoo.train(*HANGING, "env.step_timeout=null")
    run = raised.value.result.run
    assert run.read_record()["status"] == "preempted"
    assert zoo.train(resume=str(run.path)).is_complete
