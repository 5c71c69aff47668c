"""A checkpoint that somebody wrote by hand: counts of another kind are told before anything is trained."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zoo.cli import status_of
from zoo.files.plain_data import to_json

TRAIN = (
    *("train", "algo=ppo2", "env=CartPole-v1", "n_timesteps=40", "n_envs=1", "algo.n_steps=32"),
    *("algo.batch_size=16", "algo.n_epochs=1", "policy.net_arch=[4]", "compile=false", "seed=1", "verbose=0"),
    *("callbacks.eval=null", "callbacks.checkpoint.keep=true"),
)


EPISODE = {"env_index": 0, "episode_return": 1.0, "length": 1, "seconds": 1.0, "info": {}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert status_of(TRAIN) == 0
    run = next(folder.glob("runs/ppo2/*/*"))
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "status": "preempted"}))
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(trained, "run"))


def rewrite(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = run / "checkpoint" / "checkpoint.json"
    values = json.loads(file.read_text())
    del values["checksum"]
    change(values)
    (run / "checkpoint" / "previous.json").unlink(missing_ok=True)
    file.write_text(json.dumps({**values, "checksum": zlib.crc32(to_json(values).encode())}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("num_timesteps", each) for each in ("a", None, [1], 1.5, True)),
        *(("timings", each) for each in ([1], "x", 7, {"env": "x"}, {"env": None}, {"env": [1]})),
        *(("n_updates", None), ("n_episodes", {}), ("total_timesteps", "40"), ("seed", "1")),
    ],
)
def test_count_of_another_kind_is_told(
    run: Path, name: str, value: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    rewrite(run, lambda values: values["algorithm"]["counts"].update({name: value}))
    assert status_of(["train", "resume=run", "verbose=0"]) == 2
    told = capfd.readouterr().err
    assert f"does not fit this algorithm: TypeError: `{name}` is " in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        *((("counts", "num_timesteps"), each) for each in (-(10**15), 63)),
        (("runtime", "threads"), 10**6),
        *((("ended_by",), each) for each in (1, [1])),
        *((("still_due",), each) for each in ({"LoggingCallback": "x"}, "x", [1])),
        *(
            (("recent_episodes", "records"), [each])
            for each in (EPISODE | {"length": "x"}, EPISODE | {"info": 1})
        ),
    ],
)
def test_value_of_another_kind_is_told(
    run: Path, keys: tuple[str, ...], value: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    def change(values: dict[str, Any]) -> None:
        inner = values["algorithm"]
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    rewrite(run, change)
    assert status_of(["train", "resume=run", "verbose=0"]) == 2
    told = capfd.readouterr().err
    assert "does not fit this algorithm: " in told or "`threads=1000000` are too many" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("value", ["x", None, [1]])
def test_time_so_far_of_another_kind_is_told(
    run: Path, value: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    rewrite(run, lambda values: values["callbacks"]["LoggingCallback"].update(elapsed=value))
    assert status_of(["train", "resume=run", "verbose=0"]) == 2
    assert "does not fit the callbacks of this run: TypeError: `elapsed` is " in capfd.readouterr().err


def test_name_of_a_callback_is_told_on_one_line(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rewrite(run, lambda values: values["callbacks"].update({"a\n\x1b[2J": {}}))
    assert status_of(["train", "resume=run", "verbose=0"]) == 2
    lines = [line for line in capfd.readouterr().err.splitlines() if "holds the state" in line]
    assert len(lines) == 1
    assert lines[0].endswith("which this run does not have")
    assert lines[0].isprintable()


def test_run_whose_checkpoint_is_past_its_end_is_finished(run: Path) -> None:
    values = json.loads((run / "checkpoint" / "checkpoint.json").read_text())
    assert values["algorithm"]["counts"]["num_timesteps"] == 64
    assert status_of(["train", "resume=run", "verbose=0"]) == 0
    record = json.loads((run / "run.json").read_text())
    assert (record["status"], record["timesteps"]) == ("finished", 64)
