"""Exploration: whose randomness, in which order it is drawn, noise and its state."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from zoo.errors import ZooError
from zoo.policies.acting import ActingPolicy
from zoo.policies.actions import make_action_adapter
from zoo.policies.config import PolicyConfig
from zoo.policies.continuous import SquashedActor
from zoo.policies.exploration import (
    ActionNoiseConfig,
    EpsilonGreedy,
    NormalNoise,
    OrnsteinUhlenbeckNoise,
    SdeNoise,
    StateDependentExploration,
    StochasticExploration,
    make_action_noise,
)
from zoo.policies.q_networks import QNetwork

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
CHOICES = spaces.Discrete(5, start=3)
BOX = spaces.Box(-2.0, 2.0, (2,), np.float32)


def epsilon_greedy(rate: Any) -> EpsilonGreedy:
    """Return a part that likes action 1 best, then 4."""
    network = QNetwork(VECTOR, CHOICES, PolicyConfig(net_arch=[]))
    nn.init.zeros_(network.advantages[0].weight)
    network.advantages[0].bias.data = torch.tensor([0.0, 4.0, 1.0, 2.0, 3.0])
    return EpsilonGreedy(ActingPolicy(network), make_action_adapter(CHOICES, scaled=False), rate)


def stochastic(**options: Any) -> StochasticExploration:
    torch.manual_seed(0)
    actor = SquashedActor(VECTOR, BOX, PolicyConfig(net_arch=[8]))
    return StochasticExploration(ActingPolicy(actor), make_action_adapter(BOX, scaled=True), **options)


def seen(n: int) -> dict[str, Any]:
    return {"observations": np.random.default_rng(1).normal(size=(n, 3)).astype(np.float32)}


def test_each_environment_has_a_random_number_of_its_own() -> None:
    part, rng = epsilon_greedy(lambda progress: 0.5), np.random.default_rng(0)
    actions = np.stack([part.act(seen(8), rng, 0.0) for _ in range(500)])
    is_greedy = actions == 1
    assert is_greedy.mean() == pytest.approx(0.5 + 0.5 / 5, abs=0.03)
    mixed = is_greedy.any(1) & ~is_greedy.all(1)
    assert mixed.mean() > 0.9
    for action in (0, 2, 3, 4):
        assert (actions == action).mean() == pytest.approx(0.1, abs=0.02)


def test_the_rate_follows_progress() -> None:
    part, rng = epsilon_greedy(lambda progress: 1.0 - progress), np.random.default_rng(0)
    assert (part.act(seen(1000), rng, 1.0) == 1).all()
    assert np.bincount(part.act(seen(5000), rng, 0.0)).tolist() == pytest.approx([1000] * 5, rel=0.15)
    assert (part.act(seen(5000), rng, 0.75) == 1).mean() == pytest.approx(0.8, abs=0.03)


def test_numbers_are_drawn_in_the_order_that_is_said() -> None:
    part, rng, same = epsilon_greedy(lambda progress: 0.5), np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(20):
        actions = part.act(seen(4), rng, 0.0)
        is_random = same.random(4) < 0.5
        expected = np.where(is_random, same.integers(5, size=4), 1) if is_random.any() else [1] * 4
        assert actions.tolist() == list(expected)


def test_random_actions_and_greedy_ones_respect_masks() -> None:
    part, rng = epsilon_greedy(lambda progress: 0.5), np.random.default_rng(0)
    masks = np.tile([True, False, False, True, True], (4000, 1))
    masks[2000:] = [False, False, True, False, False]
    shown = {**seen(4000), "action_masks": masks}
    for actions in (part.act(shown, rng, 0.0), part.random(shown, rng)):
        assert masks[np.arange(4000), actions].all()
        assert (actions[2000:] == 2).all()
    counts = np.bincount(part.random(shown, rng)[:2000], minlength=5)
    assert counts[[0, 3, 4]].tolist() == pytest.approx([667] * 3, rel=0.15)
    greedy = epsilon_greedy(lambda progress: 0.0).act(shown, rng, 0.0)
    assert (greedy[:2000] == 4).all()


def test_a_policy_explores_by_its_own_noise_then_by_what_is_added() -> None:
    shown, rng, same = seen(6), np.random.default_rng(2), np.random.default_rng(2)
    part = stochastic(noise=NormalNoise(0.3, 2), random_share=0.5)
    for _ in range(10):
        own, _ = part.acting.act(shown, same.standard_normal((6, 2), dtype=np.float32))
        noisy = (own + np.float32(0.3) * same.standard_normal((6, 2), dtype=np.float32)).clip(-1, 1)
        is_random = same.random((6, 1)) < 0.5
        expected = np.where(is_random, same.uniform(-1, 1, (6, 2)).astype(np.float32), noisy)
        actions = part.act(shown, rng, 0.0)
        np.testing.assert_array_equal(actions, expected)
        assert actions.dtype == np.float32
    plain = stochastic().act(shown, np.random.default_rng(2), 0.0)
    noise = np.random.default_rng(2).standard_normal((6, 2), dtype=np.float32)
    np.testing.assert_array_equal(plain, part.acting.act(shown, noise)[0])


def test_state_goes_on_where_it_was() -> None:
    def noisy() -> StochasticExploration:
        return stochastic(noise=OrnsteinUhlenbeckNoise(0.5, 0.15, 0.01, 2))

    part, rng = noisy(), np.random.default_rng(0)
    assert part.state() == {"noise": {"noise": None}}
    for _ in range(5):
        part.act(seen(3), rng, 0.0)
    state, position = part.state(), rng.bit_generator.state
    expected = [part.act(seen(3), rng, 0.0) for _ in range(3)]
    kept = part.state()
    before = kept["noise"]["noise"].copy()
    part.reset(np.array([1]))
    np.testing.assert_array_equal(kept["noise"]["noise"], before)
    resumed = noisy()
    resumed.load_state(state)
    rng.bit_generator.state = position
    for actions in expected:
        np.testing.assert_array_equal(resumed.act(seen(3), rng, 0.0), actions)
    fresh = noisy()
    fresh.load_state({"noise": {"noise": None}})
    assert fresh.state() == {"noise": {"noise": None}}
    for stateless in (epsilon_greedy(lambda progress: 0.1), stochastic()):
        assert stateless.state() == {}
        stateless.load_state({})
    normal = stochastic(noise=NormalNoise(0.1, 2))
    normal.load_state(normal.state())
    normal.reset()


def test_dictionaries_of_observations_are_counted_by_their_rows() -> None:
    part, rng = epsilon_greedy(lambda progress: 1.0), np.random.default_rng(0)
    assert part.act({"observations": {"a": np.zeros((7, 2))}}, rng, 0.0).shape == (7,)


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


def test_configs_make_their_process() -> None:
    assert make_action_noise(None, 2) is None
    normal = make_action_noise({"type": "normal", "std": 0.3}, 2)
    assert isinstance(normal, NormalNoise)
    assert normal.std == pytest.approx(0.3)
    correlated = make_action_noise(ActionNoiseConfig(type="ornstein-uhlenbeck", theta=0.5), 2)
    assert isinstance(correlated, OrnsteinUhlenbeckNoise)
    assert correlated.theta == 0.5


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"type": "norml"}, "did you mean `normal`"),
        ({"sigma": 0.1}, "algo.action_noise.sigma"),
        ({"std": -1}, "algo.action_noise.std=-1"),
        ({"std": math.inf}, "algo.action_noise.std=inf"),
        ({"type": "normal", "theta": 0.5}, r"algo\.action_noise\.theta.* ornstein"),
    ],
)
def test_other_configs_are_refused(config: dict[str, Any], named: str) -> None:
    with pytest.raises(ZooError, match=named):
        make_action_noise(config, 1)


SEEN = {"observations": np.ones((4, 3), np.float32)}


def exploration(**options: Any) -> StateDependentExploration:
    torch.manual_seed(0)
    actor = SquashedActor(VECTOR, BOX, PolicyConfig(net_arch=[8], log_std_init=0.0), use_sde=True)
    return StateDependentExploration(ActingPolicy(actor), make_action_adapter(BOX, scaled=True), **options)


def same_as_before(steps: list[np.ndarray]) -> list[bool]:
    return [bool((one == other).all()) for one, other in itertools.pairwise(steps)]


def test_noise_is_each_environments_own_and_stays_for_its_steps() -> None:
    head, rng = exploration().acting.head, np.random.default_rng(0)
    held = SdeNoise(head, 3)
    noise = [held.next(rng, 4) for _ in range(8)]
    assert same_as_before(noise) == [True, True, False, True, True, False, True]
    assert len(np.unique(noise[0], axis=0)) == 4
    same = np.random.default_rng(0)
    np.testing.assert_array_equal(noise[0], head.noise(same, (4,)))
    np.testing.assert_array_equal(noise[3], head.noise(same, (4,)))
    once = SdeNoise(head, -1)
    assert all(same_as_before([once.next(rng, 4) for _ in range(50)]))
    always = SdeNoise(head, 1)
    assert not any(same_as_before([always.next(rng, 4) for _ in range(5)]))


def test_like_states_get_like_actions_until_a_new_collection_starts() -> None:
    part, rng = exploration(), np.random.default_rng(0)
    part.start()
    first = [part.act(SEEN, rng, 0.0) for _ in range(5)]
    assert all(same_as_before(first))
    assert len(np.unique(first[0], axis=0)) == 4
    part.reset(np.array([0, 1]))
    np.testing.assert_array_equal(part.act(SEEN, rng, 0.0), first[0])
    part.start()
    assert not (part.act(SEEN, rng, 0.0) == first[0]).any()


def test_steps_are_counted_while_actions_are_random_too() -> None:
    part, rng = exploration(every=3), np.random.default_rng(0)
    part.start()
    warm = [part.warm_up(SEEN, rng) for _ in range(2)]
    assert not (warm[0] == warm[1]).any()
    actions = [part.act(SEEN, rng, 0.0) for _ in range(5)]
    assert same_as_before(actions) == [False, True, True, False]


def test_at_warmup_the_noise_takes_the_place_of_random_actions() -> None:
    part, rng = exploration(at_warmup=True), np.random.default_rng(0)
    part.start()
    warm = [part.warm_up(SEEN, rng) for _ in range(3)]
    assert all(same_as_before(warm))
    np.testing.assert_array_equal(part.act(SEEN, rng, 0.0), warm[0])


@pytest.mark.parametrize("n", [1, 6])
def test_another_number_of_environments_has_noise_from_the_next_start_on(n: int) -> None:
    part, rng = exploration(), np.random.default_rng(0)
    part.start()
    part.act(SEEN, rng, 0.0)
    part.start()
    assert part.act({"observations": np.ones((n, 3), np.float32)}, rng, 0.0).shape == (n, 2)
