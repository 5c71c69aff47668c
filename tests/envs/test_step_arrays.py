"""Arrays that environments are stepped into."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from gymnasium import spaces

from zoo.envs.step_arrays import StepArrays, of_shape
from zoo.errors import ZooError


def test_arrays_begin_with_zeros_and_without_ends_or_valid_actions() -> None:
    space = spaces.Dict({"place": spaces.Box(1.0, 2.0, (3,)), "door": spaces.Discrete(2, start=1)})
    arrays = StepArrays.allocate(2, space, spaces.Discrete(3, start=1))
    assert arrays.action_masks is not None
    parts = [*arrays.observations.values(), *(part for part in list(vars(arrays).values())[1:])]
    assert [part.shape for part in parts[:4]] == [(2,), (2, 3), (2,), (2,)]
    assert arrays.action_masks.shape == (2, 3)
    assert not any(part.any() for part in parts)


@pytest.mark.parametrize(
    ("key", "what"), [(None, "^an observation of"), ("place", "^an observation `place` of")]
)
def test_another_shape_is_refused_by_the_name_of_its_part(key: str | None, what: str) -> None:
    assert of_shape((2,), [1, 2], key) == [1, 2]
    with pytest.raises(ZooError, match=what + r" shape \(1,\); observation_space says \(2,\)"):
        of_shape((2,), [1], key)


def test_arrays_in_one_memory_have_cache_lines_of_their_own_and_need_no_more() -> None:
    space = spaces.Dict({"place": spaces.Box(1.0, 2.0, (5, 7)), "door": spaces.Discrete(2)})
    arrays = StepArrays.allocate(3, space, spaces.Discrete(3))
    assert arrays.action_masks is not None
    flat = [*arrays.observations.values(), *(part for part in list(vars(arrays).values())[1:])]
    lines = [int(np.ceil(array.nbytes / 64)) for array in flat]
    assert arrays.n_bytes == 64 * sum(lines)
    with mmap.mmap(-1, arrays.n_bytes) as memory:
        start = np.frombuffer(memory, np.uint8).ctypes.data
        inside = arrays.within(memory)
        placed = [*inside.observations.values(), *(part for part in list(vars(inside).values())[1:])]
        found = [array.ctypes.data - start for array in placed]
        assert found == [64 * sum(lines[:k]) for k in range(len(lines))]
        del inside, placed
