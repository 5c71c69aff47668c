"""The deterministic actor: its layers, actions within bounds, and no randomness of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from zoo.errors import ZooError
from zoo.policies.acting import ActingPolicy
from zoo.policies.codecs import make_codec
from zoo.policies.config import policy_preset
from zoo.policies.deterministic_actor import DeterministicActor
from zoo.policies.exploration import NormalNoise, StochasticExploration

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = spaces.Box(-2.0, 2.0, (2,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)


def actor(
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


@pytest.mark.parametrize(
    ("net_arch", "widths"),
    [(None, [400, 300]), ([], []), ([32, 16], [32, 16]), ({"pi": [8], "qf": [4]}, [8])],
)
def test_widths_come_before_the_action(net_arch: Any, widths: list[int]) -> None:
    assert hidden_widths(actor(net_arch=net_arch)) == [*widths, 2]


def test_an_algorithm_has_widths_of_its_own_where_the_config_names_none() -> None:
    assert hidden_widths(actor(options={"widths": [64, 64]})) == [64, 64, 2]
    assert hidden_widths(actor(options={"widths": [64, 64]}, net_arch=[8])) == [8, 2]


def test_parameters_are_actions_within_bounds_behind_any_leading_dimensions() -> None:
    network, observations = actor(net_arch=[8]), 100.0 * torch.randn(2, 5, 3)
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
    actions, _ = ActingPolicy(actor(space, name, features_dim=8, net_arch=[8])).act(batch, None)
    assert actions.shape == (1, 2)
    assert np.abs(actions).max() <= 1


def test_layer_norm_comes_from_the_policys_config() -> None:
    kinds = [type(layer) for layer in actor(name="LnMlpPolicy", net_arch=[8]).trunk]
    assert kinds == [nn.Linear, nn.LayerNorm, nn.ReLU]


def test_first_actions_are_near_zero_with_a_small_last_layer() -> None:
    network = actor(options={"last_layer_range": 3e-3})
    weights = network.head.action.weight
    assert 2.9e-3 < weights.abs().max() <= 3e-3
    assert weights.std().item() == pytest.approx(3e-3 / 3**0.5, rel=0.1)
    assert not network.head.action.bias.any()
    assert network(torch.randn(50, 3)).abs().max() < 0.05
    assert actor()(torch.randn(50, 3)).abs().max() > 0.05


def test_there_is_nothing_to_draw() -> None:
    head, rng = actor().head, np.random.default_rng(0)
    before = rng.bit_generator.state
    noise = head.noise(rng, (4,))
    assert noise.shape == (4, head.noise_size) == (4, 0)
    assert rng.bit_generator.state == before
    parameters = np.random.default_rng(1).uniform(-1, 1, (4, 2)).astype(np.float32)
    np.testing.assert_array_equal(head.sample(parameters, noise), parameters)
    np.testing.assert_array_equal(head.mode(parameters), parameters)


def test_exploring_adds_noise_within_bounds() -> None:
    codec = make_codec(ACTIONS, scaled=True)
    acting = ActingPolicy(actor(net_arch=[8]))
    exploration = StochasticExploration(acting, codec, NormalNoise(0.5, 2))
    seen = {"observations": np.random.default_rng(0).normal(size=(2000, 3)).astype(np.float32)}
    explored = exploration.act(seen, np.random.default_rng(1), 0.0)
    plain, _ = acting.act(seen, None)
    assert np.abs(explored).max() == 1.0
    inside = (np.abs(plain) < 0.2).all(1)
    assert (explored - plain)[inside].std() == pytest.approx(0.46, rel=0.1)  # a little is cut off


def test_mean_and_deviation_are_the_action_and_zero() -> None:
    parameters = np.array([[0.5, -1.0]], np.float32)
    mean, deviation = actor().head.describe(parameters)
    assert mean.tolist() == [[0.5, -1.0]]
    assert deviation.tolist() == [[0.0, 0.0]]


def test_what_follows_from_a_density_is_refused() -> None:
    head, actions = actor().head, torch.zeros(1, 2)
    for ask in (head.entropy, lambda each: head.log_prob(each, each), lambda each: head.kl(each, each)):
        with pytest.raises(TypeError, match="no density"):
            ask(actions)
    with pytest.raises(ZooError, match="can't be masked"):
        head.masked(actions, np.ones((1, 2), bool))


def test_imitating_is_the_squared_distance_to_an_experts_action() -> None:
    loss = actor().head.imitation_loss(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, -0.5]]))
    assert loss.tolist() == [pytest.approx(0.625)]
    assert actor().head.imitation_loss(torch.zeros(4, 3, 2), torch.zeros(4, 3, 2)).shape == (4, 3)


def test_first_weights_are_pytorchs_unless_asked_otherwise() -> None:
    assert actor().trunk[0].bias.any()
    assert not actor(ortho_init=True).trunk[0].bias.any()


def test_unknown_network_in_net_arch_is_named() -> None:
    with pytest.raises(ZooError, match=r"unknown key `policy.net_arch.vf`; known: pi, qf"):
        actor(net_arch={"pi": [8], "vf": [8]})
