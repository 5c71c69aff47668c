"""What goes wrong beside the training, such as a full disk: told in one line, and the training goes on."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from zoo.errors import ZooError
from zoo.files.printing import say


def tell(message: str) -> None:
    """Print one line to stderr, if that can be written: its disk may be the one that is full."""
    say(f"zoo: {message}", sys.stderr)


@contextlib.contextmanager
def told(consequence: str) -> Iterator[None]:
    """Turn a failed write within the block into one line that also says what follows from it."""
    try:
        yield
    except (ZooError, OSError) as error:
        tell(f"{error}; {consequence}")
