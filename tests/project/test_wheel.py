"""The wheel works on its own: far from the checkout, in a folder with a space in its name."""

from __future__ import annotations

import zipfile
from pathlib import Path

from installed import REPOSITORY, SHIPPED, run


def zoo(home: Path, *arguments: str) -> str:
    return run([str(home / "venv" / "bin" / "zoo"), *arguments], home)


CLASSIC_CONTROL = {
    "Acrobot-v1",
    "CartPole-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
}
"""The environments whose agents a wheel carries; all others stand in a checkout."""


def test_wheel_carries_everything_that_users_edit(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        carried = set(archive.namelist())
    users = ["conf/**/*", "hyperparams/**/*", *(f"trained_agents/*/{env}/*" for env in CLASSIC_CONTROL)]
    files = {path for pattern in users for path in REPOSITORY.glob(pattern) if path.is_file()}
    assert {path.relative_to(REPOSITORY).parts[0] for path in files} == {*SHIPPED[1:]}
    assert {f"zoo/{path.relative_to(REPOSITORY)}" for path in files} <= carried
    agents = {Path(name).parts[3] for name in carried if name.startswith("zoo/trained_agents/")}
    assert agents <= CLASSIC_CONTROL


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
