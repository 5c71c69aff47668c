"""What is asked of a policy that remembers nothing, and how rollouts are cut."""

from __future__ import annotations

import numpy as np
import pytest

from zoo.algorithms.sequences import RecurrentState, check_state, chunk_length
from zoo.errors import ZooError


def test_a_state_is_looked_at_only_where_a_policy_remembers() -> None:
    seen = {"observations": np.zeros((3, 4)), "episode_starts": np.zeros(7)}
    check_state(0, seen, np.zeros((5, 1)))
    with pytest.raises(ZooError, match=r"`state` of shape \(5, 1\) does not fit: expected \(3, 2\)"):
        check_state(2, seen, np.zeros((5, 1)))
    with pytest.raises(ZooError, match=r"`episode_start` of shape \(7,\) does not fit: expected \(3,\)"):
        check_state(2, seen, np.zeros((3, 2)))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 2), np.float32),
        np.zeros((2, 1), np.float32),
        np.zeros((2, 2, 1), np.float32),
        np.zeros((2, 2), np.int8),
        np.array([[0, 1], [np.nan, 0]], np.float32),
    ],
    ids=["envs", "size", "dimensions", "type", "nan"],
)
def test_what_is_remembered_of_something_else_is_refused(array: np.ndarray) -> None:
    remembered = RecurrentState(np.zeros((2, 2), np.float32))
    with pytest.raises(ValueError, match="is not that of this policy in these environments"):
        remembered.load_state({"array": array})
    remembered.load_state({"array": np.ones((2, 2), np.float32)})
    assert remembered.array is not None
    assert remembered.array.sum() == 4


@pytest.mark.parametrize(("n_steps", "length"), [(31, 31), (32, 32), (64, 32), (66, 22), (99, 11)])
def test_sequences_have_at_most_32_steps(n_steps: int, length: int) -> None:
    assert chunk_length(n_steps, None) == length
