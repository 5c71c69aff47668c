"""Returns of trajectories that another policy made (Munos et al. 2016, https://arxiv.org/abs/1606.02647)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def retrace(td_errors: Tensor, weights: Tensor) -> Tensor:
    """Return Σ_k (w_t … w_{t+k−1})·δ_{t+k}, what is to be added to Q(s_t, a_t), (sequences, time).

    ``td_errors`` are δ_t = r_t + γ·V(s_{t+1}) − Q(s_t, a_t); ``weights`` w_t say how much of what comes after
    step t counts at it: γ·c_{t+1}, where c truncates the importance of the next action, or 0 where an episode
    ended. The last weight of a sequence is not read. This is y_t = δ_t + w_t·y_{t+1}, by doubling: after n
    rounds y_t has 2ⁿ terms.
    """
    length, reach = td_errors.shape[-1], 1
    result = td_errors
    weights = torch.cat([weights[..., :-1], torch.zeros_like(weights[..., :1])], dim=-1)
    while reach < length:
        result = result + weights * _later(result, reach)
        weights = weights * _later(weights, reach)
        reach *= 2
    return result


def _later(column: Tensor, n: int) -> Tensor:
    """Return what stands ``n`` steps later, 0 behind the end."""
    return F.pad(column[..., n:], (0, n))
