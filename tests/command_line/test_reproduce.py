"""`zoo reproduce` runs a run again, and tells equal from different."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zoo.cli import status_of
from zoo.core.tensors import read_tensors, write_tensors

SHORT = [
    *("algo=ppo2", "env=CartPole-v1", "tuned=none", "seed=3", "n_timesteps=512", "algo.n_steps=64"),
    *("algo.batch_size=64", "compile=false", "threads=1", "logger=csv", "progress_bar=false", "verbose=0"),
    *("callbacks.eval.every=128", "callbacks.eval.n_episodes=2", "callbacks.checkpoint.every=128"),
]


@pytest.fixture
def run(working_folder: Path) -> Path:
    """Return a finished run whose last checkpoint was kept."""
    assert status_of(["train", *SHORT, "callbacks.checkpoint.keep=true"]) == 0
    (found,) = Path("runs").glob("*/*/*")
    return found


def reproduced(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    capsys.readouterr()
    status = status_of(["reproduce", *arguments])
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    return status, json.loads(lines[-1]) if status in (0, 1) else {}, captured.out + captured.err


def verdicts(found: dict[str, Any]) -> list[Any]:
    return [found[name] for name in ("equal", "weights", "evaluations", "monitor")]


def test_equal_runs_are_called_equal_and_a_changed_one_is_not(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    status, found, out = reproduced(capsys, str(run))
    assert (status, found["equal"], found["weights"], found["evaluations"], found["monitor"]) == (
        0,
        *[True] * 4,
    )
    assert found["again"] != str(run)
    record = json.loads(Path(found["again"], "run.json").read_text())
    assert Path(record["reproduces"]) == run.absolute()
    assert "resumed" not in record
    assert Path(found["again"], "agent", "policy.safetensors").is_file()
    assert "weights       equal: agent and best agent" in out
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before

    # One bit of one weight, one evaluation, one episode; and another machine.
    weights = read_tensors(run / "agent" / "policy.safetensors")
    name = next(iter(weights))
    weights[name] = weights[name].copy()
    weights[name].flat[0] = np.nextafter(weights[name].flat[0], 9, dtype=weights[name].dtype)
    write_tensors(run / "agent" / "policy.safetensors", weights)
    with np.load(run / "evaluations.npz") as file:
        arrays = dict(file)
    arrays["results"][2, 0] += 1
    np.savez(run / "evaluations.npz", **arrays)
    monitor = run / "monitor" / "0.monitor.csv"
    rows = monitor.read_text().splitlines()
    rows[4] = re.sub(r"^[^,]+", "77.0", rows[4])
    monitor.write_text("\n".join(rows) + "\n")
    record = json.loads((run / "run.json").read_text())
    record["versions"]["torch"] = "1.0"
    record["host"] = "elsewhere"
    (run / "run.json").write_text(json.dumps(record))
    status, found, out = reproduced(capsys, str(run))
    assert (status, found["equal"], found["weights"], found["evaluations"], found["monitor"]) == (
        1,
        *[False] * 4,
    )
    assert found["differences"].keys() == {"versions.torch", "host"}
    assert re.search(r"weights +different: 1 of \d+ tensors differ in agent/policy.safetensors", out)
    assert "evaluations   different: they differ from step 384 on" in out
    assert "monitor       different: 0.monitor.csv differs from episode 3 on" in out
    assert "versions.torch: 1.0 then, " in out


@pytest.mark.slow
def test_part_of_a_run_is_compared_at_its_checkpoint(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run's last checkpoint is of its end; evaluations and episodes reach back further."""
    status, found, out = reproduced(capsys, f"run={run}", "until=256")
    assert (status, found["timesteps"]) == (0, 256)
    assert (found["weights"], found["evaluations"], found["monitor"]) == (None, True, True)
    assert "the run's checkpoint is of step 512" in out
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "status": "running"}))
    status, _, out = reproduced(capsys, str(run))
    assert status == 2
    assert "is running, not finished; compare it as far as it came: until=512" in out
    status, found, out = reproduced(capsys, str(run), "until=512")
    assert (status, found["weights"]) == (0, True)
    assert "tensors at the checkpoint of step 512" in out


@pytest.mark.parametrize(
    "name", ["evaluations.npz", "best_agent/policy.safetensors", "monitor/0.monitor.csv"]
)
def test_damaged_file_is_told_before_anything_is_trained(
    run: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).write_bytes(b"\xff")
    status, _, out = reproduced(capsys, str(run))
    assert (status, len(out.strip().splitlines())) == (2, 2)
    assert f"can't read {run / name}: " in out
    assert len(list(Path("runs").glob("*/*/*"))) == 1


def test_missing_run_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert "which run?" in reproduced(capsys)[2]
    status, _, out = reproduced(capsys, "no where")
    assert status == 2
    assert "there is no run in no where" in out
