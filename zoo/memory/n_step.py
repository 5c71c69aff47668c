"""Sums of several steps' rewards (Sutton 1988), made of the ring when a batch is drawn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Windows(NamedTuple):
    """Some steps of one episode each, one after the other: positions in the ring of an environment.

    ``steps`` (*shape, n) are all that a window could have; its own are as many as ``lengths`` (*shape) says,
    from ``first`` (*shape) to ``last`` (*shape).
    """

    envs: Array
    steps: Array
    lengths: Array
    last: Array

    @property
    def first(self) -> Array:
        """Where each window begins."""
        return self.steps[..., 0]


def windows_of(
    positions: Array, envs: Array, n_step: int, heads: Array, length: int, ended: Array
) -> Windows:
    """Return the windows of at most ``n_step`` steps that begin at ``positions`` in the rings of ``envs``.

    They end where ``ended`` (length, n_envs) says that the episode did, and at the newest step of the ring,
    which stands before ``heads``: what is known there is taken for all that there was.
    """
    if n_step == 1:
        return Windows(envs, positions[..., None], np.ones_like(positions), positions)
    ages = (heads[envs] - 1 - positions) % length
    steps = (positions[..., None] + np.arange(n_step)) % length
    ends = ended.reshape(-1).take(steps[..., :-1] * ended.shape[1] + envs[..., None])
    goes_on = ~ends & (np.arange(n_step - 1) < ages[..., None])
    lengths = 1 + np.logical_and.accumulate(goes_on, axis=-1).sum(-1)
    return Windows(envs, steps, lengths, (positions + lengths - 1) % length)


def summed(rewards: Array, lengths: Array, gamma: float) -> tuple[Array, Array]:
    """Return Σ γ^i·r_i over each window and γ^length, both float32 (*shape), of rewards (*shape, n)."""
    powers = gamma ** np.arange(rewards.shape[-1] + 1)
    is_part = np.arange(rewards.shape[-1]) < lengths[..., None]
    sums = np.where(is_part, rewards, 0.0) @ powers[:-1]
    return sums.astype(np.float32), powers.astype(np.float32)[lengths]
