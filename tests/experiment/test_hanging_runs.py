"""A run whose environment hangs ends, by its timeout or by a signal, and can be resumed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import zoo
from zoo.errors import ZooError
from zoo.experiment.run_folder import RunFolder

HANG_AFTER = 150
"""Steps of one environment: in the third rollout of 64, and after a checkpoint at the second."""


class HangingOnce(CartPoleEnv):
    """Waits for ever in one step, if a file says so, having sent the training a signal if it names one."""

    n_steps = 0

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        if self.n_steps == HANG_AFTER and is_told_to_hang():
            number = Path("hanging").read_text()
            if number:
                os.kill(int(Path("trained").read_text()), int(number))
            threading.Event().wait()
        return super().step(action)


def is_told_to_hang() -> bool:
    """Whether a file says so, which the first environment takes for itself."""
    try:
        Path("hang").rename("hanging")
    except FileNotFoundError:
        return False
    return True


@pytest.fixture(autouse=True)
def _env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    gym.register("HangingOnce-v0", HangingOnce, max_episode_steps=100)
    yield
    gym.registry.pop("HangingOnce-v0")


def train(*overrides: str) -> Any:
    Path("trained").write_text(str(os.getpid()))
    return zoo.train(
        zoo.compose(
            "train",
            [
                *("algo=ppo2", "env=HangingOnce-v0", "n_timesteps=512", "n_envs=2", "algo.n_steps=64"),
                *("algo.batch_size=64", "algo.n_epochs=1", "tuned=none", "threads=1", "compile=false"),
                *("progress_bar=false", "logger=csv", "callbacks.eval=null", "seed=3", "env.check=false"),
                *("callbacks.checkpoint.every=128", *overrides),
            ],
        )
    )


def the_run() -> RunFolder:
    return RunFolder(next(Path("runs").glob("*/*/*/run.json")).parent)


WORKERS = ("env.vectorization=workers", "env.n_workers=2", "env.start_method=fork")


def test_hanging_env_ends_the_run_as_failed_and_its_checkpoint_stays() -> None:
    Path("hang").write_text("")
    with pytest.raises(ZooError, match=r"^env \d \(step \d+ after seed \d+\) has not come back for 0\.5 s"):
        train(*WORKERS, "env.step_timeout=0.5")
    record = the_run().read_record()
    assert record["status"] == "failed"
    assert "has not come back" in record["error"]
    assert the_run().has_checkpoint


@pytest.mark.parametrize("where", [(), WORKERS], ids=["here", "workers"])
@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_signal_ends_a_run_whose_env_hangs_and_it_is_resumed(
    number: signal.Signals,
    where: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    whole = train(*where).algorithm.get_parameters()
    the_run().path.rename("whole")
    monkeypatch.setattr("zoo.experiment.signals.PATIENCE", 0.5)
    monkeypatch.setattr("zoo.envs.subproc_vec_env.SECONDS_TO_CLOSE", 0.5)
    Path("hang").write_text(str(int(number)))
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        train(*where)
    assert time.monotonic() - started < 15
    assert "has not come back for 0.5 s: ending without this update" in capfd.readouterr().err
    run = the_run()
    assert run.read_record()["status"] == "preempted"
    assert run.has_checkpoint
    resumed = zoo.train(zoo.compose("train", [f"resume={run.path}"])).algorithm
    assert resumed.num_timesteps == 512
    assert all((resumed.get_parameters()[name] == whole[name]).all() for name in whole)
