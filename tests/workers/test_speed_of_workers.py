"""Two workers on two cores are worth it where the environment is slow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "measure_workers.py"


@pytest.mark.slow
def test_two_workers_take_at_least_half_as_many_steps_again_as_one() -> None:
    """With a step of 300 µs. A machine that is busy with other things measures those."""
    if len(os.sched_getaffinity(0)) < 2 or os.getloadavg()[0] > 1.0:
        pytest.skip("takes two cores that have nothing else to do")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--step-us=300", "--repetitions=3", "--timesteps=20000"],
        capture_output=True,
        text=True,
        check=True,
    )
    ratio = re.search(r"2 workers: .*; ([\d.]+) times", done.stdout)
    assert ratio is not None
    assert float(ratio[1]) >= 1.5, done.stdout
