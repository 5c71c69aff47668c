"""Many jobs: each is run, those that fail are named at the end, an interruption starts no more."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from zoo.config import application
from zoo.config.application import run_command
from zoo.errors import ZooError

JOBS = """
from pathlib import Path

from zoo.errors import ZooError


def run(config):
    Path("done").mkdir(exist_ok=True)
    print(f"seed {config.seed} at work", flush=True)
    if config.seed == 1:
        raise ZooError("seed 1 is unlucky")
    if config.seed == 2:
        raise RuntimeError("seed 2 is broken")
    if config.seed == 4:
        return 130
    name = f"{config.algo.name}-{config.env.id}-{config.seed}"
    Path("done", name.replace("/", "-")).touch()
"""


@pytest.fixture(autouse=True)
def jobs(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(application._interruption, "has_come", False)
    (working_folder / "some_jobs.py").write_text(JOBS)
    sys.modules.pop("some_jobs", None)
    yield
    if "joblib.externals.loky" in sys.modules:
        # Its workers would stay in this test's folder.
        sys.modules["joblib.externals.loky"].get_reusable_executor().shutdown(wait=True)


def multirun(*arguments: str) -> int:
    return run_command("train", "some_jobs:run", ["-m", *arguments])


def done() -> list[str]:
    return sorted(path.name for path in Path("done").iterdir())


def test_every_combination_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert multirun("algo=ppo2,a2c", "env=CartPole-v1,ALE/Pong-v5,my:Env-v0", "seed=3,5") == 0
    envs = ("ALE-Pong-v5", "CartPole-v1", "my:Env-v0")
    assert done() == sorted(
        f"{algo}-{env}-{seed}" for algo in ("a2c", "ppo2") for env in envs for seed in (3, 5)
    )
    assert "zoo: job 11: algo=a2c env=my:Env-v0 seed=5" in capsys.readouterr().out


def test_range_of_seeds() -> None:
    assert multirun("algo=ppo2", "env=CartPole-v1", "seed=range(5,8)") == 0
    assert done() == ["ppo2-CartPole-v1-5", "ppo2-CartPole-v1-6", "ppo2-CartPole-v1-7"]


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_failing_jobs_are_named_at_the_end_and_the_others_complete(
    launcher: str, capfd: pytest.CaptureFixture[str]
) -> None:
    status = multirun("algo=ppo2", "env=CartPole-v1", "seed=range(4)", f"hydra/launcher={launcher}")
    assert status != 0
    assert done() == ["ppo2-CartPole-v1-0", "ppo2-CartPole-v1-3"]
    summary = capfd.readouterr().err.splitlines()[-3:]
    assert summary[0] == "zoo: 2 of 4 jobs did not finish:"
    assert "job 1: algo=ppo2 env=CartPole-v1 seed=1: seed 1 is unlucky" in summary[1]
    assert "job 2: algo=ppo2 env=CartPole-v1 seed=2: RuntimeError: seed 2 is broken" in summary[2]


def test_jobs_side_by_side_print_to_files_of_their_own(capfd: pytest.CaptureFixture[str]) -> None:
    multirun("algo=ppo2", "env=CartPole-v1", "seed=range(3)", "hydra/launcher=joblib")
    logs = {path.name: path.read_text() for path in Path("runs/multirun").rglob("*.log")}
    assert sorted(logs) == ["0.log", "1.log", "2.log"]
    assert logs["0.log"] == "seed 0 at work\n"
    assert "zoo: seed 1 is unlucky" in logs["1.log"]
    assert "Traceback" in logs["2.log"]
    assert "at work" not in capfd.readouterr().out


def test_status_tells_mistakes_from_failures() -> None:
    assert multirun("algo=ppo2", "env=CartPole-v1", "seed=0,1") == 2
    assert multirun("algo=ppo2", "env=CartPole-v1", "seed=0,2") == 1


def test_mistake_in_any_job_is_found_before_the_first_starts() -> None:
    with pytest.raises(ZooError, match="out of range"):
        multirun("algo=ppo2", "env=CartPole-v1", "algo.gamma=0.9,1.9")
    assert not Path("done").exists()


def test_interrupted_job_keeps_the_others_from_starting(capsys: pytest.CaptureFixture[str]) -> None:
    assert multirun("algo=ppo2", "env=CartPole-v1", "seed=3,4,5,6") == 130
    assert done() == ["ppo2-CartPole-v1-3"]
    assert "seed=5: not started" in capsys.readouterr().err


def test_experiment_may_ask_for_many_jobs(working_folder: Path) -> None:
    experiments = working_folder / "conf" / "experiment"
    experiments.mkdir(parents=True)
    (experiments / "many.yaml").write_text(
        "hydra: {mode: MULTIRUN, sweeper: {params: {algo: 'ppo2,a2c', seed: 'range(5,7)'}}}"
    )
    assert run_command("train", "some_jobs:run", ["experiment=many", "env=CartPole-v1"]) == 0
    assert len(done()) == 4


def test_flag_may_stand_anywhere() -> None:
    assert run_command("train", "some_jobs:run", ["algo=ppo2", "-m", "env=CartPole-v1", "seed=3,5"]) == 0
    assert len(done()) == 2


@pytest.mark.skipif(shutil.which("srun") is not None, reason="this machine has Slurm")
def test_slurm_that_is_not_there_is_told_in_one_message() -> None:
    pytest.importorskip("submitit")
    with pytest.raises(ZooError, match="not part of a Slurm cluster"):
        multirun("algo=ppo2", "env=CartPole-v1", "seed=3,5", "hydra/launcher=slurm")


def test_settings_of_a_multirun_are_kept_beside_the_runs() -> None:
    multirun("algo=ppo2", "env=CartPole-v1", "seed=3", "runs_dir=elsewhere")
    assert [path.name for path in Path("elsewhere/multirun").rglob("*.yaml")] == ["multirun.yaml"]
    assert not Path("runs").exists()
    assert not Path("outputs").exists()


SLOW_JOBS = """
import time
from pathlib import Path


def run(config):
    Path(f"started-{config.seed}").touch()
    time.sleep(3)
"""


def test_first_interruption_waits_for_the_running_jobs(working_folder: Path) -> None:
    (working_folder / "slow_jobs.py").write_text(SLOW_JOBS)
    code = (
        "import sys; from zoo.config.application import run_command;"
        "arguments = ['-m', 'algo=ppo2', 'env=CartPole-v1', 'seed=range(3)'];"
        "sys.exit(run_command('train', 'slow_jobs:run', arguments))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "."}
    )
    deadline = time.monotonic() + 60
    while not Path("started-0").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "no more jobs will be started" in errors
    assert "seed=0" not in errors
    assert "seed=1: not started" in errors
    assert not Path("started-1").exists()
