"""How long compiling takes, so that it is seen and not counted as training."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


class CompileClock:
    """The ``seconds`` that a run has spent on compiling."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Take the time of the block, which compiles; the user hears of the first one."""
        if not self.seconds:
            logger.info("compiling the update, about 20 s")
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started
