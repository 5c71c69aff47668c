"""Gaussian heads against torch's distributions, numeric integrals and their own draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch import distributions as torch_distributions

from zoo.errors import ZooError
from zoo.policies.gaussian_heads import LOG_STD_RANGE, DiagonalGaussian, SquashedGaussian

each_example = settings(deadline=None, derandomize=True, max_examples=40)
N_DRAWS = 20_000


def box(n: int) -> spaces.Box:
    return spaces.Box(-1.0, 1.0, (n,), np.float32)


def gaussian(n: int) -> DiagonalGaussian:
    return DiagonalGaussian(box(n), 3, 0.0)


def squashed(n: int) -> SquashedGaussian:
    return SquashedGaussian(box(n), 3)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def normal(parameters: Tensor) -> torch_distributions.Independent:
    mean, log_std = parameters.double().chunk(2, dim=-1)
    return torch_distributions.Independent(torch_distributions.Normal(mean, log_std.exp()), 1)


@given(
    n=st.integers(1, 4),
    batch=st.integers(1, 5),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
    seed=st.integers(0, 999),
)
@each_example
def test_diagonal_gaussian_is_torchs(n: int, batch: int, scale: float, seed: int) -> None:
    head = gaussian(n)
    old, new = (torch.cat([scale * drawn(s, batch, n), drawn(s + 2, batch, n)], -1) for s in (seed, seed + 1))
    actions = scale * drawn(seed + 9, batch, n)
    log_prob, entropy = head.log_prob_and_entropy(old, actions)
    close = {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(log_prob, normal(old).log_prob(actions.double()).float(), **close)
    torch.testing.assert_close(entropy, normal(old).entropy().float(), **close)
    torch.testing.assert_close(head.log_prob(old, actions), log_prob)
    torch.testing.assert_close(head.entropy(old), entropy)
    divergence = torch_distributions.kl_divergence(normal(old), normal(new))
    torch.testing.assert_close(head.kl(old, new), divergence.float(), **close)
    torch.testing.assert_close(squashed(n).kl(old, new), divergence.float(), **close)


def test_gaussian_draws_have_their_moments() -> None:
    head, log_std = gaussian(2), np.log(np.array([0.1, 2.0]))
    parameters = np.tile(np.float32([0.5, -3.0, *log_std]), (N_DRAWS, 1))
    before = parameters.copy()
    noise = head.noise(np.random.default_rng(0), (N_DRAWS,))
    actions = head.sample(parameters, noise)
    standardised = (actions - [0.5, -3.0]) / [0.1, 2.0]
    np.testing.assert_allclose(standardised.mean(0), 0.0, atol=5 / math.sqrt(N_DRAWS))
    np.testing.assert_allclose(standardised.std(0), 1.0, atol=5 / math.sqrt(2 * N_DRAWS))
    assert abs(np.corrcoef(standardised.T)[0, 1]) < 5 / math.sqrt(N_DRAWS)
    np.testing.assert_array_equal(parameters, before)
    np.testing.assert_array_equal(squashed(2).sample(parameters, noise), np.tanh(actions))


@pytest.mark.parametrize("start", [0.0, -2.0])
def test_log_std_is_a_parameter_that_all_states_share(start: float) -> None:
    head = DiagonalGaussian(box(2), 3, start)
    parameters = head(torch.randn(4, 5, 3))
    assert parameters.shape == (4, 5, 4)
    assert (parameters[..., 2:] == start).all()
    (gradient,) = torch.autograd.grad(parameters[..., 2:].sum(), head.log_std)
    assert gradient.tolist() == [20.0, 20.0]


def test_descriptions_and_modes() -> None:
    parameters = np.float32([[0.5, -2.0, 0.0, math.log(3.0)]])
    for head in (gaussian(2), squashed(2)):
        mean, std = head.describe(parameters)
        np.testing.assert_allclose(mean, [[0.5, -2.0]])
        np.testing.assert_allclose(std, [[1.0, 3.0]], rtol=1e-6)
    np.testing.assert_allclose(gaussian(2).mode(parameters), [[0.5, -2.0]])
    np.testing.assert_allclose(squashed(2).mode(parameters), np.tanh([[0.5, -2.0]]), rtol=1e-6)


def test_imitation_moves_the_mean_action_and_leaves_the_deviation_alone() -> None:
    parameters = torch.tensor([[0.5, -1.0, 0.3, 0.3]], requires_grad=True)
    expert = torch.tensor([[0.1, 0.2]])
    for head, mean in ((gaussian(2), parameters[:, :2]), (squashed(2), parameters[:, :2].tanh())):
        loss = head.imitation_loss(parameters, expert)
        torch.testing.assert_close(loss, nn.functional.mse_loss(mean, expert).reshape(1))
        (gradient,) = torch.autograd.grad(loss.sum(), parameters)
        assert gradient[:, :2].all()
        assert not gradient[:, 2:].any()


def test_numbers_can_not_be_masked() -> None:
    with pytest.raises(ZooError, match="can't be masked"):
        gaussian(2).masked(np.zeros((1, 4), np.float32), np.ones((1, 2), bool))


def transformed(parameters: Tensor) -> torch_distributions.TransformedDistribution:
    return torch_distributions.TransformedDistribution(
        normal(parameters), [torch_distributions.TanhTransform(cache_size=1)]
    )


def test_squashed_log_prob_is_that_of_a_transformed_normal() -> None:
    head, noise = squashed(2), torch.randn(6, 10, 2)
    parameters = head(torch.randn(6, 10, 3)).detach().requires_grad_()
    actions, log_prob = head.rsample(parameters, noise)
    mean, log_std = parameters.double().chunk(2, dim=-1)
    theirs = torch.tanh(mean + log_std.exp() * noise)
    expected = transformed(parameters).log_prob(theirs)
    assert log_prob.shape == (6, 10)
    torch.testing.assert_close(log_prob, expected.float(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(actions, theirs.float())
    (gradient,) = torch.autograd.grad((log_prob + actions.sum(-1)).sum(), parameters, retain_graph=True)
    (their_gradient,) = torch.autograd.grad((expected + theirs.sum(-1)).sum(), parameters)
    torch.testing.assert_close(gradient, their_gradient, rtol=1e-3, atol=1e-3)
    given_actions = 1.9 * torch.rand(6, 10, 2) - 0.95
    expected = transformed(parameters).log_prob(given_actions.double())
    torch.testing.assert_close(
        head.log_prob(parameters, given_actions), expected.float(), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.5)])
def test_probabilities_of_all_squashed_actions_add_up_to_one(mean: float, log_std: float) -> None:
    noise = torch.linspace(-9.0, 9.0, 20_001)[:, None]
    parameters = torch.tensor([[mean, log_std]]).expand(len(noise), 2)
    actions, log_prob = squashed(1).rsample(parameters, noise)
    integral = torch.trapezoid(log_prob.double().exp(), actions[:, 0].double())
    assert integral.item() == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -3.0), (-1.5, 1.0)])
def test_squashed_entropy_is_the_integral(mean: float, log_std: float) -> None:
    noise = torch.linspace(-10, 10, 100_001, dtype=torch.float64)
    u = mean + math.exp(log_std) * noise
    log_density = -0.5 * noise**2 - 0.5 * math.log(2 * math.pi) - log_std
    weight = (-0.5 * noise**2).exp() / math.sqrt(2 * math.pi)
    expected = torch.trapezoid(weight * -(log_density + 2 * u.cosh().log()), noise).item()
    parameters = torch.tensor([mean, log_std])
    assert squashed(1).entropy(parameters).item() == pytest.approx(expected, abs=0.01)
    assert squashed(1).log_prob_and_entropy(parameters, torch.zeros(1))[1] == squashed(1).entropy(parameters)


def test_everything_is_finite_where_tanh_saturates() -> None:
    for mean in (30.0, -30.0, 1000.0):
        parameters = torch.tensor([[mean, 2.0]] * 3, requires_grad=True)
        actions, log_prob = squashed(1).rsample(parameters, torch.tensor([[-2.0], [0.0], [2.0]]))
        assert log_prob.isfinite().all()
        assert (actions.abs() <= 1).all()
        assert torch.autograd.grad(log_prob.sum(), parameters)[0].isfinite().all()
        assert squashed(1).log_prob(parameters, actions).isfinite().all()


@pytest.mark.parametrize(("given_log_std", "used"), [(-100.0, LOG_STD_RANGE[0]), (100.0, LOG_STD_RANGE[1])])
def test_squashed_log_std_is_bounded(given_log_std: float, used: float) -> None:
    head = squashed(2)
    nn.init.zeros_(head.log_std.weight)
    nn.init.constant_(head.log_std.bias, given_log_std)
    assert (head(torch.randn(4, 3))[:, 2:] == used).all()


@pytest.mark.parametrize("make", [gaussian, squashed])
def test_leading_dimensions_are_free(make: Any) -> None:
    head = make(2)
    parameters, actions = head(torch.randn(3, 4, 3)), torch.rand(3, 4, 2) - 0.5
    for values in (*head.log_prob_and_entropy(parameters, actions), head.kl(parameters, parameters + 1)):
        assert values.shape == (3, 4)
    flat, _ = head.log_prob_and_entropy(parameters.flatten(0, 1), actions.flatten(0, 1))
    torch.testing.assert_close(head.log_prob(parameters, actions).flatten(), flat)
