"""A new algorithm of Zoo's is three files; `make docs` does the rest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from toy_algorithm import Toy

from zoo import evaluate_policy

REPOSITORY = Path(__file__).resolve().parents[2]
COPIED = ("zoo", "conf", "hyperparams", "docs", "scripts", "tests/golden")


def test_rollouts_serve_a_learner_without_critic() -> None:
    model = Toy("MlpPolicy", "Zoo/IdentityDiscrete-v0", n_envs=4, seed=0, compile=False, gamma=0.0).learn(
        4000
    )
    assert evaluate_policy(model, model.get_env(), n_eval_episodes=5)[0] > 0.95 * 20


@pytest.mark.slow
def test_built_in_algorithm_is_three_files(tmp_path: Path) -> None:
    for folder in COPIED:
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("tests/toy_*.py")):
        shutil.copy(file, tmp_path / file.relative_to(REPOSITORY))
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    (tmp_path / "trained_agents").symlink_to(REPOSITORY / "trained_agents")
    shutil.copy(REPOSITORY / "tests" / "toy_algorithm.py", tmp_path / "zoo" / "algorithms" / "toy.py")
    (tmp_path / "hyperparams" / "toy").mkdir()
    (tmp_path / "hyperparams" / "toy" / "CartPole-v1.yaml").write_text("n_timesteps: 512\nn_envs: 2\n")
    cells = tmp_path / "tests" / "golden" / "cells.py"
    line = 'CELLS["toy"], FAMILIES["toy"] = "", f"{ROLLOUTS} env=CartPole-v1"\n\n\n'
    cells.write_text(cells.read_text().replace("def overrides(", f"{line}def overrides("))

    def run(*command: str, folder: Path = tmp_path) -> None:
        paths = f"{tmp_path}{os.pathsep}{tmp_path / 'tests'}"
        done = subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    run("scripts/make_docs_tables.py")
    run("scripts/make_stubs.py")
    for page in ("README.md", "docs/algorithms.md"):
        assert "| `toy` | Q-learning by λ-returns of rollouts | Discrete |" in (tmp_path / page).read_text()
    assert "class Toy(" in (tmp_path / "zoo" / "__init__.pyi").read_text()
    assert "q_lambda" in (tmp_path / "conf" / "tune" / "space" / "toy.yaml").read_text()
    empty = tmp_path / "empty"
    empty.mkdir()
    run("-m", "zoo", "train", "algo=toy", "env=CartPole-v1", "algo.epsilon=0.2", folder=empty)
    assert list(empty.glob("runs/toy/CartPole-v1/*/agent/card.json"))
    run("-c", "import cells; cells.train('toy')", folder=tmp_path / "tests" / "golden")
