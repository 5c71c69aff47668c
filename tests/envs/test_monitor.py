"""Monitor files: Stable-Baselines' format, and cutting them back for an exact resume."""

from __future__ import annotations

import csv
import json
import os
import resource
from pathlib import Path

import numpy as np
import pytest
from scripted import Counting

from zoo.envs import EpisodeMonitor, EpisodeRecord, VecEnvAdapter, make_vec_env
from zoo.errors import ZooError


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8") as file:
        assert file.readline().startswith("#")
        return list(csv.DictReader(file))


def test_file_is_a_json_header_and_one_row_an_episode(tmp_path: Path) -> None:
    env = make_vec_env(Counting, 2, check=False, monitor_dir=tmp_path, info_keywords=["score"])
    stepper = VecEnvAdapter(env)
    stepper.reset([0, 1])
    for _ in range(9):
        stepper.step([0, 0])
    header = (tmp_path / "1.monitor.csv").read_text().splitlines()[0]
    assert json.loads(header[1:]).keys() == {"t_start", "env_id"}
    found = rows(tmp_path / "0.monitor.csv")
    assert [(row["r"], row["l"], row["score"]) for row in found] == [
        ("3.0", "2", "20.0"),
        ("6.0", "3", "30.0"),
        ("10.0", "4", "40.0"),
    ]
    assert all(0.0 <= float(row["t"]) < 60.0 for row in found)


def test_stable_baselines_reads_the_files(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    monitoring = pytest.importorskip("stable_baselines3.common.monitor")
    stepper = VecEnvAdapter(make_vec_env("CartPole-v1", 2, monitor_dir=tmp_path))
    stepper.reset([0, 1])
    for _ in range(60):
        stepper.step(np.ones(2, dtype=np.int64))
    results = monitoring.load_results(str(tmp_path))
    assert len(results) >= 8
    assert set(results.columns) >= {"r", "l", "t"}


def test_rows_after_a_checkpoint_are_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    monitor = EpisodeMonitor(tmp_path, 2, env_id="X-v0")
    monitor.write(EpisodeRecord(0, 1.0, 10, 0.1))
    saved = monitor.offsets()
    before = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    monitor.write(EpisodeRecord(0, 2.0, 20, 0.2))
    monitor.write(EpisodeRecord(1, 3.0, 30, 0.3))
    monitor.close()
    with (tmp_path / "1.monitor.csv").open("a") as file:
        file.write("4.0,4")

    again = EpisodeMonitor(tmp_path, 2, env_id="X-v0")
    again.truncate(saved)
    assert not caplog.messages
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == before
    again.write(EpisodeRecord(1, 5.0, 50, 0.5))
    assert [row["l"] for row in rows(tmp_path / "1.monitor.csv")] == ["50"]
    assert again.start == monitor.start


def test_run_goes_on_after_rows_were_lost(tmp_path: Path) -> None:
    monitor = EpisodeMonitor(tmp_path, 3)
    for index in range(3):
        monitor.write(EpisodeRecord(index, 1.0, 10, 0.1))
    before = (tmp_path / "0.monitor.csv").read_bytes()
    for index in range(3):
        monitor.write(EpisodeRecord(index, 2.0, 20, 0.2))
    saved = monitor.offsets()
    monitor.close()
    # A power cut took half of the last row, and all of another file.
    os.truncate(tmp_path / "0.monitor.csv", len(before) + 4)
    os.truncate(tmp_path / "1.monitor.csv", 0)

    again = EpisodeMonitor(tmp_path, 3)
    again.truncate(saved)
    again.write(EpisodeRecord(0, 3.0, 30, 0.3))
    again.write(EpisodeRecord(1, 3.0, 30, 0.3))
    assert (tmp_path / "0.monitor.csv").read_bytes() == before + b"3.0,30,0.3\n"
    assert [row["l"] for row in rows(tmp_path / "1.monitor.csv")] == ["30"]
    assert [row["l"] for row in rows(tmp_path / "2.monitor.csv")] == ["10", "20"]


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff\x00\x01",
        b'#{"t_start": 1.0, "env_id": ""}\nr,l',
    ],
)
def test_file_with_a_damaged_header_is_kept_and_another_one_begun(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    first = EpisodeMonitor(tmp_path, 2)
    first.close()
    (tmp_path / "0.monitor.csv").write_bytes(damage)
    monitor = EpisodeMonitor(tmp_path, 2)
    monitor.write(EpisodeRecord(0, 1.0, 10, 0.1))
    assert [row["l"] for row in rows(tmp_path / "0.monitor.csv")] == ["10"]
    assert (tmp_path / "0.monitor.csv.damaged").read_bytes() == damage
    assert monitor.start == first.start
    (line,) = caplog.messages
    assert "0.monitor.csv is damaged" in line
    assert "0.monitor.csv.damaged" in line


def test_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ZooError, match=r"cannot write monitor files in .*file"):
        EpisodeMonitor(tmp_path / "file", 1)


def test_full_disk_is_told_once_and_rows_are_written_again_when_they_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A limit on file sizes stands in for a full disk: the system refuses the write half-way in both."""
    monitor = EpisodeMonitor(tmp_path, 2)
    size = (tmp_path / "0.monitor.csv").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, before[1]))
    try:
        for length in (10, 20):
            for index in range(2):
                monitor.write(EpisodeRecord(index, 1.0, length, 0.1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "0.monitor.csv").stat().st_size == size
    monitor.write(EpisodeRecord(0, 1.0, 30, 0.1))
    assert [row["l"] for row in rows(tmp_path / "0.monitor.csv")] == ["30"]
    (line,) = caplog.messages
    assert "can't write" in line
    assert "the run goes on" in line
