"""One step of all environments as one record, and what vector environments lay into their infos."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from zoo.envs.spaces import Info, Observations, Space, describe, layers, misfit
from zoo.errors import ZooError

NOTHING_FINISHED: NDArray[np.int64] = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class EpisodeRecord:
    """One finished episode: the sum of its raw rewards and its length in environment steps."""

    env_index: int
    episode_return: float
    length: int
    seconds: float
    """When it ended, in seconds since the start, without the pauses after which a run was resumed."""
    info: dict[str, Any] = field(default_factory=dict)
    """``is_success`` where the environment says it (`success_of`), and the values of ``info_keywords``."""


class RecentEpisodes(deque[EpisodeRecord]):
    """The last episodes that finished, as a part of a run's state."""

    def state(self) -> dict[str, Any]:
        return {"records": [asdict(record) for record in self]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.clear()
        self.extend(EpisodeRecord(**record) for record in state["records"])


class EpisodeEnd(NamedTuple):
    """How an environment ended its episode, before the reset that follows in the same step."""

    env_index: int
    observation: Any
    """The final observation."""
    info: Info
    action_masks: NDArray[np.bool_] | None
    episode_return: float
    """Sum of the raw rewards."""
    length: int
    is_life: bool
    """Whether a life was lost while the game goes on: that ends no recorded episode."""


class Games(NamedTuple):
    """How whole games stand after a step, where losing a life ends an episode: arrays (num_envs,)."""

    returns: NDArray[np.float64]
    """Sums of raw rewards."""
    lengths: NDArray[np.int64]
    is_life: NDArray[np.bool_]
    """Where the episode ended with a life only."""


@dataclass(slots=True)
class Transition:
    """One step of all environments: raw values, one row an environment, which later steps don't overwrite.

    ``new_observations`` and ``new_action_masks`` (num_envs, mask_size) are what the environments show after
    the step: where one was reset within it, the start of its next episode. What such episodes ended with is
    in ``final_observations`` and ``final_action_masks``, rows for ``finished`` in that order. Masks are None
    without masks. ``stepped`` lists the environments that took a step, where others were merely reset (their
    rows are dropped when the step is stored); it is None where environments are reset within a step.
    ``episodes`` are records of the whole episodes that ended.

    The collector adds ``observations``, the raw ones before the step, and ``columns``: by name what the
    policy was shown (normalised ``observations``, ``action_masks``) and what it did (``actions`` and others).
    """

    new_observations: Observations
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    stepped: NDArray[np.int64] | None = None
    new_action_masks: NDArray[np.bool_] | None = None
    finished: NDArray[np.int64] = field(default_factory=lambda: NOTHING_FINISHED)
    final_observations: Observations | None = None
    final_action_masks: NDArray[np.bool_] | None = None
    episodes: Sequence[EpisodeRecord] = ()
    infos: Any = field(default=(), repr=False)
    """A list of the infos that come with ``new_observations``, or Gymnasium's vector form of them."""
    final_infos: Sequence[Info] = ()
    observations: Observations = None
    columns: dict[str, Any] = field(default_factory=dict)

    @property
    def envs(self) -> NDArray[np.int64]:
        """The environments that took a step."""
        return np.arange(len(self.rewards)) if self.stepped is None else self.stepped

    @property
    def dones(self) -> NDArray[np.bool_]:
        """Whether each environment's episode ended with this step."""
        return self.terminated | self.truncated

    def step_infos(self) -> list[Info]:
        """Return the info of each environment's step; at an episode's end, the final info."""
        infos = [info_of(self.infos, i) for i in range(len(self.rewards))]
        for i, info in zip(self.finished.tolist(), self.final_infos, strict=True):
            infos[i] = info
        return infos

    def stored(self) -> dict[str, Any]:
        """Return the arrays that replay buffers store: columns, raw observations, next observations."""
        return {
            **self.columns,
            **self.following(),
            "observations": self.observations,
            "rewards": self.rewards,
            "terminated": self.terminated,
            "dones": self.dones,
        }

    def following(self) -> dict[str, Any]:
        """Return raw ``next_observations``, and with masks ``next_action_masks``: final ones at ends."""
        following = {"next_observations": self.new_observations}
        if self.new_action_masks is not None:
            following["next_action_masks"] = self.new_action_masks
        if len(self.finished):
            final = self.final_observations, self.final_action_masks
            for (name, values), rows in zip(following.items(), final, strict=False):
                following[name] = map_arrays(self._with_final, values, rows)
        return following

    def _with_final(self, values: NDArray[Any], final: NDArray[Any]) -> NDArray[Any]:
        values = values.copy()
        values[self.finished] = final
        return values


def map_arrays(function: Callable[..., Any], part: Any, *others: Any) -> Any:
    """Apply a function to an array and those that go with it, or to each of dictionaries of them."""
    if isinstance(part, Mapping):
        return {key: function(array, *(other[key] for other in others)) for key, array in part.items()}
    return function(part, *others)


def stacked(rows: Sequence[Any]) -> Observations:
    """Return observations of single environments as arrays with one row each."""
    return map_arrays(lambda *parts: np.stack(parts), *rows)


def copied(observations: Observations) -> Observations:
    """Return a copy of an array or of a dict of arrays."""
    if isinstance(observations, np.ndarray):  # the quick way
        return observations.copy(order="K")  # products of transposed arrays round otherwise
    return map_arrays(np.array, observations)


_BEGAN = time.time() - time.monotonic()


def now() -> float:
    """Return the seconds since 1970, which never go back while this process runs: clocks are set."""
    return _BEGAN + time.monotonic()


def attached(env: Any, name: str) -> Any:
    """Return an attribute that `make_vec_env` set on the environment, below any wrappers."""
    values = (getattr(layer, name, None) for layer in layers(env))
    return next((value for value in values if value is not None), None)


def info_of(infos: Any, index: int) -> Info:
    """Return the info of one environment out of a vector form: Gymnasium's, or a list of dictionaries."""
    if not isinstance(infos, Mapping):
        info = infos[index] if isinstance(infos, np.ndarray | list | tuple) and len(infos) > index else None
        return dict(info) if isinstance(info, Mapping) else {}
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
    """Return ``is_success`` or ``success`` of an episode's last info, if that is a truth value, 0 or 1."""
    for name in ("is_success", "success"):
        value = info.get(name)
        is_number = isinstance(value, bool | int | float | np.generic | np.ndarray) and np.size(value) == 1
        if is_number and (answer := np.asarray(value).item()) in (0, 1):
            return bool(answer)
    return None


def final_observations(infos: Mapping[str, Any], finished: NDArray[np.int64]) -> Observations:
    """Return the rows of ``final_obs`` for the environments that finished."""
    final = infos["final_obs"]
    if isinstance(final, Mapping):
        return map_arrays(lambda values: np.asarray(values)[finished], final)
    return stacked([final[i] for i in finished.tolist()])


def check_observations(observations: Any, space: Space, num_envs: int) -> None:
    """Raise `ZooError` if these are not so many observations of the space."""
    for key, part in space.items() if isinstance(space, spaces.Dict) else [(None, space)]:
        array = observations if key is None else observations[key]
        if hasattr(array, "requires_grad"):
            raise ZooError(
                "the vector environment gave tensors; put it into gymnasium.wrappers.vector.ArrayConversion"
            )
        problem, dtype = misfit(array, part, (num_envs,)), getattr(array, "dtype", part.dtype)
        if dtype != part.dtype == np.uint8:
            problem = f"type {dtype}"
        if problem is not None:
            name = "observations" if key is None else f"observations `{key}`"
            raise ZooError(
                f"the vector environment gave {name} with {problem}; its space is {describe(part)}"
            )
