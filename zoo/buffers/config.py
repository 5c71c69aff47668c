"""Settings of replay sampling, as plain values: the config section ``replay``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zoo.config.fields import build, hyperparameter
from zoo.errors import ZooError

GOAL_STRATEGIES = ("future", "final", "episode", "random")


@dataclass
class PrioritizedConfig:
    """Prioritised replay: transitions with large errors are drawn more often."""

    alpha: float = hyperparameter(
        0.6, "how much large errors are preferred; 0: not at all, 1: in proportion", ge=0, le=1
    )
    beta: float = hyperparameter(
        0.4, "how much importance weights correct this bias at the start; 1: fully", ge=0, le=1
    )
    beta_fraction: float = hyperparameter(1.0, "part of training over which beta rises to 1", gt=0, le=1)
    epsilon: float = hyperparameter(
        1e-6, "added to each error, so that every transition can be drawn", gt=0, is_finite=True
    )


@dataclass
class HindsightConfig:
    """Hindsight replay: transitions relabelled with goals that were reached."""

    goal_selection_strategy: str = hyperparameter(
        "future",
        "reached goals to choose from: later in the episode, its end, all of it, or the whole buffer",
        choices=GOAL_STRATEGIES,
    )
    n_sampled_goal: int = hyperparameter(4, "relabelled transitions for each original one; 4: 80 %", ge=1)
    copy_info_dict: bool = hyperparameter(
        False, "keep the info of each step, and give it to compute_reward instead of an empty one"
    )


@dataclass
class ReplayConfig:
    """Settings of replay sampling: n-step returns, priorities, hindsight."""

    n_step: int = hyperparameter(
        1, "steps whose rewards are summed before the bootstrap value", unit="steps", ge=1
    )
    prioritized: PrioritizedConfig | None = hyperparameter(
        None, "prioritised replay; null: all transitions are equally likely"
    )
    hindsight: HindsightConfig | None = hyperparameter(
        None, "hindsight replay, in environments with goals; null: no other goals"
    )


def replay_config(values: ReplayConfig | Mapping[str, Any] | None) -> ReplayConfig:
    """Return the config for a user's values. Raises `ZooError` for invalid ones."""
    if isinstance(values, ReplayConfig):
        values = dataclasses.asdict(values)
    if values is not None and not isinstance(values, Mapping):
        raise ZooError(
            f"replay={values!r}: expected a mapping, such as"
            " {'prioritized': {}, 'hindsight': {}, 'n_step': 3}"
        )
    return build(ReplayConfig, values or {}, "replay")
