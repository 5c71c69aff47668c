"""What a user types, and what comes back: text, one line of JSON, one message and exit status 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ZOO = "from zoo.cli import main; main()"
"""Python as it is started by ``-c`` has the working folder on its path: the worst case."""


def test_evaluate_in_a_process_of_its_own_ends_with_json(run_folder: Path) -> None:
    """In a folder with a space in its name, as anybody's may have."""
    Path("my agents").mkdir()
    run_folder.rename("my agents/run")
    done = subprocess.run(
        [sys.executable, "-c", ZOO, "evaluate", "agent='my agents/run'", "n_episodes=3", "seed=1"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert list(result) == [
        "algo",
        "env",
        "mean_return",
        "std_return",
        "iqm_return",
        "ci95",
        "mean_length",
        "n_episodes",
    ]
    assert "agent  my agents/run/best_agent" in done.stdout
