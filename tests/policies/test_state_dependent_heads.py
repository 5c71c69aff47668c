"""Heads with noise φ(s)·W, against closed forms, torch's distributions and their own draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch import distributions as torch_distributions

from zoo.policies.acting import ActingPolicy
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.config import PolicyConfig
from zoo.policies.squashed_actor import SquashedActor
from zoo.policies.state_dependent_heads import (
    SquashedStateDependentGaussian,
    StateDependentGaussian,
    expln,
)

N, F = 2, 5
BOX = spaces.Box(-1.0, 1.0, (N,), np.float32)
VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
KINDS = pytest.mark.parametrize("full_std", [True, False], ids=["full", "by feature"])
CURVES = pytest.mark.parametrize("use_expln", [False, True], ids=["exp", "expln"])


def head(
    squash: bool = False, *, learns: bool = True, usual_bound: float = 0.0, **fields: Any
) -> StateDependentGaussian:
    torch.manual_seed(0)
    head_class = SquashedStateDependentGaussian if squash else StateDependentGaussian
    made = head_class(
        BOX, F, PolicyConfig(**fields), learns_features=learns, log_std_init=-1.0, clip_mean=usual_bound
    )
    with torch.no_grad():
        made.log_std.add_(torch.randn_like(made.log_std))
    return made


def deviations(made: StateDependentGaussian) -> Tensor:
    """Return σ (features, actions) in double precision, written out."""
    log_std = made.log_std.detach().double().expand(F, N)
    if not made.use_expln:
        return log_std.exp()
    sizes = [1 + np.log(1 + x) if x > 0 else np.exp(x) for x in log_std.flatten().tolist()]
    return torch.tensor(sizes).reshape(F, N)


def normal(made: StateDependentGaussian, features: Tensor) -> torch_distributions.Normal:
    """Return the distribution of each action in double precision, written out."""
    features = features.detach().double()
    mean = features @ made.mean.weight.detach().double().T + made.mean.bias.detach().double()
    sizes = deviations(made)
    variance = torch.stack([(features**2 * sizes[:, j] ** 2).sum(-1) for j in range(N)], dim=-1)
    return torch_distributions.Normal(mean, (variance + 1e-6).sqrt())


@KINDS
@CURVES
def test_parameters_are_mean_deviation_and_features(full_std: bool, use_expln: bool) -> None:
    made = head(full_std=full_std, use_expln=use_expln)
    assert made.log_std.shape == (F, N if full_std else 1)
    features = torch.randn(3, 4, F)
    parameters = made(features)
    assert parameters.shape == (3, 4, made.parameter_size)
    expected = normal(made, features)
    mean, std = made.describe(parameters.detach().numpy())
    np.testing.assert_allclose(mean, expected.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(std, expected.stddev, rtol=1e-4)
    torch.testing.assert_close(parameters[..., 2 * N :], features)
    np.testing.assert_array_equal(made.mode(parameters.detach().numpy()), mean)


@KINDS
@CURVES
def test_noise_has_the_variance_that_the_log_probability_knows(full_std: bool, use_expln: bool) -> None:
    made, n_draws = head(full_std=full_std, use_expln=use_expln), 40_000
    features = torch.randn(1, F)
    parameters = made(features).detach().numpy()
    noise = made.noise(np.random.default_rng(0), (n_draws,))
    assert noise.shape == (n_draws, made.noise_size) == (n_draws, F * N)
    drawn = made.sample(np.tile(parameters, (n_draws, 1)), noise)
    assert drawn.dtype == np.float32
    expected = normal(made, features)
    within = 6 / np.sqrt(n_draws)
    np.testing.assert_allclose(
        (drawn - expected.mean.numpy()).mean(0), 0, atol=within * float(expected.stddev.max())
    )
    np.testing.assert_allclose(drawn.var(0), expected.variance[0], rtol=within)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < within
    weights = noise.reshape(n_draws, F, N)
    np.testing.assert_allclose(weights.std(0), deviations(made), rtol=within)


def test_each_row_has_noise_by_its_own_weights() -> None:
    made = head()
    parameters = made(torch.randn(6, F)).detach().numpy()
    noise = made.noise(np.random.default_rng(0), (6,))
    slow = np.zeros((6, N))
    for row in range(6):
        for action in range(N):
            for feature in range(F):
                weight = noise[row].reshape(F, N)[feature, action]
                slow[row, action] += parameters[row, 2 * N + feature] * weight
    np.testing.assert_allclose(made.sample(parameters, noise), parameters[:, :N] + slow, rtol=1e-4, atol=1e-5)
    squashing = head(squash=True)
    np.testing.assert_allclose(
        squashing.sample(parameters, noise), np.tanh(parameters[:, :N] + slow), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(squashing.mode(parameters), np.tanh(parameters[:, :N]), rtol=1e-6)


@KINDS
def test_log_probability_entropy_and_divergence_are_a_normals(full_std: bool) -> None:
    made, other = head(full_std=full_std), head(full_std=full_std, use_expln=True)
    features, actions = torch.randn(7, F), torch.randn(7, N)
    parameters, expected = made(features), normal(made, features)
    log_prob, entropy = made.log_prob_and_entropy(parameters, actions)
    close: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4, "check_dtype": False}
    torch.testing.assert_close(log_prob, expected.log_prob(actions.double()).sum(-1), **close)
    torch.testing.assert_close(entropy, expected.entropy().sum(-1), **close)
    torch.testing.assert_close(made.log_prob(parameters, actions), log_prob)
    torch.testing.assert_close(made.entropy(parameters), entropy)
    divergence = torch_distributions.kl_divergence(expected, normal(other, features)).sum(-1)
    torch.testing.assert_close(made.kl(parameters, other(features)), divergence, **close)
    error = (expected.mean - actions).square().mean(-1)
    torch.testing.assert_close(made.imitation_loss(parameters, actions), error, **close)


def test_squashed_log_probability_is_a_transformed_normals() -> None:
    made = head(squash=True).double()
    assert isinstance(made, SquashedStateDependentGaussian)
    features, noise = torch.randn(7, F).double(), torch.randn(7, N).double()
    parameters, gaussian = made(features), normal(made, features)
    actions, log_prob = made.rsample(parameters, noise)
    unsquashed = gaussian.mean + gaussian.stddev * noise
    transformed = torch_distributions.TransformedDistribution(
        gaussian, [torch_distributions.TanhTransform(cache_size=1)]
    )
    torch.testing.assert_close(actions, unsquashed.tanh())
    expected = transformed.log_prob(unsquashed.tanh()).sum(-1)
    torch.testing.assert_close(log_prob, expected)
    torch.testing.assert_close(made.log_prob(parameters, actions), expected)
    many = gaussian.mean + gaussian.stddev * torch.randn(40_000, 7, N).double()
    surprise = -(gaussian.log_prob(many) - torch.log1p(-many.tanh().square())).sum(-1)
    torch.testing.assert_close(made.entropy(parameters), surprise.mean(0), rtol=0, atol=0.05)


@pytest.mark.parametrize("learns", [True, False])
def test_only_where_they_are_learned_features_get_gradients_of_the_deviation(learns: bool) -> None:
    made, features = head(learns=learns), torch.randn(6, F, requires_grad=True)
    log_prob, entropy = made.log_prob_and_entropy(made(features), torch.randn(6, N))
    by_entropy = torch.autograd.grad(
        entropy.sum(), [features, made.log_std], retain_graph=True, allow_unused=True
    )
    assert (by_entropy[0] is not None and bool(by_entropy[0].any())) == learns
    assert by_entropy[1] is not None
    assert by_entropy[1].all()
    by_mean, through_mean = torch.autograd.grad(log_prob.sum(), [features, made.mean.weight])
    assert by_mean.any()
    assert through_mean.any()


def test_gradients_are_the_mean_of_those_through_the_weights() -> None:
    """Of E f(a), by a number for each action as by a W for each sample, in the closed form of a quadratic."""
    made = head(squash=True, use_expln=True).double()
    assert isinstance(made, SquashedStateDependentGaussian)
    row = torch.randn(1, F).double().requires_grad_()
    of = [row, made.log_std, made.mean.weight, made.mean.bias]
    n_draws = 200_000
    wanted = torch.tensor([0.3, -0.2]).double()
    generator = torch.Generator().manual_seed(0)

    def gradients(actions: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad((actions - wanted).square().sum(-1).mean(), of))

    standard = torch.randn(n_draws, N, generator=generator, dtype=torch.float64)
    ours = gradients(made.rsample(made(row).expand(n_draws, -1), standard)[0])
    weights = made.deviations() * torch.randn(n_draws, F, N, generator=generator, dtype=torch.float64)
    through_weights = gradients(torch.tanh(made.mean(row) + torch.einsum("bf,nfa->na", row, weights)))
    for one, other in zip(ours, through_weights, strict=True):
        assert one.abs().max() > 0.01
        torch.testing.assert_close(one, other, rtol=0.03, atol=0.01)


def test_means_are_clipped_where_a_bound_is_given() -> None:
    features = 50 * torch.randn(20, F)
    free = head()(features)[:, :N]
    assert free.abs().max() > 2
    clipped = head(usual_bound=2.0)(features)[:, :N]
    torch.testing.assert_close(clipped, free.clamp(-2, 2))
    torch.testing.assert_close(head(clip_mean=2.0)(features)[:, :N], clipped)
    torch.testing.assert_close(head(usual_bound=2.0, clip_mean=0.0)(features)[:, :N], free)


def test_expln_is_smooth_at_zero_and_slower_than_exp_above() -> None:
    values = torch.tensor([-3.0, -1e-3, 0.0, 1e-3, 2.0], dtype=torch.float64, requires_grad=True)
    sizes = expln(values)
    expected = [np.exp(-3.0), np.exp(-1e-3), 1.0, 1 + np.log1p(1e-3), 1 + np.log(3)]
    np.testing.assert_allclose(sizes.detach(), expected)
    (slopes,) = torch.autograd.grad(sizes.sum(), values)
    np.testing.assert_allclose(slopes, [np.exp(-3.0), np.exp(-1e-3), 1.0, 1 / 1.001, 1 / 3])


def test_where_the_features_vanish_the_density_stays_finite() -> None:
    made, features = head(), torch.zeros(2, F, requires_grad=True)
    log_prob, entropy = made.log_prob_and_entropy(made(features), torch.zeros(2, N))
    gradients = torch.autograd.grad((log_prob + entropy).sum(), [features, made.log_std])
    assert all(bool(each.isfinite().all()) for each in (log_prob, entropy, *gradients))


POLICIES: dict[str, Any] = {
    "on-policy": lambda **fields: ActorCritic(VECTOR, BOX, PolicyConfig(**fields), use_sde=True),
    "off-policy": lambda **fields: SquashedActor(VECTOR, BOX, PolicyConfig(**fields), use_sde=True),
}


@KINDS
@CURVES
@pytest.mark.parametrize("clip_mean", [0.5, 0.0])
@pytest.mark.parametrize("name", POLICIES)
def test_numpy_gives_what_torch_gives(name: str, clip_mean: float, full_std: bool, use_expln: bool) -> None:
    policy = POLICIES[name](net_arch=[8], full_std=full_std, use_expln=use_expln, clip_mean=clip_mean)
    acting, rng = ActingPolicy(policy), np.random.default_rng(0)
    assert acting.uses_numpy
    for _ in range(2):
        with torch.no_grad():
            for parameter in policy.parameters():
                torch.nn.init.normal_(parameter)
        observations = rng.normal(size=(6, 3)).astype(np.float32)
        with torch.no_grad():
            expected, _ = policy.action_parameters({"observations": torch.from_numpy(observations)})
        found, _ = acting.parameters({"observations": observations})
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_linear_policies_take_the_observation_for_the_features() -> None:
    policy = POLICIES["on-policy"](net_arch=[])
    observations = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    before = observations.copy()
    parameters, _ = ActingPolicy(policy).parameters({"observations": observations})
    np.testing.assert_array_equal(parameters[:, 2 * N :], observations)
    np.testing.assert_array_equal(observations, before)


def test_each_family_has_its_own_defaults() -> None:
    torch.manual_seed(0)
    on_policy, off_policy = POLICIES["on-policy"]().head, POLICIES["off-policy"]().head
    assert type(on_policy) is StateDependentGaussian
    assert type(off_policy) is SquashedStateDependentGaussian
    assert (on_policy.learns_features, on_policy.clip_mean) == (False, 0.0)
    assert (off_policy.learns_features, off_policy.clip_mean) == (True, 2.0)
    assert (on_policy.log_std == 0).all()
    assert (off_policy.log_std == -3).all()
    for name in POLICIES:
        for start in (-2.0, -2):
            given = POLICIES[name](log_std_init=start).head.log_std
            assert given.dtype == torch.float32
            assert (given == -2).all()
    squashed = POLICIES["on-policy"](squash_output=True).head
    assert type(squashed) is SquashedStateDependentGaussian
    assert not squashed.learns_features
