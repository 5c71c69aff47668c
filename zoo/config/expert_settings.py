"""The settings of `zoo expert`."""

from __future__ import annotations

from dataclasses import dataclass

from zoo.config.agent_choice import AgentChoice
from zoo.config.fields import hyperparameter


@dataclass
class ExpertSettings(AgentChoice):
    """What `zoo expert` takes."""

    n_episodes: int | None = hyperparameter(
        help="episodes to record, null: 50; with show=FILE those to show, the first ones, null: all", ge=1
    )
    n_envs: int = hyperparameter(help="environments stepped side by side", ge=1)
    min_return: float | None = hyperparameter(
        help="record (out of at most ten times as many) or show only episodes that return so much; null: all"
    )
    successes_only: bool = hyperparameter(help="record or show only episodes that reach their goal")
    deterministic: bool = hyperparameter(help="the likeliest action instead of a random one")
    seed: int | None = hyperparameter(help="of the episodes; null: drawn", ge=0)
    out: str | None = hyperparameter(help="file to write, .npz; null: a new one in ./experts")
    show: str | None = hyperparameter(help="file, or minari:ID, whose summary to print instead of recording")
