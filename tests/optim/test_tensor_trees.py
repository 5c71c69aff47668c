"""Trees of tensors are taken apart and put together in one order, and known by their form."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from zoo.optim.tensor_trees import form, leaves, mapped, rebuilt, row


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


TREE = {
    "b": torch.zeros(4, 2),
    "a": {"pair": Pair(torch.ones(4), torch.arange(4)), "list": [torch.ones(4, 1)]},
    "c": (torch.full((4,), 7.0),),
}


def test_leaves_go_back_where_they_were() -> None:
    again = rebuilt(TREE, leaves(TREE))
    assert type(again["a"]["pair"]) is Pair
    assert type(again["a"]["list"]) is list
    assert type(again["c"]) is tuple
    for old, new in zip(leaves(TREE), leaves(again), strict=True):
        assert old is new
    assert again["a"]["pair"].right is TREE["a"]["pair"].right  # type: ignore[index]


def test_a_row_is_one_of_each_tensor() -> None:
    third = row(TREE, 2)
    assert third["a"]["pair"].right == 2
    assert third["b"].shape == (2,)


def test_form_tells_names_shapes_and_types_apart() -> None:
    assert form(TREE) == form(mapped(torch.zeros_like, TREE))
    assert hash(form(TREE)) == hash(form(mapped(torch.zeros_like, TREE)))
    others = [
        {"x": torch.zeros(3)},
        {"y": torch.zeros(3)},
        {"x": torch.zeros(2)},
        {"x": torch.zeros(3, dtype=torch.int64)},
        [torch.zeros(3)],
        (torch.zeros(3),),
        torch.zeros(3),
    ]
    assert len({form(tree) for tree in others}) == len(others)
    assert form({"x": torch.zeros(3, 5)}, 1) == form({"x": torch.zeros(4, 5)}, 1)


@pytest.mark.parametrize("leaf", [None, 1.0, "text"])
def test_anything_else_is_refused(leaf: object) -> None:
    with pytest.raises(TypeError, match="expected tensors"):
        leaves({"x": leaf})
