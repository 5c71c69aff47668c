"""Action distributions: torch's formulas, integrals, draws, and masks."""

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
from torch import Tensor, distributions, nn

from zoo.errors import ZooError
from zoo.policies.acting import leaf_spaces, make_action_adapter
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.config import PolicyConfig
from zoo.policies.continuous import SquashedActor
from zoo.policies.distributions import (
    LOG_STD_RANGE,
    ActionDistribution,
    CompositeDistribution,
    DiagonalGaussian,
    SquashedGaussian,
    SquashedStateDependentGaussian,
    StateDependentGaussian,
    expln,
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


each_example = settings(derandomize=True, max_examples=40)
seeds = st.integers(0, 2**16)
batches = st.integers(1, 5)
scales = st.sampled_from([0.1, 1.0, 30.0])
N_DRAWS = 20_000


def head(space: spaces.Space[Any]) -> Any:
    return make_distribution(space, 3, PolicyConfig())


def drawn(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_formulas(
    ours: ActionDistribution, parameters: Tensor, actions: Tensor, other: Tensor, *expected: Tensor
) -> None:
    """Compare log-probability, entropy, and divergence with what somebody else computed."""
    both = ours.log_prob_and_entropy(parameters, actions)
    for found, wanted in zip((*both, ours.kl(parameters, other)), expected, strict=True):
        torch.testing.assert_close(found.double(), wanted.double(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.log_prob(parameters, actions), both[0])
    torch.testing.assert_close(ours.entropy(parameters), both[1])
    if not isinstance(ours, DiagonalGaussian | StateDependentGaussian):
        torch.testing.assert_close(ours.imitation_loss(parameters, actions), -both[0])


@given(n=st.integers(1, 7), start=st.integers(-3, 3), batch=batches, scale=scales, seed=seeds)
@each_example
def test_categorical_is_torchs(n: int, start: int, batch: int, scale: float, seed: int) -> None:
    logits, others = drawn(seed, batch, n, scale=scale), drawn(seed + 1, batch, n, scale=scale)
    actions = torch.from_numpy(np.random.default_rng(seed).integers(0, n, batch))
    old, new = (distributions.Categorical(logits=each.double()) for each in (logits, others))
    expected = old.log_prob(actions), old.entropy(), distributions.kl_divergence(old, new)
    assert_formulas(head(spaces.Discrete(n, start=start)), logits, actions, others, *expected)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), batch=batches, scale=scales, seed=seeds)
@each_example
def test_multi_categorical_is_a_sum_of_choices(sizes: list[int], batch: int, scale: float, seed: int) -> None:
    logits, others = drawn(seed, batch, sum(sizes), scale=scale), drawn(seed + 1, batch, sum(sizes))
    actions = torch.from_numpy(np.random.default_rng(seed).integers(0, sizes, (batch, len(sizes))))
    old, new = (
        [distributions.Categorical(logits=part.double()) for part in each.split(sizes, dim=1)]
        for each in (logits, others)
    )
    log_prob = torch.stack([choice.log_prob(actions[:, i]) for i, choice in enumerate(old)]).sum(0)
    entropy = torch.stack([choice.entropy() for choice in old]).sum(0)
    kl = torch.stack([distributions.kl_divergence(*pair) for pair in zip(old, new, strict=True)]).sum(0)
    assert_formulas(head(spaces.MultiDiscrete(sizes)), logits, actions, others, log_prob, entropy, kl)


@given(shape=st.sampled_from([(1,), (3,), (2, 3)]), batch=batches, scale=scales, seed=seeds)
@each_example
def test_bernoulli_is_torchs(shape: tuple[int, ...], batch: int, scale: float, seed: int) -> None:
    size = math.prod(shape)
    logits, others = drawn(seed, batch, size, scale=scale), drawn(seed + 1, batch, size)
    actions = torch.from_numpy(np.random.default_rng(seed).integers(0, 2, (batch, size), dtype=np.int8))
    old, new = (
        distributions.Independent(distributions.Bernoulli(logits=each.double()), 1)
        for each in (logits, others)
    )
    expected = old.log_prob(actions.double()), old.entropy(), distributions.kl_divergence(old, new)
    assert_formulas(head(spaces.MultiBinary(shape)), logits, actions, others, *expected)


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
def test_masked_head_renormalizes_over_valid_actions(
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

    rows = list(zip(theirs, taken, their_others, strict=True))
    their_log_prob = summed([c.log_prob(a) for c, a in zip(*row[:2], strict=True)] for row in rows)
    their_entropy = summed([choice.entropy() for choice in row] for row in theirs)
    their_kl = summed([a.kl(b) for a, b in zip(row[0], row[2], strict=True)] for row in rows)
    other = ours.masked(others, masks)
    assert_formulas(ours, masked, actions, other, their_log_prob, their_entropy, their_kl)
    log_prob, entropy = ours.log_prob_and_entropy(masked, actions)
    is_free = masks if ours.mask_size == ours.parameter_size else masks.reshape(batch, -1, 2).all(-1)
    for value in (log_prob, entropy, ours.kl(other, masked), ours.kl(masked, other)):
        (gradient,) = torch.autograd.grad(value.sum(), logits, retain_graph=True)
        assert (gradient[~is_free] == 0).all()
        assert gradient.isfinite().all()


@pytest.mark.parametrize(("space", "sizes"), CHOICES, ids=str)
def test_array_masks_equal_tensor_masks_and_hold(space: spaces.Space[Any], sizes: list[int]) -> None:
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


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_formulas_are_finite_at_extreme_parameters(scale: float) -> None:
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


def test_multi_categorical_samples_match_probabilities() -> None:
    first, second = [0.2, 0.8], [0.5, 0.3, 0.2]
    logits = np.log([*first, *second])
    actions = draws(spaces.MultiDiscrete([2, 3]), logits)
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            assert_share((actions[:, 0] == i) & (actions[:, 1] == j), one * other)
    described = head(spaces.MultiDiscrete([2, 3])).describe(np.float32([logits]))
    np.testing.assert_allclose(described[0], [first], rtol=1e-5)
    np.testing.assert_allclose(described[1], [second], rtol=1e-5)


def test_bernoulli_samples_match_probabilities() -> None:
    probabilities = np.array([0.1, 0.7])
    logits = np.log(probabilities / (1 - probabilities))
    actions = draws(spaces.MultiBinary(2), logits)
    assert actions.dtype == np.int8
    assert_share(actions[:, 0] == 1, 0.1)
    assert_share(actions[:, 1] == 1, 0.7)
    assert_share((actions == 1).all(1), 0.07)
    described = head(spaces.MultiBinary(2)).describe(np.float32([logits, [-1e8, 1e8]]))
    np.testing.assert_allclose(described, [probabilities, [0, 1]], rtol=1e-5)


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
    for actions in (composite_draw(ours, parameters), ours.mode(parameters.numpy())):
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
    widths, mask_sizes = ([head.parameter_size for head in heads], [head.mask_size or 0 for head in heads])
    parts = masked.split(widths, -1), parameters.split(widths, -1), masks.split(mask_sizes, -1)
    for head_of_part, found, free, mask in zip(heads, *parts, strict=True):
        assert torch.equal(found, free if head_of_part.mask_size is None else head_of_part.masked(free, mask))


def test_a_space_without_a_head_is_refused() -> None:
    for space in (spaces.Text(3), spaces.Tuple((spaces.Discrete(2), spaces.Text(3)))):
        with pytest.raises(ZooError, match="not supported"):
            make_distribution(space, 3, PolicyConfig())


def box(n: int) -> spaces.Box:
    return spaces.Box(-1.0, 1.0, (n,), np.float32)


def gaussian(n: int) -> DiagonalGaussian:
    return DiagonalGaussian(box(n), 3, 0.0)


def squashed(n: int) -> SquashedGaussian:
    return SquashedGaussian(box(n), 3)


def normal(parameters: Tensor) -> distributions.Independent:
    mean, log_std = parameters.double().chunk(2, dim=-1)
    return distributions.Independent(distributions.Normal(mean, log_std.exp()), 1)


@given(n=st.integers(1, 4), batch=batches, scale=scales, seed=st.integers(0, 999))
@each_example
def test_diagonal_gaussian_is_torchs(n: int, batch: int, scale: float, seed: int) -> None:
    old, new = (
        torch.cat([drawn(s, batch, n, scale=scale), drawn(s + 2, batch, n)], -1) for s in (seed, seed + 1)
    )
    actions = drawn(seed + 9, batch, n, scale=scale)
    theirs = normal(old)
    divergence = distributions.kl_divergence(theirs, normal(new))
    log_prob = theirs.log_prob(actions.double())
    assert_formulas(gaussian(n), old, actions, new, log_prob, theirs.entropy(), divergence)
    torch.testing.assert_close(squashed(n).kl(old, new), divergence.float(), rtol=1e-4, atol=1e-4)


def test_gaussian_draws_have_their_moments() -> None:
    head, log_std = gaussian(2), np.log(np.array([0.1, 2.0]))
    parameters = np.tile(np.float32([0.5, -3.0, *log_std]), (N_DRAWS, 1))
    before = parameters.copy()
    noise = head.noise(np.random.default_rng(0), (N_DRAWS,))
    actions = head.sample(parameters, noise)
    standardised = (actions - [0.5, -3.0]) / [0.1, 2.0]
    np.testing.assert_allclose(standardised.mean(0), 0.0, atol=5 / math.sqrt(N_DRAWS))
    np.testing.assert_allclose(standardised.std(0), 1.0, atol=5 / math.sqrt(2 * N_DRAWS))
    assert abs(np.corrcoef(standardised.T)[0, 1]) < 5 / math.sqrt(N_DRAWS)
    np.testing.assert_array_equal(parameters, before)
    np.testing.assert_array_equal(squashed(2).sample(parameters, noise), np.tanh(actions))


def test_imitation_loss_trains_mean_and_not_deviation() -> None:
    parameters = torch.tensor([[0.5, -1.0, 0.3, 0.3]], requires_grad=True)
    expert = torch.tensor([[0.1, 0.2]])
    for head, mean in ((gaussian(2), parameters[:, :2]), (squashed(2), parameters[:, :2].tanh())):
        loss = head.imitation_loss(parameters, expert)
        torch.testing.assert_close(loss, nn.functional.mse_loss(mean, expert).reshape(1))
        (gradient,) = torch.autograd.grad(loss.sum(), parameters)
        assert gradient[:, :2].all()
        assert not gradient[:, 2:].any()


def transformed(parameters: Tensor) -> distributions.TransformedDistribution:
    return distributions.TransformedDistribution(
        normal(parameters), [distributions.TanhTransform(cache_size=1)]
    )


def test_squashed_log_prob_matches_transformed_normal() -> None:
    head, noise = squashed(2), torch.randn(6, 10, 2)
    parameters = head(torch.randn(6, 10, 3)).detach().requires_grad_()
    actions, log_prob = head.rsample(parameters, noise)
    mean, log_std = parameters.double().chunk(2, dim=-1)
    theirs = torch.tanh(mean + log_std.exp() * noise)
    expected = transformed(parameters).log_prob(theirs)
    assert log_prob.shape == (6, 10)
    torch.testing.assert_close(log_prob, expected.float(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(actions, theirs.float())
    (gradient,) = torch.autograd.grad((log_prob + actions.sum(-1)).sum(), parameters, retain_graph=True)
    (their_gradient,) = torch.autograd.grad((expected + theirs.sum(-1)).sum(), parameters)
    torch.testing.assert_close(gradient, their_gradient, rtol=1e-3, atol=1e-3)
    given_actions = 1.9 * torch.rand(6, 10, 2) - 0.95
    expected = transformed(parameters).log_prob(given_actions.double())
    torch.testing.assert_close(
        head.log_prob(parameters, given_actions), expected.float(), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -3.0), (-1.5, 1.0)])
def test_squashed_entropy_is_the_integral(mean: float, log_std: float) -> None:
    noise = torch.linspace(-10, 10, 100_001, dtype=torch.float64)
    u = mean + math.exp(log_std) * noise
    log_density = -0.5 * noise**2 - 0.5 * math.log(2 * math.pi) - log_std
    weight = (-0.5 * noise**2).exp() / math.sqrt(2 * math.pi)
    expected = torch.trapezoid(weight * -(log_density + 2 * u.cosh().log()), noise).item()
    parameters = torch.tensor([mean, log_std])
    assert squashed(1).entropy(parameters).item() == pytest.approx(expected, abs=0.01)
    assert squashed(1).log_prob_and_entropy(parameters, torch.zeros(1))[1] == squashed(1).entropy(parameters)


def test_everything_is_finite_where_tanh_saturates() -> None:
    for mean in (30.0, -30.0, 1000.0):
        parameters = torch.tensor([[mean, 2.0]] * 3, requires_grad=True)
        actions, log_prob = squashed(1).rsample(parameters, torch.tensor([[-2.0], [0.0], [2.0]]))
        assert log_prob.isfinite().all()
        assert (actions.abs() <= 1).all()
        assert torch.autograd.grad(log_prob.sum(), parameters)[0].isfinite().all()
        assert squashed(1).log_prob(parameters, actions).isfinite().all()


@pytest.mark.parametrize(("given_log_std", "used"), [(-100.0, LOG_STD_RANGE[0]), (100.0, LOG_STD_RANGE[1])])
def test_squashed_log_std_is_bounded(given_log_std: float, used: float) -> None:
    head = squashed(2)
    nn.init.zeros_(head.log_std.weight)
    nn.init.constant_(head.log_std.bias, given_log_std)
    assert (head(torch.randn(4, 3))[:, 2:] == used).all()


N, F = 2, 5
BOX = spaces.Box(-1.0, 1.0, (N,), np.float32)
VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
KINDS = pytest.mark.parametrize("full_std", [True, False], ids=["full", "by feature"])
CURVES = pytest.mark.parametrize("use_expln", [False, True], ids=["exp", "expln"])


def sde(squash: bool = False, *, learns: bool = True, **fields: Any) -> StateDependentGaussian:
    torch.manual_seed(0)
    head_class = SquashedStateDependentGaussian if squash else StateDependentGaussian
    config = PolicyConfig(**{"log_std_init": -1.0, "clip_mean": 0.0, **fields})
    made = head_class(BOX, F, config, off_policy=learns)
    with torch.no_grad():
        made.log_std.add_(torch.randn_like(made.log_std))
    return made


def deviations(made: StateDependentGaussian) -> Tensor:
    """Return σ (features, actions) in double precision, written out."""
    log_std = made.log_std.detach().double().expand(F, N)
    if not made.use_expln:
        return log_std.exp()
    sizes = [1 + np.log(1 + x) if x > 0 else np.exp(x) for x in log_std.flatten().tolist()]
    return torch.tensor(sizes).reshape(F, N)


def sde_normal(made: StateDependentGaussian, features: Tensor) -> distributions.Normal:
    """Return the distribution of each action in double precision, written out."""
    features = features.detach().double()
    mean = features @ made.mean.weight.detach().double().T + made.mean.bias.detach().double()
    sizes = deviations(made)
    variance = torch.stack([(features**2 * sizes[:, j] ** 2).sum(-1) for j in range(N)], dim=-1)
    return distributions.Normal(mean, (variance + 1e-6).sqrt())


@KINDS
@CURVES
def test_parameters_are_mean_deviation_and_features(full_std: bool, use_expln: bool) -> None:
    made = sde(full_std=full_std, use_expln=use_expln)
    assert made.log_std.shape == (F, N if full_std else 1)
    features = torch.randn(3, 4, F)
    parameters = made(features)
    assert parameters.shape == (3, 4, made.parameter_size)
    expected = sde_normal(made, features)
    mean, std = made.describe(parameters.detach().numpy())
    np.testing.assert_allclose(mean, expected.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(std, expected.stddev, rtol=1e-4)
    torch.testing.assert_close(parameters[..., 2 * N :], features)
    np.testing.assert_array_equal(made.mode(parameters.detach().numpy()), mean)


@KINDS
@CURVES
def test_sde_noise_has_the_variance_of_log_prob(full_std: bool, use_expln: bool) -> None:
    made, n_draws = sde(full_std=full_std, use_expln=use_expln), 40_000
    features = torch.randn(1, F)
    parameters = made(features).detach().numpy()
    noise = made.noise(np.random.default_rng(0), (n_draws,))
    assert noise.shape == (n_draws, made.noise_size) == (n_draws, F * N)
    sde_drawn = made.sample(np.tile(parameters, (n_draws, 1)), noise)
    assert sde_drawn.dtype == np.float32
    expected = sde_normal(made, features)
    within = 6 / np.sqrt(n_draws)
    atol = within * float(expected.stddev.max())
    np.testing.assert_allclose((sde_drawn - expected.mean.numpy()).mean(0), 0, atol=atol)
    np.testing.assert_allclose(sde_drawn.var(0), expected.variance[0], rtol=within)
    assert abs(np.corrcoef(sde_drawn.T)[0, 1]) < within
    weights = noise.reshape(n_draws, F, N)
    np.testing.assert_allclose(weights.std(0), deviations(made), rtol=within)


def test_each_row_has_noise_by_its_own_weights() -> None:
    made = sde()
    parameters = made(torch.randn(6, F)).detach().numpy()
    noise = made.noise(np.random.default_rng(0), (6,))
    slow = np.zeros((6, N))
    for row in range(6):
        for action in range(N):
            for feature in range(F):
                weight = noise[row].reshape(F, N)[feature, action]
                slow[row, action] += parameters[row, 2 * N + feature] * weight
    expected, squashing = parameters[:, :N] + slow, sde(squash=True)
    np.testing.assert_allclose(made.sample(parameters, noise), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(squashing.sample(parameters, noise), np.tanh(expected), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(squashing.mode(parameters), np.tanh(parameters[:, :N]), rtol=1e-6)


@KINDS
def test_sde_formulas_are_those_of_a_normal(full_std: bool) -> None:
    made, other = sde(full_std=full_std), sde(full_std=full_std, use_expln=True)
    features, actions = torch.randn(7, F), torch.randn(7, N)
    parameters, expected = made(features), sde_normal(made, features)
    log_prob, entropy = expected.log_prob(actions.double()).sum(-1), expected.entropy().sum(-1)
    divergence = distributions.kl_divergence(expected, sde_normal(other, features)).sum(-1)
    assert_formulas(made, parameters, actions, other(features), log_prob, entropy, divergence)
    error = (expected.mean - actions).square().mean(-1)
    found = made.imitation_loss(parameters, actions)
    torch.testing.assert_close(found, error, rtol=1e-4, atol=1e-4, check_dtype=False)


@pytest.mark.parametrize("learns", [True, False])
def test_deviation_trains_features_only_if_learned(learns: bool) -> None:
    made, features = sde(learns=learns), torch.randn(6, F, requires_grad=True)
    log_prob, entropy = made.log_prob_and_entropy(made(features), torch.randn(6, N))
    of = [features, made.log_std]
    by_entropy = torch.autograd.grad(entropy.sum(), of, retain_graph=True, allow_unused=True)
    assert (by_entropy[0] is not None and bool(by_entropy[0].any())) == learns
    assert by_entropy[1] is not None
    assert by_entropy[1].all()
    by_mean, through_mean = torch.autograd.grad(log_prob.sum(), [features, made.mean.weight])
    assert by_mean.any()
    assert through_mean.any()


def test_sde_gradients_match_those_of_sampled_weights() -> None:
    """Of E f(a), by a number for each action as by a W for each sample, in the closed form of a quadratic."""
    made = sde(squash=True, use_expln=True).double()
    assert isinstance(made, SquashedStateDependentGaussian)
    row = torch.randn(1, F).double().requires_grad_()
    of = [row, made.log_std, made.mean.weight, made.mean.bias]
    n_draws = 200_000
    wanted = torch.tensor([0.3, -0.2]).double()
    generator = torch.Generator().manual_seed(0)

    def gradients(actions: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad((actions - wanted).square().sum(-1).mean(), of))

    standard = torch.randn(n_draws, N, generator=generator, dtype=torch.float64)
    ours = gradients(made.rsample(made(row).expand(n_draws, -1), standard)[0])
    weights = made.deviations() * torch.randn(n_draws, F, N, generator=generator, dtype=torch.float64)
    through_weights = gradients(torch.tanh(made.mean(row) + torch.einsum("bf,nfa->na", row, weights)))
    for one, other in zip(ours, through_weights, strict=True):
        assert one.abs().max() > 0.01
        torch.testing.assert_close(one, other, rtol=0.03, atol=0.01)


def test_means_are_clipped_where_a_bound_is_given() -> None:
    features = 50 * torch.randn(20, F)
    free = sde()(features)[:, :N]
    assert free.abs().max() > 2
    clipped = sde(clip_mean=None)(features)[:, :N]
    torch.testing.assert_close(clipped, free.clamp(-2, 2))
    torch.testing.assert_close(sde(clip_mean=2.0)(features)[:, :N], clipped)
    torch.testing.assert_close(sde(learns=False, clip_mean=None)(features)[:, :N], free)


def test_expln_is_smooth_at_zero_and_slower_above() -> None:
    values = torch.tensor([-3.0, -1e-3, 0.0, 1e-3, 2.0], dtype=torch.float64, requires_grad=True)
    sizes = expln(values)
    expected = [np.exp(-3.0), np.exp(-1e-3), 1.0, 1 + np.log1p(1e-3), 1 + np.log(3)]
    np.testing.assert_allclose(sizes.detach(), expected)
    (grads,) = torch.autograd.grad(sizes.sum(), values)
    np.testing.assert_allclose(grads, [np.exp(-3.0), np.exp(-1e-3), 1.0, 1 / 1.001, 1 / 3])


def test_each_family_has_its_own_defaults() -> None:
    def heads(**fields: Any) -> tuple[Any, Any]:
        config = PolicyConfig(**fields)
        return tuple(kind(VECTOR, BOX, config, use_sde=True).head for kind in (ActorCritic, SquashedActor))  # type: ignore[return-value]

    on_policy, off_policy = heads()
    assert type(on_policy) is StateDependentGaussian
    assert type(off_policy) is SquashedStateDependentGaussian
    assert (on_policy.learns_features, on_policy.clip_mean) == (False, 0.0)
    assert (off_policy.learns_features, off_policy.clip_mean) == (True, 2.0)
    assert (on_policy.log_std == 0).all()
    assert (off_policy.log_std == -3).all()
    assert all((each.log_std == -2).all() for each in heads(log_std_init=-2))
    squashed_head, _ = heads(squash_output=True)
    assert type(squashed_head) is SquashedStateDependentGaussian
    assert not squashed_head.learns_features
