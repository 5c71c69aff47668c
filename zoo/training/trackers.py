"""All the places to which a run's reports go, and what is made of it when one of them fails."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import ZooError
from zoo.files.printing import one_line
from zoo.training.loggers import Ending, Logger, Report
from zoo.training.problems import tell


class Trackers:
    """Hands on what is to be tracked; a tracker that raises is told once and switched off.

    One that ``keeps_trying`` is asked again, after `OSError` and `ZooError`. ``folder`` and ``config`` are
    those of the run, if there is one.
    """

    def __init__(
        self,
        outputs: Sequence[Logger],
        folder: Path | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.outputs = outputs
        self._folder, self._config = folder, config or {}
        self._started: set[int] = set()
        self._failing: set[int] = set()
        self._failed_now: set[int] = set()
        self._off: set[int] = set()

    def write(self, report: Report) -> None:
        """Hand on a report."""
        self._each(lambda output: output.write(report))
        self._failing &= self._failed_now | self._off

    def video(self, name: str, path: Path, timesteps: int) -> None:
        """Hand on a video."""
        self._each(lambda output: output.video(name, path, timesteps))

    def histograms(self, tensors: Mapping[str, Any], timesteps: int) -> None:
        """Hand on the policy's parameters."""
        self._each(lambda output: output.histograms(tensors, timesteps))

    def flush(self) -> None:
        """Let nothing wait."""
        self._each(lambda output: output.flush())

    def conclude(self, ending: Ending) -> None:
        """Hand on how the run ended."""
        self._each(lambda output: output.conclude(ending))

    def close(self) -> None:
        """Close all, also those that were switched off."""
        self._off.clear()
        self._each(lambda output: output.close(), start=False)

    def state(self) -> dict[str, Any]:
        """Return the state of each, by name. Raises `OSError` where a log does not reach the disk."""
        states = {}
        for number, name in enumerate(self._names()):
            output = self.outputs[number]
            if number in self._off:
                continue
            if output.keeps_trying:
                states[name] = output.state()
                continue
            try:
                states[name] = output.state()
            except Exception as error:
                self._complain(number, error)
        return states

    def load_state(self, states: Mapping[str, Any]) -> None:
        """Let each go back to where it was, also in its files."""
        for number, name in enumerate(self._names()):
            output = self.outputs[number]
            if name not in states:
                continue
            if output.keeps_trying:
                output.load_state(states[name])
            else:
                self._guard(number, lambda output=output, name=name: output.load_state(states[name]))  # type: ignore[misc]

    def _names(self) -> list[str]:
        """Return the class of each, and a number if it is not the first of its class."""
        classes = [type(output).__name__ for output in self.outputs]
        seen = [classes[: number + 1].count(name) for number, name in enumerate(classes)]
        return [name if count == 1 else f"{name}-{count}" for name, count in zip(classes, seen, strict=True)]

    def _each(self, call: Callable[[Logger], None], *, start: bool = True) -> None:
        self._failed_now.clear()
        for number, output in enumerate(self.outputs):
            if number not in self._off:
                self._guard(number, lambda output=output: call(output), start=start)  # type: ignore[misc]

    def _guard(self, number: int, call: Callable[[], None], *, start: bool = True) -> None:
        try:
            if start and self._folder is not None and number not in self._started:
                self._started.add(number)
                self.outputs[number].start(self._folder, self._config)
            call()
        except Exception as error:
            self._complain(number, error)

    def _complain(self, number: int, error: Exception) -> None:
        output = self.outputs[number]
        is_passing = output.keeps_trying and isinstance(error, OSError | ZooError)
        if number not in self._failing:
            tell(f"{_reason(output, error)}; {_CONSEQUENCES[is_passing]}")
            if os.environ.get("ZOO_DEBUG") == "1":
                traceback.print_exception(error)
        self._failing.add(number)
        self._failed_now.add(number)
        if not is_passing:
            self._off.add(number)


_CONSEQUENCES = {
    True: "the run goes on, and logs again when it can",
    False: "it is switched off, and the run goes on",
}


def _reason(output: Logger, error: Exception) -> str:
    if isinstance(error, ZooError):
        return one_line(error, 500)
    name, kind = type(output).__name__, type(error).__name__
    return one_line(f"{name}: {error}" if isinstance(error, OSError) else f"{name}: {kind}: {error}", 500)
