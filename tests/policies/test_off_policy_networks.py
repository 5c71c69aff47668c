"""Q-networks, and actors and critics of continuous actions: formulas, widths, masks, quantiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from own_policies import widths
from torch import nn

import zoo
from zoo.errors import ZooError
from zoo.policies.config import ActorConfig, CriticConfig, PolicyConfig
from zoo.policies.continuous import (
    ContinuousCritics,
    DeterministicActor,
    DistributionalCritics,
    DropoutNoise,
    SquashedActor,
)
from zoo.policies.q_networks import QNetwork, QuantileNetwork

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)


def q_network() -> QNetwork:
    torch.manual_seed(0)
    return QNetwork(VECTOR, spaces.Discrete(4, start=1), PolicyConfig(), dueling=True)


def test_dueling_centres_advantages_on_state_value() -> None:
    ours, observations = q_network(), torch.randn(5, 3)
    assert ours.state_value is not None
    values = ours(observations)
    torch.testing.assert_close(values.mean(-1), ours.state_value(observations)[:, 0])
    advantages = ours.advantages(observations)
    torch.testing.assert_close(
        values - values.mean(-1, keepdim=True), advantages - advantages.mean(-1, keepdim=True)
    )
    gradients = torch.autograd.grad(values[0, 0], list(ours.parameters()))
    assert all(gradient.any() for gradient in gradients[-2:])


N, N_ACTIONS = 5, 4


def quantile_network() -> QuantileNetwork:
    torch.manual_seed(0)
    return QuantileNetwork(VECTOR, spaces.Discrete(4, start=1), PolicyConfig(), n_quantiles=N, dueling=True)


def test_both_streams_are_of_quantiles() -> None:
    ours, observations = quantile_network(), torch.randn(6, 3)
    assert widths(ours.advantages) == [64, 64, N * N_ACTIONS]
    assert widths(ours.state_value) == [64, 64, N]
    assert ours.state_value is not None
    quantiles, advantages = ours(observations), ours.advantages(observations)
    values = ours.state_value(observations)
    for i in range(N):
        row = advantages[:, i * N_ACTIONS : (i + 1) * N_ACTIONS]
        expected = values[:, i, None] + row - row.mean(-1, keepdim=True)
        torch.testing.assert_close(quantiles[:, i], expected)


def test_action_values_are_quantile_means_with_masks() -> None:
    ours, observations = quantile_network(), torch.randn(6, 3)
    means, masks = ours(observations).mean(1), torch.rand(6, N_ACTIONS) < 0.5
    parameters, state = ours.action_parameters({"observations": observations, "action_masks": masks})
    assert state is None
    assert torch.equal(parameters, torch.where(masks, means, -1e8))
    assert torch.equal(ours.action_parameters({"observations": observations})[0], means)


ACTIONS = spaces.Box(-2.0, 2.0, (2,), np.float32)


def deterministic(net_arch: Any = None, **options: Any) -> DeterministicActor:
    torch.manual_seed(0)
    return DeterministicActor(VECTOR, ACTIONS, PolicyConfig(net_arch=net_arch), **options)


def test_deterministic_actor_bounds_batched_actions() -> None:
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


def test_small_last_layer_starts_actions_near_zero() -> None:
    network = deterministic(last_layer_range=3e-3)
    weights = network.head.action.weight
    assert 2.9e-3 < weights.abs().max() <= 3e-3
    assert weights.std().item() == pytest.approx(3e-3 / 3**0.5, rel=0.1)
    assert not network.head.action.bias.any()
    assert network(torch.randn(50, 3)).abs().max() < 0.05
    assert deterministic()(torch.randn(50, 3)).abs().max() > 0.05


def squashed(**config: Any) -> SquashedActor:
    torch.manual_seed(0)
    return SquashedActor(VECTOR, ACTIONS, PolicyConfig(**config))


def critics(n_critics: int, **config: Any) -> ContinuousCritics:
    torch.manual_seed(0)
    return ContinuousCritics(VECTOR, ACTIONS, PolicyConfig(**config), n_critics=n_critics)


@pytest.mark.parametrize(
    ("net_arch", "pi", "qf"),
    [(None, None, [256, 256]), ([], [], []), ([32, 16],) * 3, ({"pi": [8], "qf": [16, 4]}, [8], [16, 4])],
)
def test_widths_are_the_configs_or_the_algorithms(net_arch: Any, pi: Any, qf: Any) -> None:
    usual = {"squashed": [256, 256], "deterministic": [400, 300]}
    assert widths(squashed(net_arch=net_arch)) == [*(usual["squashed"] if pi is None else pi), 2, 2]
    expected = [*(usual["deterministic"] if pi is None else pi), 2]
    assert widths(deterministic(net_arch=net_arch)) == expected
    assert widths(critics(2, net_arch=net_arch)) == [*qf, 1] * 2
    with pytest.raises(ZooError, match=r"unknown key `policy.net_arch.vf`; known: pi, qf"):
        squashed(net_arch={"pi": [8], "vf": [8]})


def test_critics_are_independent_and_read_actions() -> None:
    network = critics(3, net_arch=[8])
    observations, actions = torch.randn(5, 3), torch.randn(5, 2)
    values = network(observations, actions)
    assert values.shape == (3, 5)
    assert not torch.allclose(values[0], values[1])
    assert not torch.allclose(values, network(observations + 1, actions))
    assert not torch.allclose(values, network(observations, actions + 1))
    pairs = torch.cat([observations, actions], dim=1)
    torch.testing.assert_close(values[1], network.critics[1](pairs)[:, 0])


@pytest.mark.parametrize("name", ["actor", "critic"])
def test_section_overrides_fields_of_its_network(name: str) -> None:
    section: Any = CriticConfig if name == "critic" else ActorConfig
    config = {name: section(layer_norm=True, net_arch=[5]), "net_arch": {"pi": [8], "qf": [9]}}
    actor, critic = squashed(**config), critics(2, **config)
    for network, is_changed, usual in ((actor.trunk, name == "actor", 8), (critic, name == "critic", 9)):
        norms = [module for module in network.modules() if isinstance(module, nn.LayerNorm)]
        assert bool(norms) == is_changed
        assert widths(network)[0] == (5 if is_changed else usual)


def test_dropout_scales_what_it_keeps() -> None:
    network = critics(2, net_arch=[6, 4], critic=CriticConfig(dropout=0.25))
    pairs = torch.randn(7, 3).double(), torch.randn(7, 2).double()
    assert network.noise_size == 2 * (6 + 4)
    factors = torch.from_numpy(DropoutNoise(0.25).draw(np.random.default_rng(0), (7, 20)))
    values = network.double()(*pairs, noise=factors)
    for index, start in enumerate((0, 10)):
        first, _, second, _, last = network.critics[index]
        hidden = torch.cat([pairs[0].float(), pairs[1]], dim=-1)
        hidden = torch.relu(first(hidden) * factors[:, start : start + 6])
        hidden = torch.relu(second(hidden) * factors[:, start + 6 : start + 10])
        torch.testing.assert_close(values[index], last(hidden)[:, 0], check_dtype=False)


def test_dropout_noise_is_drawn_anew() -> None:
    noise, rng = DropoutNoise(0.25), np.random.default_rng(0)
    draws = [noise.draw(rng, shape).copy() for shape in ((50, 20), (500, 20), (30, 20))]
    for draw in draws:
        assert set(np.unique(draw)) == {0, np.float32(1 / 0.75)}
    assert (draws[1] > 0).mean() == pytest.approx(0.75, abs=0.01)
    assert (draws[1][:30] != draws[2]).mean() == pytest.approx(2 * 0.25 * 0.75, abs=0.06)


@pytest.mark.parametrize(
    ("algorithm", "env", "policy"),
    [
        (zoo.DQN, "CartPole-v1", {"critic": {"layer_norm": True}}),
        (zoo.DQN, "CartPole-v1", {"actor": {"layer_norm": True}}),
        (zoo.ARS, "CartPole-v1", {"critic": {"layer_norm": True}}),
        (zoo.PPO2, "CartPole-v1", {"critic": {"dropout": 0.1}}),
    ],
)
def test_section_without_its_network_is_refused(algorithm: Any, env: str, policy: Any) -> None:
    with pytest.raises(ZooError, match=r"policy\.(actor|critic)"):
        algorithm(policy, env)


@pytest.mark.parametrize("algorithm", [zoo.DDPG, zoo.TD3, zoo.SAC, zoo.TQC])
def test_critics_with_fields_of_their_own_are_saved(algorithm: Any, tmp_path: Path) -> None:
    policy = {"net_arch": [8], "critic": {"layer_norm": True, "dropout": 0.5}}
    model = algorithm(policy, "Pendulum-v1", seed=0, learning_starts=10, batch_size=8, compile=False)
    model.learn(120, progress_bar=False)
    loaded = zoo.load(model.save(tmp_path / "agent"))
    assert loaded.policy_config == model.policy_config
    assert loaded.policy.critics.dropout == 0.5
    parameters = loaded.get_parameters()
    assert parameters["critics.critics.0.1.weight"].shape == (8,)
    assert not any("actor.trunk.1" in name for name in parameters)
    observations = np.zeros((4, 3), np.float32)
    np.testing.assert_array_equal(loaded.predict(observations)[0], model.predict(observations)[0])


def test_quantiles_come_after_the_leading_dimensions() -> None:
    torch.manual_seed(0)
    network = DistributionalCritics(VECTOR, ACTIONS, PolicyConfig(net_arch=[8]), n_critics=2, n_outputs=5)
    observations, actions = torch.randn(4, 3, 3), torch.randn(4, 3, 2)
    quantiles = network(observations, actions)
    assert quantiles.shape == (2, 4, 3, 5)
    pairs = torch.cat([observations, actions], dim=-1)
    torch.testing.assert_close(quantiles[1], network.critics[1](pairs))
