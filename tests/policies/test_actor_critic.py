"""The policies of on-policy algorithms: which layers they share, their values, their first weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from own_policies import preset, sampled, widths
from torch import Tensor, nn

from zoo.buffers.arrays import transform
from zoo.policies.actor_critic import ActionValuePolicy, ActorCritic, StochasticDuelingPolicy
from zoo.policies.config import PolicyConfig

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)
DICT = spaces.Dict({"vector": VECTOR, "image": IMAGE, "number": spaces.Discrete(3)})
ACTIONS: list[spaces.Space[Any]] = [
    spaces.Discrete(4, start=2),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(3),
    spaces.Box(-1.0, 1.0, (2,), np.float32),
]


def policy(
    observations: spaces.Space[Any] = VECTOR,
    actions: spaces.Space[Any] = ACTIONS[0],
    name: str = "MlpPolicy",
    **fields: Any,
) -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(observations, actions, preset(name, **fields))


def batch(space: spaces.Space[Any]) -> Any:
    return transform(torch.from_numpy, sampled(space))


@pytest.mark.parametrize("actions", ACTIONS, ids=str)
@pytest.mark.parametrize(
    ("observations", "name"),
    [
        (VECTOR, "MlpPolicy"),
        (spaces.Discrete(3), "MlpPolicy"),
        (IMAGE, "CnnPolicy"),
        (DICT, "MultiInputPolicy"),
    ],
    ids=["vector", "number", "image", "dict"],
)
def test_forward_agrees_with_the_parts(observations: Any, name: str, actions: spaces.Space[Any]) -> None:
    network, observed = policy(observations, actions, name), batch(observations)
    parameters, values, state = network({"observations": observed})
    assert parameters.shape == (6, network.head.parameter_size)
    assert values.shape == (6,)
    assert state is None
    alone, state = network.action_parameters({"observations": observed})
    assert state is None
    torch.testing.assert_close(alone, parameters)
    torch.testing.assert_close(network.values({"observations": observed}), values)
    shaped = {"observations": transform(lambda rows: rows.reshape(2, 3, *rows.shape[1:]), observed)}
    shaped_parameters, shaped_values, _ = network(shaped)
    torch.testing.assert_close(shaped_parameters, parameters.reshape(2, 3, -1))
    torch.testing.assert_close(shaped_values, values.reshape(2, 3))


@pytest.mark.parametrize(
    ("net_arch", "shared", "pi", "vf"),
    [
        (None, [], [64, 64], [64, 64]),
        ([], [], [], []),
        ([32], [], [32], [32]),
        ({"pi": [8], "vf": [16, 4]}, [], [8], [16, 4]),
        ({"shared": [32], "pi": [8], "vf": []}, [32], [8], []),
        ({"vf": [16]}, [], [], [16]),
    ],
)
def test_forms_of_net_arch(net_arch: Any, shared: list[int], pi: list[int], vf: list[int]) -> None:
    network = policy(net_arch=net_arch)
    assert widths(network.shared) == shared
    assert widths(network.actor) == pi
    assert network.head.logits.in_features == [network.shared.output_size, *pi][-1]
    assert widths(network.critic) == [*vf, 1]
    network({"observations": batch(VECTOR)})


@pytest.mark.parametrize("share", [True, False])
def test_encoders_are_shared_or_separate(share: bool) -> None:
    network, observed = policy(IMAGE, name="CnnPolicy", share_encoder=share), batch(IMAGE)
    parameters, values, _ = network({"observations": observed})
    torch.testing.assert_close(values, network.values({"observations": observed}))

    def reaches(output: Tensor, encoder: nn.Module) -> bool:
        of = list(encoder.parameters())
        gradients = torch.autograd.grad(output.sum(), of, allow_unused=True, retain_graph=True)
        return any(gradient is not None and bool(gradient.any()) for gradient in gradients)

    assert reaches(values, network.encoder) == share
    assert reaches(parameters, network.encoder)
    if not share:
        assert network.critic_encoder is not None
        assert reaches(values, network.critic_encoder)
        assert not reaches(parameters, network.critic_encoder)


def spectral_norms(network: nn.Module) -> list[float]:
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    return [torch.linalg.matrix_norm(layer.weight, 2).item() for layer in layers]


def test_initial_weights_are_orthogonal_and_head_small() -> None:
    network = policy()
    assert spectral_norms(network.actor) == pytest.approx([math.sqrt(2), math.sqrt(2)], rel=1e-4)
    assert spectral_norms(network.head) == pytest.approx([0.01], rel=1e-4)
    assert spectral_norms(network.critic) == pytest.approx([math.sqrt(2), math.sqrt(2), 1.0], rel=1e-4)
    probabilities = network({"observations": batch(VECTOR)})[0].softmax(-1)
    torch.testing.assert_close(probabilities, torch.full((6, 4), 0.25), atol=0.02, rtol=0)


THREE_NUMBERS = spaces.Box(-1.0, 1.0, (3,), np.float32)
SEEN = {"observations": torch.linspace(-1.0, 1.0, 60).sin().reshape(4, 5, 3)}


def action_values(**config: Any) -> ActionValuePolicy:
    torch.manual_seed(0)
    return ActionValuePolicy(VECTOR, spaces.Discrete(4), PolicyConfig(**config))


def dueling(**config: Any) -> StochasticDuelingPolicy:
    torch.manual_seed(0)
    return StochasticDuelingPolicy(VECTOR, THREE_NUMBERS, PolicyConfig(**config))


def made_bold(policy: Any) -> Any:
    """Return it with weights for which no two actions are worth the same."""
    with torch.no_grad():
        for parameter in policy.parameters():
            nn.init.normal_(parameter, std=0.5)
    return policy


def test_state_value_is_policy_mean_of_action_values() -> None:
    policy = made_bold(action_values(net_arch=[8]))
    logits, values, state = policy(SEEN)
    assert values.shape == logits.shape == (4, 5, 4)
    assert state is None
    probabilities = logits.exp() / logits.exp().sum(-1, keepdim=True)
    expected = sum(probabilities[..., action] * values[..., action] for action in range(4))
    torch.testing.assert_close(policy.values(SEEN), expected)


@pytest.mark.parametrize(
    ("net_arch", "hidden"),
    [([], [64, 64]), ([16, 8], [16, 8]), ({"pi": [8], "vf": [4]}, [4]), ({"shared": [8]}, [64, 64])],
)
def test_advantage_network_has_the_critics_layers(net_arch: Any, hidden: list[int]) -> None:
    policy = dueling(net_arch=net_arch)
    assert widths(policy.advantage) == [*hidden, 1]
    assert policy.advantage.input_size == policy.critic.input_size + 3
    gains = [math.sqrt(2)] * len(hidden) + [1.0]
    assert spectral_norms(policy.advantage) == pytest.approx(gains, rel=1e-4)


def test_action_values_centre_advantages_by_sampling() -> None:
    policy = made_bold(dueling(net_arch=[8]))
    actions, noise = torch.randn(4, 5, 3), torch.randn(1 + 3, 4, 5, 3)
    parameters, values, _ = policy(SEEN)
    again, (state_values, of_actions, of_drawn), _ = policy(SEEN, None, actions, noise)
    torch.testing.assert_close(again, parameters)
    torch.testing.assert_close(state_values, values)
    torch.testing.assert_close(values, policy.values(SEEN))
    for row in np.ndindex(4, 5):
        features = policy.shared(policy.encoder(SEEN["observations"][row]))
        mean, deviation = parameters[row][:3], parameters[row][3:].exp()

        def advantage(action: Any, features: Any = features) -> Any:
            return policy.advantage(torch.cat([features, action]))[0]

        drawn = [mean + deviation * each for each in noise[(slice(None), *row)]]
        level = values[row] - sum(advantage(each) for each in drawn[1:]) / 3
        torch.testing.assert_close(of_actions[row], level + advantage(actions[row]))
        torch.testing.assert_close(of_drawn[row], level + advantage(drawn[0]))
