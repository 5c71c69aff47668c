"""Pickles read as what they say: numbers come out of them, and nothing happens."""

from __future__ import annotations

import collections
import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from zoo.files.pickled import Made, UnreadablePickleError, array_in, read_pickle
from zoo.files.torch_files import read_state_dict

from zoo.files.opening import DamagedFileError

ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(3, dtype=">f8"),
    np.array([True, False]),
    np.zeros((0, 2)),
    np.float64(2.5),
    np.int32(7),
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{list(array.shape)}")
def test_arrays_come_out_as_they_went_in(array: np.ndarray, protocol: int) -> None:
    found = array_in(read_pickle(pickle.dumps(array, protocol)))
    assert found is not None
    assert found.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_come_out_as_they_went_in(protocol: int) -> None:
    value = {"a": [1, -2.5, None, True, "x", 10**30], "b": (1, (2,), (3, 4), (5, 6, 7)), "c": {}}
    assert read_pickle(pickle.dumps(value, protocol)) == value


def test_calls_are_notes() -> None:
    note = read_pickle(pickle.dumps(collections.OrderedDict(a=1)))
    assert isinstance(note, Made)
    assert (note.path, note.items) == ("collections.OrderedDict", {"a": 1})
    assert array_in(note) is None


def test_memo_that_doubles_a_hundred_times_costs_nothing() -> None:
    value: object = "x"
    for _ in range(100):
        value = (value, value)
    read_pickle(pickle.dumps({"a": value}))
    as_key = pickle.dumps(value)[:-1]
    # } is an empty dictionary; as a key the tuple would have to be hashed.
    assert read_pickle(b"\x80\x04}" + as_key[2:] + b"K\x01s.") == {}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "can't be read"),
        (b"no pickle", "can't be read"),
        (b"\x80\x04]", "can't be read"),
        (b"\x80\x04.", "can't be read"),
        (b"\x80\x04(.", "what is not there"),
        (b"\x80\x04K\x01K\x02a.", "no list"),
        (b"\x80\x02\x82\x01.", "EXT1 is not known"),
        (b"\x80\x04" + b"N0" * 100_001 + b"N.", "more than 200,000 steps"),
    ],
)
def test_what_is_none_is_told(content: bytes, problem: str) -> None:
    with pytest.raises(UnreadablePickleError, match=problem):
        read_pickle(content)


def test_array_whose_bytes_do_not_fit_is_told() -> None:
    content = pickle.dumps(np.zeros(4), protocol=2).replace(b"K\x04\x85", b"K\x09\x85")
    with pytest.raises(UnreadablePickleError, match="32 bytes for the shape"):
        array_in(read_pickle(content))


def test_tensors_come_out_as_they_went_in() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "plain": base,
        "turned": base.T,
        "part": base[1:, ::2],
        "whole": torch.tensor(3),
        "empty": torch.zeros(0, 2),
        "parameter": torch.nn.Parameter(base.double()),
        "half": base.half(),
        "flags": base > 5,
    }
    file = io.BytesIO()
    torch.save({**tensors, "text": "x"}, file)
    found = read_state_dict(file.getvalue(), "x", 2**20)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor.detach().numpy())
        assert found[name].dtype == tensor.detach().numpy().dtype


def test_tensors_that_are_too_large_are_told(tmp_path: Path) -> None:
    file = io.BytesIO()
    torch.save({"a": torch.zeros(1000)}, file)
    with pytest.raises(DamagedFileError) as caught:
        read_state_dict(file.getvalue(), "x", 1000)
    assert "4,000" in caught.value.problem
