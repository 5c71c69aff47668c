"""Reading what Gymnasium's vector environments lay into their infos, and picking rows of observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.envs.env_group import Info
from zoo.envs.step_arrays import Observations
from zoo.errors import ZooError


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
