"""States that are left as they are or overwritten, and trees of tensors."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from zoo.optim.state import LiveState, State, tree_leaves, tree_map, tree_row, tree_signature, tree_unflatten


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


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


TREE = {
    "b": torch.zeros(4, 2),
    "a": {"pair": Pair(torch.ones(4), torch.arange(4)), "list": [torch.ones(4, 1)]},
    "c": (torch.full((4,), 7.0),),
}


def test_leaves_go_back_where_they_were() -> None:
    again = tree_unflatten(TREE, tree_leaves(TREE))
    assert type(again["a"]["pair"]) is Pair
    assert type(again["a"]["list"]) is list
    assert type(again["c"]) is tuple
    for old, new in zip(tree_leaves(TREE), tree_leaves(again), strict=True):
        assert old is new
    assert again["a"]["pair"].right is TREE["a"]["pair"].right  # type: ignore[index]


def test_a_row_is_one_of_each_tensor() -> None:
    third = tree_row(TREE, 2)
    assert third["a"]["pair"].right == 2
    assert third["b"].shape == (2,)


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


@pytest.mark.parametrize("leaf", [None, 1.0, "text"])
def test_anything_else_is_refused(leaf: object) -> None:
    with pytest.raises(TypeError, match="expected tensors"):
        tree_leaves({"x": leaf})
