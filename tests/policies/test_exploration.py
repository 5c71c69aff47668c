"""Exploration: random actions, added noise, state-dependent noise, and noise on parameters."""

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
from zoo.optim.optimizers import Parameters
from zoo.policies.acting import ActingPolicy
from zoo.policies.config import PolicyConfig
from zoo.policies.continuous import DeterministicActor, SquashedActor
from zoo.policies.exploration import (
    EpisodeNoise,
    EpsilonGreedy,
    NormalNoise,
    OrnsteinUhlenbeckNoise,
    ParameterNoiseActor,
    ParameterNoiseConfig,
    ParameterNoiseGreedy,
    PerturbedPolicy,
    SdeNoise,
    StochasticExploration,
    epsilon_greedy_kl,
    make_action_noise,
    mean_softmax_kl,
    perturbable,
)
from zoo.policies.q_networks import QNetwork

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
CHOICES = spaces.Discrete(5, start=3)
BOX = spaces.Box(-2.0, 2.0, (2,), np.float32)


def seen(n: int, seed: int = 1) -> dict[str, Any]:
    return {"observations": np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)}


def epsilon_greedy(rate: Any) -> EpsilonGreedy:
    """Return a part that likes action 1 best, then 4."""
    network = QNetwork(VECTOR, CHOICES, PolicyConfig(net_arch=[]))
    nn.init.zeros_(network.advantages[0].weight)
    network.advantages[0].bias.data = torch.tensor([0.0, 4.0, 1.0, 2.0, 3.0])
    return EpsilonGreedy(ActingPolicy(network), rate)


def stochastic(**options: Any) -> StochasticExploration:
    torch.manual_seed(0)
    actor = SquashedActor(VECTOR, BOX, PolicyConfig(net_arch=[8]))
    return StochasticExploration(ActingPolicy(actor), **options)


def test_epsilon_greedy_draws_separately_for_each_env() -> None:
    part, rng = epsilon_greedy(lambda progress: 0.5), np.random.default_rng(0)
    actions = np.stack([part.act(seen(8), rng, 0.0)[0] for _ in range(500)])
    is_greedy = actions == 1
    assert is_greedy.mean() == pytest.approx(0.5 + 0.5 / 5, abs=0.03)
    mixed = is_greedy.any(1) & ~is_greedy.all(1)
    assert mixed.mean() > 0.9
    for action in (0, 2, 3, 4):
        assert (actions == action).mean() == pytest.approx(0.1, abs=0.02)


def test_numbers_are_drawn_in_the_order_that_is_said() -> None:
    part, rng, same = epsilon_greedy(lambda progress: 0.5), np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(20):
        actions = part.act(seen(4), rng, 0.0)[0]
        is_random = same.random(4) < 0.5
        expected = np.where(is_random, same.integers(5, size=4), 1) if is_random.any() else [1] * 4
        assert actions.tolist() == list(expected)


def test_random_actions_and_greedy_ones_respect_masks() -> None:
    part, rng = epsilon_greedy(lambda progress: 0.5), np.random.default_rng(0)
    masks = np.tile([True, False, False, True, True], (4000, 1))
    masks[2000:] = [False, False, True, False, False]
    shown = {**seen(4000), "action_masks": masks}
    for actions in (part.act(shown, rng, 0.0)[0], part.random(shown, rng)):
        assert masks[np.arange(4000), actions].all()
        assert (actions[2000:] == 2).all()
    counts = np.bincount(part.random(shown, rng)[:2000], minlength=5)
    assert counts[[0, 3, 4]].tolist() == pytest.approx([667] * 3, rel=0.15)
    greedy = epsilon_greedy(lambda progress: 0.0).act(shown, rng, 0.0)[0]
    assert (greedy[:2000] == 4).all()


def test_action_noise_is_added_to_stochastic_actions() -> None:
    shown, rng, same = seen(6), np.random.default_rng(2), np.random.default_rng(2)
    part = stochastic(noise=NormalNoise(0.3, 2), random_share=0.5)
    for _ in range(10):
        own, _ = part.acting.act(shown, same.standard_normal((6, 2), dtype=np.float32))
        noisy = (own + np.float32(0.3) * same.standard_normal((6, 2), dtype=np.float32)).clip(-1, 1)
        is_random = same.random((6, 1)) < 0.5
        expected = np.where(is_random, same.uniform(-1, 1, (6, 2)).astype(np.float32), noisy)
        actions = part.act(shown, rng, 0.0)[0]
        np.testing.assert_array_equal(actions, expected)
        assert actions.dtype == np.float32
    plain = stochastic().act(shown, np.random.default_rng(2), 0.0)[0]
    noise = np.random.default_rng(2).standard_normal((6, 2), dtype=np.float32)
    np.testing.assert_array_equal(plain, part.acting.act(shown, noise)[0])


def draws(noise: Any, n: int, n_envs: int = 3) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.stack([noise.draw(rng, n_envs).copy() for _ in range(n)])


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


def test_ou_noise_restarts_at_zero_for_ended_episodes() -> None:
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


def test_each_episode_draws_its_deviation() -> None:
    noise, rng = EpisodeNoise(0.001, 0.4, 1000), np.random.default_rng(0)
    first = noise.draw(rng, 50).std(1)
    assert 0 <= first.min() < 0.05
    assert 0.35 < first.max() < 0.45
    assert first.mean() == pytest.approx(0.2, abs=0.04)
    np.testing.assert_allclose(noise.draw(rng, 50).std(1), first, rtol=0.15)
    noise.reset(np.array([3, 7]))
    saved = noise.state()
    after = noise.draw(np.random.default_rng(9), 50)
    of_envs = after.std(1)
    assert not np.isclose(of_envs[[3, 7]], first[[3, 7]], rtol=0.15).any()
    np.testing.assert_allclose(np.delete(of_envs, [3, 7]), np.delete(first, [3, 7]), rtol=0.15)
    resumed = EpisodeNoise(0.001, 0.4, 1000)
    resumed.load_state(saved)
    np.testing.assert_array_equal(resumed.draw(np.random.default_rng(9), 50), after)
    noise.reset()
    assert not np.isclose(noise.draw(rng, 50).std(1), of_envs, rtol=0.15).all()


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"std_max": 0.05}, "algo.action_noise.std_max=0.05`: expected at least std"),
        ({"std_max": 0.5, "type": "ornstein-uhlenbeck"}, "and normal noise"),
        ({"type": "norml"}, "did you mean .normal"),
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


def exploration(sde_sample_freq: int = -1, **options: Any) -> StochasticExploration:
    torch.manual_seed(0)
    actor = SquashedActor(VECTOR, BOX, PolicyConfig(net_arch=[8], log_std_init=0.0), use_sde=True)
    return StochasticExploration(ActingPolicy(actor), sde_sample_freq=sde_sample_freq, **options)


def same_as_before(steps: list[np.ndarray]) -> list[bool]:
    return [bool((one == other).all()) for one, other in itertools.pairwise(steps)]


def test_sde_noise_is_per_env_and_held_for_its_steps() -> None:
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


def test_sde_noise_counts_warm_up_steps() -> None:
    part, rng = exploration(3), np.random.default_rng(0)
    part.start()
    warm = [part.warm_up(SEEN, rng)[0] for _ in range(2)]
    assert not (warm[0] == warm[1]).any()
    actions = [part.act(SEEN, rng, 0.0)[0] for _ in range(5)]
    assert same_as_before(actions) == [False, True, True, False]


FOUR_CHOICES = spaces.Discrete(4)


def perturbed_actor(*, std: float = 0.3, **fields: Any) -> tuple[PerturbedPolicy, Parameters]:
    torch.manual_seed(0)
    actor = DeterministicActor(
        VECTOR, BOX, PolicyConfig(**{"net_arch": [8, 8], "layer_norm": True, **fields})
    )
    parameters = Parameters("actor", actor.eval())
    return PerturbedPolicy(ActingPolicy(actor), parameters, std), parameters


def noisy_actor(noise: Any = None, **settings: Any) -> ParameterNoiseActor:
    perturbed, _ = perturbed_actor()
    return ParameterNoiseActor(perturbed, noise, 0.0, ParameterNoiseConfig(**settings))


def noisy_greedy(rate: float, space: Any = VECTOR, **fields: Any) -> tuple[ParameterNoiseGreedy, Parameters]:
    torch.manual_seed(0)
    network = QNetwork(space, FOUR_CHOICES, PolicyConfig(**{"net_arch": [8], **fields}), dueling=True).eval()
    parameters = Parameters("q_network", network)
    return ParameterNoiseGreedy(ActingPolicy(network), parameters, lambda progress: rate), parameters


def same(n: int) -> dict[str, Any]:
    """Return the same observation for all."""
    return {"observations": np.tile(np.array([[0.3, -0.7, 0.5]], np.float32), (n, 1))}


def by_modules(parameters: Parameters, vector: Any, observations: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return parameters.functional(torch.as_tensor(vector))(torch.from_numpy(observations)).numpy()


def test_each_environment_acts_with_a_copy_of_its_own() -> None:
    perturbed, parameters = perturbed_actor()
    rng = np.random.default_rng(0)
    perturbed.redraw(rng, 3)
    shown = seen(3)
    actions, _ = perturbed.act(shown, None)
    copies = perturbed.state()["copies"]
    for i in range(3):
        row = shown["observations"][i : i + 1]
        np.testing.assert_allclose(actions[i : i + 1], by_modules(parameters, copies[i], row), atol=1e-6)
    alike, _ = perturbed.act(same(3), None)
    plain = by_modules(parameters, parameters.flat.detach(), same(1)["observations"])
    assert all(
        np.abs(row - other).max() > 1e-3 for row, other in zip(alike, np.roll(alike, 1, 0), strict=True)
    )
    assert np.abs(alike - plain).max(1).min() > 1e-3


def test_parameter_noise_is_normal_and_spares_norms() -> None:
    perturbed, parameters = perturbed_actor(std=0.3, net_arch=[60, 60])
    perturbed.redraw(np.random.default_rng(0), 20)
    noise = perturbed.state()["copies"] - parameters.flat.detach().numpy()
    for name, part in parameters.slices.items():
        is_norm = name in ("trunk.1.weight", "trunk.1.bias", "trunk.4.weight", "trunk.4.bias")
        assert bool(noise[:, part].any()) is not is_norm, name
        if not is_norm:
            assert noise[:, part].std() == pytest.approx(0.3, rel=0.15), name
            assert noise[:, part].mean() == pytest.approx(0.0, abs=0.1), name
    assert "head.action.bias" in parameters.slices
    drawn = noise[:, np.r_[tuple(perturbable(parameters))]]
    correlation = np.corrcoef(drawn) - np.eye(20)
    assert np.abs(correlation).max() < 0.1


def test_perturbed_copies_are_redrawn_at_episode_end() -> None:
    perturbed, parameters = perturbed_actor()
    rng = np.random.default_rng(0)
    perturbed.redraw(rng, 3)
    first = perturbed.state()["copies"]
    with torch.no_grad():
        parameters.flat.add_(100.0)  # updates go on within the episodes
    perturbed.redraw(rng, 3)
    np.testing.assert_array_equal(perturbed.state()["copies"], first)
    perturbed.reset(np.array([1]))
    np.testing.assert_array_equal(perturbed.state()["copies"], first)
    perturbed.redraw(rng, 3)
    second = perturbed.state()["copies"]
    np.testing.assert_array_equal(second[[0, 2]], first[[0, 2]])
    assert (second[1] > first[1] + 90).all()
    perturbed.reset()
    assert perturbed.state()["copies"] is None
    perturbed.redraw(rng, 2)
    third = perturbed.state()["copies"]
    assert third.shape == (2, parameters.size)
    assert (third > 90).all()


def test_parameter_noise_adapts_to_desired_action_std() -> None:
    part, rng = noisy_actor(desired_action_std=0.2, adaptation_coefficient=1.05), np.random.default_rng(0)
    part.perturbed.std = 1e-3
    distances = [part.adapt(seen(64), rng)["parameter_noise_distance"] for _ in range(400)]
    assert distances[0] < 0.01
    assert np.mean(distances[200:]) == pytest.approx(0.2, rel=0.25)


# Q-networks
def test_each_env_acts_by_its_own_noisy_copy() -> None:
    part, parameters = noisy_greedy(1.0)
    part.perturbed.std = 1.0
    rng = np.random.default_rng(0)
    actions = np.array([part.act(same(40), rng, 0.0)[0] for _ in range(5)])
    assert (actions == actions[0]).all()  # within an episode the same
    assert len(np.unique(actions)) > 1
    copies = part.perturbed.state()["copies"]
    for i in range(40):
        values = by_modules(parameters, copies[i], same(1)["observations"])
        assert actions[0, i] == values.argmax()


def test_q_network_noise_adapts_to_exploration_rate() -> None:
    part, _ = noisy_greedy(0.3)
    rng = np.random.default_rng(0)
    for _ in range(1500):
        part.act(seen(8), rng, 0.0)[0]
    distances = [mean_softmax_kl(*part.perturbed.with_and_without_noise(seen(8), rng)) for _ in range(300)]
    assert np.median(distances) == pytest.approx(epsilon_greedy_kl(0.3, np.array(4)), rel=0.35)


def test_epsilon_greedy_kl_matches_closed_form() -> None:
    assert epsilon_greedy_kl(1.0, np.array([7, 1, 2])) == pytest.approx([math.log(7), 0.0, math.log(2)])
    assert (epsilon_greedy_kl(0.0, np.array([7, 1])) == 0.0).all()
    greedy, epsilon = np.array([1.0, 0.0, 0.0]), np.array([0.8, 0.1, 0.1])
    assert epsilon_greedy_kl(0.3, np.array(3)) == pytest.approx(greedy[0] * math.log(greedy[0] / epsilon[0]))


def test_mean_softmax_kl_matches_torch() -> None:
    generator = np.random.default_rng(0)
    values, others = (generator.normal(size=(50, 4)).astype(np.float32) * 30 for _ in range(2))
    logs = (torch.log_softmax(torch.from_numpy(each).double(), -1) for each in (others, values))
    expected = torch.nn.functional.kl_div(*logs, log_target=True, reduction="batchmean")
    assert mean_softmax_kl(values, others) == pytest.approx(expected.item(), rel=1e-6)
    shifted = others + generator.normal(size=(50, 1)).astype(np.float32)  # a dueling network's state value
    assert mean_softmax_kl(values, shifted) == pytest.approx(expected.item(), rel=1e-4)
    assert mean_softmax_kl(values, others.astype(np.float64) + 1000) == pytest.approx(expected.item())


def test_parameter_noise_ignores_masked_actions() -> None:
    part, _ = noisy_greedy(0.5)
    part.perturbed.std = 5.0
    masks = np.tile([True, False, False, True], (200, 1))
    actions = part.act({**seen(200), "action_masks": masks}, np.random.default_rng(0), 0.0)[0]
    assert set(actions.tolist()) == {0, 3}
    values = np.array([[1.0, -1e8, -1e8, 2.0]])
    assert mean_softmax_kl(values, values[:, [3, 1, 2, 0]]) == pytest.approx(
        mean_softmax_kl(values[:, [0, 3]], values[:, [3, 0]])
    )
