"""Distributions of returns over fixed atoms (Bellemare et al. 2017, https://arxiv.org/abs/1707.06887)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.config.fields import hyperparameter
from zoo.errors import ZooError

LARGEST, CLOSEST = 1e6, 1e-3
"""The largest absolute return, and the smallest difference of both bounds, that float32 can tell apart."""


@dataclass
class CategoricalConfig:
    """Hyperparameters of critics that may learn distributions."""

    critic_loss: str = hyperparameter(
        "mse",
        "what critics learn by: mse, the squared error of values; categorical, the cross-entropy of"
        " distributions of returns (rewards should be scaled to fit value_range)",
        choices=("mse", "categorical"),
    )
    n_atoms: int = hyperparameter(101, "values that a distribution is over, evenly spaced", ge=2, le=100_000)
    value_range: list[float] = hyperparameter(
        default_factory=lambda: [-5.0, 5.0], help="[low, high], the smallest and largest of these values"
    )


def distribution_of(config: CategoricalConfig) -> Categorical | None:
    """Return the distribution that a config names, or None for values. Raises `ZooError`."""
    bounds = config.value_range
    if len(bounds) != 2 or not -LARGEST <= bounds[0] < bounds[1] - CLOSEST or bounds[1] > LARGEST:
        raise ZooError(f"`algo.value_range={bounds}`: expected [low, high], within ±1e6")
    return None if config.critic_loss == "mse" else Categorical(bounds[0], bounds[1], config.n_atoms)


@dataclass(frozen=True)
class Categorical:
    """Distributions as logits (…, atoms) over ``n_atoms`` returns, evenly spaced from ``low`` to ``high``."""

    low: float
    high: float
    n_atoms: int

    def atoms(self, like: Tensor) -> Tensor:
        """Return the returns (atoms,), of the type of another tensor."""
        return torch.linspace(self.low, self.high, self.n_atoms, dtype=like.dtype, device=like.device)

    def expected(self, logits: Tensor) -> Tensor:
        """Return the expected values (…)."""
        return torch.softmax(logits, -1) @ self.atoms(logits)

    def smallest(self, logits: Tensor) -> Tensor:
        """Return the probabilities (batch, atoms) of that critic whose expected value is the smallest.

        ``logits`` are (critics, batch, atoms); each row of the batch has a critic of its own.
        """
        chosen = self.expected(logits).argmin(0)
        index = chosen[None, :, None].expand(1, *logits.shape[1:])
        return torch.softmax(logits.gather(0, index)[0], -1)

    def projected(self, probabilities: Tensor, values: Tensor) -> Tensor:
        """Return the probabilities (batch, atoms) of atoms, of those of other ``values`` (batch, n).

        A value between two atoms divides its probability between them, so that the mean stays. One outside
        is taken for the nearest atom.
        """
        spacing = (self.high - self.low) / (self.n_atoms - 1)
        places = (values.clamp(self.low, self.high) - self.low) / spacing
        below = places.floor().clamp(0, self.n_atoms - 2)
        above_share = places - below
        result = torch.zeros_like(probabilities)
        result = result.scatter_add(1, below.long(), probabilities * (1.0 - above_share))
        return result.scatter_add(1, below.long() + 1, probabilities * above_share)

    def losses_and_errors(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy, summed over critics, and |expected error|, their mean; (batch,) each.

        ``logits`` are (critics, batch, atoms), ``targets`` probabilities (batch, atoms).
        """
        losses = -(targets * torch.log_softmax(logits, -1)).sum((0, -1))
        errors = self.expected(logits) - targets @ self.atoms(targets)
        return losses, errors.detach().abs().mean(0)
