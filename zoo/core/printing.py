"""Printing: texts made safe for a terminal, messages beside the training, numbers, Markdown and CSV."""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import os
import re
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from zoo.errors import ZooError, ZooWarning

_logger = logging.getLogger("zoo")

_INVISIBLE = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
"""Unicode's control, format (right-to-left too), private, surrogate and separator characters."""


def printable(text: object, limit: int = 100_000) -> str:
    """Return the text without terminal escape sequences and invisible characters; newlines stay.

    An agent's card could otherwise move the cursor, change the window's title or hide what it says.
    """
    printed = str(text)[: limit + 1].replace("\r\n", "\n").replace("\t", "    ")
    cut = "…" if len(printed) > limit else ""
    printed = printed[:limit]
    if not printed.isprintable():
        printed = "".join(
            character
            for character in printed
            if character == "\n" or unicodedata.category(character) not in _INVISIBLE
        )
    return printed + cut


def one_line(text: object, limit: int = 200) -> str:
    """Return the text for use inside a message: printable, on one line, cut after ``limit`` characters."""
    return printable(" ".join(str(text)[: 4 * limit].split()), limit)


def decimal(value: float) -> str:
    """Return a number with as many decimals as its size is worth: 1,234.5, 12.34, 0.123."""
    size = abs(value)
    decimals = 1 if size >= 100 else 2 if size >= 1 or size == 0 else 3
    return f"{value:,.{decimals}f}" if size < 1e9 else f"{value:.4g}"


def aligned(rows: Iterable[Sequence[object]]) -> str:
    """Return rows of cells as lines of text, with their columns aligned."""
    cells = [[one_line(cell, 4096) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)


def duration(seconds: float) -> str:
    """Return a time as ``1:23:45`` or ``2:05``; "" for one that is not finite."""
    if not abs(seconds) < 1e12:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def without_password(text: str) -> str:
    """Return the text with the password of every URL in it replaced."""
    text = re.sub(r"(\w[\w+.-]*://[^\s:/@]*:)\S*@", r"\1***@", text)
    return re.sub(r"(?i)([?&]\w*password=)[^&\s'\"]*", r"\1***", text)


def first_and_last(text: object) -> str:
    """Return the first and the last line: of a message with a traceback in it, the two that say something."""
    first, *others = str(text).strip().splitlines() or [""]
    return f"{first} {others[-1].strip()}" if others else first


def prepare_streams() -> None:
    """Open the null device for closed standard streams, and let "?" replace what stdout can't encode.

    The next file that is opened would otherwise get the number of a closed stream, and what is printed to it.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, "r" if name == "stdin" else "w"))  # noqa: SIM115
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]


def discard_unwritten() -> None:
    """Discard what stdout and stderr can't write, on a full disk or without a reader, now and later."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def show(text: object = "", *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print a text of any length, as `printable` leaves it. Raises what `print` does."""
    print(printable(text, sys.maxsize) + end, end="", file=sys.stdout if file is None else file, flush=flush)


def say(line: str, stream: TextIO | None = None) -> None:
    """Print a `printable` line in one piece, to stdout or a stream; one that can't be written is no error."""
    with contextlib.suppress(OSError, ValueError):
        print(printable(line) + "\n", end="", file=sys.stdout if stream is None else stream, flush=True)


def log(text: str) -> bool:
    """Hand a text to the logger ``zoo``; return whether one of its handlers prints it to the terminal."""
    _logger.info("%s", printable(text))
    return _logger.isEnabledFor(logging.INFO) and handlers_print()


def handlers_print() -> bool:
    """Whether a handler that the user gave the logger ``zoo``, or the root, prints to the terminal."""
    handlers = (*_logger.handlers, *(_logger.root.handlers if _logger.propagate else ()))
    streams = (getattr(handler, "stream", None) for handler in handlers if handler.level <= logging.INFO)
    return any(stream is not None and stream in (sys.stdout, sys.stderr) for stream in streams)


def print_message(message: str) -> None:
    """Print ``zoo: message`` to stderr, if that can be written: its disk may be the one that is full."""
    if not log(message):
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
        others = warnings.showwarning
        warnings.showwarning = lambda message, category, *where, **more: (
            print_message(str(message))
            if issubclass(category, ZooWarning)
            else others(message, category, *where, **more)
        )
        yield


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as lines of CSV; the cell of a None is empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
