"""Transitions made by hand, for buffers to store."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.buffers.arrays import transform
from zoo.envs.transition import Transition

Array = np.ndarray


def transition(
    columns: dict[str, Any],
    following: Any,
    rewards: Array,
    terminated: Array,
    ended: Array,
    valid: Array | None = None,
    *,
    masks: Array | None = None,
) -> Transition:
    """Return one step after which ``following`` was observed, and in the ended episodes observed last.

    Only the ``valid`` environments took it. What the environments show after it, the first observations of
    next episodes, is 77 everywhere; ``masks`` are those of ``following``, and all true of what is shown.
    """
    finished = np.flatnonzero(ended)
    shown = transform(np.copy, following)
    transform(lambda array: array.__setitem__(finished, 77), shown)
    shown_masks = None if masks is None else masks.copy()
    if shown_masks is not None:
        shown_masks[finished] = True
    return Transition(
        shown,
        rewards.astype(np.float32),
        terminated,
        ended & ~terminated,
        None if valid is None else np.flatnonzero(valid),
        shown_masks,
        finished=finished,
        final_observations=transform(lambda array: array[finished], following) if len(finished) else None,
        final_action_masks=masks[finished] if masks is not None and len(finished) else None,
        observations=columns["observations"],
        columns=columns,
    )
