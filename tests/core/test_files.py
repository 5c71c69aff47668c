"""Files are written whole or not at all, read as plain data, and hold arrays of any size and state trees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

from zoo.core import atomic
from zoo.core.plain_data import parse_json, parse_yaml
from zoo.core.tensors import join, read_tensors, split, write_tensors
from zoo.errors import ZooError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_atomic_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "new" / "a.txt", "first")
    atomic.write_text(tmp_path / "new" / "a.txt", "second")
    assert (tmp_path / "new" / "a.txt").read_text() == "second"
    assert names(tmp_path / "new") == ["a.txt"]


def test_interrupted_file_leaves_the_earlier_one(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "a.txt", "earlier")

    def write_half() -> None:
        with atomic.atomic_file(tmp_path / "a.txt") as file:
            file.write(b"half of the la")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert (tmp_path / "a.txt").read_text() == "earlier"
    assert names(tmp_path) == ["a.txt"]


def test_full_disk_keeps_old_file_and_is_reported(tmp_path: Path) -> None:
    """A limit on file sizes stands in for a full disk: the system refuses the write half-way in both."""
    program = """
import resource, signal, sys
from zoo.core import atomic
from zoo.errors import ZooError
atomic.write_text(sys.argv[1], "earlier")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    atomic.write_bytes(sys.argv[1], bytes(2000))
except ZooError as error:
    print(error)
"""
    path = tmp_path / "a.txt"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"can't write {path}: File too large\n"
    assert path.read_text() == "earlier"
    assert names(tmp_path) == ["a.txt"]


def test_error_names_unwritable_path_and_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ZooError, match=r"can't write .*file/a\.txt: (Not a directory|File exists)"):
        atomic.write_text(tmp_path / "file" / "a.txt", "x")


def test_folder_replaces_the_earlier_one_whole(tmp_path: Path) -> None:
    for version in ("first", "second"):
        with atomic.atomic_folder(tmp_path / "agent") as folder:
            (folder / version).write_text(version)
    assert names(tmp_path / "agent") == ["second"]
    assert names(tmp_path) == ["agent"]


def test_killed_writer_leaves_whole_folder(tmp_path: Path) -> None:
    program = """
import itertools, sys
from zoo.core import atomic
for version in itertools.count():
    with atomic.atomic_folder(sys.argv[1]) as folder:
        (folder / "a").write_text(str(version))
        (folder / "b").write_text(str(version))
    print(version, flush=True)
"""
    folder = tmp_path / "agent"
    writer = subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(20):
        writer.stdout.readline()
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    atomic.recover(folder.parent)
    assert names(folder) == ["a", "b"]
    assert (folder / "a").read_text() == (folder / "b").read_text()


BAD_YAML = {
    "object": b"a: !!python/object/apply:os.getcwd []",
    "date": b"a: 2020-01-01",
    "list": b"[1, 2]",
    "no text": b"\xff\xfe\xfa",
    "open bracket": b"a: [1",
    "very deep": b"a: " + 10_000 * b"[" + 10_000 * b"]",
}


@pytest.mark.parametrize("content", BAD_YAML.values(), ids=BAD_YAML)
def test_yaml_beyond_plain_data_gets_one_line_error(content: bytes) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        parse_yaml(content)
    assert str(caught.value).isprintable()


DEEP = b'{"a": ' + 100_000 * b"[" + 100_000 * b"]" + b"}"


@pytest.mark.parametrize("content", [b"[]", b"7", b"{", b"\xff", DEEP], ids=len)
def test_json_that_is_no_mapping_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_json(content)


ARRAYS = {
    "flags": np.array([True, False, True]),
    "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "count": np.array(7, dtype=np.int64),
    "nothing": np.empty((0, 4), np.float64),
    "image": np.arange(12, dtype=np.uint8).reshape(3, 4)[:, ::2],
}


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    checksum = write_tensors(tmp_path / "a.safetensors", ARRAYS)
    back = read_tensors(tmp_path / "a.safetensors", checksum)
    assert back.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


def test_safetensors_package_reads_written_file(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", ARRAYS)
    for name, array in safetensors.numpy.load_file(tmp_path / "a.safetensors").items():
        np.testing.assert_array_equal(array, ARRAYS[name])


def test_large_array_is_not_copied_to_read_it(tmp_path: Path) -> None:
    checksum = write_tensors(tmp_path / "a.safetensors", {"replay": np.ones((2**22,), np.float32)})
    tracemalloc.start()
    back = read_tensors(tmp_path / "a.safetensors", checksum)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert back["replay"].nbytes == 2**24
    assert peak < 2**20


def test_file_with_another_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    checksum = write_tensors(path, {"replay": np.arange(1000), "empty": np.zeros((0, 3))})
    assert checksum == zlib.crc32(path.read_bytes())
    with pytest.raises(ValueError, match="checksum"):
        read_tensors(path, checksum + 1)


KEYS = st.text(max_size=4) | st.sampled_from(["a", "a/b", "b", "/", "~", "~1", "", "a~1b"])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_subnormal=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)
SHAPES = np_st.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
# Without the smallest numbers: Hypothesis gives none where another test let torch flush them.
ARRAY_LEAVES = st.one_of(
    np_st.arrays(st.sampled_from([np.int64, np.uint8, np.bool_]), SHAPES),
    *(
        np_st.arrays(dtype, SHAPES, elements=st.floats(width=width, allow_subnormal=False))
        for dtype, width in ((np.float32, 32), (np.float64, 64))
    ),
)
TREES = st.recursive(
    st.dictionaries(KEYS, ARRAY_LEAVES | JSON_VALUES, max_size=4),
    lambda inner: st.dictionaries(KEYS, inner | ARRAY_LEAVES | JSON_VALUES, max_size=4),
    max_leaves=8,
)


def assert_same(found: Any, expected: Any) -> None:
    """Compare to the bit, types and the order of keys included."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
    else:
        assert repr(found) == repr(expected)


@given(TREES)
def test_tree_comes_back_as_it_was(tree: dict[str, Any]) -> None:
    arrays, values = split(tree)
    assert_same(join(arrays, json.loads(json.dumps(values))), tree)
