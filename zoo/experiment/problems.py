"""What goes wrong beside the training, such as a full disk: told in one line, and the training goes on."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from zoo.core.printing import say
from zoo.errors import ZooError, ZooWarning


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


@contextlib.contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Tell Zoo's own warnings within the block as other remarks are told, without file and line."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def told_or_shown(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, ZooWarning):
                tell(str(message))
            else:
                show(message, category, *where, **more)

        warnings.showwarning = told_or_shown
        yield
