"""One head for Tuple and Dict actions: each result is that of its parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from masked_choices import renormalised, valid_masks
from torch import Tensor

from zoo.errors import ZooError
from zoo.policies.codecs import leaf_spaces, make_codec
from zoo.policies.composite_head import CompositeHead, make_head
from zoo.policies.config import PolicyConfig

PARTS = {
    "arm/0": spaces.Discrete(3, start=2),
    "arm/1": spaces.Box(-1.0, 2.0, (2, 1), np.float32),
    "bits": spaces.MultiBinary(2),
    "gear": spaces.MultiDiscrete([2, 3]),
}
ARM = spaces.Tuple((PARTS["arm/0"], PARTS["arm/1"]))
DICT = spaces.Dict({"arm": ARM, "bits": PARTS["bits"], "gear": PARTS["gear"]})
TUPLE = spaces.Tuple((spaces.Dict({"a": PARTS["arm/0"], "b": PARTS["gear"]}), PARTS["arm/1"], PARTS["bits"]))
SPACES = pytest.mark.parametrize("space", [DICT, TUPLE], ids=["dict", "tuple"])
MASK_SIZES = {"arm/0": [3], "arm/1": [], "bits": [2, 2], "gear": [2, 3]}


def head(space: spaces.Space[Any]) -> CompositeHead:
    torch.manual_seed(0)
    made = make_head(space, 3, PolicyConfig(log_std_init=-0.5))
    assert isinstance(made, CompositeHead)
    return made


def tensors(actions: dict[str, np.ndarray]) -> dict[str, Tensor]:
    return {path: torch.from_numpy(part) for path, part in actions.items()}


def drawn(ours: CompositeHead, parameters: Tensor, seed: int = 0) -> dict[str, np.ndarray]:
    noise = ours.noise(np.random.default_rng(seed), parameters.shape[:-1])
    assert noise.shape == (*parameters.shape[:-1], ours.noise_size)
    return ours.sample(parameters.detach().numpy(), noise)


def test_parts_are_found_by_their_paths() -> None:
    assert dict(leaf_spaces(DICT)) == PARTS
    assert [path for path, _ in leaf_spaces(TUPLE)] == ["0/a", "0/b", "1", "2"]


@SPACES
@pytest.mark.parametrize("leading", [(5,), (2, 3)])
def test_every_result_is_the_sum_over_the_parts(space: spaces.Space[Any], leading: tuple[int, ...]) -> None:
    ours = head(space)
    parameters = ours(torch.randn(*leading, 3))
    other = parameters + 0.5 * torch.randn_like(parameters)
    actions = tensors(drawn(ours, parameters))
    sizes = [part.parameter_size for part in ours.heads.values()]
    old, new = (dict(zip(ours.heads, each.split(sizes, dim=-1), strict=True)) for each in (parameters, other))
    log_prob, entropy = ours.log_prob_and_entropy(parameters, actions)

    def summed(values: list[Tensor]) -> Tensor:
        return torch.stack(values).sum(0)

    expected = summed([part.log_prob(old[path], actions[path]) for path, part in ours.heads.items()])
    torch.testing.assert_close(log_prob, expected)
    torch.testing.assert_close(ours.log_prob(parameters, actions), expected)
    expected = summed([part.entropy(old[path]) for path, part in ours.heads.items()])
    torch.testing.assert_close(entropy, expected)
    torch.testing.assert_close(ours.entropy(parameters), expected)
    expected = summed([part.kl(old[path], new[path]) for path, part in ours.heads.items()])
    torch.testing.assert_close(ours.kl(parameters, other), expected)
    expected = summed([part.imitation_loss(old[path], actions[path]) for path, part in ours.heads.items()])
    torch.testing.assert_close(ours.imitation_loss(parameters, actions), expected)
    assert log_prob.shape == entropy.shape == leading


@SPACES
def test_actions_go_to_the_environment_and_back(space: spaces.Space[Any]) -> None:
    ours, codec = head(space), make_codec(space, scaled=False)
    parameters = 3 * torch.randn(7, ours.parameter_size)
    for actions in (
        drawn(ours, parameters),
        ours.mode(parameters.numpy()),
        codec.random(np.random.default_rng(0), 7),
    ):
        assert actions.keys() == codec.spec.keys()
        for path, part in actions.items():
            assert part.shape == (7, *codec.spec[path].shape)
            assert part.dtype == codec.spec[path].dtype
        taken = codec.to_env(actions)
        assert batch_space(space, 7).contains(taken)
        again = codec.to_env(codec.from_env(taken))
        torch.testing.assert_close(again, taken)


@SPACES
def test_masks_of_the_parts_stand_side_by_side(space: spaces.Space[Any]) -> None:
    ours = head(space)
    kinds = {
        path: next(name for name, part in PARTS.items() if part == leaf) for path, leaf in leaf_spaces(space)
    }
    sizes = [size for path in ours.paths for size in MASK_SIZES[kinds[path]]]
    assert ours.mask_size == sum(sizes)
    masks = valid_masks(3, 200, sizes)
    logits = torch.randn(200, ours.parameter_size).requires_grad_()
    masked = ours.masked(logits, masks)
    np.testing.assert_array_equal(
        ours.masked(logits.detach().numpy(), masks.numpy()), masked.detach().numpy()
    )
    actions = drawn(ours, masked)
    entropy = torch.zeros(200, dtype=torch.float64)
    log_prob = torch.zeros(200, dtype=torch.float64)
    parts = zip(
        ours.paths,
        logits.split([part.parameter_size for part in ours.heads.values()], -1),
        masks.split([part.mask_size or 0 for part in ours.heads.values()], -1),
        strict=True,
    )
    for path, part, mask in parts:
        if kinds[path] == "arm/1":
            entropy += ours.heads[path].entropy(part).detach()
            log_prob += ours.heads[path].log_prob(part, torch.from_numpy(actions[path])).detach()
            continue
        if kinds[path] == "bits":
            part = torch.stack([torch.zeros_like(part), part], dim=-1).flatten(1)
        for row, choices in enumerate(renormalised(part, mask, MASK_SIZES[kinds[path]])):
            for choice, action in zip(choices, actions[path][row].reshape(-1), strict=True):
                entropy[row] += choice.entropy()
                log_prob[row] += choice.log_prob(int(action))
    torch.testing.assert_close(ours.entropy(masked).double(), entropy, rtol=1e-4, atol=1e-4)
    found = ours.log_prob(masked, tensors(actions))
    torch.testing.assert_close(found.double(), log_prob, rtol=1e-4, atol=1e-4)
    (gradient,) = torch.autograd.grad((found + ours.entropy(masked)).sum(), logits)
    assert (gradient[masked.abs() == 1e8] == 0).all()
    start = 0
    for size in sizes:
        forbidden = np.ones((2, sum(sizes)), bool)
        forbidden[1, start : start + size] = False
        with pytest.raises(ZooError, match="forbids every action"):
            ours.masked(np.zeros((2, ours.parameter_size), np.float32), forbidden)
        with pytest.raises(ZooError, match="forbids every action"):
            ours.check_masks(forbidden)
        start += size


def test_descriptions_are_nested_like_the_actions() -> None:
    ours = head(DICT)
    described = ours.describe(np.zeros((4, ours.parameter_size), np.float32))
    np.testing.assert_allclose(described["arm"][0], np.full((4, 3), 1 / 3))
    assert [part.shape for part in described["arm"][1]] == [(4, 2), (4, 2)]
    np.testing.assert_allclose(described["bits"], np.full((4, 2), 0.5))
    assert [part.shape for part in described["gear"]] == [(4, 2), (4, 3)]


def test_without_choices_nothing_can_be_masked() -> None:
    assert head(spaces.Tuple((PARTS["arm/1"], PARTS["arm/1"]))).mask_size is None


def test_cloning_settles_the_entropy_where_it_settles_that_of_any_part() -> None:
    choice, numbers = PARTS["arm/0"], PARTS["arm/1"]
    for parts, settles in (((choice, choice), True), ((choice, numbers), True), ((numbers, numbers), False)):
        assert head(spaces.Tuple(parts)).cloning_settles_entropy == settles


def test_a_space_without_a_head_is_refused() -> None:
    for space in (spaces.Text(3), spaces.Tuple((spaces.Discrete(2), spaces.Text(3)))):
        with pytest.raises(ZooError, match="not supported"):
            make_head(space, 3, PolicyConfig())


@SPACES
def test_masks_have_whatever_leading_dimensions_parameters_have(space: spaces.Space[Any]) -> None:
    ours = head(space)
    parameters = torch.randn(6, ours.parameter_size)
    assert ours.mask_size is not None
    masks = np.ones((6, ours.mask_size), bool)
    masks[:, 0] = False
    rows = ours.masked(parameters.numpy(), masks)
    folded = ours.masked(parameters.numpy().reshape(2, 3, -1), masks.reshape(2, 3, -1))
    np.testing.assert_array_equal(folded.reshape(6, -1), rows)
    tensors_folded = ours.masked(parameters.reshape(2, 3, -1), torch.from_numpy(masks.reshape(2, 3, -1)))
    np.testing.assert_array_equal(tensors_folded.numpy().reshape(6, -1), rows)
