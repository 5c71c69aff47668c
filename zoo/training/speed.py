"""How fast a run is, and what its time is spent on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm


class Speed:
    """How far an algorithm came, and how fast, from now on, without the time of evaluations and compiling."""

    def __init__(self, algorithm: Algorithm[Any]) -> None:
        self.algorithm = algorithm
        self.first_step = algorithm.num_timesteps
        self.started = self._clock()

    def summary(self) -> dict[str, Any]:
        """Return what a run's record says of it."""
        seconds = self._clock() - self.started
        steps = self.algorithm.num_timesteps - self.first_step
        return {
            "timesteps": self.algorithm.num_timesteps,
            "steps_per_second": round(steps / max(seconds, 1e-9), 1),
            "stop_reason": self.algorithm.stop_reason,
            "seconds": self._spent(),
        }

    def _spent(self) -> dict[str, float]:
        """Return what the whole run's seconds were spent on; this process compiled within its updates."""
        spent = dict(self.algorithm.timings)
        compiling = min(self.algorithm.runtime.compile_clock.seconds, spent["update"])
        spent["update"] -= compiling
        return {name: round(seconds, 3) for name, seconds in {**spent, "compiling": compiling}.items()}

    def _clock(self) -> float:
        left_out = self.algorithm.timings["evaluation"] + self.algorithm.runtime.compile_clock.seconds
        return time.perf_counter() - left_out
