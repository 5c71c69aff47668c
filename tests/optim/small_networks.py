"""What the tests of this folder train: small networks, batches, and the plainest optimizer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zoo.optim.optimizers import Optimizer


class SteepestDescent(Optimizer):
    """The plainest optimizer: its step is the gradient itself."""

    def initial(self, parameters: Tensor) -> dict[str, Tensor]:
        return {}

    def step(
        self, parameters: Tensor, gradient: Tensor, slots: dict[str, Tensor], learning_rate: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return parameters - learning_rate * gradient, slots

    def step_(
        self, parameters: Tensor, gradient: Tensor, slots: dict[str, Tensor], learning_rate: Tensor
    ) -> None:
        parameters.sub_(learning_rate * gradient)


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
