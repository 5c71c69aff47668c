"""A module on one flat vector: its own, any other, and copies that follow."""

from __future__ import annotations

import gc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import batch, network
from torch import Tensor

from zoo.optim.parameters import Parameters
from zoo.optim.state import LiveState, State

KINDS = pytest.mark.parametrize("kind", [State, LiveState])


def vector_of(seed: int) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in network(seed).parameters()])


def test_flat_parameters_leave_the_module_as_it_was() -> None:
    plain, ours = network(), network()
    parameters = Parameters("net", ours)
    values, _ = batch()
    assert torch.equal(plain(values), ours(values))
    assert torch.equal(parameters.flat, vector_of(0))
    assert parameters.size == len(parameters.flat)
    parameters.flat.add_(1.0)
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameter + 1.0, dict(ours.named_parameters())[name])


def test_slices_and_views_say_where_each_parameter_lies() -> None:
    model = network()
    parameters = Parameters("net", model)
    named = parameters.named(parameters.flat)
    assert list(named) == list(parameters.slices) == [name for name, _ in model.named_parameters()]
    for name, parameter in model.named_parameters():
        assert torch.equal(named[name], parameter)
        assert torch.equal(parameters.flat[parameters.slices[name]], parameter.reshape(-1))
    parameters.flat[parameters.slices["head.bias"]] = 9.0
    assert model.head.bias.item() == 9.0


def test_frozen_parameters_and_buffers_stay_with_the_module() -> None:
    model = network()
    model.body.requires_grad_(False)
    model.register_buffer("scale", torch.ones(1))
    parameters = Parameters("net", model)
    assert parameters.size == 5 + 1 + 10 + 2
    assert parameters.slices.keys() == {"head.weight", "head.bias", "unused.weight", "unused.bias"}
    vector = parameters.flat.clone()
    copies = [parameters.functional(vector), parameters.functional(vector.clone().requires_grad_())]
    with torch.no_grad():
        model.body.weight.fill_(2.0)
        model.get_buffer("scale").fill_(3.0)
    for copy in copies:
        assert torch.equal(copy(batch()[0]), model(batch()[0]))
    assert parameters.module_at(vector).get_buffer("scale").item() == 3.0
    assert model.head.weight.requires_grad
    assert not model.body.weight.requires_grad


@pytest.mark.parametrize("requires_grad", [True, False])
def test_the_module_at_a_vector_is_the_one_that_the_vector_was_taken_from(requires_grad: bool) -> None:
    parameters = Parameters("net", network())
    before = parameters.flat.clone()
    values, _ = batch()
    at = parameters.functional(vector_of(9).requires_grad_(requires_grad))
    assert torch.equal(at(values), network(9)(values))
    assert torch.equal(at(values=values), network(9)(values))
    assert torch.equal(parameters.flat, before)
    assert torch.equal(parameters.module(values), network()(values))


def test_gradients_flow_to_a_vector_that_requires_them() -> None:
    parameters, plain = Parameters("net", network()), network(9)
    values, targets = batch()
    vector = vector_of(9).requires_grad_()
    loss = (parameters.functional(vector)(values) - targets).square().mean()
    (gradient,) = torch.autograd.grad(loss, vector)
    (plain(values) - targets).square().mean().backward()
    for name, parameter in plain.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(gradient[parameters.slices[name]].view_as(parameter), expected)


def test_no_gradient_flows_to_constants_but_through_them() -> None:
    parameters = Parameters("net", network())
    values = batch()[0].requires_grad_()
    output = parameters.functional(parameters.flat)(values).sum()
    assert torch.autograd.grad(output, values)[0].abs().sum() > 0
    assert not parameters.functional(parameters.flat)(batch()[0]).requires_grad


def test_the_module_at_a_live_vector_is_kept_and_follows_what_is_written() -> None:
    parameters = Parameters("net", network())
    vector = vector_of(9)
    module = parameters.module_at(vector)
    assert parameters.module_at(vector) is module
    assert parameters.module_at(vector.clone()) is not module
    vector.zero_()
    assert not parameters.functional(vector)(batch()[0]).any()


def test_the_module_at_a_live_vector_is_in_the_modules_mode() -> None:
    parameters = Parameters("net", network())
    for training in (True, False, True):
        parameters.module.train(training)
        assert parameters.module_at(parameters.flat).training == training


def test_copies_go_when_their_vectors_go() -> None:
    parameters = Parameters("net", network())
    kept = vector_of(3)
    for seed in range(5):
        vector = vector_of(seed)
        assert torch.equal(parameters.functional(vector)(batch()[0]), network(seed)(batch()[0]))
        parameters.functional(kept)
    del vector
    gc.collect()
    assert len(parameters._copies) == 1


@KINDS
@given(tau=st.floats(0, 1, width=32, allow_subnormal=False))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_a_copy_follows_by_a_fraction(kind: type[State], tau: float) -> None:
    for fraction in (tau, torch.tensor(tau)):
        parameters = Parameters("net", network())
        state = kind(net=parameters.flat, target=torch.randn(parameters.size) * 1e3)
        target, online = state["target"].double(), state["net"].double()
        new = parameters.polyak_update(state, "target", fraction)
        assert (new["target"] is state["target"]) == (kind is LiveState)
        assert torch.equal(new["net"].double(), online)
        torch.testing.assert_close(
            new["target"].double(), (1 - tau) * target + tau * online, rtol=1e-5, atol=1e-4
        )


@KINDS
def test_following_by_one_is_a_copy_and_by_zero_changes_nothing(kind: type[State]) -> None:
    parameters = Parameters("net", network())
    state = kind(net=parameters.flat, target=torch.randn(parameters.size) * 1e3)
    before = state["target"].clone()
    for zero in (0.0, torch.tensor(0.0)):
        assert torch.equal(parameters.polyak_update(state, "target", zero)["target"], before)
    for one in (1.0, torch.tensor(1.0)):
        assert torch.equal(parameters.polyak_update(state, "target", one)["target"], state["net"])
