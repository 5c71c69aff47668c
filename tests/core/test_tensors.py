"""Arrays of any size in safetensors files."""

from __future__ import annotations

import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from zoo.core import tensors
from zoo.core.tensors import checksum_of, parse_tensors, read_tensors, write_tensors
from zoo.errors import ZooError

ARRAYS = {
    "flags": np.array([True, False, True]),
    "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "count": np.array(7, dtype=np.int64),
    "nothing": np.empty((0, 4), np.float64),
    "image": np.arange(12, dtype=np.uint8).reshape(3, 4)[:, ::2],
}


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", ARRAYS)
    back = read_tensors(tmp_path / "a.safetensors")
    assert back.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


def test_file_is_one_that_the_safetensors_package_reads(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", ARRAYS)
    for name, array in safetensors.numpy.load_file(tmp_path / "a.safetensors").items():
        np.testing.assert_array_equal(array, ARRAYS[name])


def test_file_of_the_safetensors_package_is_read(tmp_path: Path) -> None:
    arrays = {name: np.ascontiguousarray(array) for name, array in ARRAYS.items()}
    safetensors.numpy.save_file(arrays, tmp_path / "a.safetensors", metadata={"format": "np"})
    back = read_tensors(tmp_path / "a.safetensors")
    assert back.keys() == ARRAYS.keys()
    np.testing.assert_array_equal(back["weights"], ARRAYS["weights"])


def test_large_array_is_neither_copied_to_write_nor_to_read(tmp_path: Path) -> None:
    memory = np.ones((2**22,), np.float32)
    tracemalloc.start()
    write_tensors(tmp_path / "a.safetensors", {"replay": memory})
    back = read_tensors(tmp_path / "a.safetensors")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert back["replay"].nbytes == 2**24
    assert peak < 2**20


@pytest.mark.parametrize("size", [0, 5, 40, 300])
def test_truncated_file_is_named_as_damaged(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, ARRAYS)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ZooError, match=r"a\.safetensors is damaged"):
        read_tensors(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match=r"a\.safetensors is missing"):
        read_tensors(tmp_path / "a.safetensors")


def content_of(tmp_path: Path) -> bytes:
    write_tensors(tmp_path / "a.safetensors", ARRAYS, {"values": "{}"})
    return (tmp_path / "a.safetensors").read_bytes()


def test_metadata_come_back(tmp_path: Path) -> None:
    assert parse_tensors(content_of(tmp_path))[1] == {"values": "{}"}


def test_damaged_bytes_are_refused_wherever_the_safetensors_package_refuses_them(tmp_path: Path) -> None:
    whole = content_of(tmp_path)
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(whole)
        for position in generator.integers(0, len(whole) - 100, size=generator.integers(1, 3)):
            damaged[position] = generator.integers(32, 127)
        try:
            arrays, _ = parse_tensors(bytes(damaged))
        except ValueError:
            refused += 1
            continue
        for name, array in safetensors.numpy.load(bytes(damaged)).items():
            assert arrays[name].dtype == array.dtype
            assert arrays[name].tobytes() == array.tobytes()
    assert refused > 1000


def with_header(header: str, data: bytes = b"0000") -> bytes:
    return len(header).to_bytes(8, "little") + header.encode() + data


def test_type_that_safetensors_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="the array 'z' of complex128"):
        write_tensors(tmp_path / "a.safetensors", {"z": np.zeros(2, np.complex128)})
    assert list(tmp_path.iterdir()) == []


def test_checksum_of_what_was_written_is_that_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensors, "PIECE", 100)
    path = tmp_path / "a.safetensors"
    written = write_tensors(path, {"replay": np.arange(1000), "empty": np.zeros((0, 3))})
    assert written == checksum_of(path) == zlib.crc32(path.read_bytes())
