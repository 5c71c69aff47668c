"""Files that are not what they should be end in one clear line, whichever they are."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from zoo.cli import status_of

RUN = (
    *("algo=a2c", "env=CartPole-v1", "n_timesteps=40", "n_envs=2", "algo.n_steps=5", "policy.net_arch=[4]"),
    *("callbacks.eval.n_episodes=1", "callbacks.checkpoint.keep=true", "compile=false", "seed=1"),
    "verbose=0",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    before, folder = Path.cwd(), tmp_path_factory.mktemp("trained")
    os.chdir(folder)
    try:
        assert status_of(("train", *RUN)) == 0
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
    "noise": bytes(range(256)) * 8,
    "mapping of lists": b'{"algo": [], "env": [], "policy": [], "callbacks": [], "logger": [], "format": []}',
}

RESUME = ("train", "resume=run", "verbose=0")

PLACES: dict[str, tuple[str, tuple[str, ...]]] = {
    "config of a run to resume": ("run/config.yaml", RESUME),
    "checkpoint": ("run/checkpoint/checkpoint.json", RESUME),
    "experiment": ("exp.yaml", ("train", *RUN, "experiment=exp.yaml")),
    "config to begin with": ("run/agent/config.yaml", ("train", *RUN, "init_from=run/agent")),
    "weights of an agent": ("run/agent/policy.safetensors", ("evaluate", "agent=run/agent", "n_episodes=1")),
    "agent of a peer": ("agent.zip", ("import", "agent.zip", "env=CartPole-v1")),
    "expert data": ("data.npz", ("expert", "show=data.npz")),
    "study to begin with": ("study.db", ("tune", *RUN, "warm_start=study.db", "n_trials=1")),
}


@pytest.mark.parametrize("place", PLACES)
def test_malformed_file_is_told_in_a_few_lines(
    run: Path, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path, command = PLACES[place]
    kept = Path("kept")
    shutil.copytree(run, kept)
    for name, content in CONTENTS.items():
        shutil.rmtree(run)
        shutil.copytree(kept, run)
        file = Path(path)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
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
