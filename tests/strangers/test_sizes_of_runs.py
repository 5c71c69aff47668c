"""Files of a stranger's run that would fill the memory, or take hours to read: told, and never read whole."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bounds import within_bounds
from zoo.agents.foreign_sizes import check_sizes_of_run
from zoo.agents.untrusted import UntrustedError

from zoo.cli import status_of
from zoo.envs.monitor import EpisodeMonitor
from zoo.errors import ZooError
from zoo.files.opening import Folder
from zoo.training.checkpoint_files import read_files
from zoo.training.eval_callback import read_evaluations
from zoo.training.loggers import CsvLogger

TRAIN = (
    *("algo=a2c", "env=CartPole-v1", "n_timesteps=40", "n_envs=2", "algo.n_steps=5", "policy.net_arch=[4]"),
    *("callbacks.eval.n_episodes=1", "callbacks.checkpoint.keep=true", "compile=false", "seed=1"),
    "verbose=0",
)
UNPACKED = 1200 * 2**20
HOLE = 2**40


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    before, folder = Path.cwd(), tmp_path_factory.mktemp("trained")
    os.chdir(folder)
    try:
        assert status_of(["train", *TRAIN]) == 0
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


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def write_bomb(path: Path) -> None:
    """Write evaluations of 1.2 MB that unpack to 1.2 GB."""
    header = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (1, UNPACKED // 8)}
    np.lib.format.write_array_header_1_0(header, shape)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("timesteps", "ep_lengths"):
            archive.writestr(f"{name}.npy", npy(np.zeros(1)))
        with archive.open("results.npy", "w", force_zip64=True) as member:
            member.write(header.getvalue())
            for _ in range(UNPACKED // 2**20):
                member.write(bytes(2**20))


def test_evaluations_that_unpack_to_a_gigabyte_are_moved_aside(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_bomb(tmp_path / "evaluations.npz")
    with within_bounds():
        assert read_evaluations(tmp_path / "evaluations.npz") == []
    assert "would have 1,258,291,328 bytes" in capfd.readouterr().err
    assert (tmp_path / "evaluations.npz.damaged").exists()


EVALUATIONS: dict[str, dict[str, np.ndarray[Any, Any]]] = {
    "texts": {"timesteps": np.array(["a"]), "results": np.array([["x"]]), "ep_lengths": np.zeros((1, 1))},
    "more axes": {name: np.zeros((1, 1, 1)) for name in ("timesteps", "results", "ep_lengths")},
    "no axis": {name: np.zeros(()) for name in ("timesteps", "results", "ep_lengths")},
    "more episodes": {
        "timesteps": np.zeros(1), "results": np.zeros((1, 3)), "ep_lengths": np.zeros((1, 3))
    },
    "no steps": {"results": np.zeros((1, 1)), "ep_lengths": np.zeros((1, 1))},
    "steps that are no number": {
        "timesteps": np.array([np.inf]), "results": np.zeros((1, 1)), "ep_lengths": np.zeros((1, 1))
    },
}  # fmt: skip


@pytest.mark.parametrize("arrays", EVALUATIONS.values(), ids=EVALUATIONS)
def test_run_with_evaluations_of_another_form_goes_on_with_new_ones(
    run: Path, arrays: dict[str, np.ndarray[Any, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    np.savez(run / "evaluations.npz", allow_pickle=False, **arrays)
    assert status_of(["train", f"resume={run}", "verbose=0", "n_timesteps=60"]) == 0
    assert "evaluations.npz is damaged (" in capfd.readouterr().err
    assert len(read_evaluations(run / "evaluations.npz")) >= 1


def test_array_whose_name_alone_is_damaged_is_not_taken_for_missing(tmp_path: Path) -> None:
    ones = np.ones((1, 1))
    np.savez(
        tmp_path / "evaluations.npz", timesteps=np.ones(1), results=ones, ep_lengths=ones, succeszes=ones
    )
    assert read_evaluations(tmp_path / "evaluations.npz") == []


def sparse(path: Path, begin: bytes = b"") -> None:
    with open(path, "wb") as file:
        file.write(begin)
        file.truncate(HOLE)


@pytest.mark.parametrize("way", [["train", "resume=run", "verbose=0"], ["reproduce", "run"]])
@pytest.mark.parametrize(
    "place", ["checkpoint/checkpoint.json", "checkpoint/0-00000000.safetensors", "progress.csv",
              "evaluations.npz", "monitor/0.monitor.csv", "run.json", "agent/policy.safetensors"]
)  # fmt: skip
def test_strangers_run_with_a_file_of_holes_is_refused(
    run: Path, place: str, way: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    sparse(run / place)
    with within_bounds():
        assert status_of(way) == 2
    assert f"{place} is a file most of which was never written" in capfd.readouterr().err


def grown(path: Path) -> None:
    """Let a file have more bytes than any of its kind; they were never written."""
    sparse(path, path.read_bytes() if path.exists() else b"")


def test_values_of_a_checkpoint_are_read_up_to_a_limit(run: Path) -> None:
    for name in ("checkpoint.json", "previous.json"):
        grown(run / "checkpoint" / name)
    with within_bounds(), pytest.raises(ZooError, match=r"no checkpoint is whole: .* bytes"):
        read_files(run / "checkpoint")


@pytest.mark.parametrize(
    "begin", [b"", b"#", b'#{"t_start": 1.0}\n', b'#{"t_start": 1' + b"0" * 400 + b"}\nr,l,t\n"]
)
def test_monitor_file_of_one_endless_line_is_moved_aside(tmp_path: Path, begin: bytes) -> None:
    sparse(tmp_path / "0.monitor.csv", begin)
    with within_bounds():
        EpisodeMonitor(tmp_path, 1).close()
    assert (tmp_path / "0.monitor.csv.damaged").exists()


def test_monitor_file_is_cut_back_without_reading_all_of_it(tmp_path: Path) -> None:
    EpisodeMonitor(tmp_path, 1).close()
    grown(tmp_path / "0.monitor.csv")
    monitor = EpisodeMonitor(tmp_path, 1)
    with within_bounds():
        monitor.truncate([HOLE])
    monitor.close()


@pytest.mark.parametrize("size", [HOLE, 200 * 2**20])
def test_progress_of_one_endless_line_is_moved_aside(tmp_path: Path, size: int) -> None:
    with open(tmp_path / "progress.csv", "wb") as file:
        file.truncate(size)
        file.seek(size - 1)
        file.write(b"\n")
    with within_bounds():
        assert CsvLogger(tmp_path / "progress.csv").state() == {"columns": [], "rows": 0}
    assert (tmp_path / "progress.csv.damaged").exists()


def test_file_that_grows_while_it_is_read_is_read_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    real = os.fstat

    def of_before(descriptor: int) -> os.stat_result:
        return os.stat_result((*real(descriptor)[:6], 5, *real(descriptor)[7:]))

    monkeypatch.setattr(os, "fstat", of_before)
    assert Folder(tmp_path).read("file", 10) == b"x" * 5


def test_folder_that_became_a_link_meanwhile_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine/inside", "private"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text(name)
    real = os.path.realpath

    def swapping(path: Any) -> str:
        found = real(path)
        inside = tmp_path / "mine" / "inside"
        if str(path).endswith("file") and not inside.is_symlink():
            shutil.rmtree(inside)
            inside.symlink_to(tmp_path / "private")
        return found

    monkeypatch.setattr(os.path, "realpath", swapping)
    with pytest.raises(OSError):  # noqa: PT011
        Folder(tmp_path / "mine").read("inside/file", 100)


def test_numbers_that_layers_compute_for_a_batch_are_counted() -> None:
    check_sizes_of_run({"policy": {"net_arch": [256, 256]}, "algo": {"batch_size": 500_000, "n_critics": 1}})
    for algo in ({"batch_size": 10**6, "n_critics": 1}, {"batch_size": 10**5, "n_critics": 10}):
        with pytest.raises(UntrustedError, match="for batches of"):
            check_sizes_of_run({"policy": {"net_arch": [256, 256]}, "algo": algo})


def test_pairs_of_quantiles_are_counted() -> None:
    check_sizes_of_run({"algo": {"n_quantiles": 200, "batch_size": 256}})
    with pytest.raises(UntrustedError):
        check_sizes_of_run({"algo": {"n_quantiles": 10_000, "batch_size": 256}})
