"""What a stranger's config asks for and may not: where it stands, what it is, and why it is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zoo.errors import ZooError
from zoo.files.printing import one_line


class UntrustedError(Exception):
    """Something that a stranger may not say: where, what, and why."""

    def __init__(self, path: str, value: Any, reason: str) -> None:
        super().__init__(path, value, reason)
        self.path, self.value, self.reason = path, value, reason

    def told_of(self, who: str, remedy: str) -> ZooError:
        """Return the message for the user; ``remedy`` is what to do for somebody who vouches for it."""
        return ZooError(
            f"{who} asks for `{one_line(self.path)}: {one_line(self.value, 80)}`, refused because"
            f" {self.reason}; if you know where it comes from, {remedy}"
        )


def walk(value: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Give path, key (None in a list) and value of everything inside ``value``."""
    if isinstance(value, Mapping):
        children = [(f"{path}.{key}" if path else str(key), key, item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        children = [(f"{path}[{index}]", None, item) for index, item in enumerate(value)]
    else:
        return
    for child_path, key, item in children:
        yield child_path, key, item
        yield from walk(item, child_path)
