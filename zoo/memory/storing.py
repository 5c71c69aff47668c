"""Storing what is collected in a replay memory: a few steps at once, which takes less than each by itself."""

from __future__ import annotations

from zoo.memory.experience import Experience
from zoo.memory.replay import ReplayMemory


class Storing:
    """Gives ``memory`` what is added in a block of ``with``: some at a time, and all by the end.

    Where the next step overwrites the arrays of the last (``waits`` is false), nothing waits.
    """

    def __init__(self, memory: ReplayMemory, *, waits: bool) -> None:
        self.memory = memory
        self._at_once = memory.steps_at_once if waits else 1
        self._waiting: list[Experience] = []

    def __enter__(self) -> Storing:
        return self

    def __exit__(self, *_: object) -> None:
        self._store()

    def add(self, experience: Experience) -> None:
        """Take one step of all environments."""
        self._waiting.append(experience)
        if len(self._waiting) >= self._at_once:
            self._store()

    def _store(self) -> None:
        ready, self._waiting = self._waiting, []  # first: if interrupted, nothing is stored twice
        try:
            self.memory.extend(ready)
        except BaseException:
            self.memory.cut()  # steps may be missing, so what comes next does not follow what is stored
            raise
