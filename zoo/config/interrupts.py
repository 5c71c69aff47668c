"""A Ctrl-C that became the cause of another error, where libraries clean up what it left half done."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """Within the block, an error that comes of a `KeyboardInterrupt` is that interrupt again.

    A signal may come at any line: what cleans up after it, such as a ``finally`` that reads what the line
    would have set, then fails in its place. An interrupt that was being handled before the block is over.
    """
    before = sys.exc_info()[1]
    try:
        yield
    except Exception as error:
        interrupt = _interrupt_behind(error, before)
        if interrupt is None:
            raise
        raise KeyboardInterrupt from None


def _interrupt_behind(error: BaseException, before: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interrupt among the causes of an error that came after ``before``, or None."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = {id(before)}
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        if isinstance(each, KeyboardInterrupt):
            return each
        seen.add(id(each))
        waiting += [each.__cause__, each.__context__]
    return None
