"""The exception for errors that a user can fix, and hints that name the nearest valid name."""

from __future__ import annotations

import difflib
import functools
import os
import re
import shlex
import traceback
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import PackageMetadata

MISTAKE = 2
"""Exit status after a `ZooError`."""

INTERRUPTED = 130
"""Exit status of what the user or the cluster ended."""


class ZooError(Exception):
    """An error that the user can mend: the command line prints the message and exits with status 2.

    The message says what was found, what was expected and what to do. A notebook shows it below the line of
    the cell, without a traceback; ``ZOO_DEBUG=1`` shows all.
    """

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython prints."""
        if os.environ.get("ZOO_DEBUG") == "1":
            return traceback.format_exception(self)
        frames = traceback.extract_tb(self.__traceback__)
        cell = [f"----> {frame.lineno} {frame.line}" for frame in frames if "ipykernel" in frame.filename]
        return [*cell[-1:], f"{type(self).__name__}: {self}"]


class NotFiniteError(ZooError):
    """A NaN or an infinity where learning can't go on with one: from an environment, or in parameters."""


class ToldInterrupt(KeyboardInterrupt):
    """An interrupt with a message about the saved run; a notebook shows only that line."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython prints."""
        return [f"{type(self).__name__}: {self}"]


class ZooWarning(UserWarning):
    """A warning that needs no fix: the command line prints the message in one line."""


def nearest_name(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name closest to ``name``, or "" if none is as similar as ``cutoff`` (0 to 1)."""
    by_lower_case = {candidate.lower(): candidate for candidate in reversed(list(names))}
    matches = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=cutoff)
    return by_lower_case[matches[0]] if matches else ""


def nearest(name: str, names: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the name closest to ``name``, or "" if none is close."""
    match = nearest_name(name, names)
    return f"; did you mean '{match}'?" if match else ""


def install_command(extra: str) -> str:
    """Return the command that installs an extra's packages: the package index does not have Zoo itself."""
    return f"pip install {' '.join(map(shlex.quote, packages_of(extra)))}"


def packages_of(extra: str) -> list[str]:
    """Return the packages that an extra of pyproject.toml brings, as one types them."""
    in_extra = re.compile(rf"extra == ['\"]{extra}['\"]")
    lines = distribution().get_all("Requires-Dist", [])
    return [re.split(r"[ ;<>=!~]", line)[0] for line in lines if in_extra.search(line)]


@functools.cache
def distribution() -> PackageMetadata:
    """Return the metadata of the installed Zoo: its extras and requirements."""
    from importlib.metadata import metadata

    return metadata("zoo-rl")
