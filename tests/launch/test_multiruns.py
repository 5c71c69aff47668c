"""Many jobs on this machine: what is written down of them, ending early, and going on."""

from __future__ import annotations

import contextlib
import csv
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from forked import Forked

import zoo
from zoo.agents.find import find_agent, list_agents
from zoo.cli import status_of
from zoo.config.compose import ConfigLoader
from zoo.errors import ZooError
from zoo.experiment.run_folder import RunFolder
from zoo.launch.command import run_command
from zoo.launch.sweep_folder import SweepFolder

TRAINING = [
    *("algo=ppo2", "env=CartPole-v1", "n_timesteps=3000", "compile=false", "threads=1"),
    *("callbacks.eval.n_episodes=2", "callbacks.eval.every=1500", "logger=csv", "logger.every=300"),
    *("progress_bar=false", "callbacks.checkpoint.every=500"),
]
Wait = Callable[[Callable[[], bool]], None]
KEEPS_NONE = "callbacks.checkpoint.keep=false"
"""So that only the run that is under way has a checkpoint."""


def sweep(seeds: str, *arguments: str) -> int:
    """Run jobs that take no time."""
    return run_command("check", "quick_jobs:run", ["-m", "env=CartPole-v1", f"seed={seeds}", *arguments])


def the_sweep() -> SweepFolder:
    return SweepFolder.newest("runs")


def table() -> list[dict[str, str]]:
    with open(the_sweep().table, newline="") as file:
        return list(csv.DictReader(file))


def starts(seed: int) -> int:
    path = Path(f"starts-{seed}")
    return path.stat().st_size if path.exists() else 0


@pytest.fixture
def launched() -> Iterator[Callable[..., Forked]]:
    """Start `zoo` in a process of its own."""
    processes: list[Forked] = []

    def launch(command: str, function: str, *arguments: str) -> Forked:
        processes.append(Forked(lambda: run_command(command, function, list(arguments))))
        return processes[-1]

    yield launch
    for process in processes:
        process.kill()
        process.wait()


def test_table_holds_every_job_with_what_came_of_it() -> None:
    assert sweep("2,11", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2") == 1
    rows = table()
    assert [row["job"] for row in rows] == ["0", "1"]
    assert [row["status"] for row in rows] == ["failed", "killed"]
    assert rows[0]["overrides"] == "env=CartPole-v1 seed=2"
    assert rows[0]["reason"] == "RuntimeError: seed 2 is broken"
    assert rows[1]["reason"] == "its process ended with exit status 0 before it was done"
    assert all(float(row["seconds"]) > 0 for row in rows)
    record = yaml.safe_load(the_sweep().record.read_text())
    assert record["command"] == "check"
    assert record["overrides"] == ["env=CartPole-v1", "seed=2,11"]
    assert record["launcher"] == "LocalLauncher"
    assert record["config"]["env"]["id"] == "CartPole-v1"


JOBLIB = "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"


@pytest.mark.parametrize("launcher", ["basic", "submitit_local", f"joblib hydra.launcher._target_={JOBLIB}"])
def test_launcher_plugin_runs_and_resumes_jobs(launcher: str) -> None:
    code = (
        "import sys; from zoo.launch.command import run_command;"
        " sys.exit(run_command('check', 'quick_jobs:run', ['-m', *sys.argv[1:]]))"
    )
    zoo = [sys.executable, "-c", code]
    chosen = f"hydra/launcher={launcher}".split()
    done = subprocess.run([*zoo, "env=CartPole-v1", "seed=2,0", *chosen], check=False)
    assert done.returncode == 1
    rows = table()
    assert [row["status"] for row in rows] == ["failed", "done"]
    assert rows[0]["reason"] == "RuntimeError: seed 2 is broken"
    assert "seed 0 at work" in (the_sweep().path / "1.log").read_text()
    Path("mended").touch()
    subprocess.run([*zoo, f"sweep.resume={the_sweep().path}"], check=True)
    assert [row["status"] for row in table()] == ["done", "done"]
    assert (starts(0), starts(2)) == (1, 2)


def test_launcher_plugin_is_refused_in_a_line() -> None:
    with pytest.raises(ZooError, match="hydra/launcher=joblib can't be used: "):
        sweep("0", "hydra/launcher=joblib", "hydra.launcher._target_=nosuch.Launcher")
    with pytest.raises(ZooError, match="n_jobs"):
        sweep("0", "hydra/launcher=basic", "hydra.launcher.n_jobs=2")
    assert starts(0) == 0


def test_status_tells_counts_and_whether_a_job_failed(capsys: pytest.CaptureFixture[str]) -> None:
    sweep("0,2")
    capsys.readouterr()
    assert status_of(["status"]) == 1
    printed = capsys.readouterr().out
    assert "RuntimeError: seed 2 is broken" in printed
    assert printed.splitlines()[-1] == f"{the_sweep().path}: 2 jobs: 1 done, 1 failed"
    Path("mended").touch()
    assert run_command("check", "quick_jobs:run", ["-m", f"sweep.resume={the_sweep().path}"]) == 0
    assert (starts(0), starts(2)) == (1, 2)
    assert status_of(["status", str(the_sweep().path), "watch=true"]) == 0


def test_resumed_multirun_reruns_interrupted_jobs(
    launched: Callable[..., Forked], wait_until: Wait, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = ("-m", "env=CartPole-v1", "seed=0,5,7")
    process = launched("check", "quick_jobs:run", *jobs)
    wait_until(lambda: starts(5) == 1)
    with pytest.raises(ZooError, match="still going on"):
        run_command("check", "quick_jobs:run", ["-m", f"sweep.resume={the_sweep().path}"])
    assert status_of(["status"]) == 0
    assert "3 jobs: 1 queued, 1 running, 1 done" in capsys.readouterr().out
    process.kill()
    process.wait()
    wait_until(lambda: [row.status for row in the_sweep().current_jobs()] == ["done", "killed", "queued"])
    assert status_of(["status"]) == 1
    assert "its multirun is gone before it started" in capsys.readouterr().out
    assert table()[1]["reason"] == "its process is gone"
    assert run_command("check", "quick_jobs:run", [*jobs, f"sweep.resume={the_sweep().path}"]) == 0
    assert [row["status"] for row in table()] == ["done"] * 3
    assert (starts(0), starts(5), starts(7)) == (1, 2, 1)


@pytest.mark.slow
def test_killed_multirun_resumes_training_exactly(launched: Callable[..., Forked], wait_until: Wait) -> None:
    """Both jobs are the same; the second is killed with its multirun."""
    process = launched("train", "zoo.commands.train:run", "-m", *TRAINING, "seed=1,1", KEEPS_NONE)

    def is_half_way() -> bool:
        folders = Path("runs").glob("multirun/*/ppo2/*/*/checkpoint/checkpoint.json")
        return len(list(folders)) == 1 and the_sweep().current_jobs()[0].status == "done"

    wait_until(is_half_way)
    training = next(the_sweep().path.glob("ppo2/*/*/checkpoint")).parent
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: the_sweep().current_jobs()[1].status != "running")
    resumed = ["-m", f"sweep.resume={the_sweep().path}", "hydra/launcher=joblib"]
    assert run_command("train", "zoo.commands.train:run", resumed) == 0
    rows = table()
    assert [row["status"] for row in rows] == ["done", "done"]
    assert the_sweep().path / rows[1]["run"] == training
    assert "resume  from step" in (the_sweep().path / "1.log").read_text()
    agents = [the_sweep().path / row["run"] / "agent" / "policy.safetensors" for row in rows]
    assert agents[0].read_bytes() == agents[1].read_bytes()
    assert [row["steps"] for row in rows] == [rows[0]["steps"]] * 2
    assert find_agent("ppo2", "CartPole-v1").is_relative_to(the_sweep().path)
    assert len([agent for agent in list_agents() if agent.run is not None]) == 2


MISTAKES = {
    "sweep.resume=nowhere": "there is no sweep in nowhere",
    "sweep.resume=.": "it has no sweep.yaml",
    "sweep.retry=1": "expected sweep.resume=DIR",
    "hydra.launcher.n_jobs=0": "is neither -1",
}


@pytest.mark.parametrize("override", MISTAKES)
def test_mistake_is_told_in_one_line(override: str) -> None:
    with pytest.raises(ZooError) as raised:
        sweep("0", override)
    assert MISTAKES[override] in str(raised.value)
    assert "\n" not in str(raised.value)


def test_status_of_what_is_no_sweep_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["status"]) == 2
    assert status_of(["status", "."]) == 2
    assert capsys.readouterr().err.count("there is no sweep in") == 2


@pytest.mark.parametrize("content", ["{}", "command: [", "- check"])
def test_damaged_sweep_is_one_error(content: str) -> None:
    Path("sweep.yaml").write_text(content)
    with pytest.raises(ZooError, match=r"sweep\.yaml is damaged"):
        run_command("check", "quick_jobs:run", ["-m", "sweep.resume=."])


def test_sweep_goes_on_as_it_was() -> None:
    sweep("0,2")
    resume = f"sweep.resume={the_sweep().path}"
    with pytest.raises(ZooError, match=r"can't take seed=range\(9\), env\.max_episode_steps=7;"):
        run_command("check", "quick_jobs:run", ["-m", "seed=range(9)", "env.max_episode_steps=7", resume])
    with pytest.raises(ZooError, match="is a sweep of zoo check"):
        run_command("train", "quick_jobs:run", ["-m", resume])


def test_jobs_of_a_multirun_have_no_other_name() -> None:
    with pytest.raises(ZooError, match="each has its own"):
        run_command("train", "quick_jobs:run", ["-m", *TRAINING, "seed=1,2", "job=mine"])


def multirun(*arguments: str) -> int:
    return run_command("train", "quick_jobs:run", ["-m", *arguments])


def rows(printed: str) -> list[str]:
    """Return the rows of the closing table, without the time that each job took."""
    lines = [re.sub(r" +", " ", line).strip() for line in printed.splitlines()]
    header = next(number for number, line in enumerate(lines) if line.startswith("job overrides state"))
    return [re.sub(r" \d+:\d\d(?= |$)", "", line) for line in lines[header + 1 : -1]]


def done() -> list[str]:
    return sorted(path.name for path in Path("done").iterdir())


def test_experiment_multirun_is_stored_in_runs_dir(
    working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiments = working_folder / "conf" / "experiment"
    experiments.mkdir(parents=True)
    (experiments / "many.yaml").write_text(
        "hydra: {mode: MULTIRUN, sweeper: {params: {env: 'ALE/Pong-v5,my:Env-v0', seed: '7'}}}"
    )
    given = ["experiment=many", "algo=ppo2", "runs_dir=elsewhere"]
    assert run_command("train", "quick_jobs:run", given) == 0
    assert done() == ["ppo2-ALE-Pong-v5-7", "ppo2-my:Env-v0-7"]
    assert "zoo: job 1: " in capsys.readouterr().out
    kept = sorted(path.name for path in Path("elsewhere/multirun").rglob("*.yaml"))
    assert kept == ["sweep.yaml"]
    assert not Path("runs").exists()
    assert not Path("outputs").exists()


def test_unknown_hyperparameter_is_refused_before_jobs() -> None:
    with pytest.raises(ZooError, match=r"`algo.batch_size` is a hyperparameter of .*, not of a2c"):
        multirun("algo=ppo2,a2c", "env=CartPole-v1", "algo.batch_size=32")
    assert not Path("done").exists()


@pytest.mark.parametrize("launcher", ["local", "joblib"])
def test_failed_jobs_are_listed_and_others_complete(launcher: str, capfd: pytest.CaptureFixture[str]) -> None:
    """One after the other they print to the terminal, side by side to their logs."""
    assert sweep("range(4)", f"hydra/launcher={launcher}") == 2
    assert done() == ["none-CartPole-v1-0"]
    printed = capfd.readouterr()
    assert rows(printed.out) == [
        "0 env=CartPole-v1 seed=0 done",
        "1 env=CartPole-v1 seed=1 failed seed 1 is unlucky",
        "2 env=CartPole-v1 seed=2 failed RuntimeError: seed 2 is broken",
        "3 env=CartPole-v1 seed=3 killed its process was killed by SIGKILL (out of memory?)",
    ]
    assert printed.out.splitlines()[-1] == "zoo: 4 jobs: 1 done, 2 failed, 1 killed"
    assert printed.err.splitlines()[-1].startswith(
        "zoo: 3 of 4 jobs did not finish; this runs them: zoo check -m"
    )
    if launcher == "joblib":
        assert (the_sweep().path / "0.log").read_text() == "seed 0 at work\n"
        assert "zoo: seed 1 is unlucky" in (the_sweep().path / "1.log").read_text()
        assert "Traceback" in (the_sweep().path / "2.log").read_text()
    assert ("at work" in printed.out) == ("RuntimeError: seed 2" in printed.err) == (launcher == "local")
    for line in ("job 0: done", "job 1: seed 1 is unlucky", "job 2: RuntimeError: seed 2 is broken"):
        assert (f"zoo: {line}\n" in printed.out) == (launcher == "joblib")


@pytest.mark.parametrize(
    ("slurm_state", "status", "reason", "is_missing"),
    [
        ("RUNNING", "running", "", False),
        ("STOPPED", "running", "", False),
        ("RESIZING", "running", "", False),
        ("TIMEOUT", "killed", "its time was up (hydra.launcher.timeout_min)", True),
        ("OUT_OF_MEMORY", "killed", "it needed more memory than it had (hydra.launcher.mem_gb)", True),
        ("NODE_FAIL", "killed", "its process is gone; Slurm says NODE_FAIL", True),
        ("CANCELLED", "interrupted", "its process is gone; Slurm says CANCELLED", True),
    ],
)
def test_slurm_state_says_whether_job_is_gone(
    slurm_state: str, status: str, reason: str, is_missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("bin").mkdir()
    Path("bin", "squeue").write_text(f"#!/bin/sh\necho '7_0|{slurm_state}|None'\n")
    Path("bin", "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(Path("bin").absolute()), prepend=os.pathsep)
    folder = SweepFolder("a sweep")
    folder.create([["seed=1"]])
    folder.change_job(0, status="running", slurm_job="7_0")
    (job,) = folder.current_jobs()
    assert (job.status, job.reason, job.is_missing) == (status, reason, is_missing)


def test_missing_slurm_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path.cwd()))
    with pytest.raises(ZooError, match="not part of a Slurm cluster"):
        sweep("3,5", "hydra/launcher=slurm")
    assert not Path("runs").exists()


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
        jobs = ["-m", "env=CartPole-v1", f"seed={seeds}", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
        self.process = Forked(lambda: run_command("check", "waiting_jobs:run", jobs))

    def ids(self, *seeds: int) -> list[int]:
        """Wait until these jobs are at work; return the ids of their processes and of what they started."""
        files = [Path(f"ids-{seed}") for seed in seeds]
        deadline = time.monotonic() + 60
        while not all(file.exists() for file in files) and time.monotonic() < deadline:
            time.sleep(0.02)
        return [int(number) for file in files for number in file.read_text().split()]

    def end(self) -> tuple[int | None, str, str]:
        printed, errors = self.process.communicate(60)
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


def is_gone(process: int) -> bool:
    """Whether a process has ended; nobody may have asked yet how."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_signalled_multirun_ends_jobs_and_starts_none(many: Callable[[str], Many], wait_until: Wait) -> None:
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


def test_second_interruption_ends_all_at_once(many: Callable[[str], Many], wait_until: Wait) -> None:
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


def test_jobs_end_cleanly_if_their_multirun_is_killed(many: Callable[[str], Many], wait_until: Wait) -> None:
    multirun = many("3,4,5")
    jobs = multirun.ids(3, 4)[::2]
    multirun.process.kill()
    multirun.process.wait()
    wait_until(lambda: all(map(is_gone, jobs)))
    assert [Path(f"asked-{seed}").read_text() for seed in (3, 4)] == ["SIGTERM"] * 2
    assert not Path("ids-5").exists()


SMALL = [
    *("algo=ppo2", "env=CartPole-v1", "n_timesteps=64", "n_envs=1", "algo.n_steps=32", "algo.batch_size=32"),
    *("tuned=none", "threads=1", "compile=false", "progress_bar=false", "callbacks.eval=null", "logger=csv"),
]


def test_run_trained_once_more_is_no_job_of_its_sweep() -> None:
    assert run_command("train", "zoo.commands.train:run", ["-m", *SMALL, "seed=1,2"]) == 0
    before = table()
    run = the_sweep().path / before[0]["run"]
    assert status_of(["train", f"experiment={run}/config.yaml", "seed=7", "n_timesteps=32"]) == 0
    again = RunFolder(next(Path("runs/ppo2/CartPole-v1").iterdir()))
    assert again.read_record()["job"] is None
    zoo.train({**yaml.safe_load((run / "config.yaml").read_text()), "seed": 8})  # names the job
    the_sweep().write_table()
    assert table() == before


def recorded(n: int) -> SweepFolder:
    """Write down a sweep of which every job but the last has ended."""
    folder = SweepFolder(f"runs/multirun/{n}")
    jobs = [["env=CartPole-v1", f"seed={20 + seed}"] for seed in range(n)]
    started_in = str(Path.cwd())
    record = {"command": "check", "overrides": ["env=CartPole-v1"], "hydra_overrides": []}
    folder.create(jobs, working_folder=started_in, config={}, **record)
    for number in range(n - 1):
        folder.end_job(number, "done", exit_status=0, seconds=1.0)
    return folder


def cpu_seconds(n: int) -> float:
    """Compose, show and resume a sweep of ``n`` jobs; return CPU seconds."""
    before = os.times()
    jobs = [["algo=ppo2", "env=CartPole-v1", f"seed={seed}"] for seed in range(n)]
    for _ in ConfigLoader("train").check_jobs(jobs):
        pass
    folder = recorded(n)
    assert status_of(["status", str(folder.path)]) == 0
    folder.write_table()
    assert run_command("check", "quick_jobs:run", ["-m", f"sweep.resume={folder.path}"]) == 0
    assert [row["status"] for row in csv.DictReader(folder.table.open())] == ["done"] * n
    return sum(os.times()[:4]) - sum(before[:4])


@pytest.mark.slow
def test_job_costs_as_much_in_a_sweep_of_10_000(capsys: pytest.CaptureFixture[str]) -> None:
    cpu_seconds(10)  # imports
    small, large = cpu_seconds(100), cpu_seconds(10_000)
    assert large / 10_000 < 1.5 * small / 100


def test_sweep_without_jobs_is_told() -> None:
    with pytest.raises(ZooError, match="the sweep has no jobs"):
        sweep("range(5,5)")
