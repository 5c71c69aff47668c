"""What an offline run of Weights & Biases has in its files: blocks of a log, in which messages stand."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_FILE_HEADER, _HEADER, _BLOCK = 7, 7, 32 * 1024
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def parts(folder: Path, run_id: str) -> list[Path]:
    """Return the files of all offline processes of a run, from the first."""
    return sorted(folder.glob(f"wandb/offline-run-*-{run_id}/run-{run_id}.wandb"))


def history(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the rows that parts of a run hold, in the order in which they were written.

    A part whose process was killed is read as far as it goes.
    """
    rows: list[dict[str, Any]] = []
    for path in paths:
        rows += [_row(record.history) for record in records(path) if record.HasField("history")]
    return rows


def records(path: Path) -> Iterator[Any]:
    """Give the messages in a file, as W&B's own protocol declares them."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    messages: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    for message in _messages(_content(path)):
        try:
            yield messages.Record.FromString(message)
        except DecodeError:
            return


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _messages(content: bytes) -> Iterator[bytes]:
    """Give each message, joined where it spans blocks, until the first that is not whole."""
    at, message = _FILE_HEADER, b""
    while at + _HEADER <= len(content):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER:
            at += left
            continue
        length = int.from_bytes(content[at + 4 : at + 6], "little")
        kind, data = content[at + 6], content[at + _HEADER : at + _HEADER + length]
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or len(data) < length:
            return
        message = data if kind in (_WHOLE, _FIRST) else message + data
        if kind in (_WHOLE, _LAST):
            yield message
        at += _HEADER + length


def _row(message: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in message.item}
