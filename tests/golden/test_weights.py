"""Trainings of the golden cells end as they were recorded; compiled, and killed and resumed, they end alike.

Agents of format 1 load and act as they did when they were saved, by the actions in `agents.json`.

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

import cells
import pytest
import yaml

import zoo

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
    with cells.working_folder() as path:
        yield path


@cache
def trained(name: str) -> dict[str, Any]:
    """Return what comes of a cell: trained once, for all tests."""
    return cells.outcome(cells.train(name))


def assert_same(one: dict[str, Any], other: dict[str, Any], tolerance: float) -> None:
    for what in ("weights", "metrics", "actions"):
        assert not cells.differences(one[what], other[what], tolerance, what)


def test_there_is_a_record_of_each_cell() -> None:
    assert cells.read_record()["cells"].keys() == cells.CELLS.keys()


@pytest.mark.parametrize("name", cells.CELLS)
def test_training_matches_recorded_numbers(name: str) -> None:
    """On the machine that was recorded to the weights' last bit, on others to near numbers."""
    recorded = cells.read_record()["cells"][name]
    same = cells.machine() == recorded["machine"]
    if name in OF_ONE_MACHINE and not same:
        pytest.skip("recorded on another processor, or with other releases of torch or NumPy")
    came = trained(name)
    assert_same(recorded, came, ON_THIS_MACHINE if same else ON_ANY_MACHINE)
    assert not same or came["hash"] == recorded["hash"]


@pytest.mark.parametrize(
    "name", [*cells.COMPILED, *(pytest.param(name, marks=pytest.mark.slow) for name in cells.COMPILED_SLOWLY)]
)
def test_compiled_training_matches_eager_to_rounding(name: str) -> None:
    assert_same(trained(name), cells.outcome(cells.train(name, "compile=true")), TO_ROUNDING)


@pytest.mark.slow
@pytest.mark.parametrize("name", cells.KILLED)
def test_killed_and_resumed_training_matches_whole(name: str, folder: Path) -> None:
    place, more = name.replace(" ", "_"), "callbacks=checkpoint callbacks.checkpoint.every=128"
    runs, longer = folder / "killed" / place, cells.KILLED[name]
    kill_in_the_midst(cells.overrides(name, longer, more, f"runs_dir={runs}"), runs)
    (killed,) = runs.glob("*/*/*")
    resumed = subprocess.Popen([*cells.COMMAND, "train", f"resume={killed}"], env=cells.environment())
    whole = Path(cells.train(name, longer, f"runs_dir=whole/{place}").run.path)
    assert resumed.wait(cells.SECONDS) == 0
    assert json.loads((killed / "run.json").read_text())["status"] == "finished"
    assert content(killed / "agent") == content(whole / "agent")
    assert cells.metrics(killed) == cells.metrics(whole)
    assert episodes(killed) == episodes(whole)


def kill_in_the_midst(arguments: list[str], runs: Path) -> None:
    """Train, and kill the training once it has a checkpoint, and has logged a few times since it began."""
    command = [*cells.COMMAND, "train", *arguments]
    process = subprocess.Popen(command, env=cells.environment(), start_new_session=True)
    deadline = time.monotonic() + cells.SECONDS
    while not (list(runs.glob("*/*/*/checkpoint/*")) and len(lines_of(runs, "progress.csv")) > LOGGED):
        assert process.poll() is None, "it had ended by itself"
        assert time.monotonic() < deadline, "it hangs"
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it had ended by itself"


def lines_of(runs: Path, pattern: str) -> list[str]:
    return [line for path in runs.glob(f"**/{pattern}") for line in path.read_text().splitlines()]


def content(agent: Path) -> dict[str, tuple[Any, bytes]]:
    """Return the header and the bytes of the tensors of an agent, as its files have them."""
    return {path.name: _parsed(path.read_bytes()) for path in agent.glob("*.safetensors")}


def _parsed(file: bytes) -> tuple[Any, bytes]:
    end = 8 + int.from_bytes(file[:8], "little")
    return json.loads(file[8:end]), file[end:]


def episodes(run: Path) -> list[list[str]]:
    """Return the return and length of each episode of a run."""
    rows = [line for line in lines_of(run, "*.monitor.csv") if not line.startswith("#")]
    return [row.split(",")[:2] for row in sorted(rows)]


AGENTS = sorted(path.parent for path in (cells.GOLDEN / "agents").glob("*/card.json"))
"""Agents of format 1: later versions read them, and never write them again."""


@cache
def recorded_actions() -> dict[str, Any]:
    return dict(json.loads((cells.GOLDEN / "agents.json").read_text()))


def test_every_algorithm_and_policy_has_an_agent() -> None:
    assert {path.name for path in AGENTS} == recorded_actions().keys()
    assert {path.name for path in AGENTS} >= {name.partition(" ")[0] for name in cells.CELLS}
    policies = {yaml.safe_load((path / "config.yaml").read_text())["policy"]["name"] for path in AGENTS}
    assert len(policies) >= 9


@pytest.mark.parametrize("agent", AGENTS, ids=lambda path: path.name)
def test_agent_of_format_1_acts_as_it_did(agent: Path) -> None:
    config = yaml.safe_load((agent / "config.yaml").read_text())
    assert config["format"] == 1
    model = zoo.load(agent, device="cpu")
    assert not cells.differences(recorded_actions()[agent.name], cells.actions(model), 1e-5)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda path: path.name)
def test_resaved_agent_has_same_weights(agent: Path, tmp_path: Path) -> None:
    zoo.load(agent, device="cpu").save(tmp_path / "again")
    assert content(tmp_path / "again") == content(agent)
