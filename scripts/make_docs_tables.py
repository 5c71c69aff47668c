"""Write the tables in docs/ from the declarations in the code.

    make docs
    .venv/bin/python scripts/make_docs_tables.py --check

A table stands between two comments in a Markdown file, `<!-- fields: MODULE:DATACLASS -->` or
`<!-- old names -->`, and `<!-- end -->`. With `--check` nothing is written; the exit status is 1 if a table
is not what the code says.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.config.fields import OLD_NAMES

REPOSITORY = Path(__file__).resolve().parent.parent
TABLE = re.compile(r"(<!-- (?P<what>fields: (?P<path>[\w.:]+)|old names) -->\n).*?(<!-- end -->)", re.DOTALL)
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; say which files are not current")
    check = parser.parse_args().check
    stale = [page for page in pages() if with_current_tables(page.read_text()) != page.read_text()]
    for page in stale:
        print(f"{page.relative_to(REPOSITORY)}: {'not current; run make docs' if check else 'written'}")
        if not check:
            page.write_text(with_current_tables(page.read_text()))
    raise SystemExit(1 if check and stale else 0)


def pages() -> list[Path]:
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def with_current_tables(text: str) -> str:
    """Return the page with every table made anew."""

    def replaced(found: re.Match[str]) -> str:
        table = fields_table(found["path"]) if found["path"] else old_names_table()
        return f"{found[1]}\n{table}\n\n{found[4]}"

    return TABLE.sub(replaced, text)


def fields_table(path: str) -> str:
    """Return the fields of a dataclass as a Markdown table."""
    module, _, name = path.partition(":")
    rows = [row_of(field) for field in dataclasses.fields(getattr(importlib.import_module(module), name))]
    return markdown(("name", "type", "default", "range", "meaning"), rows)


def row_of(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    unit = field.metadata.get("unit")
    kind = str(field.type).replace("Schedule", "number or schedule").replace("None", "null")
    kind = re.sub(r"\bActionNoiseConfig \| ", "", kind).replace(" | ", " or ")
    kind += f" ({unit})" if unit else ""
    meaning = str(field.metadata.get("help", ""))
    return (f"`{field.name}`", kind, default_of(field), range_of(field.metadata), meaning)


def default_of(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{as_yaml(field.default)}`"
    if field.default_factory is not dataclasses.MISSING:
        return f"`{as_yaml(field.default_factory())}`"
    return ""


def as_yaml(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) and value < 0.01 else str(value)


def range_of(metadata: Mapping[str, Any]) -> str:
    if metadata.get("choices"):
        return ", ".join(as_yaml(choice) for choice in metadata["choices"])
    bounds = metadata.get("bounds", {})
    return ", ".join(f"{BOUNDS[name]} {bound:g}" for name, bound in bounds.items())


def old_names_table() -> str:
    return markdown(("Stable-Baselines", "Zoo"), [(f"`{old}`", f"`{new}`") for old, new in OLD_NAMES.items()])


def markdown(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    main()
