"""States, trees of tensors, and the parameters of a module as one vector."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import batch, network
from torch import Tensor

from zoo.optim.optimizers import Parameters
from zoo.optim.update_runner import LiveState, State, tree_map, tree_signature

KINDS = pytest.mark.parametrize("kind", [State, LiveState])


def vector_of(seed: int) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in network(seed).parameters()])


def test_frozen_parameters_and_buffers_stay_in_module() -> None:
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
def test_module_at_vector_equals_its_source_module(requires_grad: bool) -> None:
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


def test_module_at_live_vector_is_cached_and_updated() -> None:
    parameters = Parameters("net", network())
    vector = vector_of(9)
    module = parameters.module_at(vector)
    assert parameters.module_at(vector) is module
    assert parameters.module_at(vector.clone()) is not module
    vector.zero_()
    assert not parameters.functional(vector)(batch()[0]).any()


@KINDS
@given(tau=st.floats(0, 1, width=32, allow_subnormal=False))
@settings(derandomize=True, max_examples=30)
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


def test_a_live_state_is_overwritten_and_returned() -> None:
    tensor, value = torch.zeros(2), torch.full((2,), 5.0, requires_grad=True)
    state = LiveState(a=tensor, b=torch.ones(2))
    assert state.replaced({"a": value}) is state
    assert state["a"] is tensor
    assert torch.equal(tensor, torch.full((2,), 5.0))
    assert not tensor.requires_grad


@pytest.mark.parametrize("kind", [State, LiveState])
def test_a_snapshot_keeps_the_old_tensor(kind: type[State]) -> None:
    state = kind(a=torch.zeros(2))
    old = state.snapshot("a")
    after = state.replaced({"a": torch.ones(2)})
    assert torch.equal(old, torch.zeros(2))
    assert torch.equal(after["a"], torch.ones(2))


@pytest.mark.parametrize("kind", [State, LiveState])
def test_tensors_can_change_places(kind: type[State]) -> None:
    state = kind(a=torch.zeros(2), b=torch.ones(2), c=torch.tensor([1.0, 2.0]))
    state = state.replaced({"a": state["b"], "b": state["a"], "c": state["c"].flip(0)})
    state = state.replaced({"c": state["c"][:], "a": state["c"][:]})
    assert torch.equal(state["a"], torch.tensor([2.0, 1.0]))
    assert torch.equal(state["b"], torch.zeros(2))
    assert torch.equal(state["c"], torch.tensor([2.0, 1.0]))


@pytest.mark.parametrize("kind", [State, LiveState])
def test_what_does_not_fit_is_refused(kind: type[State]) -> None:
    state = kind(a=torch.zeros(2))
    with pytest.raises(ValueError, match=r"a: \(1,\) cannot replace \(2,\)"):
        state.replaced({"a": torch.ones(1)})
    with pytest.raises(KeyError):
        state.replaced({"other": torch.ones(2)})
    assert torch.equal(state["a"], torch.zeros(2))


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


TREE = {
    "b": torch.zeros(4, 2),
    "a": {"pair": Pair(torch.ones(4), torch.arange(4)), "list": [torch.ones(4, 1)]},
    "c": (torch.full((4,), 7.0),),
}


def test_form_tells_names_shapes_and_types_apart() -> None:
    assert tree_signature(TREE) == tree_signature(tree_map(torch.zeros_like, TREE))
    assert hash(tree_signature(TREE)) == hash(tree_signature(tree_map(torch.zeros_like, TREE)))
    others = [
        {"x": torch.zeros(3)},
        {"y": torch.zeros(3)},
        {"x": torch.zeros(2)},
        {"x": torch.zeros(3, dtype=torch.int64)},
        [torch.zeros(3)],
        (torch.zeros(3),),
        torch.zeros(3),
    ]
    assert len({tree_signature(tree) for tree in others}) == len(others)
    assert tree_signature({"x": torch.zeros(3, 5)}, 1) == tree_signature({"x": torch.zeros(4, 5)}, 1)
