"""What Hydra calls with the config of a job, and how a job ended."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from zoo.errors import INTERRUPTED, MISTAKE, ZooError
from zoo.files.printing import say, show, without_password

FAILURE = 1
"""Exit status after any other exception, or when a process died."""


@dataclass
class Outcome:
    """How a job ended. ``message`` says why, if it failed; ``error`` is set by `Job` only.

    ``was_killed`` tells that its process died without a word.
    """

    status: int
    message: str = ""
    error: Exception | None = None
    was_killed: bool = False


@dataclass
class Job:
    """A single job; ``function`` is ``module:name`` of what takes its config and returns its exit status."""

    function: str

    def __call__(self, config: DictConfig) -> Outcome:
        """Run it; an exception is part of the outcome, as Hydra would print a line of its own."""
        try:
            return Outcome(self._run(config) or 0)
        except Exception as error:
            return Outcome(FAILURE, error=error)

    def _run(self, config: DictConfig) -> int | None:
        module, _, name = self.function.partition(":")
        status: int | None = getattr(importlib.import_module(module), name)(config)
        return status


def outcome_of(run: Callable[[], int | None]) -> Outcome:
    """Call ``run``, print what goes wrong, and return how it ended."""
    try:
        return Outcome(run() or 0)
    except ZooError as error:
        message = without_password(str(error))
        say(f"zoo: {message}", sys.stderr)
        return Outcome(MISTAKE, message)
    except KeyboardInterrupt:
        return Outcome(INTERRUPTED)
    except Exception as error:
        show(traceback.format_exc(), end="", file=sys.stderr, flush=True)
        return Outcome(FAILURE, f"{type(error).__name__}: {error}")


def spelled(overrides: Iterable[Any]) -> str:
    """Return overrides as the user would write them, without Hydra's backslashes and Python's constants."""
    plain = (re.sub(r"\\(.)", r"\1", str(override)) for override in overrides)
    return " ".join(re.sub(r"=(True|False|None)$", _as_typed, each) for each in plain)


def _as_typed(match: re.Match[str]) -> str:
    return {"None": "=null"}.get(match[1], match[0].lower())
