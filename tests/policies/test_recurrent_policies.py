"""Policies with a memory by config: what actor and critic remember, and acting the same everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from zoo import A2C, DQN, PPO2, SAC, TRPO
from zoo.errors import ZooError
from zoo.policies.acting import ActingPolicy
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.config import PolicyConfig, policy_preset

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
N, TIME = 4, 9

MEMORIES: dict[str, dict[str, Any]] = {
    "lstm": {"recurrent": "lstm"},
    "two layers": {"recurrent": "lstm", "n_lstm_layers": 2},
    "normalised": {"recurrent": "lstm", "lstm_layer_norm": True},
    "gru": {"recurrent": "gru"},
}
CRITICS = {
    "separate": {},
    "separate encoders": {"share_encoder": False},
    "shared": {"critic_lstm": "shared"},
    "detached": {"critic_lstm": "detached"},
    "none": {"critic_lstm": "none"},
}
EACH_MEMORY = pytest.mark.parametrize("memory", MEMORIES)
EACH_CRITIC = pytest.mark.parametrize("critic", CRITICS)


def policy(memory: str = "lstm", critic: str = "separate", **options: Any) -> ActorCritic:
    torch.manual_seed(0)
    config = PolicyConfig(
        net_arch={"shared": [8], "pi": [7], "vf": [6]},
        lstm_hidden_size=5,
        **{**MEMORIES[memory], **CRITICS[critic], **options},
    )
    network = ActorCritic(OBSERVATIONS, spaces.Discrete(3), config)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return network


def seen() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    masks = torch.rand(N, TIME, 3, generator=generator) < 0.8
    masks[..., 0] = True
    return {
        "observations": torch.randn(N, TIME, 3, generator=generator),
        "episode_starts": torch.rand(N, TIME, generator=generator) < 0.2,
        "action_masks": masks,
    }


def at(batch: dict[str, Any], step: Any) -> dict[str, Any]:
    return {name: column[:, step] for name, column in batch.items()}


@EACH_MEMORY
@EACH_CRITIC
def test_a_sequence_gives_what_its_steps_give(memory: str, critic: str) -> None:
    network, batch = policy(memory, critic), seen()
    first: Any = torch.randn(N, network.state_size)
    state, parameters, values = first, [], []
    for step in range(TIME):
        here = at(batch, step)
        torch.testing.assert_close(network.values(here, state), network(here, state)[1])
        alone = network.action_parameters(here, state)
        step_parameters, step_values, state = network(here, state)
        torch.testing.assert_close(alone, (step_parameters, state))
        parameters.append(step_parameters)
        values.append(step_values)
    whole = network(batch, first)
    torch.testing.assert_close(whole[0], torch.stack(parameters, 1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(whole[1], torch.stack(values, 1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(whole[2], state, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(network.values(batch, first), whole[1])
    parts = [at(batch, slice(0, 4)), at(batch, slice(4, TIME))]
    begun = network(parts[0], first)
    torch.testing.assert_close(network(parts[1], begun[2])[0], whole[0][:, 4:], rtol=1e-4, atol=1e-5)


@EACH_MEMORY
@EACH_CRITIC
def test_acting_in_numpy_is_what_modules_do(memory: str, critic: str) -> None:
    network, batch = policy(memory, critic), seen()
    acting = ActingPolicy(network)
    assert acting.uses_numpy
    state = acting.initial_state(N)
    expected, _, last = network(batch)
    for step in range(TIME):
        here = {name: column.numpy() for name, column in at(batch, step).items()}
        actions, after = acting.act(here, None, state)
        parameters, state = acting.parameters(here, state)
        assert parameters.dtype == state.dtype == np.float32
        np.testing.assert_array_equal(after, state)
        np.testing.assert_allclose(parameters, expected[:, step].detach(), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(actions, expected[:, step].argmax(-1))
    np.testing.assert_allclose(state, last.detach(), rtol=1e-4, atol=1e-5)


def test_acting_follows_what_is_learned_and_keeps_the_state_that_it_is_given() -> None:
    network = policy()
    acting, observations = ActingPolicy(network), np.ones((2, 3), np.float32)
    state = np.ones((2, network.state_size), np.float32)
    before = acting.parameters({"observations": observations}, state)
    assert (state == 1).all()
    assert (observations == 1).all()
    with torch.no_grad():
        for parameter in network.core.parameters():
            parameter += 0.1
    after = acting.parameters({"observations": observations}, state)
    assert not np.allclose(before[0], after[0])
    assert not np.allclose(before[1], after[1])


def gradients(critic: str) -> dict[str, bool]:
    """Return which parts the loss of the critic moves."""
    network = policy("lstm", critic)
    _, values, _ = network(seen())
    values.sum().backward()
    return {
        name: any(each.grad is not None and each.grad.any() for each in part.parameters())
        for name, part in network.named_children()
    }


def test_the_critic_remembers_as_it_is_told() -> None:
    separate, shared, detached, none = (
        gradients(each) for each in ("separate", "shared", "detached", "none")
    )
    assert (separate["core"], separate["critic_core"], separate["shared"]) == (False, True, True)
    assert (shared["core"], shared["shared"]) == (True, True)
    assert (detached["core"], detached["shared"], detached["critic"]) == (False, False, True)
    assert (none["core"], none["shared"]) == (False, True)
    network, batch = policy("lstm", "none"), seen()
    one, other = (network.values(batch, torch.full((N, network.state_size), each)) for each in (0.0, 1.0))
    assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("name", "layer", "encoder"),
    [
        ("MlpLstmPolicy", "LstmLayer", "VectorEncoder"),
        ("MlpLnLstmPolicy", "NormalizedLstmLayer", "VectorEncoder"),
        ("CnnLstmPolicy", "LstmLayer", "NatureCnn"),
        ("CnnLnLstmPolicy", "NormalizedLstmLayer", "NatureCnn"),
        ("MultiInputLstmPolicy", "LstmLayer", "DictEncoder"),
    ],
)
def test_named_policies(name: str, layer: str, encoder: str) -> None:
    image = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    space: Any = {"Mlp": OBSERVATIONS, "Cnn": image}.get(name[:3])
    space = space or {"Mul": spaces.Dict({"a": OBSERVATIONS, "b": image})}[name[:3]]
    network = ActorCritic(space, spaces.Discrete(2), policy_preset(name))
    for core in (network.core, network.critic_core):
        assert [type(each).__name__ for each in core.layers] == [layer]  # type: ignore[union-attr]
        assert core.output_size == 256  # type: ignore[union-attr]
    assert type(network.encoder).__name__ == encoder


def test_dictionaries_make_of_it_what_reads_them() -> None:
    space = spaces.Dict({"a": OBSERVATIONS})
    model = PPO2("MlpLstmPolicy", observation_space=space, action_space=spaces.Discrete(2))
    assert model.policy_config.name == "MultiInputLstmPolicy"
    assert model.policy.core is not None


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        (DQN, {"recurrent": "lstm"}, "dqn has no policies that remember .* a2c, .*ppo2.* have"),
        (SAC, {"name": "MlpLstmPolicy"}, "sac has no policies that remember"),
        (PPO2, {"lstm_hidden_size": 64}, "`policy.lstm_hidden_size` is of policies that remember"),
        (A2C, {"critic_lstm": "none"}, "`policy.critic_lstm` is of policies that remember"),
        (A2C, {"recurrent": "gru", "lstm_layer_norm": True}, "`policy.lstm_layer_norm=true` is of an LSTM"),
        (
            PPO2,
            {"recurrent": "lstm", "critic_lstm": "shared", "share_encoder": False},
            "`policy.critic_lstm=shared` .* needs `policy.share_encoder=true`",
        ),
        (PPO2, {"recurrent": "rnn"}, "recurrent"),
        (
            TRPO,
            {"recurrent": "lstm", "critic_lstm": "shared"},
            "`policy.critic_lstm=shared`: trpo's critic moves nothing .* take detached",
        ),
    ],
)
def test_memories_that_there_are_not_are_refused(
    algorithm: Any, options: dict[str, Any], message: str
) -> None:
    actions = OBSERVATIONS if algorithm is SAC else spaces.Discrete(2)
    with pytest.raises(ZooError, match=message):
        algorithm(options, observation_space=OBSERVATIONS, action_space=actions)


@pytest.mark.parametrize(
    ("state", "starts", "message"),
    [
        (np.zeros((2, 10)), None, r"`state` of shape \(2, 10\) does not fit: expected \(3, 20\)"),
        (np.zeros((3, 9)), None, r"`state` of shape \(3, 9\)"),
        (None, [True], r"`episode_start` of shape \(1,\) does not fit: expected \(3,\)"),
    ],
)
def test_states_that_do_not_fit_are_refused(state: Any, starts: Any, message: str) -> None:
    options: dict[str, Any] = {"observation_space": OBSERVATIONS, "action_space": spaces.Discrete(2)}
    model = A2C({"recurrent": "lstm", "lstm_hidden_size": 5}, **options)
    with pytest.raises(ZooError, match=message):
        model.predict(np.zeros((3, 3), np.float32), state, starts)
    action, after = model.predict(np.zeros(3, np.float32))
    assert np.shape(action) == ()
    assert after.shape == (1, 20)
    assert A2C("MlpPolicy", **options).predict(np.zeros((3, 3), np.float32), "anything")[1] is None
