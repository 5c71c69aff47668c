"""Checkpoints: whole or not at all, and a run goes on from one as if it had never stopped."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from own_sight import OwnSight

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.callback import PREEMPTED, Callback, Training
from zoo.algorithms.dqn import DQN
from zoo.algorithms.ppo import PPO2
from zoo.algorithms.sac import SAC
from zoo.envs.vec_env import make_vec_env
from zoo.errors import ZooError
from zoo.files.plain_data import to_json
from zoo.training.checkpoint import CheckpointCallback, read_checkpoint, restore, write_checkpoint
from zoo.training.configured_callbacks import make_callbacks
from zoo.training.eval_callback import EvalCallback
from zoo.training.run_folder import RunFolder

SMALL = {"name": "MlpPolicy", "net_arch": [8]}

Limit = Callable[[int], contextlib.AbstractContextManager[None]]


class StopAt(Callback):
    """Ends a run as a signal does."""

    def __init__(self, timesteps: int) -> None:
        self.every = timesteps

    def on_steps(self, algorithm: Algorithm[Any]) -> None:
        algorithm.request_stop(PREEMPTED)


def files_without_times(run: RunFolder) -> dict[str, Any]:
    """Return what a run wrote but the moments at which it did."""
    with open(run.progress) as file:
        progress = [
            {key: value for key, value in row.items() if key not in ("time/fps", "time/time_elapsed")}
            for row in csv.DictReader(file)
        ]
    monitors = [
        [row.split(",")[:2] for row in path.read_text().splitlines()[1:]]
        for path in sorted(run.monitor.iterdir())
    ]
    with np.load(run.evaluations) as evaluations:
        results = {key: evaluations[key].tolist() for key in evaluations.files}
    return {"progress": progress, "monitors": monitors, "evaluations": results}


def weights(model: Algorithm[Any]) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in model.program.state.items()}


def make_ppo2(run: RunFolder) -> PPO2:
    envs = make_vec_env("CartPole-v1", 2, monitor_dir=run.monitor, normalize=True)
    return PPO2(SMALL, envs, seed=1, compile=False, n_steps=32, n_epochs=1)


def make_dqn(run: RunFolder) -> DQN:
    envs = make_vec_env("CartPole-v1", 2, monitor_dir=run.monitor)
    return DQN(SMALL, envs, seed=1, compile=False, learning_starts=64, buffer_size=300, train_freq=8)


def make_sac(run: RunFolder) -> SAC:
    envs = make_vec_env("Pendulum-v1", 2, monitor_dir=run.monitor)
    return SAC(SMALL, envs, seed=1, compile=False, learning_starts=64, batch_size=8, train_freq=8)


MEMORY = {"n_step": 3, "prioritized": {}}


def make_prioritized_dqn(run: RunFolder) -> DQN:
    envs = make_vec_env("CartPole-v1", 2, monitor_dir=run.monitor)
    sizes = {"learning_starts": 64, "buffer_size": 300, "train_freq": 8, "optimize_memory_usage": True}
    return DQN(SMALL, envs, seed=1, compile=False, memory=MEMORY, **sizes)


def make_prioritized_sac(run: RunFolder) -> SAC:
    envs = make_vec_env("Pendulum-v1", 2, monitor_dir=run.monitor)
    sizes = {"learning_starts": 64, "buffer_size": 300, "train_freq": 8, "batch_size": 8}
    return SAC(SMALL, envs, seed=1, compile=False, memory=MEMORY, **sizes)


@pytest.mark.parametrize(
    ("make", "env"),
    [
        (make_ppo2, "CartPole-v1"),
        (make_dqn, "CartPole-v1"),
        (make_sac, "Pendulum-v1"),
        (make_prioritized_dqn, "CartPole-v1"),
        (make_prioritized_sac, "Pendulum-v1"),
    ],
)
def test_resumed_run_ends_as_if_it_had_never_stopped(
    make: Callable[[RunFolder], Algorithm[Any]], env: str, tmp_path: Path, config: dict[str, Any]
) -> None:
    whole = RunFolder.create(tmp_path, "x", env, 0)
    straight = make(whole).learn(640, make_callbacks(config, whole, env))

    run = RunFolder.create(tmp_path, "x", env, 0)
    make(run).learn(640, [*make_callbacks(config, run, env), StopAt(320)])
    assert read_checkpoint(run.checkpoint).timesteps == 320

    resumed, callbacks = make(run), make_callbacks(config, run, env)
    restore(read_checkpoint(run.checkpoint), resumed, callbacks)
    left = resumed.total_timesteps - resumed.num_timesteps
    resumed.learn(left, callbacks, reset_num_timesteps=False)

    assert resumed.num_timesteps == straight.num_timesteps
    assert weights(resumed) == weights(straight)
    assert files_without_times(run) == files_without_times(whole)


def test_run_killed_while_it_writes_checkpoints_leaves_a_whole_one(tmp_path: Path) -> None:
    program = """
import sys
from zoo.algorithms.dqn import DQN
from zoo.files.plain_data import to_json
from zoo.training.checkpoint import CheckpointCallback
model = DQN("MlpPolicy", "CartPole-v1", seed=0, compile=False, learning_starts=10**9, train_freq=1)
print("starts", flush=True)
model.learn(10**9, CheckpointCallback(sys.argv[1], every=1))
"""
    for _ in range(2):
        folder = tmp_path / "checkpoint"
        with subprocess.Popen(
            [sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            while not (folder / "checkpoint.json").exists():
                pass
            for _ in range(100):
                assert read_or_retry(folder) > 0
            os.kill(process.pid, signal.SIGKILL)
        checkpoint = read_checkpoint(folder)
        model = DQN("MlpPolicy", "CartPole-v1", compile=False)
        restore(checkpoint, model)
        assert model.num_timesteps == checkpoint.timesteps > 0


def read_or_retry(folder: Path) -> int:
    """Read a checkpoint that may be replaced between its two files."""
    try:
        return read_checkpoint(folder).timesteps
    except ZooError as error:
        if "is missing" not in str(error):
            raise
        return read_or_retry(folder)


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


def test_checkpoint_on_a_disk_that_really_is_full(tmp_path: Path, ppo2: Callable[..., PPO2]) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        model = ppo2()
        model.learn(64, CheckpointCallback(disk / "checkpoint", every=64))
        with contextlib.suppress(OSError):
            (disk / "rest").write_bytes(bytes(300_000))
        model.learn(64, CheckpointCallback(disk / "checkpoint", every=64), reset_num_timesteps=False)
        assert read_checkpoint(disk / "checkpoint").timesteps == 64
        assert not list((disk / "checkpoint").glob(".*"))
        (disk / "rest").unlink()
        write_checkpoint(disk / "checkpoint", model)
        assert read_checkpoint(disk / "checkpoint").timesteps == 128
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_unwritable_folder_is_told_and_the_run_goes_on(
    tmp_path: Path, ppo2: Callable[..., PPO2], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoint").write_text("a file")
    model = ppo2().learn(64, CheckpointCallback(tmp_path / "checkpoint", every=64))
    assert model.num_timesteps == 64
    assert "can't write" in capsys.readouterr().err


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


@pytest.mark.parametrize("place", [0.001, 0.3, 0.999])
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


@pytest.mark.parametrize("lost", ["checkpoint.json", "arrays"])
def test_a_lost_file_makes_the_run_go_on_from_the_checkpoint_before(
    lost: str, tmp_path: Path, ppo2: Callable[..., PPO2], capsys: pytest.CaptureFixture[str]
) -> None:
    ppo2().learn(192, CheckpointCallback(tmp_path / "checkpoint", every=64))
    folder = RunFolder(tmp_path).checkpoint
    (newest_arrays(folder) if lost == "arrays" else folder / lost).unlink()
    assert RunFolder(tmp_path).has_checkpoint
    assert read_checkpoint(folder).timesteps == 128
    assert "is missing" in capsys.readouterr().err


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


def test_a_damaged_checkpoint_does_not_become_the_one_before(
    tmp_path: Path, ppo2: Callable[..., PPO2]
) -> None:
    model = ppo2().learn(128, CheckpointCallback(tmp_path, every=64))
    (tmp_path / "checkpoint.json").write_text("{")
    write_checkpoint(tmp_path, model)
    assert json.loads((tmp_path / "previous.json").read_text())["timesteps"] == 64


def test_there_is_a_whole_checkpoint_whenever_a_process_is_killed(
    tmp_path: Path, ppo2: Callable[..., PPO2], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each change of a name in the folder, and with every one that follows undone."""
    model = ppo2().learn(128, CheckpointCallback(tmp_path, every=64))
    found: list[int] = []
    replace, unlink = os.replace, Path.unlink

    def look() -> None:
        shutil.copytree(tmp_path, copy := tmp_path.with_name(f"copy {len(found)}"))
        found.append(read_checkpoint(copy).timesteps)

    def looking_replace(*names: Any) -> None:
        look()
        replace(*names)
        look()

    def looking_unlink(path: Path, **options: Any) -> None:
        unlink(path, **options)
        look()

    model.learn(64, reset_num_timesteps=False)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", looking_replace)
        patched.setattr(Path, "unlink", looking_unlink)
        write_checkpoint(tmp_path, model)
    assert found == sorted(found)
    assert set(found) == {128, 192}
    assert len(found) >= 7


def test_checkpoint_holds_neither_pickle_nor_code(tmp_path: Path, ppo2: Callable[..., PPO2]) -> None:
    ppo2().learn(64, CheckpointCallback(tmp_path, every=64))
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_a_signal_writes_a_checkpoint_at_once(tmp_path: Path, ppo2: Callable[..., PPO2]) -> None:
    ppo2().learn(640, [CheckpointCallback(tmp_path, every=400), StopAt(128)])
    assert read_checkpoint(tmp_path).timesteps == 128


def test_checkpoints_by_the_clock(tmp_path: Path, ppo2: Callable[..., PPO2]) -> None:
    ppo2().learn(256, CheckpointCallback(tmp_path / "seldom", minutes=60))
    assert not (tmp_path / "seldom").exists()
    ppo2().learn(256, CheckpointCallback(tmp_path / "often", minutes=1e-9))
    assert read_checkpoint(tmp_path / "often").timesteps == 256


def test_checkpoints_change_nothing_of_a_training(tmp_path: Path) -> None:
    """Neither that there are any nor how often they come, on steps or by the clock."""

    def trained(*callbacks: Callback) -> dict[str, Any]:
        envs = make_vec_env("CartPole-v1", 2, normalize=True, reseed_every=50)
        model = PPO2(SMALL, envs, seed=1, compile=False, n_steps=32, n_epochs=1)
        model.learn(1500, callbacks)
        episodes = [(each.episode_return, each.length) for each in model.recent_episodes]
        return {**weights(model), "episodes": episodes, "rng": model.rng.bit_generator.state}

    without = trained()
    assert without["episodes"]
    assert trained(CheckpointCallback(tmp_path, every=64)) == without
    assert trained(CheckpointCallback(tmp_path, every=500)) == without
    assert trained(CheckpointCallback(tmp_path, minutes=1e-9)) == without


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
    with pytest.raises(ZooError, match="the run would depend on the clock"):
        ppo2_out_of_reach().learn(64, CheckpointCallback(tmp_path / "c", minutes=5))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 4, "timesteps": 1}'])
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


def test_truncated_arrays_are_named(tmp_path: Path, ppo2: Callable[..., PPO2]) -> None:
    ppo2().learn(64, CheckpointCallback(tmp_path, every=64))
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ZooError, match=r"safetensors is damaged"):
        read_checkpoint(tmp_path)


def test_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match="there is no checkpoint in"):
        read_checkpoint(tmp_path)


def test_state_of_a_callback_that_the_run_lacks_is_refused(
    tmp_path: Path, ppo2: Callable[..., PPO2], config: dict[str, Any], run: RunFolder
) -> None:
    ppo2().learn(192, make_callbacks(config, run, "CartPole-v1"))
    with pytest.raises(ZooError, match="the state of EvalCallback, LoggingCallback, which this run does not"):
        restore(read_checkpoint(run.checkpoint), ppo2())


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

        def _evaluate(self, algorithm: Training) -> Any:
            if algorithm.num_timesteps == self.broken_at:
                self.broken_at = 0
                algorithm.request_stop(PREEMPTED)
            return super()._evaluate(algorithm)

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


class DropoutPolicy(OwnSight):
    """Draws from torch in each forward pass."""

    def changed(self, observations: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(observations, 0.3)


def test_a_state_from_before_the_first_step_can_be_loaded() -> None:
    model, other = (PPO2(SMALL, "CartPole-v1", seed=seed, compile=False, n_steps=32) for seed in (1, 2))
    other.load_state(model.state())
    assert weights(other.learn(64)) == weights(model.learn(64))


def test_a_kept_state_is_not_changed_by_what_follows() -> None:
    model = PPO2(SMALL, "CartPole-v1", seed=1, compile=False, n_steps=32).learn(64)
    state = model.state()
    before = state["tensors"]["policy"].copy()
    model.learn(64)
    assert np.array_equal(state["tensors"]["policy"], before)


def test_a_signal_during_the_last_evaluation_leaves_the_run_ended(tmp_path: Path) -> None:
    def ppo2_small() -> PPO2:
        return PPO2(SMALL, "CartPole-v1", n_envs=2, seed=1, compile=False, n_steps=32, n_epochs=1)

    model = ppo2_small().learn(640, Score(128))
    model.request_stop(PREEMPTED)
    write_checkpoint(tmp_path, model)
    resumed = ppo2_small()
    restore(read_checkpoint(tmp_path), resumed)
    assert resumed.learn(512, reset_num_timesteps=False).num_timesteps == 128
    assert resumed.learn(64, reset_num_timesteps=False).num_timesteps == 192
    assert model.learn(64, reset_num_timesteps=False).num_timesteps == 192
