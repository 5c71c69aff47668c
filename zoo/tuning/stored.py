"""What a storage holds, which others may have written: held against what `zoo tune` itself writes there."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from zoo.errors import ZooError
from zoo.files.damaged import UNREADABLE
from zoo.files.printing import one_line

DAMAGED = (AssertionError, *UNREADABLE)
"""What Optuna raises that reads something else than it has written."""

WHOLE = ("goes_on_from", "deaths", "trial", "seed", "steps")
TEXTS = ("worker", "reason", "likeness", "traceback", "origin", "run")


def refuse_damaged(study: Study) -> None:
    """Raise `ZooError` for a trial that can't be read, or says something else than trials of ours do."""
    with _told(f"the study {one_line(study.study_name)} can't be read"):
        n_values = len(study.directions)
        for trial in study.get_trials(deepcopy=False):
            wrong = next(_wrong(trial, n_values), None)
            if wrong is not None:
                raise ZooError(f"trial {trial.number} is damaged: {wrong}")


def complete_trials(study: Study) -> list[FrozenTrial]:
    """Return the trials that are complete. Raises `ZooError` for one whose scores are no finite numbers."""
    with _told("it can't be read"):
        n_values = len(study.directions)
        found = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        for trial in found:
            if not (_are_scores(trial.values, n_values) and all(map(math.isfinite, trial.values))):
                raise ZooError(f"trial {trial.number} has the scores {one_line(trial.values, 60)}")
        return found


def unreadable(error: BaseException) -> str:
    """Return what is wrong with what was read, on one line."""
    what = one_line(error)
    return what if " " in what else f"{type(error).__name__} {what}".strip()


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except DAMAGED as error:
        raise ZooError(f"{what}: {unreadable(error)}") from error


def _wrong(trial: FrozenTrial, n_values: int) -> Iterator[str]:
    """Give what no trial of ours says."""
    if trial.state == TrialState.COMPLETE and not _are_scores(trial.values, n_values):
        yield f"its scores are {one_line(trial.values, 60)}"
    said: dict[str, Any] = trial.user_attrs
    runs, samples = said.get("runs", []), said.get("samples", [0])
    right = {
        **{name: isinstance(said.get(name, 0), int) for name in WHOLE},
        **{name: isinstance(said.get(name, ""), str) for name in TEXTS},
        "seconds": _is_number(said.get("seconds", 0)),
        "runs": isinstance(runs, list) and all(isinstance(each, str) for each in runs),
        "samples": isinstance(samples, list) and bool(samples) and all(map(_is_number, samples)),
    }
    for name, is_right in right.items():
        if not is_right:
            yield f"its `{name}` is {one_line(said[name], 60)}"
    if not isinstance(trial.system_attrs.get("fixed_params", {}), dict):
        yield "its queued values are none"
    if not all(map(_is_number, trial.intermediate_values.values())):
        yield "its scores on the way are no numbers"


def _are_scores(values: Any, n_values: int) -> bool:
    return isinstance(values, list) and len(values) == n_values and all(map(_is_number, values))


def _is_number(value: Any) -> bool:
    """Tell whether it is a number that NumPy takes; an environment may well give an infinite one."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)
