"""Distributions of returns over fixed atoms (Bellemare et al. 2017, https://arxiv.org/abs/1707.06887)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.config.fields import hyperparameter
from zoo.errors import ZooError

LARGEST, CLOSEST = 1e6, 1e-3
"""Largest absolute bound, and smallest difference of bounds, of returns in float32."""


@dataclass
class CategoricalConfig:
    """Hyperparameters of critics that may learn distributions."""

    critic_loss: str = hyperparameter(
        "mse",
        "mse: squared error of values; categorical: cross-entropy of distributions over n_atoms returns",
        choices=("mse", "categorical"),
    )
    n_atoms: int = hyperparameter(101, "evenly spaced returns that a distribution covers", ge=2, le=100_000)
    value_range: list[float] = hyperparameter(
        default_factory=lambda: [-5.0, 5.0], help="[low, high] of these returns; scale rewards to fit"
    )


def distribution_of(config: CategoricalConfig) -> Categorical | None:
    """Return the distribution that a config names, or None for values. Raises `ZooError`."""
    bounds = config.value_range
    if len(bounds) != 2 or not -LARGEST <= bounds[0] < bounds[1] - CLOSEST or bounds[1] > LARGEST:
        raise ZooError(f"`algo.value_range={bounds}`: expected [low, high], within ±1e6")
    if config.critic_loss == "categorical":
        return Categorical(bounds[0], bounds[1], config.n_atoms)
    usual = type(config)()
    for name in ("n_atoms", "value_range"):
        if getattr(config, name) != getattr(usual, name):
            raise ZooError(f"`algo.{name}={getattr(config, name)}` needs `algo.critic_loss=categorical`")
    return None


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

    def smallest(self, probabilities: Tensor) -> Tensor:
        """Return the distributions (batch, atoms) of the critic that expects the least in each row.

        ``probabilities`` are (critics, batch, atoms).
        """
        chosen = (probabilities @ self.atoms(probabilities)).argmin(0)
        return probabilities.gather(0, chosen[None, :, None].expand_as(probabilities[:1]))[0]

    def projected(self, probabilities: Tensor, values: Tensor) -> Tensor:
        """Project ``probabilities`` of other ``values``, (batch, n) each, to the atoms, (batch, atoms).

        A value between two atoms splits its probability between them, so that the mean is kept. A value
        outside the range counts as the nearest atom.
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
