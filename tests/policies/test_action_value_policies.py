"""ACER's policies: a value for each action, and how those of the actions of a Gaussian are made."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from zoo.policies.action_value_policies import ActionValuePolicy, StochasticDuelingPolicy
from zoo.policies.config import PolicyConfig

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
SEEN = {"observations": torch.linspace(-1.0, 1.0, 60).sin().reshape(4, 5, 3)}


def action_values(**config: Any) -> ActionValuePolicy:
    torch.manual_seed(0)
    return ActionValuePolicy(VECTOR, spaces.Discrete(4), PolicyConfig(**config))


def dueling(**config: Any) -> StochasticDuelingPolicy:
    torch.manual_seed(0)
    return StochasticDuelingPolicy(VECTOR, BOX, PolicyConfig(**config))


def widths(network: nn.Module) -> list[int]:
    return [layer.out_features for layer in network.modules() if isinstance(layer, nn.Linear)]


def spectral_norms(network: nn.Module) -> list[float]:
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    return [torch.linalg.matrix_norm(layer.weight, 2).item() for layer in layers]


def made_bold(policy: Any) -> Any:
    """Return it with weights for which no two actions are worth the same."""
    with torch.no_grad():
        for parameter in policy.parameters():
            nn.init.normal_(parameter, std=0.5)
    return policy


def test_there_is_a_value_for_each_action_and_their_mean_is_that_under_the_policy() -> None:
    policy = made_bold(action_values(net_arch=[8]))
    logits, values, state = policy(SEEN)
    assert values.shape == logits.shape == (4, 5, 4)
    assert state is None
    probabilities = logits.exp() / logits.exp().sum(-1, keepdim=True)
    expected = sum(probabilities[..., action] * values[..., action] for action in range(4))
    torch.testing.assert_close(policy.values(SEEN), expected)


def test_forbidden_actions_are_worth_nothing_to_the_mean() -> None:
    policy, masks = made_bold(action_values(net_arch=[8])), torch.tensor([False, False, True, False])
    seen = {**SEEN, "action_masks": masks.expand(4, 5, 4)}
    torch.testing.assert_close(policy.values(seen), policy(seen)[1][..., 2])


def test_first_action_values_are_near_zero() -> None:
    critic = action_values(net_arch=[8, 8]).critic
    assert widths(critic) == [8, 8, 4]
    assert spectral_norms(critic) == pytest.approx([math.sqrt(2), math.sqrt(2), 0.01], rel=1e-4)
    assert spectral_norms(action_values(net_arch=[8], ortho_init=False).critic)[-1] > 0.1


@pytest.mark.parametrize(
    ("net_arch", "hidden"),
    [([], [64, 64]), ([16, 8], [16, 8]), ({"pi": [8], "vf": [4]}, [4]), ({"shared": [8]}, [64, 64])],
)
def test_advantages_have_the_critics_layers_and_never_none(net_arch: Any, hidden: list[int]) -> None:
    policy = dueling(net_arch=net_arch)
    assert widths(policy.advantage) == [*hidden, 1]
    assert policy.advantage.input_size == policy.critic.input_size + 3
    gains = [math.sqrt(2)] * len(hidden) + [1.0]
    assert spectral_norms(policy.advantage) == pytest.approx(gains, rel=1e-4)


def test_an_action_is_worth_its_advantage_over_the_mean_of_those_that_are_drawn() -> None:
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


def test_no_gradient_flows_through_drawn_actions() -> None:
    parameters = torch.randn(5, 6, requires_grad=True)
    assert not dueling(net_arch=[8]).drawn(parameters, torch.randn(3, 5, 3)).requires_grad


@pytest.mark.parametrize("missing", ["actions", "noise"])
def test_without_actions_or_noise_there_is_one_value_of_each_state(missing: str) -> None:
    policy = dueling(net_arch=[8])
    given = {"actions": torch.randn(4, 5, 3), "noise": torch.randn(4, 4, 5, 3), missing: None}
    torch.testing.assert_close(policy(SEEN, **given)[1], policy.values(SEEN))
