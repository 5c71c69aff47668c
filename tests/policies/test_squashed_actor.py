"""The squashed Gaussian against torch's transformed distribution and numeric integrals; the critics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, distributions, nn

from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig
from zoo.policies.squashed_actor import LOG_STD_RANGE, ContinuousCritics, SquashedActor, Temperature

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = spaces.Box(-2.0, 2.0, (2,), np.float32)

bounds = st.floats(-1000, 1000, width=32, allow_subnormal=False)


def actor(actions: spaces.Space[Any] = ACTIONS, **config: Any) -> SquashedActor:
    torch.manual_seed(0)
    return SquashedActor(OBSERVATIONS, actions, PolicyConfig(net_arch=[8], **config))


def fixed_actor(mean: list[float], log_std: list[float]) -> SquashedActor:
    """Return an actor whose Gaussian is the same for every observation."""
    network = actor(spaces.Box(-1.0, 1.0, (len(mean),), np.float32))
    for layer, values in ((network.mean, mean), (network.log_std, log_std)):
        nn.init.zeros_(layer.weight)
        layer.bias.data = torch.tensor(values)
    return network


def test_log_prob_is_that_of_a_transformed_normal() -> None:
    network = actor()
    observations, noise = torch.randn(64, 3), torch.randn(64, 2)
    actions, log_prob = network(observations, noise)
    mean, log_std = network.latent(observations).double().chunk(2, dim=-1)
    normal = distributions.Normal(mean, log_std.exp())
    squashed = distributions.TransformedDistribution(
        distributions.Independent(normal, 1), [distributions.TanhTransform(cache_size=1)]
    )
    expected = squashed.log_prob(torch.tanh(mean + log_std.exp() * noise.double()))
    assert log_prob.shape == (64,)
    torch.testing.assert_close(log_prob, expected.float(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(actions, torch.tanh(mean + log_std.exp() * noise).float())


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.5)])
def test_probabilities_of_all_actions_add_up_to_one(mean: float, log_std: float) -> None:
    network = fixed_actor([mean], [log_std])
    noise = torch.linspace(-9.0, 9.0, 20_001)[:, None]
    actions, log_prob = network(torch.zeros(len(noise), 3), noise)
    integral = torch.trapezoid(log_prob.double().exp(), actions[:, 0].double())
    assert integral.item() == pytest.approx(1.0, abs=2e-3)


def test_mean_log_prob_of_draws_is_the_integral() -> None:
    network = fixed_actor([0.0], [0.0])
    _, log_prob = network(torch.zeros(100_000, 3), torch.randn(100_000, 1))
    u = torch.linspace(-10, 10, 100_001, dtype=torch.float64)
    log_density = -0.5 * u**2 - 0.5 * math.log(2 * math.pi)
    log_volume = -2 * u.cosh().log()
    expected = torch.trapezoid(log_density.exp() * (log_density - log_volume), u).item()
    assert log_prob.mean().item() == pytest.approx(expected, abs=0.02)


def test_everything_is_finite_where_tanh_saturates() -> None:
    for mean in (30.0, -30.0, 1000.0):
        network = fixed_actor([mean], [2.0])
        actions, log_prob = network(torch.zeros(3, 3), torch.tensor([[-2.0], [0.0], [2.0]]))
        assert log_prob.isfinite().all()
        assert (actions.abs() <= 1).all()
        gradients = torch.autograd.grad(log_prob.sum(), [network.mean.bias, network.log_std.bias])
        assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize(("given_log_std", "used"), [(-100.0, LOG_STD_RANGE[0]), (100.0, LOG_STD_RANGE[1])])
def test_log_std_is_bounded(given_log_std: float, used: float) -> None:
    noise = torch.tensor([[0.5]])
    actions, log_prob = fixed_actor([0.1], [given_log_std])(torch.zeros(1, 3), noise)
    expected, expected_log_prob = fixed_actor([0.1], [used])(torch.zeros(1, 3), noise)
    assert torch.equal(actions, expected)
    assert torch.equal(log_prob, expected_log_prob)


def test_the_mode_is_the_squashed_mean() -> None:
    network = fixed_actor([0.5, -2.0], [0.0, 0.0])
    assert torch.equal(network.mode(torch.zeros(1, 3)), torch.tanh(torch.tensor([[0.5, -2.0]])))


@pytest.mark.parametrize("config", [{}, {"layer_norm": True}, {"activation": "tanh"}])
def test_acting_on_arrays_is_acting_through_modules(config: dict[str, Any]) -> None:
    network = actor(**config)
    latent = network.numpy_latent()
    assert latent is not None
    observations = torch.randn(6, 3)
    for _ in range(2):
        np.testing.assert_allclose(
            latent(observations.numpy()), network.latent(observations).detach().numpy(), rtol=1e-4, atol=1e-5
        )
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.1)


def test_actions_are_scaled_to_the_environments_bounds() -> None:
    network = actor(spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0])))
    actions = np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]], np.float32)
    assert network.to_env(actions).tolist() == [[-2.0, 0.0], [0.0, 5.0], [2.0, 10.0]]


@given(low=bounds, high=bounds, action=st.floats(-1, 1, width=32, allow_subnormal=False))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_no_action_leaves_the_environments_bounds(low: float, high: float, action: float) -> None:
    if low > high:
        low, high = high, low
    space = spaces.Box(low, high, (1,), np.float32)
    network = actor(space)
    for value in (-1.0, action, 1.0):
        row = network.to_env(np.array([[value]], np.float32))[0]
        assert space.contains(row), (row, low, high)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_actions_take_the_environments_shape(shape: tuple[int, ...]) -> None:
    space = spaces.Box(-1.0, 1.0, shape, np.float64)
    network = actor(space)
    rows = network.to_env(np.zeros((4, math.prod(shape)), np.float32))
    assert rows.shape == (4, *shape)
    assert rows.dtype == np.float64


def test_unbounded_actions_are_refused() -> None:
    with pytest.raises(ZooError, match="finite bounds"):
        actor(spaces.Box(-np.inf, np.inf, (1,), np.float32))


def critics(n_critics: int, **config: Any) -> ContinuousCritics:
    torch.manual_seed(0)
    return ContinuousCritics(OBSERVATIONS, ACTIONS, PolicyConfig(**config), n_critics=n_critics)


def test_each_critic_has_weights_of_its_own_and_reads_observation_and_action() -> None:
    network = critics(3, net_arch=[8])
    observations, actions = torch.randn(5, 3), torch.randn(5, 2)
    values = network(observations, actions)
    assert values.shape == (3, 5)
    assert not torch.allclose(values[0], values[1])
    assert not torch.allclose(values, network(observations + 1, actions))
    assert not torch.allclose(values, network(observations, actions + 1))
    pairs = torch.cat([observations, actions], dim=1)
    torch.testing.assert_close(values[1], network.critics[1](pairs)[:, 0])


def hidden_widths(network: nn.Module) -> list[int]:
    return [layer.out_features for layer in network.modules() if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize(
    ("net_arch", "pi", "qf"),
    [
        (None, [256, 256], [256, 256]),
        ([], [], []),
        ([32, 16], [32, 16], [32, 16]),
        ({"pi": [8], "qf": [16, 4]}, [8], [16, 4]),
    ],
)
def test_widths_of_actor_and_critics(net_arch: Any, pi: list[int], qf: list[int]) -> None:
    config = PolicyConfig(net_arch=net_arch)
    network = SquashedActor(OBSERVATIONS, ACTIONS, config)
    assert hidden_widths(network) == [*pi, 2, 2]
    assert hidden_widths(critics(2, net_arch=net_arch)) == [*qf, 1] * 2


def test_unknown_network_in_net_arch_is_named() -> None:
    with pytest.raises(ZooError, match=r"unknown key `policy.net_arch.vf`; known: pi, qf"):
        actor().__class__(OBSERVATIONS, ACTIONS, PolicyConfig(net_arch={"pi": [8], "vf": [8]}))


def test_temperature_is_kept_as_its_logarithm() -> None:
    log_coefficient: Tensor = Temperature(0.2)()
    assert log_coefficient.shape == ()
    assert log_coefficient.item() == pytest.approx(math.log(0.2))
