"""Checkpoints: whole or not at all, and with the replay buffer written about once."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy_policies import ChangedObservations

from zoo.algorithms.acer import ACER
from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.callback import PREEMPTED, Callback, Training
from zoo.algorithms.dqn import DQN
from zoo.algorithms.ppo import PPO2
from zoo.buffers import replay
from zoo.core import atomic
from zoo.core.plain_data import to_json
from zoo.envs.make_env import make_vec_env
from zoo.errors import ZooError
from zoo.experiment.callbacks import EvalCallback
from zoo.experiment.checkpoint import CheckpointCallback, read_checkpoint, restore, write_checkpoint

SMALL = {"name": "MlpPolicy", "net_arch": [8]}

Limit = Callable[[int], contextlib.AbstractContextManager[None]]


class StopAt(Callback):
    """Ends a run as a signal does, or for another reason, every so many steps."""

    def __init__(self, timesteps: int, reason: str = PREEMPTED) -> None:
        self.every, self.reason = timesteps, reason

    def on_steps(self, algorithm: Training) -> None:
        algorithm.request_stop(self.reason)


def weights(model: Algorithm) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in model.runner.state.items()}


def test_full_disk_keeps_checkpoint_and_run_continues(
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


def test_old_and_partial_checkpoints_are_deleted(tmp_path: Path, ppo2: Callable[..., PPO2]) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("100-0123abcd.safetensors", ".100-0123abcd.safetensors.0000abcd.partial"):
        (folder / name).write_text("what a killed process began")
    for name in ("thesis.tex", "model.safetensors", ".hidden", ".checkpoint.json.swp"):
        (folder / name).write_text("not a checkpoint's")
    ppo2().learn(256, CheckpointCallback(folder, every=64))
    names = sorted(path.name for path in folder.iterdir())
    assert [re.sub("-.*", "", name) for name in names] == [
        *(".checkpoint.json.swp", ".hidden", "256", "checkpoint.json", "model.safetensors", "thesis.tex")
    ]


def flip_a_bit(path: Path, place: float = 0.5) -> None:
    """Flip one bit of a file, at a fraction of its length."""
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 4
    path.write_bytes(content)


def newest_arrays(folder: Path) -> Path:
    return folder / str(json.loads((folder / "checkpoint.json").read_text())["tensors"])


@pytest.mark.parametrize("place", [0.001, 0.6])
@pytest.mark.parametrize("which", ["arrays", "values"])
def test_a_flipped_bit_is_told_with_what_can_be_done(
    which: str, place: float, tmp_path: Path, ppo2: Callable[..., PPO2]
) -> None:
    folder = tmp_path / "checkpoint"
    ppo2().learn(64, CheckpointCallback(folder, every=64))
    flip_a_bit(newest_arrays(folder) if which == "arrays" else folder / "checkpoint.json", place)
    with pytest.raises(ZooError, match="is damaged") as raised:
        read_checkpoint(folder)
    assert f"Without {folder} the run starts anew" in str(raised.value)
    assert f"init_from={tmp_path}" in str(raised.value)
    write_checkpoint(folder, ppo2())
    assert read_checkpoint(folder).timesteps == 0
    assert_nothing_else(folder)


def test_a_signal_writes_a_checkpoint_at_once(tmp_path: Path, ppo2: Callable[..., PPO2]) -> None:
    ppo2().learn(640, [CheckpointCallback(tmp_path, every=400), StopAt(128)])
    assert read_checkpoint(tmp_path).timesteps == 128


def test_envs_without_replay_are_reset_at_checkpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ppo2_out_of_reach() -> PPO2:
        envs = SyncVectorEnv([CartPoleEnv] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
        return PPO2(SMALL, envs, seed=1, compile=False, n_steps=32, n_epochs=1)

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


@pytest.mark.parametrize("text", ["", "[]", '{"format": 6, "timesteps": 1}'])
def test_damaged_checkpoint_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "checkpoint.json").write_text(text)
    with pytest.raises(ZooError, match=r"checkpoint\.json is damaged"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("number", [2, 3, 99])
def test_checkpoint_of_another_format_is_refused(number: int, tmp_path: Path) -> None:
    record: dict[str, Any] = {"format": number, "timesteps": 1}
    if record["format"] > 2:  # the first formats had no checksum
        record["checksum"] = zlib.crc32(to_json(record).encode())
    (tmp_path / "checkpoint.json").write_text(to_json(record))
    with pytest.raises(ZooError, match=f"has checkpoint format {number}, this version of Zoo reads 6"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("then_a_signal", [False, True])
def test_resumed_run_that_had_ended_trains_no_more(tmp_path: Path, then_a_signal: bool) -> None:
    def ppo2_small() -> PPO2:
        return PPO2(SMALL, "CartPole-v1", n_envs=2, seed=1, compile=False, n_steps=32, n_epochs=1)

    signals = [StopAt(128)] if then_a_signal else []
    ppo2_small().learn(640, [StopAt(128, "good enough"), *signals, CheckpointCallback(tmp_path, every=64)])
    resumed = ppo2_small()
    restore(read_checkpoint(tmp_path), resumed)
    assert resumed.learn(512, reset_num_timesteps=False).num_timesteps == 128
    assert resumed.stop_reason == "good enough"
    assert resumed.learn(64, reset_num_timesteps=False).num_timesteps == 192


@pytest.mark.parametrize("deterministic", [True, False])
def test_evaluations_depend_on_seed_and_leave_training(tmp_path: Path, deterministic: bool) -> None:
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
    def changed(self, observations: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(observations, 0.3)


WIDTH = 500


class Wide(gym.Env[Any, Any]):
    """Shows many random bytes; episodes have 50 steps, or end by chance before."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (WIDTH,), np.uint8)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._shown(), float(action), self.np_random.random() < 0.01, self.steps == 50, {}

    def _shown(self) -> Any:
        return self.np_random.integers(0, 256, WIDTH, np.uint8)


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "SMALLEST_CHUNK", 32 * WIDTH)


def make(n_envs: int = 2, buffer_size: int = 400, *, learning_starts: int = 10**9, **options: Any) -> DQN:
    envs = make_vec_env(Wide, n_envs)
    options = {"train_freq": 20, "buffer_size": buffer_size, "batch_size": 8, **options}
    return DQN(SMALL, envs, seed=1, compile=False, learning_starts=learning_starts, **options)


def learned(model: DQN, steps: int) -> DQN:
    return model.learn(steps, reset_num_timesteps=False)


def content(model: DQN) -> dict[str, bytes]:
    """Return what the memory holds and the policy is, to the bit."""
    memory = model.buffer
    rows = {name: column[: len(memory)].tobytes() for name, column in memory.columns.items()}
    return {**rows, **weights(model), "rng": repr(model.rng.bit_generator.state).encode()}


def named(folder: Path) -> list[Path]:
    """Return the files with arrays of the checkpoint, those of rows in order."""
    record = json.loads((folder / "checkpoint.json").read_text())
    parts = [f"{part['name']}.safetensors" for part in record["parts"].values()]
    return [folder / each for each in (*parts, record["tensors"])]


def assert_nothing_else(folder: Path) -> None:
    assert set(folder.iterdir()) == {folder / "checkpoint.json", *named(folder)}


def row_bytes(folder: Path) -> int:
    """Return the size of all files with rows of memories."""
    return sum(path.stat().st_size for path in folder.iterdir() if is_of_rows(path))


def is_of_rows(path: Path) -> bool:
    return re.fullmatch(r"[0-9a-f]{32}\.safetensors", path.name) is not None


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of all files with rows that are put into their place from now on."""
    sizes: list[int] = []
    replace = os.replace

    def recording_replace(source: Path, target: Path) -> None:
        if is_of_rows(target):
            sizes.append(os.stat(source).st_size)
        replace(source, target)

    monkeypatch.setattr(os, "replace", recording_replace)
    return sizes


@pytest.mark.parametrize(("n_envs", "optimize"), [(1, True), (3, False)])
def test_ten_checkpoints_write_the_memory_about_once(
    n_envs: int, optimize: bool, written: list[int], tmp_path: Path
) -> None:
    """And so do the next ten, when new transitions take the place of the oldest, and the disk holds one."""
    model = make(n_envs, 3000, optimize_memory_usage=optimize)
    size = 3000 * WIDTH * (1 if optimize else 2)
    for _ in range(2):
        written.clear()
        checkpoints = CheckpointCallback(tmp_path, every=300, callbacks=[Callback()])
        model.learn(3000, checkpoints, reset_num_timesteps=False)
        assert size < sum(written) < 1.2 * size
        assert size < row_bytes(tmp_path) < 1.3 * size
    resumed = make(n_envs, 3000, optimize_memory_usage=optimize)
    restore(read_checkpoint(tmp_path), resumed)
    assert content(resumed) == content(model)
    written.clear()
    write_checkpoint(tmp_path, learned(resumed, 300))
    assert sum(written) < 0.15 * size, "a resumed run goes on with what is there"


@pytest.mark.parametrize("optimize", [False, True])
def test_resumed_run_ends_as_if_it_had_never_stopped(optimize: bool, tmp_path: Path) -> None:
    """From any checkpoint, before the ring is full and after."""

    def made() -> DQN:
        return make(2, 200, learning_starts=50, optimize_memory_usage=optimize)

    straight, model = made().learn(560), made()
    while model.num_timesteps < 560:
        callbacks = [CheckpointCallback(tmp_path, 10**9), StopAt(80)]
        model.learn(560 - model.num_timesteps, callbacks, reset_num_timesteps=False)
        model = made()
        restore(read_checkpoint(tmp_path), model)
    assert content(model) == content(straight)


# When something goes wrong
class KilledError(BaseException):
    """A process is no more: whatever it would still do to files is not done."""


class Mortal:
    """Lets a process end before one of its operations on files, or raise `OSError` there once."""

    def __init__(self, patched: pytest.MonkeyPatch, at: int, error: BaseException) -> None:
        self.at, self.error, self.count = at, error, 0
        operations = {os: ("replace", "fsync", "mkdir"), Path: ("unlink", "mkdir")}
        for owner, name in ((owner, name) for owner, names in operations.items() for name in names):
            patched.setattr(owner, name, self._mortal(getattr(owner, name)))
        patched.setattr(atomic, "open", self._mortal(open), raising=False)

    @property
    def was_reached(self) -> bool:
        return self.count > self.at

    def _mortal(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def perform(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self.at + 1 or (self.was_reached and isinstance(self.error, KilledError)):
                raise self.error
            return operation(*arguments, **options)

        return perform


@pytest.fixture
def run_at_200(tmp_path: Path) -> DQN:
    """Return a run that has left checkpoints at 120 and 160 steps in the folder ``before``."""
    model = make()
    for steps in (120, 40):
        write_checkpoint(tmp_path / "before", learned(model, steps))
    return learned(model, 40)


def written_until(folder: Path, model: DQN, moment: int, error: BaseException) -> bool:
    """Write a checkpoint until an operation fails; return whether it came to that."""
    with pytest.MonkeyPatch.context() as patched:
        life = Mortal(patched, moment, error)
        with contextlib.suppress(KilledError, ZooError):
            write_checkpoint(folder, model)
    return life.was_reached


@pytest.mark.parametrize(
    "error", [KilledError(), OSError(errno.EIO, os.strerror(errno.EIO))], ids=["kill", "error"]
)
def test_checkpoint_survives_failure_of_any_operation(
    error: BaseException, run_at_200: DQN, tmp_path: Path
) -> None:
    """The run goes on from it, with checkpoints, and nothing stays of what was begun."""
    found, resumed, last = [], make(), make()
    for moment in range(1000):
        shutil.copytree(tmp_path / "before", folder := tmp_path / str(moment))
        was_reached = written_until(folder, run_at_200, moment, error)
        restore(read_checkpoint(folder), resumed)
        found.append(resumed.num_timesteps)
        write_checkpoint(folder, learned(resumed, 240 - resumed.num_timesteps))
        assert_nothing_else(folder)
        restore(read_checkpoint(folder), last)
        assert content(last) == content(resumed)
        if not was_reached:
            break
    if isinstance(error, KilledError):  # what merely tidies up may fail, and the checkpoint is whole
        assert found == sorted(found)
    assert set(found) == {160, 200}
    assert found.count(160) > 12


def test_checkpoint_names_only_synced_arrays(
    run_at_200: DQN, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both their content and their names, so that a power cut leaves them there."""
    folder = tmp_path / "before"
    before = set(folder.iterdir())
    synced: set[Path] = set()
    renamed: dict[Path, Path] = {}
    on_disk: set[Path] = set()
    replace, fsync = os.replace, os.fsync

    def recording_fsync(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.add(path)
        if path == folder:
            on_disk.update(target for target, source in renamed.items() if source in synced)

    def recording_replace(source: Path, target: Path) -> None:
        replace(source, target)
        renamed[target] = source
        for path in named(folder) if target.name == "checkpoint.json" else ():
            assert path in on_disk | before

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "replace", recording_replace)
    write_checkpoint(folder, run_at_200)
    assert len(on_disk & set(named(folder))) >= 3


@pytest.mark.parametrize("harm", [flip_a_bit, Path.unlink])
@pytest.mark.usefixtures("run_at_200")
def test_damaged_or_missing_rows_are_named(harm: Callable[[Path], None], tmp_path: Path) -> None:
    own = named(tmp_path / "before")[-2]
    harm(own)
    with pytest.raises(ZooError, match=own.name):
        read_checkpoint(tmp_path / "before")


def make_acer() -> ACER:
    settings = {"n_steps": 10, "replay_start": 40, "replay_ratio": 0.3, "buffer_size": 1000}
    return ACER(SMALL, make_vec_env(Wide, 2), seed=1, compile=False, **settings)


def test_acer_windows_are_written_once_and_resumed(written: list[int], tmp_path: Path) -> None:
    model, size = make_acer(), 1000 * WIDTH
    for _ in range(2):
        written.clear()
        model.learn(1000, CheckpointCallback(tmp_path, every=100), reset_num_timesteps=False)
        assert size < sum(written) < 1.6 * size
    resumed = make_acer()
    restore(read_checkpoint(tmp_path), resumed)
    written.clear()
    write_checkpoint(tmp_path, resumed.learn(100, reset_num_timesteps=False))
    assert sum(written) < 0.3 * size, "a resumed run goes on with what is there"
    model.learn(100, reset_num_timesteps=False)
    assert weights(resumed) == weights(model)
    for name, column in model.buffer.columns.items():
        np.testing.assert_array_equal(resumed.buffer.columns[name], column)
