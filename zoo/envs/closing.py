"""Closing environments: by then whatever they were for is done, and nothing of it fails any more."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from zoo.files.printing import one_line, say


@contextlib.contextmanager
def closing_told(name: str) -> Iterator[None]:
    """Turn what an environment raises as it is closed into one line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        say(f"zoo: {name}: close() raised {type(error).__name__}: {one_line(error)}", sys.stderr)
