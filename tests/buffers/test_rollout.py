"""Advantages against a slow loop and worked numbers; rollouts keep what they were given."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from transitions import transition

from zoo.buffers.arrays import ArraySpec
from zoo.buffers.rollout import RolloutBuffer, generalized_advantages

each_example = settings(deadline=None, derandomize=True, max_examples=60)
Array = np.ndarray


def random_rollout(seed: int, n_steps: int, n_envs: int) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=(2, n_steps, n_envs)).astype(np.float32)
    return rewards, values, rng.normal(size=n_envs).astype(np.float32), rng.random((n_steps, n_envs)) < 0.3


def slow_advantages(
    rewards: Array, values: Array, last_values: Array, ended: Array, gamma: float, gae_lambda: float
) -> Array:
    """Return the sum of discounted temporal differences, written out for each step of each environment."""
    n_steps, n_envs = rewards.shape
    advantages = np.zeros((n_steps, n_envs))
    for env in range(n_envs):
        for start in range(n_steps):
            weight = 1.0
            for step in range(start, n_steps):
                following = last_values[env] if step == n_steps - 1 else values[step + 1, env]
                if ended[step, env]:
                    following = 0.0
                difference = rewards[step, env] + gamma * following - values[step, env]
                advantages[start, env] += weight * difference
                if ended[step, env]:
                    break
                weight *= gamma * gae_lambda
    return advantages


@given(
    seed=st.integers(0, 999),
    n_steps=st.integers(1, 8),
    n_envs=st.integers(1, 3),
    gamma=st.sampled_from([0.0, 0.9, 0.99, 1.0]),
    gae_lambda=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
)
@each_example
def test_advantages_are_sums_of_temporal_differences(
    seed: int, n_steps: int, n_envs: int, gamma: float, gae_lambda: float
) -> None:
    rollout = random_rollout(seed, n_steps, n_envs)
    before = [array.copy() for array in rollout]
    advantages = generalized_advantages(*rollout, gamma, gae_lambda)
    assert advantages.dtype == np.float32
    np.testing.assert_allclose(advantages, slow_advantages(*rollout, gamma, gae_lambda), rtol=1e-4, atol=1e-5)
    for array, old in zip(rollout, before, strict=True):
        np.testing.assert_array_equal(array, old)


SPECS = {
    "observations": {"a": ArraySpec((2,), np.float32), "b": ArraySpec((), np.uint8)},
    "actions": ArraySpec((), np.int64),
}


def filled(n_steps: int, n_envs: int, **sequences: Any) -> RolloutBuffer:
    """Return a rollout whose entries say where they are: 10 × step + env."""
    buffer = RolloutBuffer(n_steps, n_envs, SPECS, **sequences)
    add_steps(buffer, [None] * n_steps)
    return buffer


def add_steps(buffer: RolloutBuffer, stepped: Any) -> list[bool]:
    """Add a step for each of these masks (n_envs,); return after each whether the buffer is full."""
    fullness = []
    for step, mask in enumerate(stepped):
        where = 10 * step + np.arange(buffer.n_envs)
        shown = {"a": np.stack([where, -where], 1), "b": where}
        ended = where % 3 == 0
        columns = {"observations": shown, "actions": where, "more_than_is_kept": where}
        columns["states"] = np.stack([where + 0.25, where + 0.5], 1)
        rewards = where.astype(np.float32)
        buffer.add(transition(columns, shown, rewards, ended, ended, mask), rewards)
        fullness.append(buffer.is_full)
    return fullness


def test_lambda_returns_go_with_q_learning() -> None:
    """Values are the largest of Q; the numbers are by hand, the second of an episode that ended at step 1."""
    rewards, values, last = np.float32([[1], [0], [2]]), np.float32([[9], [3], [5]]), np.float32([4])
    for dones, expected in ([0, 0, 0], [4.4965, 4.77, 5.6]), ([0, 1, 0], [2.35, 0, 5.6]):
        ended = np.array(dones, bool)[:, None]
        returns = values + generalized_advantages(rewards, values, last, ended, 0.9, 0.5)
        np.testing.assert_allclose(returns[:, 0], expected, rtol=1e-6, atol=1e-6)


def test_rows_go_step_by_step_through_the_environments() -> None:
    rows = filled(3, 2).rows()
    assert rows["actions"].tolist() == [0, 1, 10, 11, 20, 21]
    assert rows["observations"]["b"].tolist() == [0, 1, 10, 11, 20, 21]
    assert rows["observations"]["a"].tolist() == [[i, -i] for i in (0, 1, 10, 11, 20, 21)]


def test_sequence_has_one_env_and_its_initial_state() -> None:
    buffer = filled(6, 2, chunk_length=3, state_size=2)
    rows = buffer.rows()
    assert rows["actions"].tolist() == [[0, 10, 20], [1, 11, 21], [30, 40, 50], [31, 41, 51]]
    assert rows["observations"]["a"].tolist() == [[[i, -i] for i in row] for row in rows["actions"].tolist()]
    assert rows["states"].tolist() == [[0.25, 0.5], [1.25, 1.5], [30.25, 30.5], [31.25, 31.5]]
    assert buffer.as_steps(rows["actions"]).tolist() == buffer.columns["actions"].tolist()
    assert buffer.n_rows == len(rows["states"])
    assert buffer.steps_a_row == 3


def test_each_environment_fills_at_its_own_pace() -> None:
    """Steps that merely reset an environment are left out, and so are those of one that is full."""
    stepped = np.array([[True, True], [False, True], [True, True], [True, True], [True, False]])
    buffer = RolloutBuffer(4, 2, SPECS, chunk_length=2, state_size=2)
    fullness = add_steps(buffer, stepped)
    assert buffer.columns["actions"].T.tolist() == [[0, 20, 30, 40], [1, 11, 21, 31]]
    assert buffer.columns["observations"]["b"].T.tolist() == [[0, 20, 30, 40], [1, 11, 21, 31]]
    assert buffer.rewards.T.tolist() == [[0, 20, 30, 40], [1, 11, 21, 31]]
    assert buffer.dones.T.tolist() == [[True, False, True, False], [False, False, True, False]]
    states = [[0.25, 0.5], [1.25, 1.5], [30.25, 30.5], [21.25, 21.5]]
    assert buffer.rows()["states"].tolist() == states
    assert fullness == [False, False, False, False, True]
    add_steps(buffer, np.ones((1, 2), bool))
    assert buffer.columns["actions"].T.tolist() == [[0, 20, 30, 40], [1, 11, 21, 31]]


def test_truncations_have_step_env_and_final_obs() -> None:
    buffer = RolloutBuffer(3, 4, {"observations": ArraySpec((1,), np.float32)})
    buffer.start()
    assert buffer.truncations() is None
    blank = np.zeros(4, np.float32)
    for reevaluation in ({1: 5.0}, {}, {0: 6.0, 3: 7.0}):
        ended, seen = np.isin(np.arange(4), list(reevaluation)), {"observations": blank[:, None]}
        buffer.add(transition(seen, blank[:, None], blank, ended, ended), blank)
        if reevaluation:
            finals = np.array(list(reevaluation.values()), np.float32)[:, None]
            buffer.add_truncations(np.array(list(reevaluation)), finals)
    truncations = buffer.truncations()
    assert truncations is not None
    steps, envs, final_observations, _, _ = truncations
    assert steps.tolist() == [0, 2, 2]
    assert envs.tolist() == [1, 0, 3]
    assert final_observations.tolist() == [[5.0], [6.0], [7.0]]
    buffer.start()
    assert buffer.truncations() is None


@given(
    n_steps=st.integers(1, 8),
    n_envs=st.integers(1, 4),
    n_minibatches=st.integers(1, 9),
    more=st.integers(0, 3),
    n_epochs=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@each_example
def test_epochs_cover_every_row_in_equal_minibatches(
    n_steps: int, n_envs: int, n_minibatches: int, more: int, n_epochs: int, seed: int
) -> None:
    buffer = filled(n_steps, n_envs)
    n_rows = n_steps * n_envs
    batch_size = -(-n_rows // n_minibatches) + more
    batches = buffer.minibatch_rows(np.random.default_rng(seed), n_epochs, n_minibatches, batch_size)
    assert batches.shape == (n_epochs * n_minibatches, batch_size)
    for epoch in batches.reshape(n_epochs, -1):
        assert sorted(epoch[:n_rows].tolist()) == list(range(n_rows))
        assert set(epoch.tolist()) == set(range(n_rows))
