"""Spectral normalisation (Miyato et al. 2018, https://arxiv.org/abs/1802.05957)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

Directions = dict[str, tuple[Tensor, Tensor]]
"""The singular vectors (rows,) and (columns,) of each matrix of weights, by its name."""

AT_FIRST, EACH_TIME = 50, 2
"""Steps of the power method before the first use, and each time that the weights have moved a little."""


class SpectralNorm(nn.Module):
    """``network`` with each matrix of weights divided by its largest singular value.

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
        self.follow(AT_FIRST)

    def _matrices(self) -> dict[str, Tensor]:
        return {name: each for name, each in self.network.named_parameters() if each.dim() > 1}

    @torch.no_grad()
    def follow(self, n_steps: int = EACH_TIME) -> None:
        """Bring the directions nearer to those of the weights as they are now."""
        for name, weight in self._matrices().items():
            matrix, u = weight.flatten(1), self.directions[name][0].to(weight.device)
            for _ in range(n_steps):
                v = nn.functional.normalize(matrix.T @ u, dim=0)
                u = nn.functional.normalize(matrix @ v, dim=0)
            self.directions[name] = u, v

    def forward(self, inputs: Any, directions: Mapping[str, tuple[Tensor, Tensor]]) -> Any:
        """Return what the network makes of the inputs."""
        normalized = {}
        for name, weight in self._matrices().items():
            u, v = directions[name]
            normalized[name] = weight / torch.dot(u, weight.flatten(1) @ v)
        return functional_call(self.network, normalized, (inputs,))

    def state(self) -> dict[str, Any]:
        return {
            name: {"u": u.cpu().numpy().copy(), "v": v.cpu().numpy().copy()}
            for name, (u, v) in self.directions.items()
        }

    def load_state(self, state: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
        device = next(self.network.parameters()).device
        for name, each in state.items():
            u, v = (torch.from_numpy(np.array(each[part])).to(device) for part in ("u", "v"))
            self.directions[name] = u, v
