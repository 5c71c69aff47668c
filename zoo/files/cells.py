"""Tables as text: lines of CSV, and texts of strangers, shown there and obeyed by no reader."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

from zoo.files.printing import one_line, printable


def markdown_cell(value: object, limit: int = 300) -> str:
    """Return a value for a table in Markdown, which neither ends its cell nor begins an element of HTML."""
    return one_line(value, limit).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def markdown_text(value: object, limit: int = 300) -> str:
    """Return a value for a line of Markdown or a cell of its tables, in which nothing becomes an element."""
    text = one_line(value, limit).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*\[\]|])", r"\\\1", text)


def code_block(text: str, language: str) -> str:
    """Return a block of code in Markdown with a fence that nothing in the text ends."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{printable(text)}\n{fence}"


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as lines of CSV; the cell of a None is empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def csv_text(value: str, limit: int = 300) -> str:
    """Return a text for a CSV file; one that a spreadsheet would compute becomes one that it shows."""
    text = one_line(value, limit)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
