"""The quantile Huber loss of distributional critics (Dabney et al. 2018, https://arxiv.org/abs/1710.10044)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def quantile_huber(quantiles: Tensor, targets: Tensor) -> Tensor:
    """Return |τᵢ − 1{uᵢⱼ < 0}|·Huber(uᵢⱼ), uᵢⱼ = targetⱼ − quantileᵢ, (…, N, M) (equation 10, with κ = 1).

    ``quantiles`` (…, N) estimate the quantiles τᵢ = (i + ½) / N of the distribution that ``targets`` (…, M)
    are drawn from. Axis −2 counts quantiles and axis −1 targets: QR-DQN sums over the first and takes the
    mean over the second; TQC takes the mean over both. Targets that lack leading dimensions of the quantiles
    (critics) are common to these.
    """
    rows = targets.shape[:-1]
    if quantiles.shape[:-1][quantiles.dim() - 1 - len(rows) :] != rows:
        raise ValueError(f"targets {tuple(targets.shape)} don't fit quantiles {tuple(quantiles.shape)}")
    n_quantiles = quantiles.shape[-1]
    levels = (torch.arange(n_quantiles, dtype=quantiles.dtype, device=quantiles.device) + 0.5) / n_quantiles
    each, target = torch.broadcast_tensors(quantiles.unsqueeze(-1), targets.unsqueeze(-2))
    is_above = (target < each).detach().to(quantiles.dtype)
    weights = (levels[:, None] - is_above).abs()
    return weights * F.smooth_l1_loss(each, target, reduction="none")
