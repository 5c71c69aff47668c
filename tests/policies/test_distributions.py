"""Action distributions: their formulas against torch's own, their draws against their probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch import distributions as torch_distributions

from zoo.errors import ZooError
from zoo.policies.distributions import ActionDistribution, make_distribution

each_example = settings(deadline=None, derandomize=True, max_examples=40)
seeds = st.integers(0, 2**16)
batches = st.integers(1, 5)
scales = st.sampled_from([0.1, 1.0, 30.0])
N_DRAWS = 20_000


def drawn(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_formulas(
    distribution: ActionDistribution,
    theirs: torch_distributions.Distribution,
    parameters: Tensor,
    actions: Tensor,
    log_std: Tensor | None = None,
) -> None:
    """Compare with a distribution over whole actions (its event is one action)."""
    log_prob, entropy = distribution.log_prob_and_entropy(parameters, log_std, actions)
    assert log_prob.shape == entropy.shape == (len(parameters),)
    torch.testing.assert_close(log_prob, theirs.log_prob(actions.double()).float(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(entropy, theirs.entropy().float(), rtol=1e-4, atol=1e-4)


@given(n=st.integers(1, 7), start=st.integers(-3, 3), batch=batches, scale=scales, seed=seeds)
@each_example
def test_categorical_is_torchs(n: int, start: int, batch: int, scale: float, seed: int) -> None:
    distribution = make_distribution(spaces.Discrete(n, start=start))
    logits = drawn(seed, batch, n, scale=scale)
    actions = torch.from_numpy(np.random.default_rng(seed).integers(0, n, batch))
    assert_formulas(distribution, torch_distributions.Categorical(logits=logits.double()), logits, actions)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), batch=batches, scale=scales, seed=seeds)
@each_example
def test_multi_categorical_is_a_sum_over_choices(
    sizes: list[int], batch: int, scale: float, seed: int
) -> None:
    distribution = make_distribution(spaces.MultiDiscrete(sizes))
    logits = drawn(seed, batch, sum(sizes), scale=scale)
    actions = torch.from_numpy(np.random.default_rng(seed).integers(0, sizes, (batch, len(sizes))))
    log_prob, entropy = distribution.log_prob_and_entropy(logits, None, actions)
    choices = [torch_distributions.Categorical(logits=part.double()) for part in logits.split(sizes, dim=1)]
    expected = sum(choice.log_prob(actions[:, i]) for i, choice in enumerate(choices))
    torch.testing.assert_close(log_prob.double(), expected, rtol=1e-4, atol=1e-4)
    expected = sum(choice.entropy() for choice in choices)
    torch.testing.assert_close(entropy.double(), expected, rtol=1e-4, atol=1e-4)


@given(
    shape=st.sampled_from([(1,), (3,), (2, 3)]),
    batch=batches,
    scale=scales,
    seed=seeds,
)
@each_example
def test_bernoulli_is_torchs(shape: tuple[int, ...], batch: int, scale: float, seed: int) -> None:
    distribution = make_distribution(spaces.MultiBinary(shape))
    logits = drawn(seed, batch, math.prod(shape), scale=scale)
    actions = torch.from_numpy(
        np.random.default_rng(seed).integers(0, 2, (batch, math.prod(shape)), dtype=np.int8)
    )
    theirs = torch_distributions.Independent(torch_distributions.Bernoulli(logits=logits.double()), 1)
    assert_formulas(distribution, theirs, logits, actions)


@given(shape=st.sampled_from([(), (1,), (3,), (2, 3)]), batch=batches, scale=scales, seed=seeds)
@each_example
def test_diagonal_gaussian_is_torchs(shape: tuple[int, ...], batch: int, scale: float, seed: int) -> None:
    distribution = make_distribution(spaces.Box(-1.0, 1.0, shape, np.float32))
    size = math.prod(shape)
    mean, log_std = drawn(seed, batch, size, scale=scale), drawn(seed + 1, size)
    actions = drawn(seed + 2, batch, size, scale=scale)
    normal = torch_distributions.Normal(mean.double(), log_std.double().exp())
    assert_formulas(distribution, torch_distributions.Independent(normal, 1), mean, actions, log_std)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_formulas_and_their_gradients_are_finite_at_extreme_parameters(scale: float) -> None:
    cases: list[tuple[spaces.Space[Any], Tensor]] = [
        (spaces.Discrete(3), torch.tensor([0, 2])),
        (spaces.MultiDiscrete([2, 3]), torch.tensor([[0, 2], [1, 0]])),
        (spaces.MultiBinary(2), torch.tensor([[0, 1], [1, 1]], dtype=torch.int8)),
    ]
    for space, actions in cases:
        distribution = make_distribution(space)
        logits = drawn(3, 2, distribution.parameter_size, scale=scale).requires_grad_()
        log_prob, entropy = distribution.log_prob_and_entropy(logits, None, actions)
        (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), logits)
        assert log_prob.isfinite().all()
        assert entropy.isfinite().all()
        assert gradient.isfinite().all()


def draws(space: spaces.Space[Any], parameters: Any, log_std: Any = None) -> np.ndarray:
    """Draw many actions with the same parameters."""
    distribution = make_distribution(space)
    noise = distribution.noise(np.random.default_rng(0), (N_DRAWS,))
    batch = np.tile(np.asarray(parameters, dtype=np.float32), (N_DRAWS, 1))
    actions = distribution.sample(batch, log_std, noise)
    assert actions.shape == (N_DRAWS, *distribution.action_shape)
    assert actions.dtype == distribution.action_dtype
    return actions


def assert_share(hits: np.ndarray, probability: float) -> None:
    """Allow five standard deviations of the mean of so many draws."""
    slack = 5 * math.sqrt(probability * (1 - probability) / N_DRAWS) + 1e-9
    assert hits.mean() == pytest.approx(probability, abs=slack)


def test_categorical_draws_have_their_probabilities() -> None:
    probabilities = [0.6, 0.25, 0.1, 0.05, 0.0]
    actions = draws(spaces.Discrete(5, start=3), np.log(np.array(probabilities) + 1e-30))
    for action, probability in enumerate(probabilities):
        assert_share(actions == action, probability)


def test_multi_categorical_draws_are_independent_and_have_their_probabilities() -> None:
    first, second = [0.2, 0.8], [0.5, 0.3, 0.2]
    actions = draws(spaces.MultiDiscrete([2, 3]), np.log([*first, *second]))
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            assert_share((actions[:, 0] == i) & (actions[:, 1] == j), one * other)


def test_bernoulli_draws_are_independent_and_have_their_probabilities() -> None:
    probabilities = np.array([0.1, 0.7])
    actions = draws(spaces.MultiBinary(2), np.log(probabilities / (1 - probabilities)))
    assert_share(actions[:, 0] == 1, 0.1)
    assert_share(actions[:, 1] == 1, 0.7)
    assert_share((actions == 1).all(1), 0.07)


def test_gaussian_draws_have_their_moments() -> None:
    log_std = np.log(np.array([0.1, 2.0], dtype=np.float32))
    actions = draws(spaces.Box(-1.0, 1.0, (2,), np.float32), [0.5, -3.0], log_std)
    standardised = (actions - [0.5, -3.0]) / [0.1, 2.0]
    np.testing.assert_allclose(standardised.mean(0), 0.0, atol=5 / math.sqrt(N_DRAWS))
    np.testing.assert_allclose(standardised.std(0), 1.0, atol=5 / math.sqrt(2 * N_DRAWS))
    assert abs(np.corrcoef(standardised.T)[0, 1]) < 5 / math.sqrt(N_DRAWS)


SPACES: list[spaces.Space[Any]] = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=-2),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiDiscrete([2, 3], start=[5, -1]),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
    spaces.MultiDiscrete(np.array([[2, 3]]), start=np.array([[1, 2]])),
    spaces.MultiBinary(3),
    spaces.MultiBinary((2, 2)),
    spaces.Box(-1.0, 1.0, (2,), np.float32),
    spaces.Box(-0.1, 0.3, (2, 3), np.float64),
    spaces.Box(np.float32([-1.0, 0.0]), np.float32([0.5, np.inf])),
    spaces.Box(0.0, 1.0, (), np.float32),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_what_the_environment_gets_lies_in_its_space(space: spaces.Space[Any]) -> None:
    distribution, rng = make_distribution(space), np.random.default_rng(0)
    parameters = rng.normal(0.0, 2.0, (50, distribution.parameter_size)).astype(np.float32)
    log_std = np.zeros(distribution.parameter_size, np.float32)
    noise = distribution.noise(rng, (7, 50))
    assert not np.array_equal(noise[0], noise[1])
    for actions in (distribution.sample(parameters, log_std, noise[3]), distribution.mode(parameters)):
        rows = distribution.to_env(actions)
        assert len(rows) == 50
        assert all(space.contains(row) for row in rows), rows[0]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_mode_is_the_likeliest_action(space: spaces.Space[Any]) -> None:
    distribution, rng = make_distribution(space), np.random.default_rng(1)
    parameters = rng.normal(0.0, 1.0, (1, distribution.parameter_size)).astype(np.float32)
    log_std = np.zeros(distribution.parameter_size, np.float32)
    others = np.repeat(parameters, 200, axis=0)
    sampled = distribution.sample(others, log_std, distribution.noise(rng, (200,)))

    def log_prob(values: np.ndarray, actions: np.ndarray) -> Tensor:
        return distribution.log_prob_and_entropy(
            torch.from_numpy(values), torch.from_numpy(log_std), torch.from_numpy(actions)
        )[0]

    best = log_prob(parameters, distribution.mode(parameters))
    assert (log_prob(others, sampled) <= best + 1e-5).all()


def test_discrete_actions_count_from_the_spaces_start() -> None:
    distribution = make_distribution(spaces.Discrete(3, start=5))
    assert distribution.to_env(np.array([0, 1, 2])).tolist() == [5, 6, 7]
    distribution = make_distribution(spaces.MultiDiscrete([2, 3], start=[5, -1]))
    assert distribution.to_env(np.array([[0, 0], [1, 2]])).tolist() == [[5, -1], [6, 1]]


def test_only_the_environments_action_is_clipped() -> None:
    distribution = make_distribution(spaces.Box(-1.0, 1.0, (2,), np.float32))
    actions = distribution.sample(
        np.array([[5.0, 0.0]], np.float32), np.zeros(2, np.float32), np.zeros((1, 2), np.float32)
    )
    assert actions.tolist() == [[5.0, 0.0]]
    assert distribution.to_env(actions).tolist() == [[1.0, 0.0]]
    assert actions.tolist() == [[5.0, 0.0]]


def test_a_space_without_a_distribution_is_refused() -> None:
    with pytest.raises(ZooError, match="not supported"):
        make_distribution(spaces.Dict({"a": spaces.Discrete(2)}))
