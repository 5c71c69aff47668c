"""Output in a notebook: detection, a display that changes in place, and texts as HTML."""

from __future__ import annotations

import html
import sys
from typing import Any


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows HTML."""
    ipython = sys.modules.get("IPython")
    return hasattr(ipython and ipython.get_ipython(), "kernel")


def as_html(text: str) -> str:
    """Return a text of several lines as HTML that looks the same."""
    return f"<pre>{html.escape(text)}</pre>"


class CellOutput:
    """One output of a notebook's cell, which is replaced instead of followed by the next."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str, markup: str = "") -> None:
        """Show a text, or the HTML that stands for it."""
        from IPython import display

        content = {"text/plain": text, "text/html": markup or as_html(text)}
        if self._handle is None:
            self._handle = display.display(content, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(content, raw=True)
