"""What stands in the working folder runs for nobody who does not name it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ZOO = "import sys; sys.path[:] = [each for each in sys.path if each]; from zoo.cli import main; main()"
PACKAGE = Path(__file__).resolve().parents[2]

BESIDE = ("attr", "jax", "pandas", "evil")

TRAIN = (
    *("train", "algo=a2c", "n_timesteps=40", "n_envs=2", "algo.n_steps=5", "policy.net_arch=[4]"),
    *("callbacks.eval=null", "callbacks.checkpoint=null", "compile=false", "verbose=0"),
)
IN_WORKERS = ("env.vectorization=workers", "env.n_workers=1")

OWN_MODULE = """
import helper
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

class Env(CartPoleEnv):
    def step(self, action):
        import imported_late
        return super().step(action)

class Wrapper(gymnasium.Wrapper):
    pass

gymnasium.register("Class-v0", entry_point=Env, max_episode_steps=10)
gymnasium.register("Name-v0", entry_point="elsewhere:Env", max_episode_steps=10)
"""


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """A working folder into which somebody's archive was unpacked."""
    for name in BESIDE:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n")
    plugins = tmp_path / "hydra_plugins" / "evil"
    plugins.mkdir(parents=True)
    (plugins / "__init__.py").write_text((tmp_path / "evil.py").read_text())
    distribution = tmp_path / "evil-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text("[gymnasium.envs]\n__root__ = evil:register\n")
    return tmp_path


def zoo(folder: Path, *arguments: str, how: tuple[str, ...] = ("-c", ZOO)) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([sys.executable, *how, *arguments], check=False, **options)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("agents",), id="agents"),
        pytest.param((*TRAIN, "env=CartPole-v1", *IN_WORKERS), id="workers"),
        pytest.param((*TRAIN, "-m", "env=CartPole-v1", "seed=1"), id="multirun", marks=pytest.mark.slow),
    ],
)
def test_nothing_beside_runs(unpacked: Path, arguments: tuple[str, ...]) -> None:
    zoo(unpacked, *arguments)
    assert not (unpacked / "ran").exists(), (unpacked / "ran").read_text()


@pytest.mark.parametrize(
    ("env", "options"), [pytest.param("Class-v0", (), marks=pytest.mark.slow), ("Name-v0", IN_WORKERS)]
)
def test_user_module_can_import_its_neighbours(unpacked: Path, env: str, options: tuple[str, ...]) -> None:
    (unpacked / "mine.py").write_text(OWN_MODULE)
    (unpacked / "elsewhere.py").write_text("from mine import Env\n")
    for name in ("helper", "imported_late"):
        (unpacked / f"{name}.py").write_text(f"open('imported-{name}', 'w').close()\n")
    zoo(unpacked, *TRAIN, f"env=mine:{env}", "env.wrappers=[mine.Wrapper]", *options)
    assert (unpacked / "imported-helper").exists()
    assert (unpacked / "imported-imported_late").exists()


@pytest.mark.parametrize("options", [["-m"], ["-P", "-m"]], ids=["as a module", "in a safe path"])
def test_nothing_beside_runs_for_the_package_itself(unpacked: Path, options: list[str]) -> None:
    if "-P" in options:
        if sys.version_info < (3, 11):
            pytest.skip("Python 3.10 has no safe path")
        for name in ("typing", "contextlib", "json"):
            (unpacked / f"{name}.py").write_text((unpacked / "attr.py").read_text())
    zoo(unpacked, "agents", how=(*options, "zoo"))
    assert not (unpacked / "ran").exists(), (unpacked / "ran").read_text()
