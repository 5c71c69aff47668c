"""Storing what is collected in a replay memory: a few steps at once, which takes less than each by itself."""

from __future__ import annotations

from zoo.memory.experience import Experience
from zoo.memory.replay import ReplayMemory


class Storing:
    """Gives ``memory`` what is added in a block of ``with``: ``at_once`` steps at a time, and all by the end.

    With more than one, what is added has to stay as it is until the block's end. Where that ends with an
    exception, a step may be missing, so all episodes are cut.
    """

    def __init__(self, memory: ReplayMemory, at_once: int) -> None:
        self.memory = memory
        self.at_once = at_once
        self._waiting: list[Experience] = []

    def __enter__(self) -> Storing:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        is_whole = False
        try:
            self._store()
            is_whole = error is None
        finally:
            if not is_whole:
                self.memory.cut()

    def add(self, experience: Experience) -> None:
        """Take one step of all environments."""
        self._waiting.append(experience)
        if len(self._waiting) >= self.at_once:
            self._store()

    def _store(self) -> None:
        ready, self._waiting = self._waiting, []  # first: if interrupted, nothing is stored twice
        self.memory.extend(ready)
