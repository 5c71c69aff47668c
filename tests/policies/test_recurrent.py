"""Recurrent policies: PyTorch's own layers as peers, sequences against single steps, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo import A2C, DQN, PPO2, SAC, TRPO
from zoo.errors import ZooError
from zoo.policies.acting import ActingPolicy
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.config import PolicyConfig
from zoo.policies.recurrent import RecurrentLayers, make_core, unrolled

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
ROWS, TIME, INPUT, HIDDEN = 4, 9, 4, 5

KINDS: dict[str, dict[str, Any]] = {
    "lstm": {"recurrent": "lstm"},
    "two layers": {"recurrent": "lstm", "n_lstm_layers": 2},
    "normalised": {"recurrent": "lstm", "lstm_layer_norm": True},
    "gru": {"recurrent": "gru"},
}
CRITICS: dict[str, dict[str, Any]] = {
    "separate": {},
    "separate encoders": {"share_encoder": False},
    "shared": {"critic_lstm": "shared"},
    "detached": {"critic_lstm": "detached"},
    "none": {"critic_lstm": "none"},
}


def core_of(kind: str, **options: Any) -> RecurrentLayers:
    torch.manual_seed(0)
    core = make_core(PolicyConfig(**{**KINDS[kind], "lstm_hidden_size": HIDDEN, **options}), INPUT)
    assert core is not None
    return moved(core).double()


def moved(module: Any) -> Any:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return module


def given() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(ROWS, TIME, INPUT, generator=generator, dtype=torch.float64)
    starts = torch.rand(ROWS, TIME, generator=generator) < 0.25
    starts[0, 0], starts[1, 0] = True, False
    assert starts[:, 1:].any()
    return features, starts


@pytest.mark.parametrize("kind", ["lstm", "two layers", "gru"])
def test_a_core_is_pytorchs_layer_of_the_name(kind: str) -> None:
    core, (features, _) = core_of(kind), given()
    n_layers = len(core.layers)
    peer_class: Any = nn.GRU if kind == "gru" else nn.LSTM
    peer = peer_class(INPUT, HIDDEN, n_layers, batch_first=True).double()
    with torch.no_grad():
        for number, layer in enumerate(core.layers):
            for name, parameter in layer.named_parameters():
                getattr(peer, f"{name}_l{number}").copy_(parameter)
    state = torch.randn(ROWS, core.state_size, dtype=torch.float64)
    parts = state.reshape(ROWS, n_layers, -1, HIDDEN).permute(2, 1, 0, 3).contiguous()
    expected, last = peer(features, parts[0] if kind == "gru" else tuple(parts))
    last_parts = last[None] if kind == "gru" else torch.stack(last)
    with torch.no_grad():
        found, found_last = core(features, state)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found_last, last_parts.permute(2, 1, 0, 3).reshape(ROWS, -1))
    torch.testing.assert_close(core(features, state)[0], expected)


def test_layer_normalisation_is_where_the_paper_has_it() -> None:
    """Equations 20 to 22 of Ba et al. 2016, written out for one step."""
    core, (features, _) = core_of("normalised"), given()
    layer: Any = core.layers[0]
    state = torch.randn(ROWS, core.state_size, dtype=torch.float64)
    hidden, cell = state.chunk(2, -1)
    gates = layer.norm_hh(hidden @ layer.weight_hh.T) + layer.norm_ih(features[:, 0] @ layer.weight_ih.T)
    i, f, g, o = gates.chunk(4, -1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    hidden = torch.sigmoid(o) * torch.tanh(layer.norm_cell(cell))
    found, last = core(features[:, 0], state)
    torch.testing.assert_close(found, hidden)
    torch.testing.assert_close(last, torch.cat([hidden, cell], -1))


@pytest.mark.parametrize("share_of_starts", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("kind", ["lstm", "two layers"])
def test_sequence_gradients_equal_those_of_steps(kind: str, share_of_starts: float) -> None:
    core, (features, _) = core_of(kind), given()
    starts = torch.rand(ROWS, TIME) < share_of_starts
    state = torch.randn(ROWS, core.state_size, dtype=torch.float64, requires_grad=True)
    inputs = [features.requires_grad_(), state, *core.parameters()]

    def gradients() -> Any:
        outputs, _ = core(features, state, starts)
        loss = (outputs.sin() * torch.arange(outputs.numel()).reshape(outputs.shape).cos()).sum()
        return outputs, *torch.autograd.grad(loss, inputs)

    found = gradients()
    with unrolled():
        expected = gradients()
    torch.testing.assert_close(found, expected)


def policy(kind: str = "lstm", critic: str = "separate") -> ActorCritic:
    torch.manual_seed(0)
    config = PolicyConfig(
        net_arch={"shared": [8], "pi": [7], "vf": [6]},
        lstm_hidden_size=HIDDEN,
        **{**KINDS[kind], **CRITICS[critic]},
    )
    return moved(ActorCritic(OBSERVATIONS, spaces.Discrete(3), config))


def seen() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    masks = torch.rand(ROWS, TIME, 3, generator=generator) < 0.8
    masks[..., 0] = True
    starts = torch.rand(ROWS, TIME, generator=generator) < 0.2
    assert starts[:, 1:].any()
    observations = torch.randn(ROWS, TIME, 3, generator=generator)
    return {"observations": observations, "episode_starts": starts, "action_masks": masks}


def at(batch: dict[str, Any], step: Any) -> dict[str, Any]:
    return {name: column[:, step] for name, column in batch.items()}


POLICIES: dict[str, Callable[[], ActorCritic]] = {
    **{kind: lambda kind=kind: policy(kind) for kind in KINDS},  # type: ignore[misc]
    **{f"critic {critic}": lambda critic=critic: policy("lstm", critic) for critic in CRITICS},  # type: ignore[misc]
}
EACH_POLICY = pytest.mark.parametrize("make", POLICIES.values(), ids=POLICIES)


@EACH_POLICY
def test_sequence_outputs_equal_steps_and_acting(make: Callable[[], ActorCritic]) -> None:
    network, batch = make(), seen()
    acting = ActingPolicy(network)
    assert not network.initial_state(ROWS).any()  # type: ignore[union-attr]
    first: Any = torch.randn(ROWS, network.state_size)  # it counts where no episode starts
    state, acting_state, parameters, values = first, first.numpy().copy(), [], []
    for step in range(TIME):
        here = at(batch, step)
        torch.testing.assert_close(network.values(here, state), network(here, state)[1])
        alone = network.action_parameters(here, state)
        step_parameters, step_values, state = network(here, state)
        torch.testing.assert_close(alone, (step_parameters, state))
        arrays = {name: column.numpy() for name, column in here.items()}
        acted, acting_state = acting.parameters(arrays, acting_state)
        np.testing.assert_allclose(acted, step_parameters.detach(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(acting_state, state.detach(), rtol=1e-5, atol=1e-5)
        parameters.append(step_parameters)
        values.append(step_values)
    expected = torch.stack(parameters, 1), torch.stack(values, 1)
    torch.testing.assert_close(network(batch, first)[:2], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(network.values(batch, first), expected[1], rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        whole = network(batch, first)
        begun = network(at(batch, slice(0, 4)), first)
        rest = network(at(batch, slice(4, TIME)), begun[2])
    torch.testing.assert_close(whole, (*expected, state), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rest[0], whole[0][:, 4:], rtol=1e-4, atol=1e-5)


@EACH_POLICY
def test_gradients_flow_through_time_until_starts(make: Callable[[], ActorCritic]) -> None:
    network, batch = make(), seen()
    batch["episode_starts"] = torch.zeros(ROWS, TIME, dtype=torch.bool)
    batch["episode_starts"][0, 4] = True
    observations = batch["observations"].requires_grad_()
    parameters, _, _ = network({**batch, "action_masks": torch.ones_like(batch["action_masks"])})
    (gradient,) = torch.autograd.grad(parameters[:, -1].square().sum(), observations)
    assert not gradient[0, :4].any()
    assert gradient[0, 4:].any(-1).all()
    assert gradient[1].any(-1).all()


def gradients(critic: str) -> dict[str, bool]:
    """Return which parts the loss of the critic moves."""
    network = policy("lstm", critic)
    _, values, _ = network(seen())
    values.sum().backward()
    return {
        name: any(each.grad is not None and bool(each.grad.any()) for each in part.parameters())
        for name, part in network.named_children()
    }


def test_the_critic_remembers_as_it_is_told() -> None:
    separate, shared, detached, none = map(gradients, ("separate", "shared", "detached", "none"))
    assert (separate["core"], separate["critic_core"], separate["shared"]) == (False, True, True)
    assert (shared["core"], shared["shared"]) == (True, True)
    assert (detached["core"], detached["shared"], detached["critic"]) == (False, False, True)
    assert (none["core"], none["shared"]) == (False, True)
    network, batch = policy("lstm", "none"), seen()
    one, other = (network.values(batch, torch.full((ROWS, network.state_size), each)) for each in (0.0, 1.0))
    assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("algorithm", "options", "named"),
    [
        (DQN, {"recurrent": "lstm"}, "dqn has no recurrent policies .* a2c, .*ppo2.* have"),
        (SAC, {"name": "MlpLstmPolicy"}, "sac"),
        (PPO2, {"lstm_hidden_size": 64}, "policy.lstm_hidden_size"),
        (A2C, {"critic_lstm": "none"}, "policy.critic_lstm"),
        (A2C, {"recurrent": "gru", "lstm_layer_norm": True}, "policy.lstm_layer_norm=true"),
        (
            PPO2,
            {"recurrent": "lstm", "critic_lstm": "shared", "share_encoder": False},
            "policy.share_encoder=true",
        ),
        (PPO2, {"recurrent": "rnn"}, "recurrent"),
        (TRPO, {"recurrent": "lstm", "critic_lstm": "shared"}, "take detached"),
    ],
)
def test_memories_that_there_are_not_are_refused(algorithm: Any, options: dict[str, Any], named: str) -> None:
    actions = OBSERVATIONS if algorithm is SAC else spaces.Discrete(2)
    with pytest.raises(ZooError, match=named):
        algorithm(options, observation_space=OBSERVATIONS, action_space=actions)


@pytest.mark.parametrize(
    ("state", "starts", "named"),
    [
        (np.zeros((2, 10)), None, r"`state` of shape \(2, 10\) does not fit: expected \(3, 20\)"),
        (None, [True], r"`episode_start` of shape \(1,\) does not fit: expected \(3,\)"),
    ],
)
def test_states_that_do_not_fit_are_refused(state: Any, starts: Any, named: str) -> None:
    options: dict[str, Any] = {"observation_space": OBSERVATIONS, "action_space": spaces.Discrete(2)}
    model = A2C({"recurrent": "lstm", "lstm_hidden_size": 5}, **options)
    with pytest.raises(ZooError, match=named):
        model.predict(np.zeros((3, 3), np.float32), state, starts)
    action, after = model.predict(np.zeros(3, np.float32))
    assert np.shape(action) == ()
    assert after.shape == (1, 20)
    assert A2C("MlpPolicy", **options).predict(np.zeros((3, 3), np.float32), "anything")[1] is None
