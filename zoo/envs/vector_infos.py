"""What Gymnasium's vector environments say of themselves, and what they lay into their infos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from zoo.envs.spaces import Info, Observations, Space, describe
from zoo.errors import ZooError


class Games(NamedTuple):
    """How whole games stand after a step, where losing a life ends an episode: arrays (num_envs,)."""

    returns: NDArray[np.float64]
    """Sums of raw rewards."""
    lengths: NDArray[np.int64]
    is_life: NDArray[np.bool_]
    """Where the episode ended with a life only."""


def attached(env: Any, name: str) -> Any:
    """Return an attribute that `make_vec_env` left on the environment, below whatever wraps it."""
    while True:
        value = getattr(env, name, None)
        if value is not None or not isinstance(env, VectorWrapper):
            return value
        env = env.env


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise ZooError(
            f"{type(env.unwrapped).__name__} does not say when it resets: set "
            'metadata["autoreset_mode"] to a gymnasium.vector.AutoresetMode'
        ) from None


def refuse_other_shapes(observations: Any, space: Space, num_envs: int) -> None:
    """Raise `ZooError` if these are not the observations of so many environments: they would be broadcast."""
    for key, part in space.items() if isinstance(space, spaces.Dict) else [(None, space)]:
        found = np.shape(observations if key is None else observations[key])
        if part.shape is not None and found != (num_envs, *part.shape):
            what = "observations" if key is None else f"observations `{key}`"
            raise ZooError(
                f"the vector environment gave {what} of shape {found}; "
                f"{num_envs} of {describe(part)} have the shape {(num_envs, *part.shape)}"
            )


def info_of(infos: Any, index: int) -> Info:
    """Return the info of one environment out of a vector form: Gymnasium's, or a list of dictionaries."""
    if not isinstance(infos, Mapping):
        own = infos[index] if isinstance(infos, np.ndarray | list | tuple) and len(infos) > index else None
        return dict(own) if isinstance(own, Mapping) else {}
    single: Info = {}
    for key, values in infos.items():
        present = infos.get(f"_{key}")
        if str(key).startswith("_") and str(key)[1:] in infos:
            continue
        if isinstance(present, np.ndarray) and present.shape and not np.all(present[index]):
            continue
        if isinstance(values, Mapping):
            single[key] = info_of(values, index)
        elif isinstance(values, np.ndarray | list | tuple) and len(values) > index:
            single[key] = values[index]
    return single


def success_of(info: Mapping[str, Any]) -> bool | None:
    """Return whether an episode's last info says that its goal was reached; None where it does not say.

    That is ``is_success``, or else ``success``, where it is a truth value or a number that is 0 or 1.
    """
    for name in ("is_success", "success"):
        said = info.get(name)
        if isinstance(said, bool | int | float | np.generic | np.ndarray) and np.size(said) == 1:
            answer = np.asarray(said).item()
            if isinstance(answer, bool | int | float) and answer in (0, 1):
                return bool(answer)
    return None


def final_observations(infos: Mapping[str, Any], finished: NDArray[np.int64]) -> Observations:
    final = infos.get("final_obs")
    if final is None:
        raise ZooError(
            "a same-step vector environment ended an episode without `final_obs` in its infos; "
            "without it truncated episodes cannot be learned from"
        )
    if isinstance(final, Mapping):
        return {key: np.asarray(values)[finished] for key, values in final.items()}
    return stacked([final[i] for i in finished.tolist()])


def stacked(rows: Sequence[Any]) -> Observations:
    if isinstance(rows[0], Mapping):
        return {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    return np.stack(rows)


def rows(observations: Observations, rows: NDArray[np.int64]) -> Observations:
    if isinstance(observations, Mapping):
        return {key: values[rows] for key, values in observations.items()}
    return observations[rows]
