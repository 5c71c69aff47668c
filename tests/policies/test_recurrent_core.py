"""Policies with a memory: whole sequences at once give what single steps give, also where episodes start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from recurrent_policies import GruActorCritic, IntegratingActorCritic

from zoo.policies.acting import ActingPolicy
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.config import PolicyConfig

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
N, TIME = 4, 12
POLICIES = pytest.mark.parametrize("policy_class", [IntegratingActorCritic, GruActorCritic])
SHARING = pytest.mark.parametrize("share_encoder", [True, False])


def policy(policy_class: type[ActorCritic], share_encoder: bool = True) -> ActorCritic:
    torch.manual_seed(0)
    config = PolicyConfig(net_arch={"shared": [8], "pi": [8]}, share_encoder=share_encoder, ortho_init=False)
    return policy_class(OBSERVATIONS, spaces.Discrete(3), config)


def seen() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "observations": torch.randn(N, TIME, 3, generator=generator),
        "episode_starts": torch.rand(N, TIME, generator=generator) < 0.2,
        "action_masks": torch.rand(N, TIME, 3, generator=generator) < 0.8,
    }


def at(batch: dict[str, Any], step: Any) -> dict[str, Any]:
    return {name: column[:, step] for name, column in batch.items()}


@POLICIES
@SHARING
def test_sequences_give_what_single_steps_give(policy_class: type[ActorCritic], share_encoder: bool) -> None:
    network, batch = policy(policy_class, share_encoder), seen()
    assert batch["episode_starts"][:, 1:].any()
    start = network.initial_state(N)
    assert start is not None
    assert not start.any()
    first = torch.randn_like(start)  # what earlier steps left; it counts where no episode starts
    state: Any = first
    parameters, values = [], []
    for step in range(TIME):
        here = at(batch, step)
        alone = network.action_parameters(here, state)
        torch.testing.assert_close(network.values(here, state), network(here, state)[1])
        step_parameters, step_values, state = network(here, state)
        torch.testing.assert_close(alone, (step_parameters, state))
        parameters.append(step_parameters)
        values.append(step_values)
    whole = network(batch, first)
    torch.testing.assert_close(whole[0], torch.stack(parameters, 1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(whole[1], torch.stack(values, 1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(whole[2], state, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(network.values(batch, first), whole[1])
    middle = network(at(batch, slice(0, 5)), first)
    rest = network(at(batch, slice(5, TIME)), middle[2])
    torch.testing.assert_close(rest[0], whole[0][:, 5:], rtol=1e-5, atol=1e-6)


@POLICIES
@SHARING
def test_an_episode_start_forgets_all_before_it(policy_class: type[ActorCritic], share_encoder: bool) -> None:
    network, batch = policy(policy_class, share_encoder), seen()
    batch["episode_starts"] = torch.zeros(N, TIME, dtype=torch.bool)
    batch["episode_starts"][1, 6] = True
    changed = {**batch, "observations": batch["observations"].clone()}
    changed["observations"][:, 5] += 1.0
    (parameters, values, _), (others, other_values, _) = network(batch), network(changed)
    assert torch.equal(parameters[1, 6:], others[1, 6:])
    assert torch.equal(values[1, 6:], other_values[1, 6:])
    for row in (0, 2, 3):
        assert not torch.equal(values[row, 6:], other_values[row, 6:])
    fresh = network(at(batch, slice(6, TIME)))
    torch.testing.assert_close(fresh[1][1], values[1, 6:])


@POLICIES
def test_gradients_flow_through_time_and_stop_where_an_episode_starts(
    policy_class: type[ActorCritic],
) -> None:
    network, batch = policy(policy_class), seen()
    batch["episode_starts"] = torch.zeros(N, TIME, dtype=torch.bool)
    batch["episode_starts"][0, 4] = True
    observations = batch["observations"].requires_grad_()
    _, values, _ = network(batch)
    (gradient,) = torch.autograd.grad(values[:, -1].sum(), observations)
    assert not gradient[0, :4].any()
    assert gradient[0, 4:].any(-1).all()
    assert gradient[1].any(-1).all()


@POLICIES
@SHARING
def test_acting_carries_the_state(policy_class: type[ActorCritic], share_encoder: bool) -> None:
    network, batch = policy(policy_class, share_encoder), seen()
    batch["action_masks"][..., 0] = True
    acting = ActingPolicy(network)
    assert not acting.uses_numpy
    state = acting.initial_state(N)
    expected = network(batch)[0].detach()
    for step in range(TIME):
        here = {name: column[:, step].numpy() for name, column in batch.items()}
        parameters, _ = acting.parameters(here, state)
        actions, state = acting.act(here, None, state)
        np.testing.assert_allclose(parameters, expected[:, step].numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(actions, expected[:, step].argmax(-1).numpy())


def test_without_a_core_there_is_no_state() -> None:
    network = ActorCritic(OBSERVATIONS, spaces.Discrete(3), PolicyConfig())
    assert network.initial_state(4) is None
    assert ActingPolicy(network).initial_state(4) is None
    parameters, values, state = network(seen())
    assert (parameters.shape, values.shape, state) == ((N, TIME, 3), (N, TIME), None)


@POLICIES
def test_sequences_in_which_nothing_starts_need_not_say_so(policy_class: type[ActorCritic]) -> None:
    network, batch = policy(policy_class), seen()
    batch["episode_starts"] = torch.zeros(N, TIME, dtype=torch.bool)
    whole = network(batch)
    del batch["episode_starts"]
    for ours, theirs in zip(network(batch), whole, strict=True):
        assert torch.equal(ours, theirs)
