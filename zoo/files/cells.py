"""Texts of strangers in the cells of tables that go to others: shown there, and obeyed by no reader."""

from __future__ import annotations

from zoo.files.printing import one_line


def markdown_cell(value: object, limit: int = 300) -> str:
    """Return a value for a table in Markdown, which neither ends its cell nor begins an element of HTML."""
    return one_line(value, limit).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def csv_text(value: str, limit: int = 300) -> str:
    """Return a text for a CSV file; one that a spreadsheet would compute becomes one that it shows."""
    text = one_line(value, limit)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
