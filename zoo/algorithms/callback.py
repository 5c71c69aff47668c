"""What watches a training run: called at its start, every so many environment steps, and at its end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.algorithms.base import Algorithm
    from zoo.envs.monitor import EpisodeRecord


class Callback:
    """Override what is needed. All frequencies count environment steps.

    ``every`` is the number of environment steps between calls of `on_steps` (0: never); calls come at the
    first end of an update at or after each multiple. With ``barrier`` the environments are reset just before
    (see `Algorithm.barrier`), which is what makes a checkpoint exact.
    """

    every: int = 0
    barrier: bool = False

    def on_training_start(self, algorithm: Algorithm[Any]) -> None:
        """Before the first step of `Algorithm.learn`."""

    def on_steps(self, algorithm: Algorithm[Any]) -> None:
        """Every ``every`` environment steps."""

    def on_episode(self, algorithm: Algorithm[Any], episode: EpisodeRecord) -> None:
        """After each finished episode."""

    def on_training_end(self, algorithm: Algorithm[Any]) -> None:
        """After the last update, also when the run was stopped."""

    def state(self) -> dict[str, Any]:
        """Return plain values that a resumed run needs."""
        return {}

    def load_state(self, values: dict[str, Any]) -> None:
        """Take over what `state` returned."""


class CallbackSchedule:
    """Calls each callback when its number of environment steps has passed, checkpoints last."""

    def __init__(self, callbacks: Iterable[Callback], num_timesteps: int) -> None:
        self.callbacks = sorted(callbacks, key=lambda callback: callback.barrier)
        self.watching_episodes = [
            callback for callback in self.callbacks if type(callback).on_episode is not Callback.on_episode
        ]
        self._due = {
            id(callback): _next_multiple(num_timesteps, callback.every) for callback in self.callbacks
        }

    @property
    def next_due(self) -> float:
        """The number of environment steps at which the next callback is due."""
        return min(self._due.values(), default=float("inf"))

    def call_due(self, algorithm: Algorithm[Any]) -> None:
        """Call `on_steps` of all callbacks that are due."""
        for callback in self.callbacks:
            if algorithm.num_timesteps >= self._due[id(callback)]:
                if callback.barrier:
                    algorithm.barrier()
                callback.on_steps(algorithm)
                self._due[id(callback)] = _next_multiple(algorithm.num_timesteps, callback.every)


def _next_multiple(num_timesteps: int, every: int) -> float:
    return (num_timesteps // every + 1) * every if every > 0 else float("inf")
