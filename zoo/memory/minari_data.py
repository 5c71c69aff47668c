"""Expert data from Minari's local datasets, by its own package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces

from zoo.envs.spaces import (
    Space,
    check_supported,
    flat_parts,
    flat_space,
    is_composite,
    leaf_spaces,
    leaves,
    unsupported_space,
)
from zoo.errors import ZooError, install_command
from zoo.files.printing import one_line
from zoo.memory.columns import Column
from zoo.memory.expert_data import ExpertData
from zoo.memory.expert_problems import in_type_of

PREFIX = "minari:"

SIZE_IN_MEMORY = 2
"""How often an array is there while episodes are joined."""


def read(name: str, limit: int | None) -> ExpertData:
    """Return the dataset of ``minari:ID``, which has to be on this machine.

    Raises `ZooError` where Minari is not installed, or does not have it.
    """
    minari, dataset_id = _package(), name.removeprefix(PREFIX)
    try:
        dataset = minari.load_dataset(dataset_id)
        observation_space, action_space = flat_space(dataset.observation_space), dataset.action_space
        check_supported(observation_space, action_space)
        _refuse_too_large(dataset, observation_space, name, limit)
        episodes = list(dataset.iterate_episodes())
    except (FileNotFoundError, KeyError, ValueError, OSError, ImportError) as error:
        raise ZooError(
            f"Minari has no {one_line(dataset_id)} that it can read here: {one_line(error)};"
            f" minari download {one_line(dataset_id)} gets one"
        ) from error
    if not episodes:
        raise ZooError(f"{one_line(name)} is empty")
    lengths = np.array([len(each.rewards) for each in episodes], np.int64)
    rewards = [np.asarray(each.rewards, np.float64).reshape(-1) for each in episodes]
    env = dataset.env_spec
    return ExpertData(
        observation_space,
        action_space,
        _observations([each.observations for each in episodes], lengths, observation_space),
        _actions([each.actions for each in episodes], action_space),
        np.concatenate(rewards).astype(np.float32),
        lengths,
        np.array([each.sum() for each in rewards]),
        terminated=np.array([bool(np.asarray(each.terminations)[-1]) for each in episodes]),
        successes=_successes(episodes),
        card={"env": None if env is None else env.id, "source": {"format": "Minari", "dataset": dataset_id}},
    )


def _package() -> Any:
    try:
        import minari
    except ImportError as error:
        raise ZooError(f"reading Minari's datasets needs: {install_command('minari')}") from error
    return minari


def _refuse_too_large(dataset: Any, space: Space, name: str, limit: int | None) -> None:
    parts = space.values() if isinstance(space, gym_spaces.Dict) else [space]
    row = sum(int(np.prod(part.shape or (1,))) * np.dtype(part.dtype).itemsize for part in parts)
    needed = SIZE_IN_MEMORY * int(dataset.total_steps) * row
    if limit is not None and needed > limit:
        raise ZooError(
            f"{one_line(name)} needs {needed / 2**30:.2f} GiB of memory, but {limit / 2**30:.2f} GiB are to"
            " be had"
        )


def _observations(episodes: list[Any], lengths: np.ndarray, space: Space) -> Column:
    """Return what was seen before each action; the last observation of an episode stands behind them."""
    if isinstance(space, gym_spaces.Dict):
        episodes = [dict(flat_parts(space, each)) for each in episodes]
        return {
            key: _observations([each[key] for each in episodes], lengths, part)
            for key, part in space.spaces.items()
        }
    if not isinstance(
        space, gym_spaces.Box | gym_spaces.Discrete | gym_spaces.MultiDiscrete | gym_spaces.MultiBinary
    ):
        raise ZooError("observations: " + unsupported_space(space))
    parts = [np.asarray(each)[:n] for each, n in zip(episodes, lengths, strict=True)]
    return in_type_of(space, np.concatenate(parts), "observations", "observation")


def _actions(episodes: list[Any], space: Space) -> Column:
    if not is_composite(space):
        joined = np.concatenate([np.asarray(each) for each in episodes])
        return in_type_of(space, joined, "actions", "action")
    by_path = [dict(leaves(space, each)) for each in episodes]
    joined_parts = {
        path: np.concatenate([np.asarray(each[path]) for each in by_path]) for path, _ in leaf_spaces(space)
    }
    return {
        path: in_type_of(part, joined_parts[path], f"actions, {path}", "action")
        for path, part in leaf_spaces(space)
    }


def _successes(episodes: list[Any]) -> np.ndarray | None:
    """Return whether each episode was a success at its end, where all say so."""
    successes = []
    for episode in episodes:
        infos = episode.infos if isinstance(episode.infos, Mapping) else {}
        name = next((name for name in ("is_success", "success") if name in infos), None)
        if name is None:
            return None
        successes.append(bool(np.asarray(infos[name]).reshape(-1)[-1]))
    return np.array(successes)
