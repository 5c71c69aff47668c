"""How long compiling takes, so that it is seen and not counted as training."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


class CompileClock:
    """The ``seconds`` that a run has spent on compiling, and whether it ``is_running``."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_running = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Take the time of the block, which compiles; the user hears of the first one."""
        if not self.seconds:
            logger.info("compiling the update, about 20 s")
        started, was_running = time.perf_counter(), self.is_running
        self.is_running = True
        try:
            yield
        finally:
            self.is_running = was_running
            self.seconds += time.perf_counter() - started
