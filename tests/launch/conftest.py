"""An empty working folder for every test, jobs that take no time, and a Slurm of this machine alone."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "local_slurm.sh"

JOBS = """
import os
import signal
import time
from pathlib import Path

from zoo.errors import ZooError


def run(config):
    with open(f"starts-{config.seed}", "a") as file:
        file.write("x")
    print(f"seed {config.seed} at work", flush=True)
    starts = Path(f"starts-{config.seed}").stat().st_size
    if Path("mended").exists():
        return 0
    if config.seed == 1:
        raise ZooError("seed 1 is unlucky")
    if config.seed == 2:
        raise RuntimeError("seed 2 is broken")
    if config.seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if config.seed == 11:
        os._exit(0)
    if config.seed in (5, 6) and starts == 1:
        Path("processes.new").write_text(f"{os.getppid()} {os.getpid()}")
        Path("processes.new").rename(f"processes-{config.seed}")
        while True:
            time.sleep(0.1)
    name = f"{config.get('algo', config).get('name', 'none')}-{config.env.id}-{config.seed}"
    Path("done").mkdir(exist_ok=True)
    Path("done", name.replace("/", "-")).touch()
"""
"""Seeds 5 and 6 wait for ever the first time."""


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    (folder / "quick_jobs.py").write_text(JOBS)
    return folder


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Slurm of this machine alone, with two CPUs."""
    folder = tmp_path_factory.mktemp("a slurm")
    environment = {**os.environ, "CPUS": "2"}
    environment.pop("SLURM_CONF", None)
    command = ["bash", str(SCRIPT), "start", str(folder)]
    started = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if started.returncode:
        assert "is not installed" in started.stderr, started.stderr
        pytest.skip(started.stderr.strip())
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = started.stdout.strip().partition("=")[2]
    yield
    subprocess.run(["bash", str(SCRIPT), "stop", str(folder)], check=True, capture_output=True)
    if before is None:
        del os.environ["SLURM_CONF"]
    else:
        os.environ["SLURM_CONF"] = before


@pytest.fixture
def no_job_left_behind(slurm: None) -> Iterator[None]:
    """Cancel what is still in the queue after a test, and wait until Slurm's processes have ended."""
    yield
    if queued := _in_queue():
        subprocess.run(["scancel", "--signal=KILL", "--full", *queued], check=False)
        subprocess.run(["scancel", *queued], check=False)
    deadline = time.monotonic() + 60
    while _in_queue() and time.monotonic() < deadline:
        time.sleep(0.1)


def _in_queue() -> list[str]:
    asked = subprocess.run(
        ["squeue", "--noheader", "--format=%A"], capture_output=True, text=True, check=True
    )
    return asked.stdout.split()


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    def wait(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240
        while not is_so() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert is_so()

    return wait
