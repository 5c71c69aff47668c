"""Errors that travel from a worker process to its parent, with the traceback that no pickle keeps."""

from __future__ import annotations

import pickle
import traceback


class WorkerTraceback(Exception):  # noqa: N818
    """Stands as the cause of an error that was raised in a worker: shows its traceback there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"in a worker process\n\n{self.text}"


def packed(error: BaseException) -> bytes:
    """Return what `unpacked` makes an error of again."""
    summary, text = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    try:
        itself = pickle.dumps(error) if isinstance(error, Exception) else None
    except Exception:
        itself = None  # Its class, or something that it holds, can't be sent.
    return pickle.dumps((itself, summary, text))


def unpacked(message: bytes) -> Exception:
    """Return an error of the same class, or a `RuntimeError` that names it where there is none here."""
    itself, summary, text = pickle.loads(message)
    try:
        error = RuntimeError(summary) if itself is None else pickle.loads(itself)
    except Exception:
        error = RuntimeError(summary)  # Written, but not to be read: its class takes other arguments.
    error.__cause__ = WorkerTraceback(text)
    return error
