"""Normalised returns: a critic learns in units of the running mean and standard deviation of its targets.

Pop-art (van Hasselt et al. 2016, https://arxiv.org/abs/1602.07714) changes the critic's last layer with these
statistics, so that its values stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.optim.optimizers import Parameters
from zoo.optim.update_runner import State, average, n_ranks

INITIAL_COUNT = 0.01  # how many targets the initial mean 0 and variance 1 count for
SMALLEST_VARIANCE = 0.01  # constant targets have none; they are divided by a standard deviation of 0.1

MOMENTS = ("returns.mean", "returns.squares", "returns.count")
"""The entries of the state: mean, sum of squared deviations, and count of all targets."""


class ReturnNormalizer:
    """Leaves returns as they are; `RunningReturnNormalizer` is the one that changes them."""

    def initial_state(self) -> State:
        return State()

    def update(self, state: State, returns: Tensor) -> State:
        return state

    def normalize(self, state: State, returns: Tensor) -> Tensor:
        return returns

    def denormalize(self, state: State, outputs: Tensor) -> Tensor:
        return outputs

    def plain_parameters(self, state: State) -> dict[str, Tensor]:
        return {}

    def reset(self, state: State) -> State:
        return state

    def moments(self, state: State) -> dict[str, Tensor]:
        return {}

    def with_moments(self, state: State, moments: Mapping[str, Tensor]) -> State:
        return state

    def metrics(self, state: State) -> dict[str, Tensor]:
        return {}


class RunningReturnNormalizer(ReturnNormalizer):
    """Subtracts the mean of all targets so far, and divides by their standard deviation.

    ``names`` are the vectors of the state, all of the form of ``parameters``, whose outputs are normalised: a
    critic and its target. With ``preserve`` an `update` changes the last layers of all of them so that
    ``std·output + mean`` stays what it was (equation 4 of the paper). Optimizer moments stay as they are, as
    in Stable-Baselines. ``layer`` is the critic's last layer; None: that of the module. ``prefix`` goes
    before the module's names in the policy.
    """

    def __init__(
        self,
        parameters: Parameters,
        names: Sequence[str],
        *,
        preserve: bool,
        layer: str | None = None,
        prefix: str = "",
    ) -> None:
        self.names, self.preserve = tuple(names), preserve
        self.parameters, self.prefix = parameters, prefix
        layer = output_layer(parameters.module) if layer is None else layer
        self._last = tuple(f"{layer}.{part}" for part in ("weight", "bias"))
        self.weight, self.bias = (parameters.slices[name] for name in self._last)
        self._device = parameters.flat.device

    def initial_state(self) -> State:
        """Return the statistics of no targets."""
        start = zip(MOMENTS, (0.0, INITIAL_COUNT, INITIAL_COUNT), strict=True)
        return State(
            {name: torch.tensor(value, dtype=torch.float64, device=self._device) for name, value in start}
        )

    def std(self, state: State) -> Tensor:
        """Return the standard deviation of the targets so far, a float64 scalar."""
        return (state["returns.squares"] / state["returns.count"]).clamp(min=SMALLEST_VARIANCE).sqrt()

    def metrics(self, state: State) -> dict[str, Tensor]:
        """Return the mean and standard deviation of the returns, for the log."""
        return {"returns_mean": state["returns.mean"].float(), "returns_std": self.std(state).float()}

    def normalize(self, state: State, returns: Tensor) -> Tensor:
        """Return the critic's targets for these returns."""
        return ((returns - state["returns.mean"]) / self.std(state)).to(returns.dtype)

    def denormalize(self, state: State, outputs: Tensor) -> Tensor:
        """Return the returns that outputs of the critic stand for."""
        return (outputs * self.std(state) + state["returns.mean"]).to(outputs.dtype)

    def update(self, state: State, returns: Tensor) -> State:
        """Return the state updated by the targets (batch,) of all ranks, by Chan's parallel formula."""
        batch = returns.double()
        n = returns.numel() * n_ranks()
        mean, count = state["returns.mean"], state["returns.count"]
        batch_mean, total = average(batch.mean()), count + n
        delta = batch_mean - mean
        moments = {
            "returns.mean": mean + delta * (n / total),
            "returns.squares": state["returns.squares"]
            + average((batch - batch_mean).square().sum()) * n_ranks()
            + delta.square() * (count * n / total),
            "returns.count": total,
        }
        if not self.preserve:
            return state.replaced(moments)
        old_mean, old_std = state.snapshot("returns.mean"), self.std(state)
        state = state.replaced(moments)
        scale, shift = old_std / self.std(state), (old_mean - state["returns.mean"]) / self.std(state)
        return state.replaced({name: self._rescaled(state[name], scale, shift) for name in self.names})

    def denormalized(self, state: State, vector: Tensor) -> Tensor:
        """Return parameters whose outputs are returns, of ``vector``, whose outputs are normalised."""
        return self._rescaled(vector, self.std(state), state["returns.mean"])

    def plain_parameters(self, state: State) -> dict[str, Tensor]:
        """Return the last layer by its names in the policy, as it would be if its outputs were returns."""
        named = self.parameters.named(self.denormalized(state, state[self.names[0]]))
        return {f"{self.prefix}{name}": named[name] for name in self._last}

    def reset(self, state: State) -> State:
        """Return the state without statistics, and with parameters whose outputs are returns."""
        plain = {name: self.denormalized(state, state[name]) for name in self.names}
        return state.replaced({**plain, **self.initial_state()})

    def moments(self, state: State) -> dict[str, Tensor]:
        """Return copies of the statistics, by the names of `MOMENTS`."""
        return {name: state[name].detach().clone() for name in MOMENTS}

    def with_moments(self, state: State, moments: Mapping[str, Tensor]) -> State:
        """Return the state with these statistics, of one whose outputs are returns."""
        state = state.replaced({name: moments[name].to(state[name]) for name in MOMENTS})
        scale, shift = 1.0 / self.std(state), -state["returns.mean"] / self.std(state)
        return state.replaced({name: self._rescaled(state[name], scale, shift) for name in self.names})

    def _rescaled(self, vector: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Return parameters whose outputs are ``scale·output + shift``."""
        weight, bias = vector[self.weight].double() * scale, vector[self.bias].double() * scale + shift
        before, between = vector[: self.weight.start], vector[self.weight.stop : self.bias.start]
        after = vector[self.bias.stop :]
        return torch.cat([before, weight.to(vector.dtype), between, bias.to(vector.dtype), after])


def output_layer(
    module: nn.Module, needed_by: str = "`algo.normalize_returns` and `algo.critic_l2_reg` need"
) -> str:
    """Return the name of the linear layer that a critic ends with. Raises `ZooError` if there is none."""
    linear = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    if not linear or linear[-1][1].out_features != 1 or linear[-1][1].bias is None:
        raise ZooError(f"{needed_by} a critic that ends with a linear layer to one value, with a bias")
    return linear[-1][0]
