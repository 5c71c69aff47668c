"""The discriminator against a slow reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from zoo.envs.spaces import is_image
from zoo.imitation import discriminator as module
from zoo.imitation.discriminator import Discriminator, by_path
from zoo.imitation.expert_data import ExpertData
from zoo.imitation.gail import GAIL
from zoo.policies.acting import to_tensors
from zoo.policies.networks import SpectralNorm

# -- The loss of GAIL's discriminator once more: in NumPy, in double precision, pair by pair --------------

Array = np.ndarray
Layers = list[tuple[Array, Array]]
"""Weights (out, in) and biases (out,); tanh between the layers."""


def logit(layers: Layers, pair: Array) -> float:
    hidden = pair
    for weights, biases in layers[:-1]:
        hidden = np.tanh(weights @ hidden + biases)
    weights, biases = layers[-1]
    return float((weights @ hidden + biases)[0])


def grad(layers: Layers, pair: Array) -> Array:
    """Return the gradient of the logit with respect to the pair, by the chain rule."""
    hidden, jacobian = pair, np.eye(len(pair))
    for weights, biases in layers[:-1]:
        hidden = np.tanh(weights @ hidden + biases)
        jacobian = (1 - hidden**2)[:, None] * (weights @ jacobian)
    found: Array = (layers[-1][0] @ jacobian)[0]
    return found


def bernoulli_entropy(probability: float) -> float:
    return -probability * np.log(probability) - (1 - probability) * np.log(1 - probability)


def loss(layers: Layers, policy: Array, expert: Array, mix: Array, ent_coef: float, penalty: float) -> float:
    """Return −log(1 − D) and −log D, less the entropy, plus the penalty; rows are pairs."""
    probabilities = {
        name: [1 / (1 + np.exp(-logit(layers, pair))) for pair in pairs]
        for name, pairs in (("policy", policy), ("expert", expert))
    }
    total = -np.mean(np.log(1 - np.array(probabilities["policy"])))
    total -= np.mean(np.log(probabilities["expert"]))
    entropies = [bernoulli_entropy(p) for each in probabilities.values() for p in each]
    total -= ent_coef * np.mean(entropies)
    mixed = [p + m * (e - p) for p, e, m in zip(policy, expert, mix, strict=True)]
    penalties = [(np.sqrt((grad(layers, pair) ** 2).sum()) - 1) ** 2 for pair in mixed]
    return float(total + penalty * np.mean(penalties))


def normalized(layers: Layers) -> Layers:
    """Return layers whose weights have 1 as their largest singular value."""
    return [(weights / np.linalg.svd(weights)[1][0], biases) for weights, biases in layers]


def differences(function: Any, values: Array, step: float = 1e-6) -> Array:
    """Return the gradient of a function of a vector by central differences."""
    found = np.zeros_like(values)
    for i in range(len(values)):
        ahead, behind = values.copy(), values.copy()
        ahead[i] += step
        behind[i] -= step
        found[i] = (function(ahead) - function(behind)) / (2 * step)
    return found


# -- GAIL's discriminator: its loss and gradient against NumPy, its inputs, and the order of expert data ---

SEEN = spaces.Box(-3.0, 3.0, (3,), np.float32)
CHOICES = spaces.Discrete(2, start=1)


def expert_of() -> ExpertData:
    lengths, n = np.array([4, 3, 5]), 12
    rng = np.random.default_rng(3)
    observations = rng.normal(size=(n, 3)).astype(np.float32)
    actions = rng.integers(1, 3, n)
    ends = {"returns": np.array([4.0, 3.0, 5.0]), "terminated": np.array([True, False, True])}
    rewards = np.ones(n, np.float32)
    return ExpertData(SEEN, CHOICES, observations, actions, rewards, lengths=lengths, **ends)


def judge(data: ExpertData | None = None, **options: Any) -> Discriminator:
    data = data or expert_of()
    options = {"seed": 0, "compile": False, "threads": 1, "d_net_arch": [4, 3], **options}
    agent = GAIL("MlpPolicy", observation_space=SEEN, action_space=CHOICES, dataset=data, **options)
    assert agent.discriminator is not None
    return agent.discriminator


def layers_of(vector: Array, sizes: list[int]) -> Layers:
    layers, at = [], 0
    for rows, columns in zip(sizes[1:], sizes, strict=False):
        weights = vector[at : at + rows * columns].reshape(rows, columns)
        at += rows * columns
        layers.append((weights, vector[at : at + rows]))
        at += rows
    assert at == len(vector)
    return layers


def check_against_numpy(**options: Any) -> None:
    """Compare loss and gradient in double precision at weights, and pairs, drawn at random."""
    weights = {"d_ent_coef": 0.7, "d_gradient_penalty": 3.0}
    discriminator = judge(**{**weights, **options})
    rng = np.random.default_rng(1)
    n, size = 6, 3 + 2
    policy, expert = (rng.normal(size=(n, size)) for _ in range(2))
    mix = rng.random(n)
    vector = rng.normal(size=discriminator.updater.parameters.size)
    network = (discriminator.spectral or discriminator.network).double()
    sizes = [size, 4, 3, 1]
    shared = {}
    if discriminator.spectral is not None:
        directions = {}
        for name, (matrix, _) in zip((0, 2, 4), layers_of(vector, sizes), strict=True):
            u, _, v = np.linalg.svd(matrix)
            directions[f"layers.{name}.weight"] = torch.from_numpy(u[:, 0]), torch.from_numpy(v[0])
        shared = {"directions": directions}

    def numbers(pairs: Array) -> dict[str, torch.Tensor]:
        parts = {"seen ": pairs[:, :3], "actions": pairs[:, 3:5]}
        return {name: torch.from_numpy(part.copy()) for name, part in parts.items()}

    leaf = torch.from_numpy(vector).requires_grad_()
    parameters: dict[str, torch.Tensor] = {}
    for name, part in discriminator.updater.parameters.slices.items():
        parameters[name] = leaf[part].view(dict(network.named_parameters())[name].shape)
    found, metrics = discriminator.loss(
        lambda *inputs: torch.func.functional_call(network, parameters, inputs),
        *(numbers(policy), numbers(expert), torch.from_numpy(mix), shared),
    )
    gradient = torch.autograd.grad(found, leaf)[0]

    def expected(values: Array) -> float:
        layers = layers_of(values, sizes)
        layers = normalized(layers) if discriminator.spectral is not None else layers
        return loss(layers, policy, expert, mix, weights["d_ent_coef"], weights["d_gradient_penalty"])

    assert float(found.detach()) == pytest.approx(expected(vector), rel=1e-9)
    np.testing.assert_allclose(gradient.numpy(), differences(expected, vector), rtol=1e-5, atol=1e-7)
    layers = layers_of(vector, sizes)
    layers = normalized(layers) if discriminator.spectral is not None else layers
    right = np.mean([logit(layers, pair) > 0 for pair in expert])
    assert float(metrics["expert_accuracy"]) == pytest.approx(right)


@pytest.mark.parametrize("options", [{}, {"d_spectral_norm": True}], ids=str)
def test_loss_and_its_gradient_are_those_of_numpy(options: dict[str, Any]) -> None:
    check_against_numpy(**options)


def wrong_penalty(kind: str) -> Callable[..., torch.Tensor]:
    def penalty(self: Any, network: Any, policy: Any, expert: Any, mix: Any, shared: Any) -> torch.Tensor:
        if kind == "where the policy is":
            mixed = {name: each.clone().requires_grad_() for name, each in policy.items()}
        else:
            mixed = {n: (p + mix[:, None] * (expert[n] - p)).requires_grad_() for n, p in policy.items()}
        logits = self.logits(network, mixed, shared)
        grads = torch.autograd.grad(logits.sum(), list(mixed.values()), create_graph=kind != "a constant")
        squares = torch.stack([grad.square().sum(1) for grad in grads])
        norms = squares.sum(0).sqrt() if kind != "of each input" else squares.sqrt()
        return (norms if kind == "around zero" else norms - 1).square().mean()

    return penalty


PLANTED: dict[str, tuple[Any, str, Any]] = {
    "labels": (module, "cross_entropy", lambda p, e: F.softplus(-p).mean() + F.softplus(e).mean()),
    "one label": (module, "cross_entropy", lambda p, e: F.softplus(p).mean() + F.softplus(e).mean()),
    "sum": (module, "cross_entropy", lambda p, e: F.softplus(p).sum() + F.softplus(-e).sum()),
    "entropy's sign": (module, "entropy", lambda x: x * torch.sigmoid(x) - F.softplus(x)),
    "half the entropy": (module, "entropy", lambda x: F.softplus(x)),
    "no entropy": (module, "entropy", lambda x: 0 * x),
    **{
        f"penalty {kind}": (Discriminator, "_gradient_penalty", wrong_penalty(kind))
        for kind in ("around zero", "of each input", "where the policy is", "a constant")
    },
    "largest singular value twice": (SpectralNorm, "forward", lambda self, inputs, _: self.network(inputs)),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_check_sees_a_planted_error(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[planted])
    with pytest.raises(AssertionError):
        check_against_numpy(d_spectral_norm="singular" in planted)


def test_unchanged_penalty_passes_the_numpy_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Discriminator, "_gradient_penalty", wrong_penalty("none"))
    check_against_numpy()


def test_rewards_are_minus_log_one_minus_probability() -> None:
    data = expert_of()
    discriminator = judge(data)
    mean, var = data.observations.mean(0), data.observations.var(0)  # at first of the expert alone
    normalized = (data.observations - mean) / np.sqrt(var + 1e-4)
    seen = {"observations": normalized, "actions": data.actions}
    with torch.no_grad():
        numbers = discriminator.network.numbers(to_tensors(seen, torch.device("cpu")))
        likely = torch.sigmoid(discriminator.network(numbers).double()).numpy()
    found = discriminator.rewards_of(data.observations, data.actions)
    np.testing.assert_allclose(found, -np.log1p(-likely), rtol=1e-4)


@pytest.mark.parametrize(
    ("observation_space", "action_space"),
    [
        (spaces.Discrete(4, start=2), spaces.MultiDiscrete([2, 3])),
        (spaces.MultiBinary(3), spaces.Box(np.array([-2, 0], np.float32), np.array([4, 1], np.float32))),
        (spaces.Box(0, 255, (36, 36, 1), np.uint8), spaces.MultiBinary(2)),
        (spaces.Dict(a=SEEN, b=spaces.Box(0, 255, (36, 36, 3), np.uint8)), spaces.Discrete(3)),
        (SEEN, spaces.Tuple((spaces.Discrete(2), spaces.Dict(x=spaces.MultiBinary(2))))),
    ],
    ids=["choices", "bits", "image", "dictionary", "parts"],
)
def test_every_kind_of_input_is_judged(observation_space: Any, action_space: Any) -> None:
    policy = "CnnPolicy" if is_image(observation_space) else "MlpPolicy"
    n = 6
    observation_space.seed(0)
    seen = [observation_space.sample() for _ in range(n)]
    is_dict = isinstance(observation_space, spaces.Dict)
    observations = {key: np.stack([s[key] for s in seen]) for key in seen[0]} if is_dict else np.stack(seen)
    batch = batch_space(action_space, n)
    batch.seed(0)
    actions = by_path(action_space, batch.sample())
    ends = {
        "lengths": np.array([4, 2]),
        "returns": np.array([4.0, 2.0]),
        "terminated": np.array([True, False]),
    }
    data = ExpertData(observation_space, action_space, observations, actions, np.ones(n, np.float32), **ends)
    sides = {"observation_space": observation_space, "action_space": action_space, "dataset": data}
    options = {"compile": False, "seed": 1, "d_gradient_penalty": 1.0, "d_spectral_norm": True}
    learner = GAIL(policy, **sides, **options)
    discriminator = learner.discriminator
    assert discriminator is not None
    before = discriminator.rewards_of(observations, actions)
    assert before.shape == (n,)
    assert len(set(before.round(5).tolist())) > 1
    done = {"observations": observations, "actions": actions}
    rng = np.random.default_rng(0)
    rows = discriminator.minibatches(done, (2, 5), rng, lambda vector: vector[None])
    learner.take_steps(discriminator.step, discriminator.shared(torch.tensor(1e-2)), rows)
    assert not np.array_equal(discriminator.rewards_of(observations, actions), before)


def test_observations_are_normalised_by_those_of_both() -> None:
    data = expert_of()
    discriminator = judge(data)
    shift = 5.0
    policy = {"observations": data.observations + np.float32(shift), "actions": data.actions}
    for _ in range(200):
        discriminator.minibatches(policy, (1, 12), np.random.default_rng(0), lambda vector: vector[None])
    both = np.concatenate([data.observations, data.observations + shift])
    moments = discriminator.statistics.moments[""]
    np.testing.assert_allclose(moments.mean, both.mean(0), atol=0.05)
    np.testing.assert_allclose(moments.var, both.var(0), rtol=0.05)


def test_power_method_finds_largest_singular_values() -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 4), torch.nn.Flatten(), torch.nn.Linear(72, 5))
    spectral = SpectralNorm(network)
    images = torch.randn(2, 3, 6, 6)
    spectral.update_directions(500)
    found = spectral(images, spectral.directions)
    convolution, linear = network[0], network[2]
    sizes = [torch.linalg.matrix_norm(each.weight.flatten(1), 2) for each in (convolution, linear)]
    with torch.no_grad():
        for layer, size in zip((convolution, linear), sizes, strict=True):
            layer.weight /= size
    torch.testing.assert_close(found, network(images), rtol=1e-4, atol=1e-5)
    again = SpectralNorm(network)
    again.load_state(spectral.state())
    torch.testing.assert_close(again.directions, spectral.directions)
