"""Actors and critics of continuous actions: their layers, actions within bounds, first weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.policies.acting import ActingPolicy
from zoo.policies.actions import make_action_adapter
from zoo.policies.config import PolicyConfig, policy_preset
from zoo.policies.continuous import (
    ContinuousCritics,
    DeterministicActor,
    QuantileCritics,
    SquashedActor,
    Temperature,
)
from zoo.policies.exploration import NormalNoise, StochasticExploration

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = spaces.Box(-2.0, 2.0, (2,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)


def deterministic(
    observations: spaces.Space[Any] = OBSERVATIONS,
    name: str = "MlpPolicy",
    *,
    options: Any = None,
    **fields: Any,
) -> DeterministicActor:
    torch.manual_seed(0)
    config = policy_preset(name)
    for field, value in fields.items():
        setattr(config, field, value)
    return DeterministicActor(observations, ACTIONS, config, **(options or {}))


def hidden_widths(network: nn.Module) -> list[int]:
    return [layer.out_features for layer in network.modules() if isinstance(layer, nn.Linear)]


def test_parameters_are_actions_within_bounds_behind_any_leading_dimensions() -> None:
    network, observations = deterministic(net_arch=[8]), 100.0 * torch.randn(2, 5, 3)
    actions = network(observations)
    assert actions.shape == (2, 5, 2)
    assert actions.abs().max() <= 1
    hidden = observations @ network.trunk[0].weight.T + network.trunk[0].bias
    last = hidden.clamp(min=0) @ network.head.action.weight.T + network.head.action.bias
    torch.testing.assert_close(actions, torch.tanh(last))
    again, state = network.action_parameters({"observations": observations})
    assert torch.equal(again, actions)
    assert state is None


@pytest.mark.parametrize(
    ("space", "name"),
    [(IMAGE, "CnnPolicy"), (spaces.Dict({"a": OBSERVATIONS, "b": IMAGE}), "MultiInputPolicy")],
)
def test_images_and_dictionaries_are_read_too(space: spaces.Space[Any], name: str) -> None:
    space.seed(0)
    seen = {"observations": space.sample()}
    if isinstance(space, spaces.Dict):
        batch = {"observations": {key: part[None] for key, part in seen["observations"].items()}}
    else:
        batch = {"observations": seen["observations"][None]}
    actions, _ = ActingPolicy(deterministic(space, name, features_dim=8, net_arch=[8])).act(batch, None)
    assert actions.shape == (1, 2)
    assert np.abs(actions).max() <= 1


def test_first_actions_are_near_zero_with_a_small_last_layer() -> None:
    network = deterministic(options={"last_layer_range": 3e-3})
    weights = network.head.action.weight
    assert 2.9e-3 < weights.abs().max() <= 3e-3
    assert weights.std().item() == pytest.approx(3e-3 / 3**0.5, rel=0.1)
    assert not network.head.action.bias.any()
    assert network(torch.randn(50, 3)).abs().max() < 0.05
    assert deterministic()(torch.randn(50, 3)).abs().max() > 0.05


def test_there_is_nothing_to_draw() -> None:
    head, rng = deterministic().head, np.random.default_rng(0)
    before = rng.bit_generator.state
    noise = head.noise(rng, (4,))
    assert noise.shape == (4, head.noise_size) == (4, 0)
    assert rng.bit_generator.state == before
    parameters = np.random.default_rng(1).uniform(-1, 1, (4, 2)).astype(np.float32)
    np.testing.assert_array_equal(head.sample(parameters, noise), parameters)
    np.testing.assert_array_equal(head.mode(parameters), parameters)


def test_exploring_adds_noise_within_bounds() -> None:
    action_adapter = make_action_adapter(ACTIONS, scaled=True)
    acting = ActingPolicy(deterministic(net_arch=[8]))
    exploration = StochasticExploration(acting, action_adapter, NormalNoise(0.5, 2))
    seen = {"observations": np.random.default_rng(0).normal(size=(2000, 3)).astype(np.float32)}
    explored = exploration.act(seen, np.random.default_rng(1), 0.0)
    plain, _ = acting.act(seen, None)
    assert np.abs(explored).max() == 1.0
    inside = (np.abs(plain) < 0.2).all(1)
    assert (explored - plain)[inside].std() == pytest.approx(0.46, rel=0.1)  # a little is cut off


def test_what_follows_from_a_density_is_refused() -> None:
    head, actions = deterministic().head, torch.zeros(1, 2)
    for ask in (head.entropy, lambda each: head.log_prob(each, each), lambda each: head.kl(each, each)):
        with pytest.raises(TypeError, match="no density"):
            ask(actions)
    with pytest.raises(ZooError, match="can't be masked"):
        head.masked(actions, np.ones((1, 2), bool))


def test_imitating_is_the_squared_distance_to_an_experts_action() -> None:
    loss = deterministic().head.imitation_loss(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, -0.5]]))
    assert loss.tolist() == [pytest.approx(0.625)]
    assert deterministic().head.imitation_loss(torch.zeros(4, 3, 2), torch.zeros(4, 3, 2)).shape == (4, 3)


def test_first_weights_are_pytorchs_unless_asked_otherwise() -> None:
    assert deterministic().trunk[0].bias.any()
    assert not deterministic(ortho_init=True).trunk[0].bias.any()


def squashed(**config: Any) -> SquashedActor:
    torch.manual_seed(0)
    return SquashedActor(OBSERVATIONS, ACTIONS, PolicyConfig(**config))


def critics(n_critics: int, **config: Any) -> ContinuousCritics:
    torch.manual_seed(0)
    return ContinuousCritics(OBSERVATIONS, ACTIONS, PolicyConfig(**config), n_critics=n_critics)


@pytest.mark.parametrize(
    ("net_arch", "pi", "qf"),
    [(None, None, [256, 256]), ([], [], []), ([32, 16],) * 3, ({"pi": [8], "qf": [16, 4]}, [8], [16, 4])],
)
def test_widths_are_the_configs_or_the_algorithms(net_arch: Any, pi: Any, qf: Any) -> None:
    usual = {"squashed": [256, 256], "deterministic": [400, 300]}
    assert hidden_widths(squashed(net_arch=net_arch)) == [*(usual["squashed"] if pi is None else pi), 2, 2]
    expected = [*(usual["deterministic"] if pi is None else pi), 2]
    assert hidden_widths(deterministic(net_arch=net_arch)) == expected
    assert hidden_widths(critics(2, net_arch=net_arch)) == [*qf, 1] * 2
    with pytest.raises(ZooError, match=r"unknown key `policy.net_arch.vf`; known: pi, qf"):
        squashed(net_arch={"pi": [8], "vf": [8]})


def test_parameters_are_the_heads() -> None:
    network, observations = squashed(net_arch=[8]), torch.randn(2, 5, 3)
    parameters = network(observations)
    assert parameters.shape == (2, 5, 4)
    torch.testing.assert_close(parameters, network.head(network.trunk(observations)))
    again, state = network.action_parameters({"observations": observations})
    assert torch.equal(again, parameters)
    assert state is None


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


def test_leading_dimensions_are_free() -> None:
    network, observations, actions = critics(2, net_arch=[8]), torch.randn(6, 3), torch.randn(6, 2)
    shaped = network(observations.reshape(2, 3, 3), actions.reshape(2, 3, 2))
    torch.testing.assert_close(shaped, network(observations, actions).reshape(2, 2, 3))


def test_orthogonal_weights_come_if_asked_for_and_leave_values_as_large_as_features() -> None:
    asked, usual = (critics(2, net_arch=[8], ortho_init=ortho_init).critics for ortho_init in (True, None))
    for critic in asked:
        norms = [torch.linalg.matrix_norm(critic[i].weight, 2).item() for i in (0, -1)]  # type: ignore[index]
        assert norms == pytest.approx([math.sqrt(2), 1.0], rel=1e-4)
    assert all(critic[0].bias.any() for critic in usual)  # type: ignore[index]


def test_the_first_critics_can_be_asked_alone() -> None:
    network = critics(3, net_arch=[8])
    pairs = torch.randn(5, 3), torch.randn(5, 2)
    assert torch.equal(network(*pairs, first=1), network(*pairs)[:1])
    assert torch.equal(network(*pairs, first=2), network(*pairs)[:2])


def test_quantiles_come_after_the_leading_dimensions() -> None:
    torch.manual_seed(0)
    network = QuantileCritics(OBSERVATIONS, ACTIONS, PolicyConfig(net_arch=[8]), n_critics=2, n_quantiles=5)
    observations, actions = torch.randn(4, 3, 3), torch.randn(4, 3, 2)
    quantiles = network(observations, actions)
    assert quantiles.shape == (2, 4, 3, 5)
    pairs = torch.cat([observations, actions], dim=-1)
    torch.testing.assert_close(quantiles[1], network.critics[1](pairs))


def test_temperature_is_kept_as_its_logarithm() -> None:
    log_coefficient: Tensor = Temperature(0.2)()
    assert log_coefficient.shape == ()
    assert log_coefficient.item() == pytest.approx(math.log(0.2))
