"""A config is trained, evaluated and saved: by `Experiment`, by `zoo.train`, as a job, and until a signal."""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from forked import Forked
from safetensors.numpy import load_file

import zoo
from zoo.agents.agent_folder import read_agent, write_agent
from zoo.algorithms.callback import PREEMPTED, Callback
from zoo.cli import status_of
from zoo.commands.train import run as train_command
from zoo.errors import ZooError
from zoo.experiment.checkpoint import CheckpointCallback, read_checkpoint
from zoo.experiment.experiment import Experiment, TrainingInterrupted, train
from zoo.experiment.loggers import ConsoleLogger, CsvLogger, LogEntry, LoggingCallback
from zoo.experiment.run_folder import FinishedJobError, RunFolder

SHORT = [
    *("n_timesteps=256", "n_envs=2", "algo.n_steps=32", "algo.batch_size=64", "algo.n_epochs=1", "seed=3"),
    *("tuned=none", "threads=1", "compile=false", "progress_bar=false", "logger=csv"),
    "callbacks.eval.n_episodes=2",
]


def config_of(*overrides: str) -> dict[str, Any]:
    return dict(zoo.compose("train", ["algo=ppo2", "env=CartPole-v1", *SHORT, *overrides]))


def register_wrapped_cartpole(name: str, wrapper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gym.envs.registration.EnvSpec(name, lambda: wrapper(gym.make("CartPole-v1")))
    monkeypatch.setattr(gym, "registry", gym.registry | {name: spec})
    monkeypatch.setattr(gym.envs.registration, "registry", gym.registry)


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def runs() -> list[Path]:
    return sorted(path.parent for path in Path("runs").glob("*/*/*/run.json"))


def state_of_the_process() -> dict[str, Any]:
    # The memory that workers share lives as long as the arrays in it.
    gc.collect()
    return {
        "signals": {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)},
        "handlers": [logging.getLogger(name).handlers[:] for name in (None, "zoo")],
        "level": logging.getLogger("zoo").level,
        "threads": torch.get_num_threads(),
        "flushes": bool(torch.full((), 1e-40) * 0.5 == 0),
        "torch": torch.get_rng_state().tolist(),
        "open files": sorted(
            os.readlink(f"/proc/self/fd/{name}")
            for name in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{name}")
        ),
    }


def test_config_is_trained_evaluated_and_saved() -> None:
    result = zoo.train(config_of())
    assert result.is_complete
    assert result.run.read_record()["status"] == "finished"
    assert result.run.read_record()["timesteps"] == 256
    assert result.evaluation is not None
    assert result.best_mean is not None
    assert result.agent == result.run.best_agent
    card = json.loads((result.run.agent / "card.json").read_text())
    assert card["mean_return"] == pytest.approx(result.evaluation.mean)
    action, _ = result.algorithm.predict(np.zeros(4, np.float32))
    assert action in (0, 1)


@pytest.mark.parametrize("keep", [False, True])
def test_finished_run_deletes_checkpoint_unless_keep(keep: bool) -> None:
    with Experiment(config_of("callbacks.checkpoint.every=64", f"callbacks.checkpoint.keep={keep}")) as run:
        folder = run.run.checkpoint
        run.callbacks.insert(0, _StopAfter(128))
        run.run_through()
    assert len(list(folder.glob("*.safetensors"))) == 1, "that of an interrupted run is kept"
    result = zoo.train(zoo.compose("train", [f"resume={run.run.path}"]))
    assert result.run.read_record()["status"] == "finished"
    assert folder.exists() is keep


def test_run_without_steps_left_is_resumed() -> None:
    result = zoo.train(config_of("callbacks.eval=null", "callbacks.checkpoint.keep=true"))
    result.run.update_record(status="running")
    assert zoo.train(resume=result).algorithm.num_timesteps == result.algorithm.num_timesteps


def test_parts_can_be_called_alone() -> None:
    whole = zoo.train(config_of()).algorithm.get_parameters()
    with Experiment(config_of("callbacks.eval=null")) as experiment:
        experiment.learn()
        experiment.evaluate()
        assert experiment.result().evaluation is None
        assert not experiment.run.agent.exists()
        experiment.save()
    assert experiment.run.agent.exists()
    assert same(zoo.load(experiment.run.agent).get_parameters(), whole)


def test_process_is_left_as_it_was() -> None:
    config = config_of("env.vectorization=workers", "logger=[csv,tensorboard]")
    # Python keeps a server for worker processes from the first one on.
    zoo.train(config)
    torch.set_num_threads(2)
    before = state_of_the_process()
    zoo.train(config)
    assert state_of_the_process() == before
    torch.set_num_threads(1)


# A run that belongs to a job
def interrupted(*overrides: str) -> RunFolder:
    """Train until the first checkpoint, and end as a signal would."""
    with Experiment(config_of("callbacks.checkpoint.every=64", *overrides)) as experiment:
        experiment.callbacks.insert(0, _StopAfter(128))
        result = experiment.run_through()
    assert not result.is_complete
    assert result.run.read_record()["status"] == "preempted"
    return result.run


class _StopAfter(Callback):
    def __init__(self, steps: int) -> None:
        self.every = steps

    def on_steps(self, algorithm: Any) -> None:
        algorithm.request_stop(PREEMPTED)


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("SLURM_JOB_ID", "71")
    return monkeypatch


def test_requeued_job_goes_on_with_its_own_run(slurm: pytest.MonkeyPatch) -> None:
    whole = zoo.train(config_of("callbacks.checkpoint.every=64")).algorithm.get_parameters()
    run = interrupted()
    assert run.read_record()["job"] == "71"
    slurm.setenv("SLURM_RESTART_COUNT", "1")
    result = train(config_of("callbacks.checkpoint.every=64"))
    assert result.run.path.resolve() == run.path.resolve()
    assert result.run.read_record()["status"] == "finished"
    assert same(result.algorithm.get_parameters(), whole)
    with pytest.raises(FinishedJobError):
        train(config_of("callbacks.checkpoint.every=64"))
    assert train_command(config_of("callbacks.checkpoint.every=64")) is None
    assert len(runs()) == 2
    slurm.delenv("SLURM_RESTART_COUNT")
    assert train(config_of("callbacks.checkpoint.every=64")).run.path != run.path


def test_run_of_another_job_or_config_is_left_alone(slurm: pytest.MonkeyPatch) -> None:
    run = interrupted()
    slurm.setenv("SLURM_RESTART_COUNT", "1")

    def begun(*overrides: str, **variables: str) -> Path:
        with slurm.context() as patched:
            for name, value in variables.items():
                patched.setenv(f"SLURM_{name}", value)
            with Experiment(config_of("callbacks.checkpoint.every=64", *overrides)) as experiment:
                return experiment.run.path

    assert begun() == run.path
    others = [{"JOB_ID": "72"}, {"ARRAY_JOB_ID": "71", "ARRAY_TASK_ID": "0"}, {"RESTART_COUNT": "0"}]
    assert run.path not in [*(begun(**variables) for variables in others), begun("seed=4")]
    assert run.read_record()["status"] == "preempted"


def test_named_job_resumes_its_run_and_drawn_seed() -> None:
    run = interrupted("job=night", "seed=null")
    seed = run.read_config()["seed"]
    result = train(config_of("callbacks.checkpoint.every=64", "job=night", "seed=null", "verbose=0"))
    assert result.run.path == run.path
    assert result.algorithm.seed == seed
    assert result.is_complete


class SlowToMake(gym.Wrapper[Any, Any, Any, Any]):
    """Takes a second to be made, in which another process can begin a run."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        time.sleep(1.0)


def test_commands_of_one_job_make_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    register_wrapped_cartpole("SlowToMake-v0", SlowToMake, monkeypatch)
    words = ["train", "algo=ppo2", "env=SlowToMake-v0", *SHORT, "job=night", "verbose=0"]
    processes = [Forked(lambda: status_of(words)) for _ in range(2)]
    assert sorted(process.wait() for process in processes) == [0, 2]
    assert len(runs()) == 1


class GoingWrong(gym.Wrapper[Any, Any, Any, Any]):
    """Gives a NaN for a reward at the 250th step of its life."""

    n_steps = 0

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        self.n_steps += 1
        return observation, np.nan if self.n_steps == 250 else reward, *rest


def test_nonfinite_value_fails_run_with_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    register_wrapped_cartpole("GoingWrong-v0", GoingWrong, monkeypatch)
    config = config_of(
        *("env=GoingWrong-v0", "n_timesteps=512", "callbacks.checkpoint.every=64"),
        *("callbacks.eval.every=128", "callbacks.eval.n_episodes=1"),
    )
    with pytest.raises(ZooError, match=r"environment \d gave a reward that is not finite \(nan\)") as raised:
        zoo.train(config)
    step = int(re.findall(r"by step (\d+)", str(raised.value))[0])
    run = RunFolder(runs()[0])
    record = run.read_record()
    assert record["status"] == "failed"
    assert "a reward that is not finite" in record["error"]
    assert not run.agent.exists()
    assert zoo.load(run.best_agent).num_timesteps < step
    assert read_checkpoint(run.checkpoint).timesteps == (step - 1) // 64 * 64


def test_signal_before_the_first_step_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = zoo.train(config_of()).algorithm.get_parameters()
    learn = Experiment._learn_evaluate_save

    def learn_after_a_signal(experiment: Experiment) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        learn(experiment)

    with monkeypatch.context() as patched:
        patched.setattr(Experiment, "_learn_evaluate_save", learn_after_a_signal)
        with pytest.raises(TrainingInterrupted) as raised:
            zoo.train(config_of())
        result = raised.value.result
        assert (result.is_complete, result.algorithm.num_timesteps) == (False, 0)
        with pytest.raises(TrainingInterrupted) as raised:
            zoo.train(zoo.compose("train", [f"resume={result.run.path}"]))
        again = raised.value.result
        assert (again.is_complete, again.algorithm.num_timesteps) == (False, 0)
    resumed = zoo.train(zoo.compose("train", [f"resume={result.run.path}"]))
    assert same(resumed.algorithm.get_parameters(), whole)


SETTINGS: dict[str, Any] = {"n_timesteps": 512, "seed": 3, "compile": False, "progress_bar": False}
SHORT_SETTINGS = {**SETTINGS, "logger": "none", "callbacks": "none"}

TRAINED_ALONE = """
import sys, zoo
zoo.train("algo=ppo2", "env=CartPole-v1", n_timesteps=512, seed=3, compile=False, progress_bar=False,
          logger="none", callbacks="none", runs_dir="alone")
"""


def test_train_takes_overrides_and_keyword_arguments() -> None:
    result = zoo.train(
        "algo=ppo2", "env=CartPole-v1", **SHORT_SETTINGS, algo={"gamma": 0.9}, policy={"net_arch": [8]}
    )
    config = result.run.read_config()
    assert config["algo"]["gamma"] == 0.9
    assert config["policy"]["net_arch"] == [8]
    assert config["tuned"].endswith("hyperparams/ppo2/CartPole-v1.yaml")
    assert config["n_envs"] == 8  # as that file says
    assert result.algorithm.num_timesteps == 512
    assert zoo.load(result.agent).num_timesteps == 512


def test_logger_gets_what_the_console_prints_once(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refusing(CsvLogger):
        def write(self, entry: LogEntry) -> None:
            raise ZooError("this costs a line")

    def learn() -> str:
        callback = LoggingCallback(256, [ConsoleLogger(), Refusing("none.csv")])
        zoo.PPO("MlpPolicy", "CartPole-v1", n_steps=256, n_epochs=1, compile=False).learn(256, callback)
        return "".join(capsys.readouterr())

    caplog.set_level(logging.INFO)
    printed, records = learn(), [record for record in caplog.records if record.name == "zoo"]
    for line in ("total_timesteps", "this costs a line"):
        assert printed.count(line) == sum(line in record.getMessage() for record in records) == 1
    assert "ppo 256/256" in records[-1].getMessage()
    handler = logging.StreamHandler(sys.stdout)
    logging.getLogger().addHandler(handler)
    printed = learn()
    logging.getLogger().removeHandler(handler)
    assert [printed.count(line) for line in ("total_timesteps", "this costs a line")] == [1, 1]


def test_earlier_work_in_process_does_not_change_run(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", TRAINED_ALONE], cwd=tmp_path, check=True)
    zoo.PPO2("MlpPolicy", "CartPole-v1", seed=7, compile=False).learn(64)
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(4)
    torch.set_default_dtype(torch.float64)
    try:
        result = zoo.train("algo=ppo2", "env=CartPole-v1", **SHORT_SETTINGS)
    finally:
        torch.set_default_dtype(torch.float32)
    (alone,) = Path("alone").glob("*/*/*/agent/policy.safetensors")
    here, there = load_file(result.agent / "policy.safetensors"), load_file(alone)
    assert here.keys() == there.keys()
    assert all(np.array_equal(here[name], there[name]) for name in here)


SHORT_INTERRUPTED = {**SETTINGS, "n_timesteps": 1024, "n_envs": 1, "tuned": "none", "threads": 1}
SHORT_INTERRUPTED |= {"algo": {"n_steps": 32, "batch_size": 32, "n_epochs": 1}, "callbacks": {"eval": None}}
SHORT_INTERRUPTED |= {"logger": {"csv": True, "every": 64}}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_loop_and_says_how_to_resume(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, begun = CsvLogger.write, []

    def write_and_signal(logger: CsvLogger, *arguments: Any, **options: Any) -> None:
        write(logger, *arguments, **options)
        if len(begun) == 1:
            os.kill(os.getpid(), number)

    def train_seeds() -> None:
        for seed in range(3):
            begun.append(seed)
            zoo.train("algo=ppo2", "env=CartPole-v1", **{**SHORT_INTERRUPTED, "seed": seed})

    with monkeypatch.context() as patched:
        patched.setattr(CsvLogger, "write", write_and_signal)
        with pytest.raises(KeyboardInterrupt) as raised:
            train_seeds()
    assert begun == [0]
    assert isinstance(raised.value, TrainingInterrupted)
    result = raised.value.result
    run = result.run.path
    assert f"zoo.train(resume='{run}') goes on" in str(raised.value)
    assert repr(result).startswith("<Result: not complete after 64 steps")
    resumed = zoo.train(resume=result)
    assert repr(resumed) == f"<Result: complete after 1,024 steps, in {run}>"


HOLDING = """
import sys
from zoo.experiment.run_folder import RunFolder
run = RunFolder.reopen(sys.argv[1])
print("going on", flush=True)
sys.stdin.read()
"""


def made(seed: str = "3") -> RunFolder:
    """Make a run and leave it as if its process had been killed."""
    with Experiment(config_of("callbacks=none", "logger=none", "job=night", f"seed={seed}")) as experiment:
        return experiment.run


def test_running_job_is_refused_unless_seed_is_drawn() -> None:
    run = made()
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(ZooError, match="_s3 is still going on in another process"):
        made()
    assert made("null").path != run.path
    process.kill()
    process.communicate()
    assert made().path == run.path


class Wandering(gym.Wrapper[Any, Any, Any, Any]):
    """Works in a folder of its own from a call on, as simulators do."""

    def __init__(self, leaves_in: str, folder: Path) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.leaves_in, self.folder = leaves_in, folder
        self.leave("init")

    def leave(self, call: str) -> None:
        if call == self.leaves_in:
            self.folder.mkdir(exist_ok=True)
            os.chdir(self.folder)
        elif call == "step" and self.folder.exists():
            assert Path.cwd() == self.folder

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.leave("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.leave("step")
        return super().step(action)


@pytest.mark.parametrize("call", ["init", "reset", "step"])
def test_run_stays_where_it_began(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path.cwd()
    register_wrapped_cartpole("Wandering-v0", lambda env: Wandering(call, here / "simulator"), monkeypatch)
    result = zoo.train(config_of("env=Wandering-v0", "callbacks.checkpoint.every=64", "callbacks.agents={}"))
    written = {path.name for path in result.run.path.absolute().iterdir()}
    assert {"agent", "agents", "best_agent", "checkpoint", "monitor", "progress.csv", "run.json"} <= written
    assert status_of(["evaluate", f"agent={result.agent}", "n_episodes=2"]) == 0
    assert Path.cwd() == here
    assert list((here / "simulator").iterdir()) == []


@pytest.mark.parametrize("kind", [zoo.make_vec_env, lambda make: gym.vector.SyncVectorEnv([make])])
@pytest.mark.parametrize("call", ["reset", "step"])
def test_training_in_python_stays_where_it_began(kind: Any, call: str) -> None:
    here = Path.cwd()
    model = zoo.PPO2(
        "MlpPolicy", kind(lambda: Wandering(call, here / "simulator")), n_steps=32, compile=False
    )
    callbacks = [LoggingCallback(32, [CsvLogger("progress.csv")]), CheckpointCallback("checkpoint", 32)]
    zoo.evaluate_policy(model.learn(64, callbacks), lambda: Wandering(call, here / "simulator"), 1)
    model.save("agent")
    assert {path.name for path in here.iterdir()} == {"agent", "checkpoint", "progress.csv", "simulator"}


TRAIN = (
    *("train", "algo=ppo2", "env=Pendulum-v1", "n_timesteps=20", "policy.net_arch=[4]", "tuned=none"),
    *("callbacks.eval=null", "compile=false", "verbose=0", "algo.n_steps=10", "algo.batch_size=10"),
)


@pytest.fixture
def agent() -> Path:
    model = zoo.PPO2("MlpPolicy", "Pendulum-v1", compile=False, device="cpu")
    return model.save("agent")


def test_run_does_not_begin_with_weights_of_none(agent: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = read_agent(agent)
    name = next(iter(files.tensors))
    files.tensors[name].flat[0] = np.nan
    write_agent(agent, files)
    assert status_of([*TRAIN, "init_from=agent"]) == 2
    told = capfd.readouterr().err
    assert "not finite" in told
    assert name in told
    assert not Path("runs").exists()


def test_card_and_last_line_have_null(agent: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = read_agent(agent)
    files.card["mean_return"] = float("nan")
    write_agent(agent, files)
    assert json.loads((agent / "card.json").read_text())["mean_return"] is None
    assert status_of(["evaluate", "agent=agent", "n_episodes=1"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1], parse_constant=pytest.fail)
