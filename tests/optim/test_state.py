"""A plain state is left as it is; a live one is overwritten, in its own memory."""

from __future__ import annotations

import pytest
import torch

from zoo.optim.state import LiveState, State


def test_a_plain_state_stays_and_the_next_one_has_the_new_tensors() -> None:
    state = State(a=torch.zeros(2), b=torch.ones(2))
    after = state.replaced({"a": torch.full((2,), 5.0)})
    assert torch.equal(state["a"], torch.zeros(2))
    assert torch.equal(after["a"], torch.full((2,), 5.0))
    assert after["b"] is state["b"]
    assert type(after) is State


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
