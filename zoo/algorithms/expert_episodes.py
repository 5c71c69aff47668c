"""Which of an expert's episodes are learned from."""

from __future__ import annotations

import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.config.fields import hyperparameter
from zoo.envs.registry import task_name
from zoo.errors import ZooError, ZooWarning
from zoo.files.printing import one_line
from zoo.memory.columns import Column
from zoo.memory.expert_data import ExpertData
from zoo.memory.expert_files import read_expert

if TYPE_CHECKING:
    from zoo.algorithms.agent import Agent


@dataclass
class EpisodeChoice:
    """What all that learns from an expert can be told of its episodes."""

    n_episodes: int | None = hyperparameter(None, "episodes to use, the first ones; null: all", ge=1)
    min_return: float | None = hyperparameter(None, "use only episodes that return so much; null: all")


def chosen_episodes(dataset: ExpertData | str | Path, agent: Agent[Any], choice: EpisodeChoice) -> ExpertData:
    """Return the episodes that the agent is to learn from.

    Raises `ZooError` for other spaces than the agent's, or for none; `ZooWarning` warns of fewer than are
    wanted, and of those of another environment.
    """
    data = dataset if isinstance(dataset, ExpertData) else read_expert(dataset, agent.spaces)
    data.check_spaces(*agent.spaces)
    _warn_of_another_env(data, agent)
    return data.filtered(min_return=choice.min_return, n_episodes=choice.n_episodes)


def _warn_of_another_env(data: ExpertData, agent: Agent[Any]) -> None:
    """Warn of data of another environment, whose spaces happen to be the same; versions may differ."""
    theirs, ours = data.card.get("env"), _env_id(agent)
    if isinstance(theirs, str) and ours is not None and task_name(theirs) != task_name(ours):
        warnings.warn(
            f"the expert data are of {one_line(theirs)}, and {ours} is learned: their spaces are the same",
            ZooWarning,
            stacklevel=4,
        )


def _env_id(agent: Agent[Any]) -> str | None:
    """Return the id of what it learns in, None where nobody knows."""
    envs, config = getattr(agent, "envs", None), agent.env_config
    spec = None if envs is None else getattr(envs.env, "spec", None)
    if spec is not None:
        return str(spec.id)
    return config.id if config is not None and envs is None else None


def expert_checksum(data: ExpertData) -> int:
    """Return a number that other expert data hardly have."""
    checksum = 0
    for column in (data.observations, data.actions, data.lengths):
        for array in arrays_of(column):
            checksum = zlib.crc32(np.ascontiguousarray(array).tobytes(), checksum)
    return checksum


def refuse_other_expert(own: int | None, learned_from: int | None) -> None:
    """Raise `ZooError` if the checksums are of different data; None is of none."""
    if None not in (own, learned_from) and own != learned_from:
        raise ZooError(
            "the expert data are not those that the run has learned from so far; give it the same dataset"
        )


def arrays_of(column: Column) -> list[Any]:
    """Return the arrays of a column, which may be a dictionary of columns."""
    if not isinstance(column, dict):
        return [column]
    return [array for part in column.values() for array in arrays_of(part)]
