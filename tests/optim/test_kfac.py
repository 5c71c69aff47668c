"""K-FAC against factors summed sample by sample, and against explicit Kronecker products."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.optim.kfac import COUNT, KFac
from zoo.optim.optimizers import Momentum, Parameters, Updater
from zoo.optim.update_runner import State

N_SAMPLES = 6
DAMPING = 0.1


class Repeated(nn.Module):
    """A vector that is added to each row."""

    def __init__(self) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.tensor([0.5, 2.0]))

    def forward(self, values: Tensor) -> Tensor:
        return values * self.vector.expand_as(values)


class Small(nn.Module):
    """Each kind of layer once: pictures (2, 5, 4) to two numbers."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 3, (2, 3), stride=(2, 1), padding=(1, 0), dilation=(1, 1), bias=bias)
        self.linear = nn.Linear(18, 3, bias=bias)
        self.norm = nn.LayerNorm(3)
        self.output = nn.Linear(3, 2, bias=bias)
        self.repeated = Repeated()

    def forward(self, pictures: Tensor) -> Tensor:
        features = self.convolution(pictures).tanh().flatten(1)
        return self.repeated(self.output(self.norm(self.linear(features)).tanh()))


def small(*, bias: bool = True) -> Small:
    torch.manual_seed(3)
    module = Small(bias).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def kfac_of(module: nn.Module, **options: Any) -> KFac:
    settings = {"n_plain": 3, "decay": 0.9, "damping": DAMPING, "inverse": "eigen", **options}
    return KFac(Updater(Parameters("policy", module), Momentum(0.9)), **settings)


def pictures(seed: int = 0, n: int = N_SAMPLES) -> Tensor:
    return torch.randn(n, 2, 5, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def losses(outputs: Tensor, weights: Tensor) -> Tensor:
    """Return a loss (rows) that is linear in each output, so its gradients are easily told."""
    return (outputs * weights).sum(-1)


def factors_of(kfac: KFac, batch: Tensor, weights: Tensor) -> dict[str, Tensor]:
    module = kfac.updater.parameters.module
    with kfac.recording() as watch:
        outputs = module(batch)
    return kfac.factors(watch, losses(outputs, weights).mean(), len(batch))


def weights_of(n: int = N_SAMPLES) -> Tensor:
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def sample_gradients(module: nn.Module, picture: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Return the gradient of one sample's loss by every parameter."""
    named = dict(module.named_parameters())
    loss = losses(module(picture[None]), weights).sum()
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


def gradients_of_outputs(module: Small, picture: Tensor, weights: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Return input and gradient of the output of each layer, for one sample, by a plain hook on each."""
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def note(name: str, _: nn.Module, inputs: Any, output: Tensor) -> None:
        seen[name] = inputs[0].detach()[0], output

    layers = ("convolution", "linear", "output")
    hooks = [module.get_submodule(name).register_forward_hook(partial(note, name)) for name in layers]
    loss = losses(module(picture[None]), weights).sum()
    for hook in hooks:
        hook.remove()
    grads = torch.autograd.grad(loss, [output for _, output in seen.values()])
    return {name: (inputs, grad[0]) for (name, (inputs, _)), grad in zip(seen.items(), grads, strict=True)}


def explicit_factors(module: Small, batch: Tensor, weights: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Return A and G of linear layers and of the convolution, summed in loops over samples and places."""
    found: dict[str, tuple[Tensor, Tensor]] = {}
    for picture, weight in zip(batch, weights, strict=True):
        for name, (inputs, grads) in gradients_of_outputs(module, picture, weight[None]).items():
            layer = module.get_submodule(name)
            has_bias = layer.bias is not None
            pairs = [(inputs, grads)]
            if isinstance(layer, nn.Conv2d):
                padded = torch.zeros(2, 7, 4, dtype=torch.float64)
                padded[:, 1:6] = inputs
                pairs = [
                    (padded[:, 2 * row : 2 * row + 2, column : column + 3].reshape(-1), grads[:, row, column])
                    for row in range(3)
                    for column in range(2)
                ]
            for a, g in pairs:
                a = torch.cat([a, torch.ones(1, dtype=torch.float64)]) if has_bias else a
                old_a, old_g = found.get(name, (0.0, 0.0))
                share = len(batch) * len(pairs)
                # The product is that of means over samples and places, times the number of places.
                found[name] = (old_a + torch.outer(a, a) / share, old_g + torch.outer(g, g) / len(batch))
    return found


@pytest.mark.parametrize("bias", [True, False])
def test_factors_match_sums_over_samples_and_positions(bias: bool) -> None:
    module = small(bias=bias)
    found = factors_of(kfac_of(module), pictures(), weights_of())
    for name, (inputs, outputs) in explicit_factors(module, pictures(), weights_of()).items():
        torch.testing.assert_close(found[f"kfac.{name}.weight.inputs"], inputs)
        torch.testing.assert_close(found[f"kfac.{name}.weight.outputs"], outputs)


@pytest.mark.parametrize(("name", "keys"), [("norm", ["weight", "bias"]), ("repeated", ["vector"])])
def test_small_blocks_equal_sample_gradient_products(name: str, keys: list[str]) -> None:
    module = small()
    found = factors_of(kfac_of(module), pictures(), weights_of())[f"kfac.{name}.{keys[0]}.outputs"]
    expected = torch.zeros_like(found)
    for picture, weight in zip(pictures(), weights_of(), strict=True):
        gradients = sample_gradients(module, picture, weight[None])
        score = torch.cat([gradients[f"{name}.{key}"] for key in keys])
        expected += torch.outer(score, score) / N_SAMPLES
    torch.testing.assert_close(found, expected)


def explicit_step(
    kfac: KFac, state: State, gradient: Tensor, damped: Callable[[Tensor, Tensor], Tensor]
) -> dict[str, Tensor]:
    """Return (A ⊗ G, damped)⁻¹ vec(V) of each layer, by the matrix of all pairs of weights."""
    module = kfac.updater.parameters.module
    named = kfac.updater.parameters.named(gradient)
    found = {}
    for name in ("convolution", "linear", "output"):
        weight = named[f"{name}.weight"].flatten(1)
        has_bias = f"{name}.bias" in named
        matrix = torch.cat([weight, named[f"{name}.bias"][:, None]], dim=1) if has_bias else weight
        block = damped(state[f"kfac.{name}.weight.inputs"], state[f"kfac.{name}.weight.outputs"])
        solved = torch.linalg.solve(block, matrix.T.reshape(-1)).reshape(matrix.shape[1], -1).T
        found[f"{name}.weight"] = (solved[:, :-1] if has_bias else solved).reshape(
            named[f"{name}.weight"].shape
        )
        if has_bias:
            found[f"{name}.bias"] = solved[:, -1]
    for name, keys in (("norm", ["weight", "bias"]), ("repeated", ["vector"])):
        vector = torch.cat([named[f"{name}.{key}"] for key in keys])
        block = state[f"kfac.{name}.{keys[0]}.outputs"] + DAMPING * torch.eye(
            len(vector), dtype=torch.float64
        )
        solved = torch.linalg.solve(block, vector)
        sizes = [module.get_parameter(f"{name}.{key}").numel() for key in keys]
        found |= {f"{name}.{key}": part for key, part in zip(keys, solved.split(sizes), strict=True)}
    return found


def damped_product(inputs: Tensor, outputs: Tensor) -> Tensor:
    product = torch.kron(inputs, outputs)
    return product + DAMPING * torch.eye(len(product), dtype=torch.float64)


def product_of_damped(inputs: Tensor, outputs: Tensor) -> Tensor:
    """Return the factored form: shares of the damping in proportion to the mean eigenvalues."""
    ratio = (inputs.diagonal().mean() / outputs.diagonal().mean()).sqrt()
    shares = DAMPING**0.5 * ratio, DAMPING**0.5 / ratio
    pairs = zip((inputs, outputs), shares, strict=True)
    return torch.kron(*(each + share * torch.eye(len(each), dtype=torch.float64) for each, share in pairs))


PATHS = {"eigen": damped_product, "cholesky": product_of_damped}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("inverse", PATHS)
def test_natural_gradient_matches_kronecker_products(inverse: str, bias: bool) -> None:
    kfac = kfac_of(small(bias=bias), inverse=inverse)
    state = kfac.update_averages(kfac.initial_state(), factors_of(kfac, pictures(), weights_of()))
    state = state.replaced(kfac.inverses(state))
    gradient = torch.randn(kfac.updater.parameters.size, dtype=torch.float64)
    found = kfac.updater.parameters.named(kfac.natural_gradient(state, gradient))
    expected = explicit_step(kfac, state, gradient, PATHS[inverse])
    assert found.keys() == expected.keys()
    for name, part in expected.items():
        torch.testing.assert_close(found[name], part)


def test_running_averages_start_as_means_then_decay() -> None:
    kfac = kfac_of(small(), n_plain=3, decay=0.9)
    batches = [factors_of(kfac, pictures(seed), weights_of()) for seed in range(5)]
    state, states = kfac.initial_state(), []
    for batch in batches:
        state = kfac.update_averages(state, batch)
        states.append(state)
    assert [int(each[COUNT]) for each in states] == [1, 2, 3, 4, 5]
    for name in batches[0]:
        one, two, three, four, five = (batch[name] for batch in batches)
        mean = (one + two + three) / 3
        torch.testing.assert_close(states[0][name], one)
        torch.testing.assert_close(states[2][name], mean)
        torch.testing.assert_close(states[3][name], 0.9 * mean + 0.1 * four)
        torch.testing.assert_close(states[4][name], 0.9 * (0.9 * mean + 0.1 * four) + 0.1 * five)


class Twice(nn.Module):
    """A layer used at two steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(self.layer(values).tanh())[..., :2]


def test_uses_of_one_layer_are_taken_together() -> None:
    torch.manual_seed(0)
    module = Twice().double()
    kfac = kfac_of(module)
    values, weights = torch.randn(N_SAMPLES, 3, dtype=torch.float64), weights_of()
    with kfac.recording() as watch:
        loss = losses(module(values), weights).mean()
    found = kfac.factors(watch, loss, N_SAMPLES)
    second = torch.cat([weights, torch.zeros(N_SAMPLES, 1, dtype=torch.float64)], dim=1)
    middle = module.layer(values).tanh().detach()
    first = (second @ module.layer.weight.detach()) * (1 - middle**2)
    ones = torch.ones(N_SAMPLES, 1, dtype=torch.float64)
    a = torch.cat([torch.cat([values, ones], 1), torch.cat([middle, ones], 1)])
    g = torch.cat([first, second])
    torch.testing.assert_close(found["kfac.layer.weight.inputs"], a.T @ a / (2 * N_SAMPLES))
    torch.testing.assert_close(found["kfac.layer.weight.outputs"], g.T @ g / N_SAMPLES)


class Used(nn.Module):
    """Calls a function with a module, or with its parameters."""

    def __init__(self, layer: nn.Module, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, values: Tensor) -> Tensor:
        return self.function(self.layer, values)


def half_frozen() -> nn.Linear:
    layer = nn.Linear(3, 2)
    layer.weight.requires_grad_(False)
    return layer


REFUSED: dict[str, tuple[nn.Module, Callable[[Any, Tensor], Tensor], str]] = {
    "looked up": (
        nn.Embedding(3, 2),
        lambda layer, x: layer((x[:, 0] > 0).long()),
        "`layer.weight`, which no",
    ),
    "multiplied": (nn.Linear(3, 2), lambda layer, x: x @ layer.weight.T, "`layer.weight`, which no forward"),
    "added": (
        nn.Linear(3, 2),
        lambda layer, x: nn.functional.linear(x, layer.weight) + layer.bias,
        "`layer.bias`, which is not used along with `layer.weight`",
    ),
    "bias alone": (half_frozen(), lambda layer, x: layer(x), "`layer.bias`, which no forward pass"),
    "groups": (
        nn.Conv2d(3, 3, 1, groups=3),
        lambda layer, x: layer(x[..., None, None])[:, :2, 0, 0],
        "convolutions with groups",
    ),
    "padding by a word": (
        nn.Conv2d(3, 2, 1, padding="same"),
        lambda layer, x: layer(x[..., None, None])[..., 0, 0],
        "padding by a word",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_layers_without_known_curvature_are_refused(name: str) -> None:
    layer, function, message = REFUSED[name]
    kfac = kfac_of(Used(layer, function).double())
    with pytest.raises(ZooError, match=f"K-FAC .*{message}"):
        factors_of(kfac, torch.randn(N_SAMPLES, 3, dtype=torch.float64), weights_of())


def test_layer_norm_without_bias_has_the_scale_block() -> None:
    frozen = nn.LayerNorm(2).double()
    frozen.bias.requires_grad_(False)
    values, weights = torch.randn(N_SAMPLES, 2, dtype=torch.float64), weights_of()
    normal = torch.nn.functional.layer_norm(values, (2,))
    expected = torch.stack([torch.outer(g, g) for g in weights * normal]).mean(0)
    for module in (frozen, nn.LayerNorm(2, bias=False).double()):
        found = factors_of(kfac_of(module), values, weights)
        torch.testing.assert_close(found, {"kfac.weight.outputs": expected})
