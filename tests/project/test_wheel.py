"""The wheel works on its own: far from the checkout, in a folder with a space in its name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED = ("zoo", "conf", "hyperparams", "trained_agents")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the source distribution, as an installer would; nothing is downloaded."""
    source = tmp_path_factory.mktemp("source")
    for name in SHIPPED:
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(REPOSITORY / name, source / name)
    built = tmp_path_factory.mktemp("built")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(built), str(source)], built)
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a fresh environment in ``venv``: the wheel, and the libraries of this one."""
    home = tmp_path_factory.mktemp("a folder with spaces")
    environment = home / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", str(environment)], home)
    packages = next((environment / "lib").glob("python*")) / "site-packages"
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install"]
    run([*pip, "--quiet", "--no-deps", "--no-index", str(wheel)], home)
    (packages / "libraries_of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def run(command: list[str], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    finished = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert finished.returncode == 0, f"{command}\n{finished.stdout}\n{finished.stderr}"
    return finished.stdout


def zoo(home: Path, *arguments: str) -> str:
    return run([str(home / "venv" / "bin" / "zoo"), *arguments], home)


def test_wheel_carries_everything_that_users_edit(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        carried = set(archive.namelist())
    for folder in SHIPPED[1:]:
        files = {
            f"zoo/{path.relative_to(REPOSITORY)}"
            for path in (REPOSITORY / folder).rglob("*")
            if path.is_file() and path.name != ".gitkeep"
        }
        assert files, f"{folder}/ is empty"
        assert files <= carried


def test_wheel_has_no_tests_and_no_scripts(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {"zoo", wheel.name.split("-py3")[0] + ".dist-info"}


def test_installed_wheel_is_what_runs(home: Path) -> None:
    where = run([str(home / "venv" / "bin" / "python"), "-c", "import zoo; print(zoo.__file__)"], home)
    assert Path(where.strip()).is_relative_to(home)


def test_installed_wheel_trains_and_enjoys(home: Path) -> None:
    zoo(home, "train", "algo=ppo2", "env=CartPole-v1", "n_timesteps=2048", "seed=1", "compile=false")
    runs = list((home / "runs" / "ppo2" / "CartPole-v1").iterdir())
    assert len(runs) == 1
    assert (runs[0] / "best_agent" / "policy.safetensors").exists()
    played = zoo(home, "enjoy", "algo=ppo2", "env=CartPole-v1", "n_episodes=2", "render=false")
    assert str(runs[0].relative_to(home)) in played.replace("\n", "")


def test_installed_wheel_finds_the_collection(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "nothing here"
    elsewhere.mkdir()
    zoo_command = str(home / "venv" / "bin" / "zoo")
    played = run(
        [zoo_command, "evaluate", "algo=ppo2", "env=CartPole-v1", "n_episodes=1", "seed=0"], elsewhere
    )
    assert "trained_agents" in played
