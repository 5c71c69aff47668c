"""Fully connected networks: their widths and layers, their initial weights, and spectral normalisation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import normalize

from zoo.buffers.arrays import Array
from zoo.errors import ZooError
from zoo.policies.config import ACTIVATIONS, BLOCKS, PolicyConfig

NORM_MOMENTUM, NORM_EPS = 0.01, 1e-3
"""How far running statistics go towards a batch's, and what is added to variances, as in CrossQ."""
RENORM_SCALE, RENORM_SHIFT = 3.0, 5.0
"""Bounds of batch renormalisation's corrections."""
SMALLEST_VAR = 1e-30

INPUT_SHIFT, ACTIVATION_EPS = 3.0, 1e-8
"""The input that hyperspherical networks add, and what they add to activations: 0 has no direction."""

_CLASSES: tuple[type[nn.Module], ...] = (nn.Tanh, nn.ReLU, nn.ELU, nn.GELU, nn.LeakyReLU, nn.SiLU)
ACTIVATION_CLASSES = dict(zip(ACTIVATIONS, _CLASSES, strict=True))


class BatchRenorm(nn.Module):
    """Batch renormalisation (Ioffe 2017, https://arxiv.org/abs/1702.03275) of the last dimension.

    In training mode rows are normalised by their own mean and unbiased variance. After ``warmup_steps``
    passes these are corrected towards the running statistics, as far as `RENORM_SCALE` and `RENORM_SHIFT`
    allow; with None, never: batch normalisation. In evaluation mode the running statistics are used.
    """

    running_mean: Tensor
    running_var: Tensor
    n_passes: Tensor

    def __init__(self, size: int, warmup_steps: int | None) -> None:
        super().__init__()
        self.warmup_steps = warmup_steps
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_var", torch.ones(size))
        self.register_buffer("n_passes", torch.zeros((), dtype=torch.int64))

    def forward(self, values: Tensor) -> Tensor:
        mean, var = self._batch_statistics(values) if self.training else (self.running_mean, self.running_var)
        return (values - mean) / (var + NORM_EPS).sqrt() * self.weight + self.bias

    def _batch_statistics(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and variance to normalise with, and let the running ones follow the batch's."""
        rows = values.flatten(0, -2)
        mean = batch_mean = rows.mean(0)
        var = batch_var = rows.var(0)
        with torch.no_grad():
            std = (self.running_var + NORM_EPS).sqrt()
            scale = ((batch_var + NORM_EPS).sqrt() / std).clamp(1 / RENORM_SCALE, RENORM_SCALE)
            shift = ((batch_mean - self.running_mean) / std).clamp(-RENORM_SHIFT, RENORM_SHIFT)
            is_warm = self.n_passes > self.warmup_steps if self.warmup_steps is not None else None
            self.running_mean.lerp_(batch_mean, NORM_MOMENTUM)
            self.running_var.lerp_(batch_var, NORM_MOMENTUM)
            self.n_passes.add_(1)
        if is_warm is not None:
            scale = torch.where(is_warm, scale, 1.0)
            shift = torch.where(is_warm, shift, 0.0)
            # The root of 0, the variance of a unit that is never active, has no finite gradient.
            mean = batch_mean - shift * batch_var.clamp(min=SMALLEST_VAR).sqrt() / scale
            var = batch_var / scale.square()
        return mean, var


class Mlp(nn.Sequential):
    """Hidden layers of the given widths and, unless ``output`` is None, a linear output layer.

    ``activation`` is the algorithm's own non-linearity, where ``config`` names none.
    """

    def __init__(
        self, config: PolicyConfig, size: int, hidden: Sequence[int], output: int | None, activation: str
    ) -> None:
        norm, input_size = config.hidden_norm, size
        layers: list[nn.Module] = [make_norm(config, size)] if config.normalizes_input else []
        for width in hidden:
            layers.append(nn.Linear(size, width))
            if norm == "layer":
                layers.append(make_norm(config, width))
            layers.append(ACTIVATION_CLASSES[config.activation or activation]())
            if norm in ("batch", "batch_renorm"):
                layers.append(make_norm(config, width))
            size = width
        if output is not None:
            layers.append(nn.Linear(size, output))
        super().__init__(*layers)
        self.input_size = input_size
        self.output_size = size if output is None else output
        self.hidden = list(hidden)

    def with_noise(self, values: Tensor, noise: Tensor) -> Tensor:
        """Return the outputs, with hidden linear layers' outputs multiplied by noise (…, widths)."""
        factors = iter(noise.split(self.hidden, dim=-1))
        for layer in self:
            values = layer(values)
            if isinstance(layer, nn.Linear) and (factor := next(factors, None)) is not None:
                values = values * factor
        return values


class NoisyLinear(nn.Linear):
    """A linear layer with learned noise (Fortunato et al. 2018, https://arxiv.org/abs/1706.10295).

    Weights are μ + σ·f(ε_out)·f(ε_in), biases μ + σ·f(ε_out), with σ = ``std``/√inputs at first; ``noise``
    (inputs + outputs) has f(ε) of the inputs, then of the outputs: `factor_noise`. Noise (rows, …) is another
    for each row. Without noise the layer is the linear one of the means.
    """

    def __init__(self, size: int, output: int, std: float) -> None:
        super().__init__(size, output)  # whose initial weights and biases are uniform in ±1/√inputs
        self.weight_std = nn.Parameter(torch.full_like(self.weight, std / math.sqrt(size)))
        self.bias_std = nn.Parameter(torch.full_like(self.bias, std / math.sqrt(size)))

    def forward(self, values: Tensor, noise: Tensor | None = None) -> Tensor:
        if noise is None:
            return super().forward(values)
        of_inputs, of_outputs = noise.split((self.in_features, self.out_features), -1)
        if noise.dim() == 1:
            weight = torch.addcmul(self.weight, self.weight_std, torch.outer(of_outputs, of_inputs))
            return nn.functional.linear(values, weight, self.bias + self.bias_std * of_outputs)
        change = nn.functional.linear(values * of_inputs, self.weight_std, self.bias_std)
        return super().forward(values) + of_outputs * change


def factor_noise(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return f(ε) = sign(ε)·√|ε| of normal draws, of this shape (equation 10)."""
    draws = rng.standard_normal(shape, dtype=np.float32)
    return np.copysign(np.sqrt(np.abs(draws)), draws)


class NoisyMlp(Mlp):
    """An `Mlp` whose linear layers are `NoisyLinear`; its noise has ``noise_size`` numbers."""

    def __init__(self, std: float, *arguments: Any) -> None:
        super().__init__(*arguments)
        for i, layer in enumerate(self):
            if isinstance(layer, nn.Linear):
                self[i] = NoisyLinear(layer.in_features, layer.out_features, std)
        noisy = [layer for layer in self if isinstance(layer, NoisyLinear)]
        self.noise_sizes = [layer.in_features + layer.out_features for layer in noisy]
        self.noise_size = sum(self.noise_sizes)

    def with_noise(self, values: Tensor, noise: Tensor) -> Tensor:
        parts = iter(noise.split(self.noise_sizes, dim=-1))
        for layer in self:
            values = layer(values, next(parts)) if isinstance(layer, NoisyLinear) else layer(values)
        return values


class ResidualBlock(nn.Module):
    """x + W₂·relu(W₁·norm(x)), between them ``expansion`` times as wide as outside."""

    def __init__(self, config: PolicyConfig, width: int, activation: str) -> None:
        super().__init__()
        self.norm = make_norm(config, width)
        self.expand = nn.Linear(width, config.expansion * width)
        self.activation = ACTIVATION_CLASSES[config.activation or activation]()
        self.contract = nn.Linear(config.expansion * width, width)
        for layer in (self.expand, self.contract):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def forward(self, values: Tensor) -> Tensor:
        return values + self.contract(self.activation(self.expand(self.norm(values))))


class ResidualMlp(Mlp):
    """The network of SimBa (Lee et al. 2025, https://arxiv.org/abs/2410.09754), arguments as of `Mlp`.

    A linear layer, a `ResidualBlock` for each of the ``hidden`` widths, which are equal, a norm, and the
    output layer. The norm is layer normalisation unless the config names another. Initial weights are
    orthogonal outside the blocks, as in the paper.
    """

    def __init__(
        self, config: PolicyConfig, size: int, hidden: Sequence[int], output: int | None, activation: str
    ) -> None:
        width = only_width(config, hidden)
        if config.norm is None:
            config = replace(config, norm="layer")
        layers = [make_norm(config, size)] if config.normalizes_input else []
        layers.append(nn.Linear(size, width))
        layers += [ResidualBlock(config, width, activation) for _ in hidden]
        layers.append(make_norm(config, width))
        if output is not None:
            layers.append(nn.Linear(width, output))
        for layer in layers:
            if isinstance(layer, nn.Linear):
                nn.init.orthogonal_(layer.weight)
                nn.init.zeros_(layer.bias)
        nn.Sequential.__init__(self, *layers)
        self.input_size, self.output_size = size, width if output is None else output
        self.hidden = list(hidden)


class Scaler(nn.Module):
    """Multiplies features by learned factors, which are ``start`` at first.

    What is learned is the factor times ``scale / start``, so that factors move ``start / scale`` times as
    fast as other weights.
    """

    def __init__(self, size: int, start: float, scale: float) -> None:
        super().__init__()
        self.weight, self.ratio = nn.Parameter(torch.full((size,), scale)), start / scale

    def forward(self, values: Tensor) -> Tensor:
        return values * (self.weight * self.ratio)


class SphereEmbedding(nn.Module):
    """Features of length 1, for inputs of any length: W·(x, `INPUT_SHIFT`), both scaled to length 1."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size + 1, width, bias=False)
        start = math.sqrt(2 / width)
        self.scaler = Scaler(width, start, start)

    def forward(self, values: Tensor) -> Tensor:
        values = normalize(nn.functional.pad(values, (0, 1), value=INPUT_SHIFT), dim=-1)
        return normalize(self.scaler(self.linear(values)), dim=-1)


class SphereBlock(nn.Module):
    """A step of features x of length 1 towards f(x) = W₂·relu(s·W₁·x), which is scaled to length 1, too."""

    def __init__(self, config: PolicyConfig, width: int, n_blocks: int, activation: str) -> None:
        super().__init__()
        inner, start = config.expansion * width, math.sqrt(2 / (width * config.expansion))
        self.expand = nn.Linear(width, inner, bias=False)
        self.scaler = Scaler(inner, start, start)
        self.activation = ACTIVATION_CLASSES[config.activation or activation]()
        self.contract = nn.Linear(inner, width, bias=False)
        self.step = Scaler(width, 1 / (n_blocks + 1), 1 / math.sqrt(width))

    def forward(self, values: Tensor) -> Tensor:
        hidden = self.activation(self.scaler(self.expand(values)))
        aims = normalize(self.contract(hidden + ACTIVATION_EPS), dim=-1)
        return normalize(values + self.step(aims - values), dim=-1)


class HypersphericalMlp(Mlp):
    """The network of SimbaV2 (Lee et al. 2025, https://arxiv.org/abs/2502.15280), arguments as of `Mlp`.

    An embedding, a `SphereBlock` for each of the ``hidden`` widths, which are equal, a linear layer with a
    `Scaler`, and the output layer.
    """

    def __init__(
        self, config: PolicyConfig, size: int, hidden: Sequence[int], output: int | None, activation: str
    ) -> None:
        width = only_width(config, hidden)
        layers: list[nn.Module] = [SphereEmbedding(size, width)]
        layers += [SphereBlock(config, width, len(hidden), activation) for _ in hidden]
        layers += [nn.Linear(width, width, bias=False), Scaler(width, 1.0, 1.0)]
        if output is not None:
            layers.append(nn.Linear(width, output))
        nn.Sequential.__init__(self, *layers)
        orthogonal(self, 1.0)
        self.input_size, self.output_size = size, width if output is None else output
        self.hidden = list(hidden)


def only_width(config: PolicyConfig, hidden: Sequence[int]) -> int:
    """Return the width of all blocks. Raises `ZooError` for widths that differ."""
    if len(set(hidden)) > 1:
        raise ZooError(
            f"`policy.net_arch={list(hidden)}` with block={config.block}: expected equal widths, one a block"
        )
    return hidden[0]


def keep_unit_norm(network: nn.Module) -> None:
    """Scale the weights of each unit of linear layers to length 1, now and after each gradient step."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.data = normalize(layer.weight.data, dim=-1)
            layer.has_unit_norm = True  # type: ignore[assignment]  # read by `Parameters`


def make_norm(config: PolicyConfig, size: int) -> nn.Module:
    """Return the normalisation that a config names, of the last dimension, of this size."""
    kind = config.hidden_norm
    if kind in ("none", "layer"):
        return nn.LayerNorm(size) if kind == "layer" else nn.Identity()
    return BatchRenorm(size, config.renorm_warmup_steps if kind == "batch_renorm" else None)


TRUNKS = dict(zip(BLOCKS, (Mlp, ResidualMlp, HypersphericalMlp), strict=True))
"""The forms of hidden layers that `policy.block` names."""


def make_trunk(
    config: PolicyConfig, size: int, hidden: Sequence[int], output: int | None, activation: str
) -> Mlp:
    """Return the layers that ``config`` names, from ``size`` features to the last hidden ones, or outputs."""
    if config.block == "plain" and config.expansion != PolicyConfig.expansion:
        raise ZooError(f"`policy.expansion={config.expansion}` needs policy.block=residual or hyperspherical")
    if config.block == "hyperspherical" and (config.hidden_norm != "none" or config.norm_input):
        raise ZooError("`policy.block=hyperspherical` needs policy.norm=none and policy.norm_input=false")
    return TRUNKS[config.block if hidden else "plain"](config, size, hidden, output, activation)


def orthogonal(network: nn.Module, gain: float = math.sqrt(2), output_gain: float | None = None) -> None:
    """Give layers orthogonal weights (Saxe et al. 2014), the last with ``output_gain``, and zero biases."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    for layer in layers:
        is_output = output_gain is not None and layer is layers[-1]
        nn.init.orthogonal_(layer.weight, output_gain if is_output else gain)  # type: ignore[arg-type]
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def uniform(layer: nn.Linear, bound: float) -> None:
    """Draw the weights of a last layer from within ±``bound``, and let its biases be zero."""
    nn.init.uniform_(layer.weight, -bound, bound)
    nn.init.zeros_(layer.bias)


def layer_sizes(config: PolicyConfig, networks: Sequence[str], default: list[int]) -> dict[str, list[int]]:
    """Return the hidden widths of each of the ``networks`` from ``policy.net_arch``.

    One list is for all of them but ``shared``; a network that a dictionary leaves out has no hidden layers.
    Raises `ZooError` for a network that there is not.
    """
    sizes = default if config.net_arch is None else config.net_arch
    widths = itertools.chain.from_iterable(sizes.values()) if isinstance(sizes, dict) else sizes
    if (smallest := min(widths, default=1)) < 1:
        raise ZooError(f"`policy.net_arch` has a layer of {smallest} units; expected at least 1")
    if isinstance(sizes, list):
        return {name: [] if name == "shared" else sizes for name in networks}
    if len(networks) == 1:
        raise ZooError("`policy.net_arch` of a single network is one list of widths, like [64, 64]")
    unknown = sorted(set(sizes) - set(networks))
    if unknown:
        raise ZooError(f"unknown key `policy.net_arch.{unknown[0]}`; known: {', '.join(networks)}")
    return {name: sizes.get(name, []) for name in networks}


Directions = dict[str, tuple[Tensor, Tensor]]
"""The singular vectors (rows,) and (columns,) of each matrix of weights, by its name."""

INITIAL_POWER_STEPS, POWER_STEPS = 50, 2
"""Steps of the power method before the first use, and each time that the weights have moved a little."""


class SpectralNorm(nn.Module):
    """``network`` with each matrix of weights divided by its largest singular value (Miyato et al. 2018).

    `directions` are found by the power method between updates; within one the singular value u·Wv is a
    function of the weights W alone, so that gradients go through it. A convolution's weights are a matrix
    with a row for each channel that comes out.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.directions: Directions = {}
        for name, weight in self._matrices().items():
            u = torch.randn(len(weight))
            self.directions[name] = u / u.norm(), torch.zeros(weight[0].numel())
        self.update_directions(INITIAL_POWER_STEPS)

    def _matrices(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self.network.named_parameters() if tensor.dim() > 1}

    @torch.no_grad()
    def update_directions(self, n_steps: int = POWER_STEPS) -> None:
        """Update the singular directions of the current weights, by power iteration."""
        for name, weight in self._matrices().items():
            matrix, u = weight.flatten(1), self.directions[name][0].to(weight.device)
            for _ in range(n_steps):
                v = normalize(matrix.T @ u, dim=0)
                u = normalize(matrix @ v, dim=0)
            self.directions[name] = u, v

    def forward(self, inputs: Any, directions: Mapping[str, tuple[Tensor, Tensor]]) -> Any:
        """Return the network's output for the inputs."""
        normalized = {}
        for name, weight in self._matrices().items():
            u, v = directions[name]
            normalized[name] = weight / torch.dot(u, weight.flatten(1) @ v)
        return functional_call(self.network, normalized, (inputs,))

    def state(self) -> dict[str, Any]:
        directions = self.directions.items()
        return {name: {"u": u.cpu().numpy(), "v": v.cpu().numpy()} for name, (u, v) in directions}

    def load_state(self, state: Mapping[str, Any]) -> None:
        device = next(self.network.parameters()).device
        for name, pair in state.items():
            u, v = (torch.from_numpy(np.array(pair[part])).to(device) for part in ("u", "v"))
            self.directions[name] = u, v
