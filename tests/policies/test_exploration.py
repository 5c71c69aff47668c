"""Noise on actions: its size, its correlation in time, and its new beginning with each episode."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from zoo.errors import ZooError
from zoo.policies.exploration import (
    ActionNoiseConfig,
    NormalNoise,
    OrnsteinUhlenbeckNoise,
    make_action_noise,
)


def draws(noise: Any, n: int, n_envs: int = 3) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.stack([noise.draw(rng, n_envs).copy() for _ in range(n)])


def test_normal_draws_are_independent_with_their_size() -> None:
    values = draws(NormalNoise(0.2, 2), 10_000)
    assert values.shape == (10_000, 3, 2)
    assert values.dtype == np.float32
    assert values.std(0) == pytest.approx(0.2, rel=0.05)
    flat = values.reshape(len(values), -1)
    correlation = np.corrcoef(flat.T) - np.eye(6)
    assert np.abs(correlation).max() < 0.05
    assert abs(np.corrcoef(flat[1:, 0], flat[:-1, 0])[0, 1]) < 0.05


def test_correlated_draws_follow_their_process() -> None:
    theta, sigma, dt = 0.15, 0.3, 0.1
    noise = OrnsteinUhlenbeckNoise(sigma, theta, dt, 2)
    rng, same = np.random.default_rng(3), np.random.default_rng(3)
    state = np.zeros((3, 2))
    for _ in range(50):
        state = (
            state
            - theta * state * dt
            + sigma * math.sqrt(dt) * same.standard_normal((3, 2), dtype=np.float32)
        )
        np.testing.assert_allclose(noise.draw(rng, 3), state, rtol=1e-4, atol=1e-6)


def test_correlated_noise_starts_at_zero_only_where_an_episode_ended() -> None:
    noise = OrnsteinUhlenbeckNoise(0.5, 0.15, 0.01, 1)
    before = draws(noise, 200)[-1]
    noise.reset(np.array([1]))

    class Still:
        def standard_normal(self, shape: Any, dtype: Any) -> np.ndarray:
            return np.zeros(shape, dtype)

    after = noise.draw(Still(), 3)  # type: ignore[arg-type]
    assert after[1] == 0
    np.testing.assert_allclose(after[[0, 2]], before[[0, 2]] * (1 - 0.15 * 0.01), rtol=1e-5)
    noise.reset()
    assert not noise.draw(Still(), 5).any()  # type: ignore[arg-type]


def test_a_draw_is_not_changed_by_the_next_one() -> None:
    noise, rng = OrnsteinUhlenbeckNoise(0.5, 0.15, 0.01, 1), np.random.default_rng(0)
    first = noise.draw(rng, 2)
    kept = first.copy()
    noise.draw(rng, 2)
    noise.reset(np.array([0, 1]))
    np.testing.assert_array_equal(first, kept)


def test_configs_make_their_process() -> None:
    assert make_action_noise(None, 2) is None
    normal = make_action_noise({"type": "normal", "std": 0.3}, 2)
    assert isinstance(normal, NormalNoise)
    assert normal.std == pytest.approx(0.3)
    correlated = make_action_noise(ActionNoiseConfig(type="ornstein-uhlenbeck", theta=0.5), 2)
    assert isinstance(correlated, OrnsteinUhlenbeckNoise)
    assert correlated.theta == 0.5


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"type": "norml"}, "`algo.action_noise.type=norml`.*did you mean `normal`"),
        ({"sigma": 0.1}, "unknown key `algo.action_noise.sigma`"),
        ({"std": -1}, "`algo.action_noise.std=-1` is out of range"),
    ],
)
def test_other_configs_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        make_action_noise(config, 1)
