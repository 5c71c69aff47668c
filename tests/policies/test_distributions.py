"""Distributions over finitely many actions, and of actions with parts: torch's formulas, draws, masks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, distributions
from torch import distributions as torch_distributions

from zoo.errors import ZooError
from zoo.policies.actions import leaf_spaces, make_action_adapter
from zoo.policies.config import PolicyConfig
from zoo.policies.distributions import (
    ActionDistribution,
    CompositeDistribution,
    gather,
    make_distribution,
)


def valid_masks(seed: int, batch: int, sizes: list[int]) -> Tensor:
    """Return random masks (batch, Σ sizes) with at least one true entry in each part of each row."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for size in sizes:
        mask = torch.rand(batch, size, generator=generator) < 0.5
        kept = torch.randint(size, (batch, 1), generator=generator)
        parts.append(mask.scatter(1, kept, True))
    return torch.cat(parts, dim=1)


class Renormalised:
    """One row's choice among the valid alternatives alone: the others do not exist."""

    def __init__(self, logits: Tensor, mask: Tensor) -> None:
        self.indices = mask.nonzero()[:, 0].tolist()
        self.over_valid = distributions.Categorical(logits=logits.detach().double()[mask])

    def log_prob(self, action: int) -> Tensor:
        return self.over_valid.log_prob(torch.tensor(self.indices.index(action)))

    def entropy(self) -> Tensor:
        return self.over_valid.entropy()

    def kl(self, other: Renormalised) -> Tensor:
        return distributions.kl_divergence(self.over_valid, other.over_valid)


def renormalised(logits: Tensor, masks: Tensor, sizes: list[int]) -> list[list[Renormalised]]:
    """Return the distributions of each row's choices."""
    return [
        [Renormalised(*part) for part in zip(row.split(sizes), mask.split(sizes), strict=True)]
        for row, mask in zip(logits, masks, strict=True)
    ]


each_example = settings(deadline=None, derandomize=True, max_examples=40)
seeds = st.integers(0, 2**16)
batches = st.integers(1, 5)
scales = st.sampled_from([0.1, 1.0, 30.0])
N_DRAWS = 20_000


def head(space: spaces.Space[Any]) -> Any:
    return make_distribution(space, 3, PolicyConfig())


def drawn(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_formulas(
    ours: ActionDistribution,
    parameters: Tensor,
    actions: Tensor,
    log_prob: Tensor,
    entropy: Tensor,
    other: Tensor,
    kl: Tensor,
) -> None:
    """Compare with what somebody else computed in double precision."""
    close = {"rtol": 1e-4, "atol": 1e-4}
    both = ours.log_prob_and_entropy(parameters, actions)
    torch.testing.assert_close(both[0].double(), log_prob.double(), **close)
    torch.testing.assert_close(both[1].double(), entropy.double(), **close)
    torch.testing.assert_close(ours.log_prob(parameters, actions), both[0])
    torch.testing.assert_close(ours.entropy(parameters), both[1])
    torch.testing.assert_close(ours.kl(parameters, other).double(), kl.double(), **close)
    torch.testing.assert_close(ours.imitation_loss(parameters, actions), -both[0])


@given(n=st.integers(1, 7), start=st.integers(-3, 3), batch=batches, scale=scales, seed=seeds)
@each_example
def test_categorical_is_torchs(n: int, start: int, batch: int, scale: float, seed: int) -> None:
    logits, others = drawn(seed, batch, n, scale=scale), drawn(seed + 1, batch, n, scale=scale)
    actions = torch.from_numpy(np.random.default_rng(seed).integers(0, n, batch))
    old, new = (torch_distributions.Categorical(logits=each.double()) for each in (logits, others))
    assert_formulas(
        head(spaces.Discrete(n, start=start)),
        logits,
        actions,
        old.log_prob(actions),
        old.entropy(),
        others,
        torch_distributions.kl_divergence(old, new),
    )


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), batch=batches, scale=scales, seed=seeds)
@each_example
def test_multi_categorical_is_a_sum_over_choices(
    sizes: list[int], batch: int, scale: float, seed: int
) -> None:
    logits, others = drawn(seed, batch, sum(sizes), scale=scale), drawn(seed + 1, batch, sum(sizes))
    actions = torch.from_numpy(np.random.default_rng(seed).integers(0, sizes, (batch, len(sizes))))
    old, new = (
        [torch_distributions.Categorical(logits=part.double()) for part in each.split(sizes, dim=1)]
        for each in (logits, others)
    )
    assert_formulas(
        head(spaces.MultiDiscrete(sizes)),
        logits,
        actions,
        sum((choice.log_prob(actions[:, i]) for i, choice in enumerate(old)), torch.zeros(())),
        sum((choice.entropy() for choice in old), torch.zeros(())),
        others,
        sum(
            (torch_distributions.kl_divergence(a, b) for a, b in zip(old, new, strict=True)), torch.zeros(())
        ),
    )


@given(shape=st.sampled_from([(1,), (3,), (2, 3)]), batch=batches, scale=scales, seed=seeds)
@each_example
def test_bernoulli_is_torchs(shape: tuple[int, ...], batch: int, scale: float, seed: int) -> None:
    size = math.prod(shape)
    logits, others = drawn(seed, batch, size, scale=scale), drawn(seed + 1, batch, size)
    actions = torch.from_numpy(np.random.default_rng(seed).integers(0, 2, (batch, size), dtype=np.int8))
    old, new = (
        torch_distributions.Independent(torch_distributions.Bernoulli(logits=each.double()), 1)
        for each in (logits, others)
    )
    assert_formulas(
        head(spaces.MultiBinary(shape)),
        logits,
        actions,
        old.log_prob(actions.double()),
        old.entropy(),
        others,
        torch_distributions.kl_divergence(old, new),
    )


CHOICES: list[tuple[spaces.Space[Any], list[int]]] = [
    (spaces.Discrete(5), [5]),
    (spaces.MultiDiscrete([2, 4, 1]), [2, 4, 1]),
    (spaces.MultiBinary(3), [2, 2, 2]),
]


def as_pairs(space: spaces.Space[Any], logits: Tensor) -> Tensor:
    """Return a logit for each alternative; a bit's alternatives are zero, with logit 0, and one."""
    if not isinstance(space, spaces.MultiBinary):
        return logits
    return torch.stack([torch.zeros_like(logits), logits], dim=-1).flatten(1)


@pytest.mark.parametrize(("space", "sizes"), CHOICES, ids=str)
@given(batch=batches, scale=scales, seed=seeds)
@each_example
def test_masked_is_a_distribution_over_the_valid_actions_alone(
    space: spaces.Space[Any], sizes: list[int], batch: int, scale: float, seed: int
) -> None:
    ours = head(space)
    logits = drawn(seed, batch, ours.parameter_size, scale=scale).requires_grad_()
    others = drawn(seed + 1, batch, ours.parameter_size, scale=scale)
    masks = valid_masks(seed, batch, sizes)
    assert ours.mask_size == masks.shape[1]
    theirs = renormalised(as_pairs(space, logits), masks, sizes)
    their_others = renormalised(as_pairs(space, others), masks, sizes)
    taken = [[choice.indices[seed % len(choice.indices)] for choice in row] for row in theirs]
    actions = torch.tensor(taken) if len(sizes) > 1 else torch.tensor(taken)[:, 0]
    masked = ours.masked(logits, masks)

    def summed(values: Any) -> Tensor:
        return torch.stack([torch.stack(row).sum() for row in values])

    assert_formulas(
        ours,
        masked,
        actions,
        summed(
            [[c.log_prob(a) for c, a in zip(*pair, strict=True)] for pair in zip(theirs, taken, strict=True)]
        ),
        summed([[choice.entropy() for choice in row] for row in theirs]),
        ours.masked(others, masks),
        summed(
            [[a.kl(b) for a, b in zip(*pair, strict=True)] for pair in zip(theirs, their_others, strict=True)]
        ),
    )
    log_prob, entropy = ours.log_prob_and_entropy(masked, actions)
    kl = ours.kl(ours.masked(others, masks), masked)
    is_free = masks if ours.mask_size == ours.parameter_size else masks.reshape(batch, -1, 2).all(-1)
    for value in (log_prob, entropy, kl, ours.kl(masked, ours.masked(others, masks))):
        (gradient,) = torch.autograd.grad(value.sum(), logits, retain_graph=True)
        assert (gradient[~is_free] == 0).all()
        assert gradient.isfinite().all()


@pytest.mark.parametrize(("space", "sizes"), CHOICES, ids=str)
def test_arrays_are_masked_as_tensors_are_and_only_valid_actions_are_drawn(
    space: spaces.Space[Any], sizes: list[int]
) -> None:
    ours, rng = head(space), np.random.default_rng(0)
    parameters = rng.normal(0, 3, (500, ours.parameter_size)).astype(np.float32)
    masks = valid_masks(0, 500, sizes)
    masked = ours.masked(parameters, masks.numpy())
    assert masked.dtype == np.float32
    np.testing.assert_array_equal(masked, ours.masked(torch.from_numpy(parameters), masks).numpy())
    starts = np.cumsum([0, *sizes[:-1]])
    for actions in (ours.mode(masked), ours.sample(masked, ours.noise(rng, (500,)))):
        chosen = actions.reshape(500, -1) + starts
        assert np.take_along_axis(masks.numpy(), chosen.astype(int), axis=1).all()
    assert ours.masked(parameters, None) is parameters


@pytest.mark.parametrize(("space", "sizes"), CHOICES, ids=str)
def test_a_row_without_a_valid_action_is_refused(space: spaces.Space[Any], sizes: list[int]) -> None:
    ours = head(space)
    parameters = np.zeros((3, ours.parameter_size), np.float32)
    for start, size in zip(np.cumsum([0, *sizes[:-1]]), sizes, strict=True):
        masks = np.ones((3, sum(sizes)), bool)
        masks[1, start : start + size] = False
        with pytest.raises(ZooError, match="forbids every action"):
            ours.masked(parameters, masks)
    with pytest.raises(ZooError, match=f"9 entries, but this space needs {sum(sizes)}"):
        ours.masked(parameters, np.ones((3, 9), bool))


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_formulas_and_their_gradients_are_finite_at_extreme_parameters(scale: float) -> None:
    cases: list[tuple[spaces.Space[Any], Tensor]] = [
        (spaces.Discrete(3), torch.tensor([0, 2])),
        (spaces.MultiDiscrete([2, 3]), torch.tensor([[0, 2], [1, 0]])),
        (spaces.MultiBinary(2), torch.tensor([[0, 1], [1, 1]], dtype=torch.int8)),
    ]
    for space, actions in cases:
        ours = head(space)
        logits = drawn(3, 2, ours.parameter_size, scale=scale).requires_grad_()
        log_prob, entropy = ours.log_prob_and_entropy(logits, actions)
        kl = ours.kl(logits.flip(0), logits)
        (gradient,) = torch.autograd.grad((log_prob + entropy + kl).sum(), logits)
        for values in (log_prob, entropy, kl, gradient):
            assert values.isfinite().all()


def draws(space: spaces.Space[Any], parameters: Any) -> np.ndarray:
    """Draw many actions with the same parameters."""
    ours = head(space)
    noise = ours.noise(np.random.default_rng(0), (N_DRAWS,))
    assert noise.shape == (N_DRAWS, ours.noise_size)
    assert noise.dtype == np.float32
    return ours.sample(np.tile(np.asarray(parameters, np.float32), (N_DRAWS, 1)), noise)


def assert_share(hits: np.ndarray, probability: float) -> None:
    """Allow five standard deviations of the mean of so many draws."""
    slack = 5 * math.sqrt(probability * (1 - probability) / N_DRAWS) + 1e-9
    assert hits.mean() == pytest.approx(probability, abs=slack)


def test_categorical_draws_have_their_probabilities() -> None:
    probabilities = [0.6, 0.25, 0.1, 0.05, 0.0]
    logits = np.log(np.array(probabilities) + 1e-30)
    actions = draws(spaces.Discrete(5, start=3), logits)
    for action, probability in enumerate(probabilities):
        assert_share(actions == action, probability)
    np.testing.assert_allclose(
        head(spaces.Discrete(5)).describe(np.float32([logits])), [probabilities], atol=1e-6
    )


def test_multi_categorical_draws_are_independent_and_have_their_probabilities() -> None:
    first, second = [0.2, 0.8], [0.5, 0.3, 0.2]
    logits = np.log([*first, *second])
    actions = draws(spaces.MultiDiscrete([2, 3]), logits)
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            assert_share((actions[:, 0] == i) & (actions[:, 1] == j), one * other)
    described = head(spaces.MultiDiscrete([2, 3])).describe(np.float32([logits]))
    np.testing.assert_allclose(described[0], [first], rtol=1e-5)
    np.testing.assert_allclose(described[1], [second], rtol=1e-5)


def test_bernoulli_draws_are_independent_and_have_their_probabilities() -> None:
    probabilities = np.array([0.1, 0.7])
    logits = np.log(probabilities / (1 - probabilities))
    actions = draws(spaces.MultiBinary(2), logits)
    assert actions.dtype == np.int8
    assert_share(actions[:, 0] == 1, 0.1)
    assert_share(actions[:, 1] == 1, 0.7)
    assert_share((actions == 1).all(1), 0.07)
    described = head(spaces.MultiBinary(2)).describe(np.float32([logits, [-1e8, 1e8]]))
    np.testing.assert_allclose(described, [probabilities, [0, 1]], rtol=1e-5)


@pytest.mark.parametrize(("space", "sizes"), CHOICES, ids=str)
def test_leading_dimensions_are_free(space: spaces.Space[Any], sizes: list[int]) -> None:
    ours, features = head(space), torch.randn(2, 4, 3)
    parameters = ours.masked(ours(features), valid_masks(1, 8, sizes).reshape(2, 4, -1))
    flat = parameters.flatten(0, 1)
    noise = ours.noise(np.random.default_rng(0), (2, 4))
    actions = ours.sample(parameters.detach().numpy(), noise)
    taken = torch.from_numpy(actions)
    for ours_now, flat_now in zip(
        ours.log_prob_and_entropy(parameters, taken),
        ours.log_prob_and_entropy(flat, taken.flatten(0, 1)),
        strict=True,
    ):
        assert ours_now.shape == (2, 4)
        assert torch.equal(ours_now.flatten(), flat_now)
    assert ours.kl(parameters, 2 * parameters).shape == (2, 4)


def test_pick_is_gather() -> None:
    values, index = torch.randn(2, 3, 5), torch.randint(5, (2, 3))
    assert torch.equal(gather(values, index), values.gather(-1, index.unsqueeze(-1)).squeeze(-1))


PARTS = {
    "arm/0": spaces.Discrete(3, start=2),
    "arm/1": spaces.Box(-1.0, 2.0, (2, 1), np.float32),
    "bits": spaces.MultiBinary(2),
    "gear": spaces.MultiDiscrete([2, 3]),
}
ARM = spaces.Tuple((PARTS["arm/0"], PARTS["arm/1"]))
DICT = spaces.Dict({"arm": ARM, "bits": PARTS["bits"], "gear": PARTS["gear"]})
TUPLE = spaces.Tuple((spaces.Dict({"a": PARTS["arm/0"], "b": PARTS["gear"]}), PARTS["arm/1"], PARTS["bits"]))
COMPOSITES = pytest.mark.parametrize("space", [DICT, TUPLE], ids=["dict", "tuple"])
MASK_SIZES = {"arm/0": [3], "arm/1": [], "bits": [2, 2], "gear": [2, 3]}


def composite(space: spaces.Space[Any]) -> CompositeDistribution:
    torch.manual_seed(0)
    made = make_distribution(space, 3, PolicyConfig(log_std_init=-0.5))
    assert isinstance(made, CompositeDistribution)
    return made


def tensors(actions: dict[str, np.ndarray]) -> dict[str, Tensor]:
    return {path: torch.from_numpy(part) for path, part in actions.items()}


def composite_draw(ours: CompositeDistribution, parameters: Tensor, seed: int = 0) -> dict[str, np.ndarray]:
    noise = ours.noise(np.random.default_rng(seed), parameters.shape[:-1])
    assert noise.shape == (*parameters.shape[:-1], ours.noise_size)
    return ours.sample(parameters.detach().numpy(), noise)


@COMPOSITES
@pytest.mark.parametrize("leading", [(5,), (2, 3)])
def test_every_result_is_the_sum_over_the_parts(space: spaces.Space[Any], leading: tuple[int, ...]) -> None:
    ours = composite(space)
    parameters = ours(torch.randn(*leading, 3))
    other = parameters + 0.5 * torch.randn_like(parameters)
    actions = tensors(composite_draw(ours, parameters))
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


@COMPOSITES
def test_actions_go_to_the_environment_and_back(space: spaces.Space[Any]) -> None:
    ours, action_adapter = composite(space), make_action_adapter(space, scaled=False)
    parameters = 3 * torch.randn(7, ours.parameter_size)
    for actions in (
        composite_draw(ours, parameters),
        ours.mode(parameters.numpy()),
        action_adapter.random(np.random.default_rng(0), 7),
    ):
        assert actions.keys() == action_adapter.spec.keys()
        for path, part in actions.items():
            assert part.shape == (7, *action_adapter.spec[path].shape)
            assert part.dtype == action_adapter.spec[path].dtype
        taken = action_adapter.to_env(actions)
        assert batch_space(space, 7).contains(taken)
        again = action_adapter.to_env(action_adapter.from_env(taken))
        torch.testing.assert_close(again, taken)


@COMPOSITES
def test_masks_of_the_parts_stand_side_by_side(space: spaces.Space[Any]) -> None:
    ours = composite(space)
    heads = list(ours.heads.values())
    kinds = [next(name for name, part in PARTS.items() if part == leaf) for _, leaf in leaf_spaces(space)]
    sizes = [size for kind in kinds for size in MASK_SIZES[kind]]
    assert ours.mask_size == sum(sizes)
    masks, parameters = valid_masks(3, 200, sizes), torch.randn(200, ours.parameter_size)
    masked = ours.masked(parameters, masks)
    np.testing.assert_array_equal(ours.masked(parameters.numpy(), masks.numpy()), masked.numpy())
    parts = zip(
        heads,
        masked.split([head.parameter_size for head in heads], -1),
        parameters.split([head.parameter_size for head in heads], -1),
        masks.split([head.mask_size or 0 for head in heads], -1),
        strict=True,
    )
    for head_of_part, found, free, mask in parts:
        assert torch.equal(found, free if head_of_part.mask_size is None else head_of_part.masked(free, mask))
    start = 0
    for size in sizes:
        forbidden = np.ones((2, sum(sizes)), bool)
        forbidden[1, start : start + size] = False
        with pytest.raises(ZooError, match="forbids every action"):
            ours.masked(np.zeros((2, ours.parameter_size), np.float32), forbidden)
        start += size


def test_descriptions_are_nested_like_the_actions() -> None:
    ours = composite(DICT)
    described = ours.describe(np.zeros((4, ours.parameter_size), np.float32))
    np.testing.assert_allclose(described["arm"][0], np.full((4, 3), 1 / 3))
    assert [part.shape for part in described["arm"][1]] == [(4, 2), (4, 2)]
    np.testing.assert_allclose(described["bits"], np.full((4, 2), 0.5))
    assert [part.shape for part in described["gear"]] == [(4, 2), (4, 3)]


def test_without_choices_nothing_can_be_masked() -> None:
    assert composite(spaces.Tuple((PARTS["arm/1"], PARTS["arm/1"]))).mask_size is None


def test_cloning_settles_the_entropy_where_it_settles_that_of_any_part() -> None:
    choice, numbers = PARTS["arm/0"], PARTS["arm/1"]
    for parts, settles in (((choice, choice), True), ((choice, numbers), True), ((numbers, numbers), False)):
        assert composite(spaces.Tuple(parts)).cloning_settles_entropy == settles


def test_a_space_without_a_head_is_refused() -> None:
    for space in (spaces.Text(3), spaces.Tuple((spaces.Discrete(2), spaces.Text(3)))):
        with pytest.raises(ZooError, match="not supported"):
            make_distribution(space, 3, PolicyConfig())
