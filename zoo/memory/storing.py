"""Storing what is collected in a replay memory: a few steps at once, which takes less than each by itself."""

from __future__ import annotations

from zoo.memory.experience import Experience
from zoo.memory.replay import ReplayMemory


class Storing:
    """Gives ``memory`` what is added in a block of ``with``: ``at_once`` steps at a time, and all by the end.

    With more than one, what is added has to stay as it is until the block's end. Nothing waits any longer
    when an episode ends.
    """

    def __init__(self, memory: ReplayMemory, at_once: int) -> None:
        self.memory = memory
        self.at_once = at_once
        self._waiting: list[Experience] = []

    def __enter__(self) -> Storing:
        return self

    def __exit__(self, *_: object) -> None:
        self._store()

    def add(self, experience: Experience) -> None:
        """Take one step of all environments."""
        self._waiting.append(experience)
        if len(self._waiting) >= self.at_once or experience.outcome.episodes:
            self._store()

    def _store(self) -> None:
        ready, self._waiting = self._waiting, []  # first: if interrupted, nothing is stored twice
        self.memory.extend(ready)
