"""Which of an expert's episodes are learned from."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.config.fields import hyperparameter
from zoo.envs.spaces import Space
from zoo.memory.columns import Column
from zoo.memory.expert_data import ExpertData
from zoo.memory.expert_files import read_expert


@dataclass
class EpisodeChoice:
    """What all that learns from an expert can be told of its episodes."""

    n_episodes: int | None = hyperparameter(None, "episodes to use, the first ones; null: all", ge=1)
    min_return: float | None = hyperparameter(None, "use only episodes that return so much; null: all")


def chosen_episodes(
    dataset: ExpertData | str | Path, spaces: tuple[Space, Space], choice: EpisodeChoice
) -> ExpertData:
    """Return the episodes that are to be learned from. Raises `ZooError` for other spaces, or for none."""
    data = dataset if isinstance(dataset, ExpertData) else read_expert(dataset, spaces)
    data.check_spaces(*spaces)
    return data.filtered(min_return=choice.min_return, n_episodes=choice.n_episodes)


def checksum_of(data: ExpertData) -> int:
    """Return a number that other expert data hardly have."""
    checksum = 0
    for column in (data.observations, data.actions, data.lengths):
        for array in arrays_of(column):
            checksum = zlib.crc32(np.ascontiguousarray(array).tobytes(), checksum)
    return checksum


def arrays_of(column: Column) -> list[Any]:
    """Return the arrays of a column, which may be a dictionary of columns."""
    if not isinstance(column, dict):
        return [column]
    return [array for part in column.values() for array in arrays_of(part)]
