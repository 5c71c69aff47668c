"""Masks over finitely many choices, and distributions that know only what a mask leaves."""

from __future__ import annotations

import torch
from torch import Tensor, distributions


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
