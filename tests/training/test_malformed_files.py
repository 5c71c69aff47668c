"""Files that are not what they should be end in one clear line, whichever they are."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from zoo.cli import status_of

RUN = (
    *("algo=a2c", "env=CartPole-v1", "n_timesteps=40", "n_envs=2", "algo.n_steps=5", "policy.net_arch=[4]"),
    *(
        "callbacks.eval.n_episodes=1",
        "callbacks.checkpoint.keep=true",
        "compile=false",
        "seed=1",
        "verbose=0",
    ),
)
TRAIN = ("train", *RUN)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    before, folder = Path.cwd(), tmp_path_factory.mktemp("trained")
    os.chdir(folder)
    try:
        assert status_of(TRAIN) == 0
    finally:
        os.chdir(before)
    run = next(folder.glob("runs/a2c/*/*"))
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "status": "preempted"}))
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return Path("run")


CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "zeros": bytes(1000),
    "noise": bytes(range(256)) * 8,
    "half a character": b"\xff\xfe\xfa",
    "list": b"[1, 2]",
    "number": b"7",
    "text": b"hello",
    "mapping": b"{}",
    "mapping of lists": b'{"algo": [], "env": [], "policy": [], "callbacks": [], "logger": [], "format": []}',
    "mapping of numbers": b'{"algo": 1, "env": 1, "policy": 1, "callbacks": 1, "logger": 1, "status": 1}',
    "mapping of nothing": b'{"algo": null, "env": null, "policy": null, "callbacks": null, "logger": null}',
    "number as a name": b"1: 2\n",
    "open bracket": b"{",
    "brackets": b"[" * 50_000,
    "a name twice": b"seed: 1\nseed: 2\n",
    "tabs": b"\tseed: 1",
    "tag": b"!!python/name:os.system",
    "date": b"seed: 2001-01-01",
    "not a number": b'{"status": NaN, "timesteps": NaN, "mean_return": NaN}',
    "huge number": b'{"timesteps": 1' + b"0" * 1000 + b"}",
    "zip of nothing": b"PK\x05\x06" + bytes(18),
    "cut zip": b"PK\x03\x04" + bytes(30),
    "pickle": b"\x80\x04]\x94.",
    "NumPy's": b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }"
    + bytes(100),
    "compressed": zlib.compress(b"hello" * 100),
    "database": b"SQLite format 3\x00" + bytes(84),
}

PLACES: dict[str, tuple[str, tuple[str, ...]]] = {
    "config of a run to resume": ("run/config.yaml", ("train", "resume=run", "verbose=0")),
    "record of a run to resume": ("run/run.json", ("train", "resume=run", "verbose=0")),
    "checkpoint": ("run/checkpoint/checkpoint.json", ("train", "resume=run", "verbose=0")),
    "progress of a run to resume": ("run/progress.csv", ("train", "resume=run", "verbose=0")),
    "evaluations of a run to resume": ("run/evaluations.npz", ("train", "resume=run", "verbose=0")),
    "monitor of a run to resume": ("run/monitor/0.monitor.csv", ("train", "resume=run", "verbose=0")),
    "config of a run to reproduce": ("run/config.yaml", ("reproduce", "run", "until=10")),
    "record of a run to reproduce": ("run/run.json", ("reproduce", "run", "until=10")),
    "evaluations to reproduce": ("run/evaluations.npz", ("reproduce", "run", "until=10")),
    "weights to reproduce": ("run/agent/policy.safetensors", ("reproduce", "run")),
    "experiment": ("exp.yaml", ("train", *RUN, "experiment=exp.yaml")),
    "experiment of a run": ("other/config.yaml", ("train", "experiment=other/config.yaml", "verbose=0")),
    "tuned file": ("tuned.yaml", ("train", *RUN, "tuned=tuned.yaml")),
    "weights to begin with": ("run/agent/policy.safetensors", ("train", *RUN, "init_from=run/agent")),
    "config to begin with": ("run/agent/config.yaml", ("train", *RUN, "init_from=run/agent")),
    "card to begin with": ("run/agent/card.json", ("train", *RUN, "init_from=run/agent")),
    "config of an agent": ("run/agent/config.yaml", ("evaluate", "agent=run/agent", "n_episodes=1")),
    "card of an agent": ("run/agent/card.json", ("evaluate", "agent=run/agent", "n_episodes=1")),
    "weights of an agent": ("run/agent/policy.safetensors", ("export", "agent=run/agent")),
    "statistics of an agent": ("run/agent/normalization.safetensors", ("evaluate", "agent=run/agent")),
    "agent": ("agent.zip", ("evaluate", "agent=agent.zip")),
    "agent to pull": ("agent.zip", ("pull", "from=./agent.zip")),
    "agent of a peer": ("agent.zip", ("import", "agent.zip", "env=CartPole-v1")),
    "statistics of a peer": ("norm.pkl", ("import", "peer.zip", "env=CartPole-v1", "normalize=norm.pkl")),
    "expert data": (
        "data.npz",
        ("train", "algo=bc", "env=CartPole-v1", "dataset=data.npz", "n_timesteps=10"),
    ),
    "expert data to show": ("data.npz", ("expert", "show=data.npz")),
    "study": ("study.db", ("tune", *RUN, "storage=study.db", "n_trials=1")),
    "study to begin with": ("study.db", ("tune", *RUN, "warm_start=study.db", "n_trials=1")),
    "journal to begin with": ("a.journal", ("tune", *RUN, "warm_start=a.journal", "n_trials=1")),
    "sweep": ("sweep/sweep.yaml", ("status", "sweep")),
    "sweep to resume": ("sweep/sweep.yaml", ("train", "-m", "sweep.resume=sweep")),
    "record to plot": ("run/run.json", ("plot", "run")),
    "config to plot": ("run/config.yaml", ("plot", "run")),
    "progress to plot": ("run/progress.csv", ("plot", "run")),
    "evaluations to plot": ("run/evaluations.npz", ("plot", "run")),
    "monitor to plot": ("run/monitor/0.monitor.csv", ("plot", "run", "score=train")),
    "config to compare": ("run/config.yaml", ("compare", "run", "run")),
}

TRAINS = ("resume", "reproduce", "begin", "progress", "experiment", "tuned", "study", "expert data", "plot")
"""Words of places whose command may go on to train, which takes a second."""
FEW = ("nothing", "noise", "list", "mapping of lists", "mapping of numbers", "brackets")


@pytest.mark.parametrize("place", PLACES)
def test_malformed_file_is_told_in_a_few_lines(
    run: Path, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path, command = PLACES[place]
    kept = Path("kept")
    shutil.copytree(run, kept)
    names = FEW if any(word in place for word in TRAINS) else CONTENTS
    for name in names:
        shutil.rmtree(run)
        shutil.copytree(kept, run)
        file = Path(path)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(CONTENTS[name])
        try:
            status = status_of(command)
        except Exception as error:
            pytest.fail(f"{place}, {name}: {type(error).__name__}: {error}")
        told = capfd.readouterr()
        assert status in (0, 1, 2), (place, name, told.err)
        assert "Traceback" not in told.err, (place, name)
        if status == 2:
            assert told.err.count("zoo: ") >= 1, (place, name)
            assert len(told.err.splitlines()) <= 4, (place, name, told.err)


@pytest.mark.parametrize(
    "values",
    [{"resumed": 3}, {"status": [1]}, {"job": {}}, {"timesteps": "x"}, {"evaluation": 3}, {"machine": 1}],
)
def test_record_with_a_value_of_another_kind_is_told_in_one_line(
    run: Path, values: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, **values}))
    assert status_of(["reproduce", "run"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"can't read the run's record run/run.json: `{next(iter(values))}` in it is " in line
    assert status_of(["train", "resume=run", "verbose=0"]) == 0
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert (run / "run.json.damaged").exists()


@pytest.mark.parametrize("values", ["[1]", "3", "null"])
def test_section_that_is_no_mapping_is_not_taken_for_an_unknown_key(
    run: Path, values: str, capfd: pytest.CaptureFixture[str]
) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump({**config, "callbacks": yaml.safe_load(values)}))
    assert status_of(["train", "resume=run", "verbose=0"]) == 2
    assert f"`callbacks={values}` has the wrong type" in capfd.readouterr().err


def test_wrong_value_is_blamed_on_the_file_that_set_it(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("tuned.yaml").write_text("algo:\n  n_steps: 8\n")
    Path("exp.yaml").write_text("algo:\n  n_steps: many\n")
    options = [each for each in TRAIN if not each.startswith("algo.n_steps")]
    assert status_of([*options, "tuned=tuned.yaml", "experiment=exp.yaml"]) == 2
    assert "(in exp.yaml)" in capfd.readouterr().err
