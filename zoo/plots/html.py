"""Pieces of a page that stands alone: texts escaped, pictures and videos inside, nothing from a network."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zoo.files.printing import printable
from zoo.plots.tables import Table

TEXT_LIMIT = 60_000
"""Characters of a config or card that are shown."""

_CONTENT_POLICY = (
    "default-src 'none'; img-src data:; media-src data: file:; style-src 'unsafe-inline'; base-uri 'none';"
    " form-action 'none'"
)

_STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; color: #222; background: #fff;
       font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; border-bottom: 1px solid #ddd; padding-bottom: .2rem; }
p.lead { color: #555; margin-top: 0; }
table { border-collapse: collapse; font-size: .92rem; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #eee; vertical-align: top;
         overflow-wrap: anywhere; }
th { color: #555; font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
img, video { max-width: 100%; height: auto; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: .85rem; border-radius: 4px; }
details { margin: .4rem 0; } summary { cursor: pointer; color: #0072b2; }
.warning { background: #fff4e5; border-left: 4px solid #e69f00; padding: .5rem .9rem; margin: .8rem 0; }
.warning ul { margin: .3rem 0; padding-left: 1.2rem; }
footer { margin-top: 3rem; color: #777; font-size: .85rem; }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """Return a whole page. It may fetch nothing and run nothing, and says so to the browser."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escaped(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def escaped(text: object, limit: int = TEXT_LIMIT) -> str:
    """Return the text as HTML that shows it, and nothing else."""
    return html.escape(printable(text, limit))


def heading(text: str, level: int = 2) -> str:
    """Return a heading."""
    return f"<h{level}>{escaped(text, 300)}</h{level}>"


def image(content: bytes, description: str, kind: str = "svg+xml") -> str:
    """Return a picture with its bytes inside; scripts in an SVG don't run in an image."""
    data = base64.b64encode(content).decode()
    return f'<p><img src="data:image/{kind};base64,{data}" alt="{escaped(description, 300)}"></p>'


def video(content: bytes) -> str:
    """Return a video with its bytes inside."""
    data = base64.b64encode(content).decode()
    return f'<p><video controls loop muted preload="metadata" src="data:video/mp4;base64,{data}"></video></p>'


def facts(values: Mapping[str, Any]) -> str:
    """Return a table of names and values, without those that are None."""
    rows = (
        f"<tr><th>{escaped(name, 100)}</th><td>{escaped(value, 500)}</td></tr>"
        for name, value in values.items()
        if value is not None
    )
    return f"<table>{''.join(rows)}</table>"


def table(content: Table) -> str:
    """Return a table of scores."""
    kinds = [
        'class="number"' if column >= content.n_text_columns else "" for column in range(len(content.columns))
    ]
    return _rows(content.columns, content.rows, kinds)


def rows(columns: Sequence[str], cells: Iterable[Sequence[object]]) -> str:
    """Return a table of texts."""
    return _rows(columns, cells, [""] * len(columns))


def _rows(columns: Sequence[str], cells: Iterable[Sequence[object]], kinds: Sequence[str]) -> str:
    def line(tag: str, row: Sequence[object]) -> str:
        return "".join(
            f"<{f'{tag} {kind}'.strip()}>{escaped(cell, 500)}</{tag}>"
            for cell, kind in zip(row, kinds, strict=True)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in cells)
    return f"<table><thead><tr>{line('th', columns)}</tr></thead><tbody>{body}</tbody></table>"


def folded(summary: str, text: str) -> str:
    """Return a text that opens on a click."""
    return f"<details><summary>{escaped(summary, 200)}</summary><pre>{escaped(text)}</pre></details>"


def warning(text: str, items: Sequence[str] = ()) -> str:
    """Return something that a reader should not overlook."""
    shown = "".join(f"<li>{escaped(item, 300)}</li>" for item in items[:30])
    more = f"<li>… and {len(items) - 30} more</li>" if len(items) > 30 else ""
    return f'<div class="warning">{escaped(text, 500)}{f"<ul>{shown}{more}</ul>" if items else ""}</div>'
