"""What is called with the config of a job, how a job ended, and the process of one job of a multirun."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from zoo.config.user_imports import own_class
from zoo.core.printing import one_line, say, show, without_password
from zoo.errors import INTERRUPTED, MISTAKE, ZooError

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


class Callbacks:
    """The callbacks that ``hydra.callbacks`` of a config names; each event of theirs is a method of this.

    One that fails is a warning.
    """

    def __init__(self, config: DictConfig) -> None:
        named: Any = OmegaConf.to_container(
            OmegaConf.create(config.hydra.get("callbacks") or {}), resolve=True
        )
        self._all = [
            own_class(f"hydra.callbacks.{name}", settings.pop("_target_"), Callback)(**settings)
            for name, settings in named.items()
        ]

    def __getattr__(self, event: str) -> Callable[..., None]:
        def call(**facts: Any) -> None:
            for each in self._all:
                try:
                    getattr(each, event)(**facts)
                except Exception as error:
                    warnings.warn(f"{type(each).__name__}.{event}: {one_line(error)}", stacklevel=2)

        return call


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


def main(
    command: str,
    function: str,
    overrides: Sequence[str],
    shown: Sequence[str],
    report: int,
    inherited: Sequence[int],
) -> NoReturn:
    """Run the job, write into the open file ``report`` how it ended, and exit with its status.

    ``shown`` are the overrides by which the run's record calls it; what the job starts gets none of the files
    that are ``inherited``.
    """
    from zoo.launch.application import run_single

    for descriptor in inherited:
        os.set_inheritable(descriptor, False)
    sys.argv = ["zoo", command, *shown]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    end_with_the_starter()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    outcome = outcome_of(lambda: run_single(command, function, overrides))
    with open(report, "w", encoding="utf-8") as file:
        json.dump([outcome.status, outcome.message], file)
    sys.exit(outcome.status)


def end_with_the_starter() -> None:
    """From now on end by SIGTERM when the other end of standard input closes: whoever holds it is gone."""

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
