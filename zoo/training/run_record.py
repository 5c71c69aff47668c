"""A run's record, ``run.json``, as it is read: it may be damaged, or a stranger's."""

from __future__ import annotations

from typing import Any

from zoo.files.plain_data import parse_json
from zoo.files.printing import one_line

KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("status", "job", "started", "ended", "stop_reason"), (str,)),
    **dict.fromkeys(("timesteps", "seed"), (int, float)),
    **dict.fromkeys(("evaluation", "versions", "machine"), (dict,)),
    "resumed": (list,),
}
"""What those values are that somebody reads; each may be missing, or null."""


def parse_record(content: bytes) -> dict[str, Any]:
    """Return what a record holds. Raises `ValueError` in one line where a value is none of its kind."""
    record = parse_json(content)
    for name, kinds in KINDS.items():
        value = record.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
            raise ValueError(f"`{name}` in it is {one_line(repr(value), 40)}")
    return record
