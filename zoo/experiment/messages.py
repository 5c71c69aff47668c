"""Messages beside the training, such as that a disk is full: one line on stderr, and the training goes on."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from zoo.core.printing import say
from zoo.errors import ZooError, ZooWarning


def print_message(message: str) -> None:
    """Print ``zoo: message`` to stderr, if that can be written: its disk may be the one that is full."""
    say(f"zoo: {message}", sys.stderr)


@contextlib.contextmanager
def report_write_errors(consequence: str) -> Iterator[None]:
    """Print a failed write within the block, and what follows from it, instead of raising."""
    try:
        yield
    except (ZooError, OSError) as error:
        print_message(f"{error}; {consequence}")


@contextlib.contextmanager
def warnings_as_messages() -> Iterator[None]:
    """Print Zoo's own warnings within the block as messages, without file and line."""
    with warnings.catch_warnings():
        show_warning = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, ZooWarning):
                print_message(str(message))
            else:
                show_warning(message, category, *where, **more)

        warnings.showwarning = show
        yield
