"""What the tests of this folder train: small networks and batches."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TwoHeads(nn.Module):
    """A network of which one head is used by no loss here."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 5)
        self.head = nn.Linear(5, 1)
        self.unused = nn.Linear(5, 2)

    def forward(self, values: Tensor) -> Tensor:
        return self.head(self.body(values).tanh())


def network(seed: int = 0) -> TwoHeads:
    torch.manual_seed(seed)
    return TwoHeads()


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(7, 3, generator=generator), torch.randn(7, 1, generator=generator)
