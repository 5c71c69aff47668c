"""A run starts no more processes than the machine can hold, and a stranger's run fewer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from zoo.agents.own_runs import sign

from zoo.cli import status_of
from zoo.errors import ZooError
from zoo.training import process_limits
from zoo.training.process_limits import WORKER_BYTES, refuse_many_of_others, refuse_too_many_workers

CONFIG = {
    "workers": 1,
    "n_envs": 8,
    "env": {"vectorization": "auto", "n_workers": None},
    "callbacks": {"eval": {"n_envs": 5}},
}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores, and room for ten workers beside the first."""
    monkeypatch.setattr(process_limits, "usable_cores", lambda: 2)
    monkeypatch.setattr(process_limits, "free_bytes", lambda: int(10 * WORKER_BYTES / 0.9) + 9)


def test_more_workers_than_the_machine_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_too_many_workers(11)
    with pytest.raises(ZooError, match=r"workers=12 need 2.8 GiB of memory to start, but 2.8 GiB are free; "):
        refuse_too_many_workers(12)
    with pytest.raises(ZooError, match="; workers=11 fit"):
        refuse_too_many_workers(12)
    monkeypatch.setattr(process_limits, "free_bytes", lambda: None)
    refuse_too_many_workers(16)
    with pytest.raises(ZooError, match="workers=17 are too many for 2 cores: at most 8 for each, workers=16"):
        refuse_too_many_workers(17)


def test_too_many_workers_are_told_of_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert status_of(["train", "algo=ppo2", "env=CartPole-v1", "workers=99"]) == 2
    message = capsys.readouterr().err
    assert "workers=99 are too many for 2 cores" in message
    assert message.count("\n") == 1
    assert not list(tmp_path.iterdir())


MANY = {
    "workers": ({"workers": 9}, "9 processes (workers, env.n_workers), more than 8"),
    "environments": ({"n_envs": 1001}, "1,001 environments, more than 1,000"),
    "environments of workers": ({"workers": 2, "n_envs": 501}, "1,002 environments"),
    "environments of evaluations": ({"callbacks": {"eval": {"n_envs": 1001}}}, "1,001 environments"),
    "processes of environments": ({"env": {"vectorization": "workers", "n_workers": 8}}, "9 processes"),
    "processes of workers' environments": (
        {"workers": 3, "env": {"vectorization": "workers"}},
        "9 processes",
    ),
}
FEW = {
    "workers": {"workers": 8},
    "environments": {"n_envs": 1000, "callbacks": {"eval": None}},
    "processes that nobody starts": {"env": {"vectorization": "sync", "n_workers": 500}},
    "processes of environments": {"env": {"vectorization": "workers", "n_workers": 7}},
    "fewer environments than processes": {"n_envs": 6, "env": {"vectorization": "workers", "n_workers": 99}},
    "processes as usual": {"workers": 2, "env": {"vectorization": "workers", "n_workers": None}},
}


@pytest.mark.parametrize(("changes", "problem"), MANY.values(), ids=MANY)
def test_stranger_starts_no_more_than_a_few_processes_a_core(
    changes: dict[str, object], problem: str, tmp_path: Path
) -> None:
    config = {**CONFIG, **changes}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ZooError, match="refused because it is not a run of your own") as caught:
        refuse_many_of_others(tmp_path, config, "do that")
    assert problem in str(caught.value)
    assert str(caught.value).endswith("; do that")
    sign(tmp_path, (tmp_path / "config.yaml").read_bytes())
    refuse_many_of_others(tmp_path, config, "do that")


@pytest.mark.parametrize("changes", FEW.values(), ids=FEW)
def test_few_processes_of_a_stranger_are_started(changes: dict[str, object], tmp_path: Path) -> None:
    refuse_many_of_others(tmp_path, {**CONFIG, **changes}, "")


def test_tasks_that_a_job_has_started_are_not_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("JOB_ID", "PROCID", "LOCALID", "STEP_TASKS_PER_NODE", "STEP_NUM_TASKS"):
        monkeypatch.setenv(f"SLURM_{name}", "9")
    refuse_many_of_others(tmp_path, {**CONFIG, "workers": 9}, "")


def test_copied_run_is_neither_repeated_nor_resumed_with_many_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    short = ["algo=ppo2", "env=CartPole-v1", "n_timesteps=64", "algo.n_steps=32", "n_envs=2", "verbose=0"]
    short += ["algo.batch_size=32", "callbacks.eval=null", "progress_bar=false", "compile=false", "threads=1"]
    assert status_of(["train", *short, "logger=csv", "callbacks.checkpoint=null"]) == 0
    (run,) = Path("runs").glob("*/*/*")
    shutil.copytree(run, "theirs")
    config = yaml.safe_load(Path("theirs/config.yaml").read_text())
    text = Path("theirs/config.yaml").read_text().replace("\nworkers: 1\n", "\nworkers: 15\n")
    assert yaml.safe_load(text) == {**config, "workers": 15}
    Path("theirs/config.yaml").write_text(text)
    capsys.readouterr()
    for arguments in (["reproduce", "theirs"], ["train", "resume=theirs"]):
        assert status_of(arguments) == 2
        message = capsys.readouterr().err
        assert "the run in theirs asks for 15 processes" in message
        assert message.count("\n") == 1
    assert status_of(["reproduce", "theirs", "trust=true"]) == 2
    assert "workers=15 need" in capsys.readouterr().err  # which holds for everybody
