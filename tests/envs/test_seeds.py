"""Seeds of environments and their spaces."""

from __future__ import annotations

import numpy as np

from zoo.envs.seeds import small_seeds


def test_one_number_seeds_each_simulator_in_its_turn_and_none_is_too_large_for_one() -> None:
    assert small_seeds(5, 3) == small_seeds(np.int64(5), 3) == [5, 6, 7]
    assert small_seeds([9, 4], 2) == [9, 4]
    largest = 2**31 - 1
    assert small_seeds(largest - 2, 4) == [largest - 2, largest - 1, 0, 1]
