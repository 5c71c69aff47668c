"""Trainings of the golden cells end as they were recorded; compiled, and killed and resumed, they end alike.

`python tests/golden/record.py` records them anew, where a change is wanted. The exact test holds on the
machine that was recorded (its processor, and releases of torch and NumPy); the numbers hold everywhere.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cells import (
    CELLS,
    COMMAND,
    COMPILED,
    KILLED,
    SECONDS,
    differences,
    environment,
    machine,
    metrics,
    outcome,
    overrides,
    read_record,
    train,
    working_folder,
)

ON_ANY_MACHINE = 2e-3
"""What numbers may differ by, relatively, where sums are summed up in another order."""
OF_ONE_MACHINE = ("ppo2 atari",)
"""Cells whose convolutions are summed so differently elsewhere that other actions are drawn."""
ON_THIS_MACHINE = 1e-6
"""The same for logged numbers where weights are equal to the last bit."""
TO_ROUNDING = 2e-3
"""What a compiled run's numbers may differ by from the eager one's."""
LOGGED = 8
"""Lines of the log, of which there is one each 64 steps, after which a run is killed."""


@pytest.fixture(scope="module", autouse=True)
def folder() -> Iterator[Path]:
    with working_folder() as path:
        yield path


@cache
def trained(name: str) -> dict[str, Any]:
    """Return what comes of a cell: trained once, for all tests."""
    return outcome(train(name))


def test_there_is_a_record_of_each_cell() -> None:
    assert read_record()["cells"].keys() == CELLS.keys()


@pytest.mark.parametrize("name", CELLS)
def test_training_comes_to_the_numbers_that_were_recorded(name: str) -> None:
    """On the machine that was recorded to the weights' last bit, on others to near numbers."""
    recorded = read_record()["cells"][name]
    same = machine() == recorded["machine"]
    if name in OF_ONE_MACHINE and not same:
        pytest.skip("recorded on another processor, or with other releases of torch or NumPy")
    came = trained(name)
    tolerance = ON_THIS_MACHINE if same else ON_ANY_MACHINE
    assert not [
        found
        for what in ("weights", "metrics", "actions")
        for found in differences(recorded[what], came[what], tolerance, what)
    ]
    assert not same or came["hash"] == recorded["hash"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if more else ()) for name, more in COMPILED.items()]
)
def test_compiled_training_is_the_eager_one_to_rounding(name: str) -> None:
    eager, compiled = trained(name), outcome(train(name, "compile=true"))
    assert not [
        found
        for what in ("weights", "metrics", "actions")
        for found in differences(eager[what], compiled[what], TO_ROUNDING, what)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLED)
def test_training_that_was_killed_and_resumed_ends_as_one_that_was_not(name: str, folder: Path) -> None:
    place, more = name.replace(" ", "_"), "callbacks=checkpoint callbacks.checkpoint.every=128"
    runs, longer = folder / "killed" / place, KILLED[name]
    kill_in_the_midst(overrides(name, longer, more, f"runs_dir={runs}"), runs)
    (killed,) = runs.glob("*/*/*")
    resumed = subprocess.Popen([*COMMAND, "train", f"resume={killed}"], env=environment())
    whole = Path(train(name, longer, f"runs_dir=whole/{place}").run.path)
    assert resumed.wait(SECONDS) == 0
    assert json.loads((killed / "run.json").read_text())["status"] == "finished"
    assert content(killed / "agent") == content(whole / "agent")
    assert metrics(killed) == metrics(whole)
    assert episodes(killed) == episodes(whole)


def kill_in_the_midst(arguments: list[str], runs: Path) -> None:
    """Train, and kill the training once it has a checkpoint, and has logged a few times since it began."""
    command = [*COMMAND, "train", *arguments]
    process = subprocess.Popen(command, env=environment(), start_new_session=True)
    deadline = time.monotonic() + SECONDS
    while not (list(runs.glob("*/*/*/checkpoint/*")) and len(lines_of(runs, "progress.csv")) > LOGGED):
        assert process.poll() is None, "it had ended by itself"
        assert time.monotonic() < deadline, "it hangs"
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it had ended by itself"


def lines_of(runs: Path, pattern: str) -> list[str]:
    return [line for path in runs.glob(f"**/{pattern}") for line in path.read_text().splitlines()]


def content(agent: Path) -> dict[str, bytes]:
    """Return the tensors of an agent, as its files have them."""
    return {path.name: path.read_bytes() for path in agent.glob("*.safetensors")}


def episodes(run: Path) -> list[list[str]]:
    """Return the return and length of each episode of a run."""
    rows = [line for line in lines_of(run, "*.monitor.csv") if not line.startswith("#")]
    return [row.split(",")[:2] for row in sorted(rows)]
