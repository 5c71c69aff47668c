"""A run starts from an agent, from a run with optimizer and replay buffer, or from a clone of an expert."""

from __future__ import annotations

import csv
import logging
import math
import os
import re
import shlex
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import zoo
from zoo.agents.agent_folder import read_agent
from zoo.algorithms.saving import run_tensors
from zoo.cli import status_of
from zoo.config.compose import compose
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError
from zoo.experiment.checkpoint import read_checkpoint
from zoo.experiment.experiment import Experiment, Result, TrainingInterrupted, train
from zoo.experiment.expert_recording import record_expert
from zoo.experiment.init_from import differences
from zoo.experiment.run_folder import RunFolder
from zoo.imitation.expert_data import ExpertData, write_expert

USUAL = [
    *("tuned=none", "compile=false", "threads=1", "logger=none", "callbacks.eval.n_episodes=1"),
    *("policy.net_arch=[16]", "verbose=0", "progress_bar=false"),
]
PPO2 = [
    *("algo=ppo2", "env=CartPole-v1", "n_envs=2", "algo.n_steps=32", "algo.batch_size=64", *USUAL),
    *("env.normalize=true", "n_timesteps=256"),
]
DQN = [
    *("algo=dqn", "env=CartPole-v1", "algo.learning_starts=50", "algo.train_freq=4", "n_timesteps=200"),
    *USUAL,
]


def trained(*overrides: str) -> Result:
    return train(compose("train", [*overrides, "seed=1"]))


def begun(*overrides: str) -> Experiment:
    """Return what a run begins with; it is closed."""
    with Experiment(compose("train", [*overrides, "seed=2"])) as experiment:
        return experiment


def stored(result: Result) -> dict[str, Any]:
    tensors: dict[str, Any] = read_checkpoint(result.run.checkpoint).algorithm["tensors"]
    return tensors


def has(experiment: Experiment, tensors: dict[str, Any]) -> dict[str, bool]:
    ours = run_tensors(experiment.algorithm.runner.state, experiment.algorithm.policy)
    return {name: np.array_equal(ours[name].numpy(), values) for name, values in tensors.items()}


def test_init_with_copies_optimizer_and_statistics() -> None:
    first = trained(*PPO2)
    for what in ("optimizer", "all"):
        second = begun(*PPO2, f"init_from={first.run.path}", f"init_with={what}")
        equal = has(second, stored(first))
        assert {"policy", "policy.mean", "policy.square"} <= equal.keys()
        assert all(equal.values())
        assert second.algorithm.num_timesteps == 0
        ours, theirs = (each.algorithm.normalizer for each in (second, first))
        assert ours is not None
        assert theirs is not None
        expected = theirs.state()["arrays"]
        found = ours.state()["arrays"]
        assert all(np.array_equal(found[name], expected[name]) for name in expected if name != "returns")


def test_init_with_optimizer_leaves_the_adapted_rate() -> None:
    more = ["intrinsic=rnd", "algo.desired_kl=0.01"]
    first = trained(*PPO2, *more, "algo.learning_rate=1e-3")
    second = begun(
        *PPO2, *more, f"init_from={first.run.path}", "init_with=optimizer", "algo.learning_rate=2e-5"
    )
    assert float(second.algorithm.runner.state["learning_rate"]) == pytest.approx(2e-5)
    ours, theirs = (each.algorithm.reward_model for each in (second, first))
    assert ours.return_moments.count == theirs.return_moments.count > 100
    assert all(name == "learning_rate" or same for name, same in has(second, stored(first)).items())


@pytest.mark.parametrize(
    "more", [["replay=prioritized"], ["algo.optimize_memory_usage=true", "replay.n_step=2"]]
)
def test_init_with_all_copies_replay_buffer(more: list[str]) -> None:
    first = trained(*DQN, *more)
    agent = first.run.path / "agent"
    second = begun(*DQN, *more, f"init_from={agent}", "init_with=all", "algo.learning_starts=0")
    memory, before = second.algorithm.buffer, first.algorithm.buffer
    assert len(memory) == len(before) == 200
    assert np.array_equal(memory.columns["rewards"][:200], before.columns["rewards"][:200])
    assert np.array_equal(memory.columns["observations"][:200], before.columns["observations"][:200])
    assert memory.columns["dones"][199, 0], "the episode under way does not go on in another run"
    assert all(has(second, stored(first)).values())
    third = trained(
        *DQN, *more, f"init_from={agent}", "init_with=all", "algo.learning_starts=0", "n_timesteps=32"
    )
    assert third.algorithm.n_updates == 8
    assert len(third.algorithm.buffer) == 232
    only = begun(*DQN, *more, f"init_from={agent}", "init_with=optimizer")
    assert len(only.algorithm.buffer) == 0
    assert all(has(only, stored(first)).values())


def test_settings_that_differ_are_said() -> None:
    calm = ["algo.learning_starts=0", "algo.exploration_initial_eps=0.1"]
    run = trained(*DQN).run.path
    second = begun(*DQN, f"init_from={run}", "init_with=all", *calm)
    assert second.init == f"weights, optimizer and replay buffer of the last checkpoint of {run} (step 200)"
    assert second.changed_settings == [
        *("algo.learning_starts: 50 → 0", "algo.exploration_initial_eps: 1.0 → 0.1"),
    ]


def test_checkpoint_of_another_step_is_refused() -> None:
    """As a full disk leaves it: the agent could be written, the last checkpoints could not."""
    run, earlier = trained(*DQN, "callbacks.agents={every: 104}").run, trained(*DQN, "n_timesteps=104").run
    (kept,) = run.kept_agents.glob("*104")
    with pytest.raises(ZooError, match=r"checkpoint is of step 200, .*000104 of step 104; init_with=weights"):
        begun(*DQN, f"init_from={kept}", "init_with=all")
    shutil.rmtree(run.checkpoint)
    shutil.copytree(earlier.checkpoint, run.checkpoint)
    for what in ("optimizer", "all"):
        with pytest.raises(ZooError, match=r"checkpoint is of step 104, .*agent of step 200; init_with=w"):
            begun(*DQN, f"init_from={run.path}", f"init_with={what}")
    assert "init_with" not in run.continuation()
    assert begun(*DQN, f"init_from={run.path}").init == f"the weights of {run.path} (step 200)"
    assert begun(*DQN, f"init_from={kept}").init.endswith("(step 104)")


@pytest.mark.parametrize(
    "settings",
    [
        *(["pretrain.dataset=expert.npz", "pretrain.n_epochs=2"], ["init_with=all", "init_from=runs/first"]),
        *(["callbacks.checkpoint.keep=false", "init_with=all", "init_from=runs/first"], ["runs_dir=a b"]),
    ],
    ids=lambda settings: settings[0],
)
def test_continuation_continues(settings: list[str]) -> None:
    if "init_from=runs/first" in settings:
        trained(*PPO2).run.path.rename("runs/first")
    first = trained(*PPO2, "algo.learning_rate=0", *settings)  # then best and last agent are equal
    zoo_, train_, *overrides = shlex.split(first.run.continuation())
    second = begun(*overrides)
    assert (zoo_, train_, second.algorithm.num_timesteps) == ("zoo", "train", 0)
    ours, theirs = (each.algorithm.get_parameters() for each in (second, first))
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_what_does_not_fit_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    a2c = ["algo=a2c", "env=CartPole-v1", *USUAL]
    from_dqn = [*DQN, f"init_from={trained(*DQN).run.path}"]
    from_a2c = f"init_from={trained(*a2c, 'n_timesteps=64').run.path}"
    without_checkpoint = trained(*DQN, "callbacks.checkpoint.keep=false").run.path
    everything = "init_with=all"
    wrong = [
        ([*DQN, from_a2c, everything], "can't take all from .*: it is of a2c, not of dqn"),
        ([*from_dqn, "env=Acrobot-v1", everything], "its observations and the environment's differ"),
        ([*from_dqn, "policy.net_arch=[8]", everything], "its optimizer are others: .*q_network has shape"),
        ([*from_dqn, "policy.net_arch=[8]"], r"and \d+ more; the same networks: policy.net_arch=\S+\n"),
        ([*from_dqn, "algo.dueling=false"], "the same networks: algo.dueling=true\n"),
        ([*from_dqn, "n_envs=2", everything], "its replay buffer is of n_envs=1, not 2"),
        ([*from_dqn, "algo.buffer_size=99", everything], "of algo.buffer_size=50000, not 99"),
        ([*from_dqn, "replay=prioritized", everything], "of replay.prioritized=None, not prioritized"),
        ([*from_dqn, "algo.optimize_memory_usage=true", everything], "of algo.optimize_memory_usage=False"),
        ([*from_dqn, "workers=2", everything], "workers=2 has a buffer; init_with=optimizer"),
        ([*DQN, f"init_from={without_checkpoint}", everything], "callbacks.checkpoint.keep=true keeps it"),
        ([*DQN, everything], "`init_with=all` needs init_from=RUN"),
        ([*a2c, from_a2c, "algo.use_rms_prop=false", everything], "or its optimizer are others: "),
        ([*from_dqn, "init_with=everything"], "is not one of weights, optimizer, all"),
        ([*from_dqn, "init_from.what=all"], "init_from.what"),
    ]
    for given, expected in wrong:
        assert status_of(["train", *given]) == 2, given
        message = capsys.readouterr().err
        assert message.count("\n") == 1, message
        assert re.search(expected, message), message


SMALL = {"net_arch": [8]}


def changes(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    model = zoo.DQN(SMALL, "CartPole-v1", seed=0, compile=False)
    return list(differences(then, model, now))


def test_changes_name_prioritized_switched_on_or_off() -> None:
    plain = {"replay": {"n_step": 1, "prioritized": None}}
    prioritized = {"replay": {"n_step": 1, "prioritized": {"alpha": 0.6}}}
    (on,), (off,) = changes(plain, prioritized), changes(prioritized, plain)
    assert on.startswith("replay.prioritized: None → {")
    assert off.startswith("replay.prioritized: {")
    assert off.endswith("→ None")


def test_changes_list_nested_values_one_by_one() -> None:
    then = {"replay": {"prioritized": {"alpha": 0.6, "beta": 0.4}}}
    now = {"replay": {"prioritized": {"alpha": 0.7, "beta": 0.4}}}
    assert changes(then, now) == ["replay.prioritized.alpha: 0.6 → 0.7"]


def test_dictionary_encoder_is_no_difference(tmp_path: Path) -> None:
    """A config says what the user chose; the encoder for dictionaries follows from the environment."""
    env = ["env=Zoo/BitFlipping-v0", "policy.net_arch=[8]"]
    config = zoo.compose("train", ["algo=her_dqn", *env])
    chosen = {name: value for name, value in config.policy.items() if value != [8]}
    model = zoo.DQN({**chosen, "net_arch": [8]}, "Zoo/BitFlipping-v0", seed=0, compile=False)
    agent = read_agent(model.save(tmp_path / "agent")).config
    assert [line for line in differences(agent, model, config) if line.startswith("policy")] == []
    wider = zoo.DQN({**chosen, "net_arch": [16]}, "Zoo/BitFlipping-v0", seed=0, compile=False)
    told = [line for line in differences(agent, wider, config) if line.startswith("policy")]
    assert told == ["policy.net_arch: [8] → [16]"]


SHORT = [
    *("n_timesteps=128", "n_envs=2", "algo.n_steps=32", "algo.batch_size=64", "algo.n_epochs=1"),
    *("tuned=none", "threads=1", "compile=false", "progress_bar=false", "logger=none", "seed=3"),
    *("callbacks.eval.n_episodes=2", "env=CartPole-v1", "pretrain.dataset=expert.npz"),
]


@pytest.fixture(autouse=True)
def expert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExpertData:
    monkeypatch.chdir(tmp_path)
    env = EnvConfig("CartPole-v1", max_episode_steps=60)
    data = record_expert(lambda seen: int(seen[2] + seen[3] > 0), env, 5, seed=0)
    write_expert("expert.npz", data)
    return data


def config_of(*overrides: str, algo: str = "ppo2") -> dict[str, Any]:
    return dict(zoo.compose("train", [f"algo={algo}", *SHORT, *overrides]))


def losses(run: RunFolder) -> list[dict[str, float]]:
    rows = csv.DictReader(run.path.joinpath("pretrain.csv").read_text().splitlines())
    return [{name: float(value) for name, value in row.items()} for row in rows]


def agreement(result: Any, data: ExpertData) -> float:
    return float((result.algorithm.predict(data.observations)[0] == data.actions).mean())


def test_pretrained_run_imitates_and_logs_losses(expert: ExpertData) -> None:
    rates = ("pretrain.learning_rate=0.01", "algo.learning_rate=0")
    result = zoo.train(config_of(*rates, "pretrain.n_epochs=20"))
    assert agreement(result, expert) > 0.9
    found = losses(result.run)
    assert list(found[0]) == ["epoch", "loss", "validation_loss"]
    assert [row["epoch"] for row in found] == list(range(1, len(found) + 1))
    assert found[-1]["validation_loss"] < found[0]["validation_loss"]
    whole = zoo.train(config_of("pretrain.validation_fraction=0", "pretrain.n_epochs=2"))
    assert all(math.isnan(row["validation_loss"]) for row in losses(whole.run))
    plain = zoo.train(config_of("pretrain=default", "pretrain.dataset=null"))
    assert not plain.run.path.joinpath("pretrain.csv").exists()


class Kill(logging.Handler):
    """Sends a signal to this process once an epoch of pretraining has been told."""

    def __init__(self, number: int, epoch: int) -> None:
        super().__init__()
        self.number, self.word = number, f"epoch {epoch}:"

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("pretraining") and self.word in record.getMessage():
            os.kill(os.getpid(), self.number)


def train_and_kill(config: dict[str, Any], number: int, epoch: int) -> Any:
    logger, handler = logging.getLogger("zoo.experiment.init_from"), Kill(number, epoch)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with pytest.raises(TrainingInterrupted) as raised:
            zoo.train(config)
        return raised.value.result
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.parametrize(
    ("number", "settings"),
    [
        (signal.SIGINT, ["pretrain.patience=null", "env.normalize=true"]),
        pytest.param(
            signal.SIGTERM, ["pretrain.patience=2", "pretrain.learning_rate=0.3"], marks=pytest.mark.slow
        ),
        (signal.SIGTERM, ["policy=MlpLstmPolicy", "policy.lstm_hidden_size=8"]),
    ],
    ids=["interrupted", "terminated", "remembers"],
)
def test_pretraining_that_a_signal_ends_ends_the_same(number: signal.Signals, settings: list[str]) -> None:
    settings = [*settings, "pretrain.n_epochs=8"]
    whole = zoo.train(config_of(*settings))
    cut = train_and_kill(config_of(*settings), number, 3)
    assert not cut.is_complete
    assert cut.run.read_record()["status"] == "preempted"
    assert cut.algorithm.num_timesteps == 0
    assert len(losses(cut.run)) == 3
    resumed = zoo.compose("train", [f"resume={cut.run.path}"])
    result = zoo.train(resumed)
    assert result.is_complete
    assert losses(result.run) == losses(whole.run)
    first, second = (load_file(each.run.agent / "policy.safetensors") for each in (whole, result))
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array)
