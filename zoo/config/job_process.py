"""The process of one job of a multirun, which `zoo.config.sweeps.processes` starts."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from zoo.config.application import run_single
from zoo.config.jobs import outcome_of


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
