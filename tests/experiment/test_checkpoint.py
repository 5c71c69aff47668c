"""Checkpoints: whole or not at all, and a run goes on from one as if it had never stopped."""

from __future__ import annotations

import contextlib
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy_policies import ChangedObservations

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.callback import PREEMPTED, Callback, Training
from zoo.algorithms.ppo import PPO2
from zoo.core.plain_data import to_json
from zoo.errors import ZooError
from zoo.experiment.callbacks import EvalCallback
from zoo.experiment.checkpoint import CheckpointCallback, read_checkpoint, restore

SMALL = {"name": "MlpPolicy", "net_arch": [8]}

Limit = Callable[[int], contextlib.AbstractContextManager[None]]


class StopAt(Callback):
    """Ends a run as a signal does."""

    def __init__(self, timesteps: int) -> None:
        self.every = timesteps

    def on_steps(self, algorithm: Algorithm[Any]) -> None:
        algorithm.request_stop(PREEMPTED)


def weights(model: Algorithm[Any]) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in model.runner.state.items()}


def test_full_disk_loses_no_checkpoint_and_the_run_goes_on(
    tmp_path: Path, ppo2: Callable[..., PPO2], no_larger_files: Limit, capsys: pytest.CaptureFixture[str]
) -> None:
    model, folder = ppo2(), tmp_path / "checkpoint"
    model.learn(64, CheckpointCallback(folder, every=64))
    before = sorted(path.name for path in folder.iterdir())
    with no_larger_files(20_000):
        model.learn(128, CheckpointCallback(folder, every=64), reset_num_timesteps=False)
    assert model.num_timesteps == 192
    assert sorted(path.name for path in folder.iterdir()) == before
    assert read_checkpoint(folder).timesteps == 64
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("the run goes on, and the previous checkpoint, if any, stays" in line for line in lines)
    assert "File too large" in lines[0]


def test_the_two_newest_checkpoints_are_kept(tmp_path: Path, ppo2: Callable[..., PPO2]) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("100-0123abcd.safetensors", ".100-0123abcd.safetensors.0000abcd.partial"):
        (folder / name).write_text("what a killed process began")
    for name in ("thesis.tex", "model.safetensors", ".hidden", ".checkpoint.json.swp"):
        (folder / name).write_text("not a checkpoint's")
    ppo2().learn(256, CheckpointCallback(folder, every=64))
    names = sorted(path.name for path in folder.iterdir())
    assert [re.sub("-.*", "", name) for name in names] == [
        *(".checkpoint.json.swp", ".hidden", "192", "256", "checkpoint.json", "model.safetensors"),
        *("previous.json", "thesis.tex"),
    ]


def flip_a_bit(path: Path, place: float) -> None:
    """Flip one bit of a file, at a fraction of its length."""
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 4
    path.write_bytes(content)


def newest_arrays(folder: Path) -> Path:
    return folder / str(json.loads((folder / "checkpoint.json").read_text())["tensors"])


@pytest.mark.parametrize("place", [0.001, 0.6])
@pytest.mark.parametrize("which", ["arrays", "values"])
def test_a_flipped_bit_makes_the_run_go_on_from_the_checkpoint_before(
    which: str, place: float, tmp_path: Path, ppo2: Callable[..., PPO2], capsys: pytest.CaptureFixture[str]
) -> None:
    whole = ppo2().learn(256)
    ppo2().learn(192, CheckpointCallback(tmp_path, every=64))
    flip_a_bit(newest_arrays(tmp_path) if which == "arrays" else tmp_path / "checkpoint.json", place)
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.timesteps == 128
    (line,) = capsys.readouterr().err.splitlines()
    assert "is damaged" in line
    assert line.endswith("the run goes on from the checkpoint before, at step 128")

    resumed = ppo2()
    restore(checkpoint, resumed)
    assert read_checkpoint(tmp_path).timesteps == 128, "the damaged one is not read again"
    assert not capsys.readouterr().err
    resumed.learn(64, CheckpointCallback(tmp_path, every=64), reset_num_timesteps=False)
    flip_a_bit(newest_arrays(tmp_path), place)
    assert read_checkpoint(tmp_path).timesteps == 128, "a damaged one takes no whole one's place"
    assert weights(resumed.learn(64, reset_num_timesteps=False)) == weights(whole)


def test_two_damaged_checkpoints_are_told_with_what_can_be_done(
    tmp_path: Path, ppo2: Callable[..., PPO2]
) -> None:
    folder = tmp_path / "checkpoint"
    ppo2().learn(128, CheckpointCallback(folder, every=64))
    for path in folder.glob("*.safetensors"):
        flip_a_bit(path, 0.5)
    with pytest.raises(ZooError) as raised:
        read_checkpoint(folder)
    assert str(raised.value).count("is damaged") == 2
    assert f"init_from={tmp_path}" in str(raised.value)
    assert f"Without {folder} the run starts anew" in str(raised.value)


def test_a_signal_writes_a_checkpoint_at_once(tmp_path: Path, ppo2: Callable[..., PPO2]) -> None:
    ppo2().learn(640, [CheckpointCallback(tmp_path, every=400), StopAt(128)])
    assert read_checkpoint(tmp_path).timesteps == 128


def test_checkpoints_by_the_clock(tmp_path: Path, ppo2: Callable[..., PPO2]) -> None:
    ppo2().learn(256, CheckpointCallback(tmp_path / "seldom", minutes=60))
    assert not (tmp_path / "seldom").exists()
    ppo2().learn(256, CheckpointCallback(tmp_path / "often", minutes=1e-9))
    assert read_checkpoint(tmp_path / "often").timesteps == 256


class OutOfReach(SyncVectorEnv):
    """A vector environment that resets its environments by itself."""

    def __init__(self, n: int = 2) -> None:
        super().__init__([CartPoleEnv] * n, autoreset_mode=AutoresetMode.SAME_STEP)


def test_environments_out_of_reach_are_reset_at_checkpoints_and_the_run_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ppo2_out_of_reach() -> PPO2:
        return PPO2(SMALL, OutOfReach(), seed=1, compile=False, n_steps=32, n_epochs=1)

    straight = ppo2_out_of_reach().learn(640, CheckpointCallback(tmp_path / "a", every=128))
    assert "can't be replayed: every 128 steps a checkpoint resets them" in capsys.readouterr().err
    callback = CheckpointCallback(tmp_path / "b", every=128)
    ppo2_out_of_reach().learn(640, [callback, StopAt(320)])
    checkpoint = read_checkpoint(tmp_path / "b")
    assert checkpoint.timesteps == 256, "a signal must not reset them at another step"
    resumed = ppo2_out_of_reach()
    restore(checkpoint, resumed)
    resumed.learn(640 - 256, CheckpointCallback(tmp_path / "b", every=128), reset_num_timesteps=False)
    assert weights(resumed) == weights(straight)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 4, "timesteps": 1}'])
def test_damaged_checkpoint_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "checkpoint.json").write_text(text)
    with pytest.raises(ZooError, match=r"checkpoint\.json is damaged"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("record", "version"), [({"format": 2}, "earlier"), ({"format": 3}, "earlier"), ({"format": 99}, "later")]
)
def test_checkpoint_of_another_version_is_named(record: dict[str, Any], version: str, tmp_path: Path) -> None:
    record |= {"timesteps": 1}
    if record["format"] > 2:  # the first formats had no checksum
        record["checksum"] = zlib.crc32(to_json(record).encode())
    (tmp_path / "checkpoint.json").write_text(to_json(record))
    with pytest.raises(ZooError, match=f"by an? {version} version of Zoo, which can go on with it"):
        read_checkpoint(tmp_path)


class Score(Callback):
    """Ends a run as reaching a score does."""

    def __init__(self, timesteps: int) -> None:
        self.every = timesteps

    def on_steps(self, algorithm: Training) -> None:
        algorithm.request_stop("good enough")


@pytest.mark.parametrize("then_a_signal", [False, True])
def test_a_run_that_had_reached_its_end_is_not_trained_on(tmp_path: Path, then_a_signal: bool) -> None:
    def ppo2_small() -> PPO2:
        return PPO2(SMALL, "CartPole-v1", n_envs=2, seed=1, compile=False, n_steps=32, n_epochs=1)

    signals = [StopAt(128)] if then_a_signal else []
    ppo2_small().learn(640, [Score(128), *signals, CheckpointCallback(tmp_path, every=64)])
    resumed = ppo2_small()
    restore(read_checkpoint(tmp_path), resumed)
    assert resumed.learn(512, reset_num_timesteps=False).num_timesteps == 128
    assert resumed.stop_reason == "good enough"
    assert resumed.learn(64, reset_num_timesteps=False).num_timesteps == 192


@pytest.mark.parametrize("deterministic", [True, False])
def test_evaluations_change_nothing_of_a_training_and_depend_on_their_seed_alone(
    tmp_path: Path, deterministic: bool
) -> None:
    """Also where the policy draws from torch by itself, and one evaluation is broken off and made again."""

    class Breaking(EvalCallback):
        broken_at = 0

        def _evaluate(self, algorithm: Training, *how: int) -> Any:
            if algorithm.num_timesteps == self.broken_at:
                self.broken_at = 0
                algorithm.request_stop(PREEMPTED)
            return super()._evaluate(algorithm, *how)

    def trained(evaluation: EvalCallback | None, total: int = 384) -> PPO2:
        policy = {"net_arch": [8], "_target_": f"{__name__}.DropoutPolicy"}
        model = PPO2(policy, "CartPole-v1", n_envs=2, seed=1, compile=False, n_steps=32, n_epochs=1)
        callbacks = [] if evaluation is None else [evaluation]
        model.learn(total, [*callbacks, CheckpointCallback(tmp_path, every=10**6, callbacks=callbacks)])
        return model

    def evaluation() -> Breaking:
        return Breaking("CartPole-v1", every=128, n_eval_episodes=3, deterministic=deterministic)

    alone, watch, broken = trained(None), evaluation(), evaluation()
    assert weights(trained(watch)) == weights(alone)
    broken.broken_at = 256
    model = trained(broken)
    assert (model.num_timesteps, broken.n_evaluations) == (256, 1)
    model.learn(128, broken, reset_num_timesteps=False)
    assert weights(model) == weights(alone)
    assert broken.n_evaluations == watch.n_evaluations == 3
    assert watch.last is not None
    assert broken.last is not None
    assert broken.last.returns.tolist() == watch.last.returns.tolist()


class DropoutPolicy(ChangedObservations):
    """Draws from torch in each forward pass."""

    def changed(self, observations: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(observations, 0.3)
