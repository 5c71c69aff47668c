"""The nearest slope that moves a distribution no faster away from another than it may."""

from __future__ import annotations

import torch
from torch import Tensor


def projected(slope: Tensor, normal: Tensor, bound: float) -> Tensor:
    """Return the z (…, n) nearest to ``slope`` with normal · z ≤ ``bound`` (Wang et al. 2017, equation 12).

    ``normal`` is the gradient of a divergence to another distribution, by the same statistics as ``slope``.
    """
    excess = torch.relu((normal * slope).sum(-1, keepdim=True) - bound)
    square = normal.square().sum(-1, keepdim=True)
    return slope - excess / square.clamp(min=torch.finfo(square.dtype).tiny) * normal
