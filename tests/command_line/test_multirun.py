"""Many jobs: each is run, those that fail are named at the end, an interruption starts no more."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zoo.errors import ZooError
from zoo.launch.command import run_command

JOBS = """
import os
import signal
from pathlib import Path

from zoo.errors import ZooError


def run(config):
    Path("done").mkdir(exist_ok=True)
    print(f"seed {config.seed} at work", flush=True)
    if config.seed == 1:
        raise ZooError("seed 1 is unlucky")
    if config.seed == 2:
        raise RuntimeError("seed 2 is broken")
    if config.seed == 11:
        os._exit(0)
    if config.seed == 12:
        os.kill(os.getpid(), signal.SIGKILL)
    name = f"{config.get('algo', config).get('name', 'none')}-{config.env.id}-{config.seed}"
    Path("done", name.replace("/", "-")).touch()
"""


@pytest.fixture(autouse=True)
def jobs(working_folder: Path) -> None:
    (working_folder / "some_jobs.py").write_text(JOBS)


def multirun(*arguments: str) -> int:
    return run_command("train", "some_jobs:run", ["-m", *arguments])


def quick_multirun(seeds: str, *arguments: str) -> int:
    """Run many jobs of a command that imports no algorithm."""
    return run_command("check", "some_jobs:run", ["-m", "env=CartPole-v1", f"seed={seeds}", *arguments])


def rows(printed: str) -> list[str]:
    """Return the rows of the closing table, without the time that each job took."""
    lines = [re.sub(r" +", " ", line).strip() for line in printed.splitlines()]
    header = next(number for number, line in enumerate(lines) if line.startswith("job overrides state"))
    return [re.sub(r" \d+:\d\d(?= |$)", "", line) for line in lines[header + 1 : -1]]


def done() -> list[str]:
    return sorted(path.name for path in Path("done").iterdir())


def test_every_combination_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert multirun("algo=ppo2,a2c", "env=ALE/Pong-v5,my:Env-v0", "seed=3") == 0
    envs = ("ALE-Pong-v5", "my:Env-v0")
    assert done() == sorted(f"{algo}-{env}-3" for algo in ("a2c", "ppo2") for env in envs)
    assert "zoo: job 3: algo=a2c env=my:Env-v0 seed=3\n" in capsys.readouterr().out


def test_hyperparameter_that_one_algorithm_lacks_is_refused_before_the_first_job() -> None:
    with pytest.raises(ZooError, match=r"`algo.batch_size` is a hyperparameter of .*, not of a2c"):
        multirun("algo=ppo2,a2c", "env=CartPole-v1", "algo.batch_size=32")
    assert not Path("done").exists()


@pytest.mark.parametrize("launcher", ["local", "joblib"])
def test_failing_jobs_are_named_at_the_end_and_the_others_complete(
    launcher: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert quick_multirun("range(4)", f"hydra/launcher={launcher}") == 2
    assert done() == ["none-CartPole-v1-0", "none-CartPole-v1-3"]
    printed = capfd.readouterr()
    assert rows(printed.out) == [
        "0 env=CartPole-v1 seed=0 done",
        "1 env=CartPole-v1 seed=1 failed seed 1 is unlucky",
        "2 env=CartPole-v1 seed=2 failed RuntimeError: seed 2 is broken",
        "3 env=CartPole-v1 seed=3 done",
    ]
    assert printed.out.splitlines()[-1] == "zoo: 4 jobs: 2 done, 2 failed"
    assert printed.err.splitlines()[-1].startswith(
        "zoo: 2 of 4 jobs did not finish; this runs them: zoo check -m"
    )


def test_job_that_dies_takes_nobody_with_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert quick_multirun("11,3,12,5", "hydra/launcher=basic") == 1
    assert done() == ["none-CartPole-v1-3", "none-CartPole-v1-5"]
    told = rows(capfd.readouterr().out)
    assert told[0].endswith("seed=11 killed its process ended with exit status 0 before it was done")
    assert told[2].endswith("seed=12 killed its process was killed by SIGKILL (out of memory?)")


def test_jobs_side_by_side_print_to_files_of_their_own(capfd: pytest.CaptureFixture[str]) -> None:
    quick_multirun("range(3)", "hydra/launcher=joblib")
    logs = {path.name: path.read_text() for path in Path("runs/multirun").rglob("*.log")}
    assert sorted(logs) == ["0.log", "1.log", "2.log"]
    assert logs["0.log"] == "seed 0 at work\n"
    assert "zoo: seed 1 is unlucky" in logs["1.log"]
    assert "Traceback" in logs["2.log"]
    out = capfd.readouterr().out
    assert "at work" not in out
    for line in ("job 0: done", "job 1: seed 1 is unlucky", "job 2: RuntimeError: seed 2 is broken"):
        assert f"zoo: {line}\n" in out


def test_number_of_jobs_at_a_time_is_checked() -> None:
    with pytest.raises(ZooError, match="is neither -1"):
        quick_multirun("3", "hydra/launcher=joblib", "hydra.launcher.n_jobs=0")


def test_experiment_may_ask_for_many_jobs(working_folder: Path) -> None:
    experiments = working_folder / "conf" / "experiment"
    experiments.mkdir(parents=True)
    (experiments / "many.yaml").write_text(
        "hydra: {mode: MULTIRUN, sweeper: {params: {algo: 'ppo2,a2c', seed: '5'}}}"
    )
    assert run_command("train", "some_jobs:run", ["experiment=many", "env=CartPole-v1"]) == 0
    assert done() == ["a2c-CartPole-v1-5", "ppo2-CartPole-v1-5"]


def test_slurm_that_is_not_there_is_told_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path.cwd()))
    with pytest.raises(ZooError, match="not part of a Slurm cluster"):
        quick_multirun("3,5", "hydra/launcher=slurm")
    assert not Path("runs").exists()


def test_settings_of_a_multirun_are_kept_beside_the_runs() -> None:
    multirun("algo=ppo2", "env=CartPole-v1", "seed=3", "runs_dir=elsewhere")
    kept = sorted(path.name for path in Path("elsewhere/multirun").rglob("*.yaml"))
    assert kept == ["sweep.yaml"]
    assert not Path("runs").exists()
    assert not Path("outputs").exists()


WAITING_JOBS = """
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def run(config):
    was_asked = []
    if config.seed != 1:
        signal.signal(signal.SIGINT, lambda *_: was_asked.append("SIGINT"))
        signal.signal(signal.SIGTERM, lambda *_: was_asked.append("SIGTERM"))
    grandchild = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    Path(f"ids-{config.seed}.new").write_text(f"{os.getpid()} {grandchild.pid}")
    Path(f"ids-{config.seed}.new").rename(f"ids-{config.seed}")
    while not was_asked or config.seed == 2:
        time.sleep(0.02)
    Path(f"asked-{config.seed}").write_text(was_asked[0])
    return 130
"""


class Many:
    """A multirun of waiting jobs, two at once, in a process of its own."""

    def __init__(self, seeds: str) -> None:
        code = (
            "import sys; from zoo.launch.command import run_command;"
            f"arguments = ['-m', 'env=CartPole-v1', 'seed={seeds}',"
            "'hydra/launcher=joblib', 'hydra.launcher.n_jobs=2'];"
            "sys.exit(run_command('check', 'waiting_jobs:run', arguments))"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def ids(self, *seeds: int) -> list[int]:
        """Wait until these jobs are at work; return the ids of their processes and of what they started."""
        files = [Path(f"ids-{seed}") for seed in seeds]
        wait_until(lambda: all(file.exists() for file in files))
        return [int(number) for file in files for number in file.read_text().split()]

    def end(self) -> tuple[int, str, str]:
        printed, errors = self.process.communicate(timeout=60)
        return self.process.returncode, printed, errors


@pytest.fixture
def many(working_folder: Path) -> Iterator[Callable[[str], Many]]:
    (working_folder / "waiting_jobs.py").write_text(WAITING_JOBS)
    started: list[Many] = []

    def start(seeds: str) -> Many:
        started.append(Many(seeds))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
    for number in (number for file in working_folder.glob("ids-?") for number in file.read_text().split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(number), signal.SIGKILL)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert is_so()


def is_gone(process: int) -> bool:
    """Whether a process has ended; nobody may have asked yet how."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_signal_to_the_multirun_ends_the_running_jobs_cleanly_and_starts_no_more(
    many: Callable[[str], Many],
) -> None:
    number = signal.SIGTERM
    multirun = many("3,4,5")
    ids = multirun.ids(3, 4)
    multirun.process.send_signal(number)
    status, printed, errors = multirun.end()
    assert status == 130
    assert [Path(f"asked-{seed}").read_text() for seed in (3, 4)] == [number.name] * 2
    assert not Path("ids-5").exists()
    assert errors.count("no more jobs will be started") == 1
    assert "zoo: 3 of 3 jobs did not finish" in errors
    assert rows(printed)[0].endswith("seed=3 interrupted")
    assert rows(printed)[2].endswith("seed=5 interrupted not started")
    wait_until(lambda: all(map(is_gone, ids)))


def test_second_interruption_ends_all_at_once(many: Callable[[str], Many]) -> None:
    multirun = many("2,3")
    ids = multirun.ids(2, 3)
    multirun.process.send_signal(signal.SIGINT)
    wait_until(Path("asked-3").exists)
    multirun.process.send_signal(signal.SIGINT)
    status, printed, _ = multirun.end()
    assert status == 130
    assert not Path("asked-2").exists()
    assert rows(printed)[0].endswith("seed=2 interrupted")
    wait_until(lambda: all(map(is_gone, ids)))


def test_jobs_end_cleanly_when_their_multirun_is_killed(many: Callable[[str], Many]) -> None:
    multirun = many("3,4,5")
    jobs = multirun.ids(3, 4)[::2]
    multirun.process.kill()
    multirun.process.wait()
    wait_until(lambda: all(map(is_gone, jobs)))
    assert [Path(f"asked-{seed}").read_text() for seed in (3, 4)] == ["SIGTERM"] * 2
    assert not Path("ids-5").exists()


def test_sweep_without_jobs_is_told() -> None:
    with pytest.raises(ZooError, match="the sweep has no jobs"):
        quick_multirun("range(5,5)")
