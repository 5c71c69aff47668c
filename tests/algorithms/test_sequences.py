"""What is asked of a policy that remembers nothing, and how rollouts are cut."""

from __future__ import annotations

import numpy as np
import pytest

from zoo.algorithms.sequences import check_state, chunk_length
from zoo.errors import ZooError


def test_a_state_is_looked_at_only_where_a_policy_remembers() -> None:
    seen = {"observations": np.zeros((3, 4)), "episode_starts": np.zeros(7)}
    check_state(0, seen, np.zeros((5, 1)))
    with pytest.raises(ZooError, match=r"`state` of shape \(5, 1\) does not fit: expected \(3, 2\)"):
        check_state(2, seen, np.zeros((5, 1)))
    with pytest.raises(ZooError, match=r"`episode_start` of shape \(7,\) does not fit: expected \(3,\)"):
        check_state(2, seen, np.zeros((3, 2)))


@pytest.mark.parametrize(("n_steps", "length"), [(31, 31), (32, 32), (64, 32), (66, 22), (99, 11)])
def test_sequences_have_at_most_32_steps(n_steps: int, length: int) -> None:
    assert chunk_length(n_steps, None) == length
