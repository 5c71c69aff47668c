"""Spaces as data and compared."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from zoo.envs.spaces import (
    action_array,
    check_supported,
    choice_sizes,
    describe,
    mask_size,
    space_from_dict,
    space_to_dict,
    spaces_differ,
)
from zoo.errors import ZooError

SPACES = [
    spaces.Box(-1.0, 1.0, (3,), np.float32),
    spaces.Box(np.array([-1.0, -np.inf]), np.array([np.inf, 2.0]), dtype=np.float64),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64),
    spaces.Box(-0.1, 0.3, (), np.float32),
    spaces.Discrete(3),
    spaces.Discrete(3, start=-2),
    spaces.MultiDiscrete([2, 5], start=[1, 0]),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 3]),
    spaces.Tuple((spaces.Discrete(3, start=1), spaces.Tuple((spaces.MultiBinary(2),)))),
    spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Dict({"c": spaces.Box(-1, 1, (2,))})}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_space_survives_json(space: Any) -> None:
    text = json.dumps(space_to_dict(space), allow_nan=False)
    again = space_from_dict(json.loads(text))
    assert again == space
    assert spaces_differ(space, again) is None


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Sequence(spaces.Discrete(2))])
def test_unsupported_space_is_refused(space: Any) -> None:
    with pytest.raises(ZooError, match="not supported"):
        space_to_dict(space)


@pytest.mark.parametrize("data", [{"type": "Box"}, {"type": "Discrete", "n": -1, "start": 0}, {}])
def test_damaged_description_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ZooError, match="damaged description"):
        space_from_dict(data)


@pytest.mark.parametrize(
    "dtype", ["V2000000000", "S1000000000", "U500000000", "(3000,3000)f8", "O", "M8[s]", "c16", "f16"]
)
def test_type_that_is_not_one_of_numbers_is_refused_before_it_is_made(dtype: str) -> None:
    described = {"type": "Box", "shape": [4], "dtype": dtype, "low": 0, "high": 1}
    with pytest.raises(ZooError, match="is not one of numbers"):
        space_from_dict(described)


@pytest.mark.parametrize(
    ("a", "b", "difference"),
    [
        (spaces.Discrete(2), spaces.Discrete(3), "Discrete(2) is not Discrete(3)"),
        (spaces.Discrete(2), spaces.Discrete(2, start=1), "Discrete(2) is not Discrete(2, start=1)"),
        (spaces.Box(0, 1, (2,)), spaces.Box(0, 1, (3,)), "Box(2,) float32 is not Box(3,) float32"),
        (spaces.Box(0, 1, (2,)), spaces.Box(0, 2, (2,)), "high [1. 1.] is not [2. 2.]"),
        (spaces.Box(0, 1, (2,)), spaces.MultiBinary(2), "Box(2,) float32 is not MultiBinary(2)"),
        (
            spaces.Dict({"a": spaces.Discrete(2)}),
            spaces.Dict({"b": spaces.Discrete(2)}),
            "keys ['a'] are not ['b']",
        ),
        (
            spaces.Dict({"a": spaces.Discrete(2)}),
            spaces.Dict({"a": spaces.Discrete(4)}),
            "a: Discrete(2) is not Discrete(4)",
        ),
        (
            spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2))),
            spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(3))),
            "part 1: MultiBinary(2) is not MultiBinary(3)",
        ),
        (
            spaces.Tuple((spaces.Discrete(2),)),
            spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))),
            "Tuple(Discrete(2)) is not Tuple(Discrete(2), Discrete(3))",
        ),
    ],
)
def test_difference_of_two_spaces_is_named(a: Any, b: Any, difference: str) -> None:
    assert spaces_differ(a, b) == difference


def test_size_of_a_strangers_space_counts_all_its_parts() -> None:
    large = {"type": "Box", "shape": [2**23], "dtype": "float32", "low": 0, "high": 1}
    with pytest.raises(ZooError, match="more than 16,777,216 numbers"):
        space_from_dict({"type": "Tuple", "spaces": [large, large, {"type": "Discrete", "n": 2, "start": 0}]})


def test_choices_of_an_action_are_those_of_its_parts() -> None:
    parts = [spaces.MultiDiscrete([[2, 5], [3, 4]]), spaces.Box(-1, 1, (2,)), spaces.MultiBinary((1, 2))]
    space = spaces.Dict({"z": spaces.Discrete(3, start=4), "a": spaces.Tuple(parts)})
    assert choice_sizes(space) == [2, 5, 3, 4, 2, 2, 3]
    assert mask_size(space) == 21
    assert choice_sizes(parts[1]) == []
    assert mask_size(parts[1]) is None


def test_parts_whose_names_would_be_the_same_are_refused() -> None:
    observed, box = spaces.Discrete(2), spaces.Box(-1, 1, (2,))
    for space in (spaces.Dict({"a/0": box, "a": spaces.Tuple((box,))}), spaces.Tuple(()), spaces.Dict({})):
        with pytest.raises(ZooError, match="need parts, at least one, whose names joined by / differ"):
            check_supported(observed, space)


def test_space_is_described_in_few_words() -> None:
    assert describe(SPACES[-2]) == "Tuple(Discrete(3, start=1), Tuple(MultiBinary(2)))"
    assert describe(SPACES[-1]) == "Dict(a: Discrete(2), b: Dict(c: Box(2,) float32))"


def test_no_more_numbers_are_made_of_a_description_than_16_million() -> None:
    described = {"type": "MultiBinary", "shape": [2**24]}
    assert space_from_dict(described).shape == (2**24,)
    with pytest.raises(ZooError, match="more than 16,777,216 numbers"):
        space_from_dict({**described, "shape": [2**24 + 1]})


@pytest.mark.parametrize(
    "shape",
    [
        [-(2**20), 2**20],
        [-(2**20), -(2**20)],
        [math.nan, 10**9],
        [0.5, 10**9],
        [True, 2],
        ["3"],
        "33",
        {"3": 3},
        [1] * 33,
        None,
    ],
)
@pytest.mark.parametrize("kind", ["Box", "MultiBinary"])
def test_shape_of_other_than_whole_numbers_is_refused_before_any_are_made(kind: str, shape: Any) -> None:
    described = {"type": kind, "shape": shape, "dtype": "float32", "low": 0, "high": 1}
    with pytest.raises(ZooError, match=r"no list of whole numbers|more than 32 dimensions"):
        space_from_dict({"type": "Tuple", "spaces": [described]})


def test_long_bounds_are_shortened() -> None:
    low = -np.arange(1.0, 10.0)
    eight, nine = (spaces.Box(low[:n], np.ones(n)) for n in (8, 9))
    assert "-8." in str(spaces_differ(eight, spaces.Box(2 * low[:8], np.ones(8))))
    told = spaces_differ(nine, spaces.Box(2 * low, np.ones(9)))
    assert told is not None
    assert "..." in told
    assert "-5." not in told


def test_bounds_that_are_the_same_everywhere_become_one_number() -> None:
    described = space_to_dict(spaces.Box(-1.0, np.array([2.0, 3.0]), dtype=np.float64))
    assert (described["low"], described["high"]) == (-1.0, [2.0, 3.0])
    assert space_to_dict(spaces.Box(-np.inf, 5.0, (2, 2)))["low"] == "-inf"


def test_array_of_composite_actions_is_of_zeros_by_the_paths_of_their_parts() -> None:
    space = spaces.Tuple((spaces.Discrete(3, start=1), spaces.Dict({"force": spaces.Box(1.0, 2.0, (2,))})))
    actions = action_array(space, 4, 5)
    assert actions.shape == (4, 5)
    assert actions.dtype.names == ("0", "1/force")
    assert not actions["0"].any()
    assert not actions["1/force"].any()
    assert actions["1/force"].shape == (4, 5, 2)


@pytest.mark.parametrize(
    ("described", "end"),
    [
        ({"type": "Discrete", "n": 2**62}, 2**62),
        ({"type": "MultiDiscrete", "nvec": [2**62, 2]}, [2**62, 0]),
    ],
)
def test_choices_may_end_with_the_largest_number_of_64_bits(described: dict[str, Any], end: Any) -> None:
    start = np.array(end)
    space: Any = space_from_dict({**described, "start": (start - (start > 0)).tolist()})
    assert np.max(space.start) == 2**62 - 1
    with pytest.raises(ZooError, match="choices with numbers above those of 64 bits"):
        space_from_dict({**described, "start": end})


def test_number_without_a_shape_counts_once() -> None:
    bits = {"type": "MultiBinary", "shape": [2**24 - 1]}
    choice = {"type": "Discrete", "n": 2, "start": 0}
    assert len(space_from_dict({"type": "Tuple", "spaces": [bits, choice]})) == 2  # type: ignore[arg-type]
    with pytest.raises(ZooError, match="more than 16,777,216 numbers"):
        space_from_dict({"type": "Tuple", "spaces": [bits, choice, choice]})


@pytest.mark.parametrize("shape", [[0], [3, 0], [1] * 32])
def test_shapes_without_numbers_or_of_32_dimensions_are_taken(shape: list[int]) -> None:
    space = spaces.Box(-1.0, 1.0, tuple(shape))
    assert space_from_dict(json.loads(json.dumps(space_to_dict(space)))).shape == tuple(shape)
