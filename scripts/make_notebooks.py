"""Write docs/notebooks/ from docs/tutorials/, and into each tutorial the line that leads to its notebook.

    .venv/bin/python scripts/make_notebooks.py            # write what has changed
    .venv/bin/python scripts/make_notebooks.py --check    # only say what is not current

Text becomes text and Python becomes code. A block that begins with a file's name, `# truck.py`, becomes a
file. Commands get a `!` before them, and no progress bar. Blocks without a language are output, which the
notebook makes itself. A block after `<!-- not run: REASON -->` is shown only. The address of the
repository, where Colab finds the notebooks, is `Repository` in the table [project.urls] of pyproject.toml;
without it there are no badges, and no cell that installs Zoo on Colab.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
TUTORIALS = REPOSITORY / "docs" / "tutorials"
NOTEBOOKS = REPOSITORY / "docs" / "notebooks"
NAMES = ("first-agent", "own-environment", "continuous-control", "goals", "images", "paper-figures")
LINE = re.compile(r"(?<=<!-- notebook -->\n).*?(?=<!-- end -->)", re.S)
ON_COLAB = """\
try:  # on Colab: install Zoo
    import google.colab  # noqa: F401
except ImportError:
    pass
else:
    %pip install -q "zoo-rl[plots,video] @ git+{address}"
"""


class Block(NamedTuple):
    """A fenced block, or the text before one (``language`` is None)."""

    text: str
    language: str | None = None
    not_run: str | None = None

    @property
    def file(self) -> str | None:
        """Name of the file that the block holds, if it holds one."""
        name = re.match(r"# (\S+\.\w+)\n", self.text)
        return name[1] if name and self.language else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; say which files are not current")
    check = parser.parse_args().check
    address = address_of((REPOSITORY / "pyproject.toml").read_text())
    texts = {}
    for name in NAMES:
        markdown = (TUTORIALS / f"{name}.md").read_text()
        texts[TUTORIALS / f"{name}.md"] = LINE.sub(f"{link_to(name, address)}\n", markdown)
        texts[NOTEBOOKS / f"{name}.ipynb"] = notebook(name, markdown, address)
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(REPOSITORY)}: {'not current; run make docs' if check else 'written'}")
        if not check:
            path.write_text(texts[path])
    raise SystemExit(1 if stale and check else 0)


def address_of(project: str) -> str | None:
    """Return the address of the repository that pyproject.toml names, without a slash at its end."""
    line = re.search(r"^\[project\.urls\]\n(?:.+\n)*?[Rr]epository = \"(.+?)/?\"", project, re.M)
    return line[1] if line else None


def badge(name: str, address: str | None) -> str:
    """Return a link that opens a notebook in Colab; nothing where it is not known where it lies."""
    if address is None or "//github.com/" not in address:
        return ""
    place = f"{address.partition('//github.com/')[2]}/blob/main/docs/notebooks/{name}.ipynb"
    return f"[![Open in Colab](../images/colab.svg)](https://colab.research.google.com/github/{place})"


def link_to(name: str, address: str | None) -> str:
    line = f"This page is also a notebook: [{name}.ipynb](../notebooks/{name}.ipynb)."
    return f"{line} {badge(name, address)}".strip()


def blocks(markdown: str) -> Iterator[Block]:
    """Yield the text and the fenced blocks of a page, in order."""
    fenced = re.compile(r"^(?:<!-- not run: ([^\n]+) -->\n)?```(\w*)\n(.*?)^```\n", re.M | re.S)
    end = 0
    for match in fenced.finditer(markdown):
        yield Block(markdown[end : match.start()])
        yield Block(match[3], match[2], match[1])
        end = match.end()
    yield Block(markdown[end:])


def notebook(name: str, markdown: str, address: str | None) -> str:
    """Return the notebook of a tutorial, without outputs."""
    made = LINE.sub(f"{badge(name, address)}\n", markdown)
    cells = [cell for block in blocks(made) for cell in cells_of(block)]
    if address is not None:
        cells.insert(1, ("code", ON_COLAB.format(address=address)))
    values = {
        "cells": [
            {"cell_type": kind, "id": f"{name}-{number}", "metadata": {}, "source": text.splitlines(True)}
            | ({"execution_count": None, "outputs": []} if kind == "code" else {})
            for number, (kind, text) in enumerate(cells)
        ],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(values, indent=1, ensure_ascii=False) + "\n"


def cells_of(block: Block) -> Iterator[tuple[str, str]]:
    """Yield kind and text of the cells that show a block."""
    text = block.text.strip("\n")
    if block.language is None:
        text = re.sub(r"<!-- .*? -->\n?", "", text).strip("\n")
        if text:
            yield "markdown", re.sub(r"\]\((?=[\w-]+\.md)", "](../tutorials/", text)
    elif block.not_run:
        yield "markdown", f"```{block.language}\n{text}\n```"
    elif block.file:
        if folder := block.file.rpartition("/")[0]:
            yield "code", f"!mkdir -p {folder}"
        yield "code", f"%%writefile {block.file}\n{text}"
    elif block.language == "python":
        yield "code", text
    elif block.language == "bash":
        text = re.sub(r"^zoo (?:train|tune) .*?(?=  #|$)", r"\g<0> progress_bar=false", text, flags=re.M)
        yield "code", re.sub(r"^(?=\w)", "!", text, flags=re.M)


if __name__ == "__main__":
    main()
