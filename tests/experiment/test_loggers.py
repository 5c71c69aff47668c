"""What is logged, and where it arrives."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pytest
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from gymnasium.wrappers import TimeLimit

from zoo.algorithms.callback import Callback, Training
from zoo.algorithms.ppo import PPO, PPO2
from zoo.envs.make_env import make_vec_env
from zoo.experiment.callbacks import EvalCallback
from zoo.experiment.loggers import (
    ConsoleLogger,
    CsvLogger,
    LogEntry,
    Logger,
    LoggerGroup,
    LoggingCallback,
)
from zoo.experiment.progress_bar import ProgressBarCallback
from zoo.experiment.trackers import TensorBoardLogger
from zoo.optim.runtime import Runtime


class Keep(Logger):
    """Keeps entries."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []

    def write(self, entry: LogEntry) -> None:
        self.entries.append(entry)


def entry(timesteps: int, **scalars: float) -> LogEntry:
    named = {name.replace("_", "/", 1): value for name, value in scalars.items()}
    return LogEntry(timesteps, {"time/total_timesteps": timesteps, **named})


def rows(path: Path) -> list[dict[str, str]]:
    with open(path) as file:
        return list(csv.DictReader(file))


class TestLoggingCallback:
    def test_scalars_have_the_names_of_stable_baselines(self, ppo2: Callable[..., PPO2]) -> None:
        keep = Keep()
        ppo2().learn(512, LoggingCallback(128, [keep]))
        assert [entry.timesteps for entry in keep.entries] == [128, 256, 384, 512]
        assert {
            *("rollout/ep_rew_mean", "rollout/ep_len_mean", "time/fps", "time/time_elapsed"),
            *("time/total_timesteps", "train/approx_kl", "train/value_loss", "train/n_updates"),
        } <= keep.entries[-1].scalars.keys()

    def test_success_and_numbers_in_infos_are_logged(self) -> None:
        class Informing(CartPoleEnv):
            def step(self, action: Any) -> Any:
                *transition, _ = super().step(action)
                return *transition, {"is_success": True, "angle": 0.5}

        keep = Keep()
        envs = make_vec_env(lambda: TimeLimit(Informing(), 10), 2, info_keywords=["angle"])
        PPO2("MlpPolicy", envs, compile=False, n_steps=32).learn(64, LoggingCallback(64, [keep]))
        assert keep.entries[0].scalars["rollout/success_rate"] == 1.0
        assert keep.entries[0].scalars["rollout/angle_mean"] == 0.5

    def test_log_splits_time_by_env_policy_and_update(self, ppo2: Callable[..., PPO2]) -> None:
        keep = Keep()
        evaluation = EvalCallback("CartPole-v1", every=64)
        ppo2().learn(128, [evaluation, LoggingCallback(64, [keep])])
        spent = keep.entries[-1].seconds
        assert list(spent) == ["env", "policy", "update", "evaluation", "other"]
        assert all(seconds > 0 for seconds in spent.values())

    @pytest.mark.parametrize("logs_first", [False, True])
    def test_evaluations_are_no_means_of_an_interval(self, logs_first: bool, ppo2: Any) -> None:
        class Scripted(EvalCallback):
            def on_steps(self, algorithm: Any) -> None:
                algorithm.scalars.record_row(
                    algorithm.num_timesteps, {"eval/mean_reward": [9.0, 10.0, 8.0, 66.0][self.n_evaluations]}
                )
                self.n_evaluations += 1

        keep = Keep()
        callbacks = [Scripted("CartPole-v1", every=64), LoggingCallback(192, [keep])]
        ppo2().learn(256, callbacks[::-1] if logs_first else callbacks)
        evaluated = [(each.timesteps, each.scalars.get("eval/mean_reward")) for each in keep.entries]
        assert [pair for pair in evaluated if pair[1] is not None] == [
            (64, 9),
            (128, 10),
            (192, 8),
            (256, 66),
        ]
        assert {each.timesteps for each in keep.entries if "train/loss" in each.scalars} == {192, 256}

    def test_silence_about_episodes_is_explained(self) -> None:
        envs = make_vec_env(lambda: PendulumEnv(), 2, max_episode_steps=None)
        keep = Keep()
        model = PPO2("MlpPolicy", envs, compile=False, n_steps=600)
        model.learn(2400, LoggingCallback(1200, [keep]))
        assert [each.note for each in keep.entries] == [
            None,
            "no episode has finished yet (longest: 1,200 steps); set a time limit? (env.max_episode_steps)",
        ]
        assert "rollout/ep_rew_mean" not in keep.entries[0].scalars

    def test_failing_logger_is_reported_once_run_continues(
        self, ppo2: Callable[..., PPO2], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "file").write_text("")
        keep = Keep()
        failing = [CsvLogger(tmp_path / "file" / "progress.csv"), TensorBoardLogger(tmp_path / "file" / "tb")]
        ppo2().learn(256, LoggingCallback(64, [*failing, keep]))
        assert len(keep.entries) == 4
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2
        assert all("the run goes on" in line for line in lines)
        assert "progress.csv" in lines[0]
        assert lines[1].startswith("zoo: TensorBoardLogger: ")


class TestConsole:
    def test_table_groups_scalars_and_shows_time_shares(self) -> None:
        stream = io.StringIO()
        console = ConsoleLogger(stream=stream)
        scalars = {"train/loss": 0.123456, "time/total_timesteps": 1234567, "rollout/ep_rew_mean": 21.5}
        console.write(LogEntry(1234567, scalars, {"env": 1.0, "update": 3.0}, "a note"))
        lines = stream.getvalue().splitlines()
        cells = [[cell.rstrip() for cell in line.split("|")[1:3]] for line in lines if "|" in line]
        assert cells == [
            *([" rollout/", ""], ["    ep_rew_mean", " 21.5"], [" time/", ""]),
            *(["    total_timesteps", " 1234567"], [" train/", ""], ["    loss", " 0.1235"]),
            *([" share of time/", ""], ["    env", " 25%"], ["    update", " 75%"]),
        ]
        assert len({len(line) for line in lines[:-1]}) == 1
        assert lines[-1] == "a note"

    def test_frequent_entries_are_merged_into_one_table(self) -> None:
        stream = io.StringIO()
        console = ConsoleLogger(seconds=1000, stream=stream)
        for steps in (1, 2, 3):
            console.write(entry(steps))
        console.write(entry(4, eval_mean_reward=7.5))
        console.write(entry(5))
        assert stream.getvalue().count("total_timesteps") == 1
        console.close()
        last = stream.getvalue().split("total_timesteps")[-1]
        assert last.split()[1] == "5"
        assert "mean_reward" in stream.getvalue()
        console.close()
        assert stream.getvalue().count("total_timesteps") == 2


class TestCsv:
    def test_csv_backfills_late_column(self, tmp_path: Path) -> None:
        logger = CsvLogger(tmp_path / "progress.csv")
        logger.write(entry(1, train_loss=0.5))
        logger.write(entry(2, eval_mean_reward=3.0))
        logger.write(entry(3, train_loss=0.25))
        assert rows(tmp_path / "progress.csv") == [
            {"time/total_timesteps": "1", "eval/mean_reward": "", "train/loss": "0.5"},
            {"time/total_timesteps": "2", "eval/mean_reward": "3.0", "train/loss": ""},
            {"time/total_timesteps": "3", "eval/mean_reward": "", "train/loss": "0.25"},
        ]

    def test_resume_drops_csv_rows_and_new_columns(self, tmp_path: Path) -> None:
        logger = CsvLogger(tmp_path / "progress.csv")
        logger.write(entry(1, train_loss=0.5))
        state = json.loads(json.dumps(logger.state()))
        logger.write(entry(2, eval_mean_reward=3.0))
        resumed = CsvLogger(tmp_path / "progress.csv")
        resumed.load_state(state)
        resumed.write(entry(2, train_loss=0.25))
        assert (tmp_path / "progress.csv").read_text() == "time/total_timesteps,train/loss\n1,0.5\n2,0.25\n"

    def test_full_disk_leaves_whole_rows(self, tmp_path: Path, no_larger_files: Callable[[int], Any]) -> None:
        logger = CsvLogger(tmp_path / "progress.csv")
        logger.write(entry(1, train_loss=0.5))
        before = (tmp_path / "progress.csv").read_text()
        with no_larger_files(len(before) + 3), pytest.raises(OSError, match=r"No space left|too large"):
            logger.write(entry(2, train_loss=0.25))
        assert (tmp_path / "progress.csv").read_text() == before
        logger.write(entry(3, train_loss=0.125))
        assert [row["time/total_timesteps"] for row in rows(tmp_path / "progress.csv")] == ["1", "3"]


def shown_in_terminal(learn: Callable[[TextIO], Any]) -> str:
    """Return what a terminal shows of a training."""
    reading, writing = pty.openpty()
    with open(writing, "w") as terminal:
        learn(terminal)
        terminal.write("end of the test")
        terminal.flush()
        shown = ""
        while "end of the test" not in shown:  # a pseudo-terminal gives what is there, not all
            assert select.select([reading], [], [], 10)[0], shown
            shown += os.read(reading, 1_000_000).decode(errors="replace")
    os.close(reading)
    return shown


@pytest.mark.parametrize(
    ("algorithm", "options", "name"),
    [(PPO2, {}, "ppo2"), (PPO, {"progress_bar": True}, "ppo"), (PPO, {"progress_bar": False}, None)],
)
def test_learn_shows_a_bar_in_a_terminal(
    algorithm: Any, options: Any, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn(terminal: TextIO) -> None:
        monkeypatch.setattr(sys, "stderr", terminal)
        small = {"n_steps": 64, "batch_size": 64, "n_epochs": 1}
        algorithm("MlpPolicy", "CartPole-v1", seed=0, compile=False, **small).learn(640, **options)

    shown = shown_in_terminal(learn)
    assert ("640/640" in shown, "steps/s" in shown) == (name is not None,) * 2
    assert name is None or f"{name} " in shown


def test_bar_says_when_the_update_is_compiled(ppo2: Callable[..., PPO2]) -> None:
    class Compile(Callback):
        every = 64

        def on_training_start(self, algorithm: Training) -> None:
            algorithm.runtime.compile = True

        def on_steps(self, algorithm: Training) -> None:
            if algorithm.num_timesteps == 320:
                with algorithm.runtime.compile_clock.running():
                    pass

    model = ppo2()
    model.runner.runtime = Runtime(device="cpu", compile=False, threads=1)  # nothing is compiled in truth
    shown = shown_in_terminal(
        lambda terminal: model.learn(640, [Compile(), ProgressBarCallback(seconds=0, stream=terminal)])
    )
    before, _, after = shown.partition("compiling")
    assert "320/640" in before
    assert " left" not in before
    assert " left" in after


@pytest.mark.parametrize(
    ("n_left", "told"), [(3, ""), (1, "1 of the 2 rows written before the checkpoint"), (0, "has 0 of the 2")]
)
def test_lost_rows_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], n_left: int, told: str
) -> None:
    path = tmp_path / "progress.csv"
    logger = CsvLogger(path)
    for timesteps in (1, 2):
        logger.write(entry(timesteps))
    state = logger.state()
    logger.write(entry(3))
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: n_left + 1]))
    CsvLogger(path).load_state(state)
    assert [row["time/total_timesteps"] for row in rows(path)] == ["1", "2"][:n_left]
    message = capsys.readouterr().err
    assert told in message
    assert bool(message) == bool(told)


@pytest.mark.parametrize("at", [1, 320])
def test_closed_terminal_ends_no_training(ppo2: Callable[..., PPO2], at: int) -> None:
    class CloseTerminal(Callback):
        every = at

        def on_steps(self, algorithm: Training) -> None:
            self.every = 0
            os.close(reading)

    reading, writing = pty.openpty()
    steps = 0
    with contextlib.suppress(OSError), open(writing, "w") as terminal:
        steps = ppo2().learn(640, [CloseTerminal(), ProgressBarCallback(stream=terminal)]).num_timesteps
    assert steps == 640


def test_loggers_are_restored_in_their_order(tmp_path: Path) -> None:
    names, restored = [f"logger_{i}" for i in range(20)], list[str]()

    class Noted(Logger):
        def __init__(self, name: str) -> None:
            self.load_state = lambda _: restored.append(name)  # type: ignore[method-assign]

    group = LoggerGroup([Noted(name) for name in names], tmp_path)
    group.load_state({name: {} for name in [*group.outputs][::-1]})
    assert restored == names
