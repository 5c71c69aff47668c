"""`zoo reproduce`: run a finished run again, and say whether the same came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.config.fields import build
from zoo.config.paths import shown
from zoo.config.schema import ReproduceSettings
from zoo.core.plain_data import with_finite_numbers
from zoo.core.printing import one_line, show
from zoo.errors import INTERRUPTED, ZooError

if TYPE_CHECKING:
    from zoo.experiment.reproduce import Reproduction

DIFFERENT = 1
"""Exit status where the runs are not equal."""


def run(config: Mapping[str, Any]) -> int:
    """Reproduce the run that the config names; the last line of stdout is one JSON object.

    Returns 0 if all that can be compared is equal, 1 if not, 130 if the new run was interrupted.
    """
    from zoo.experiment.reproduce import reproduce

    settings = build(ReproduceSettings, config, "")
    if settings.run is None:
        raise ZooError("which run? for example: zoo reproduce runs/ppo2/CartPole-v1/20260131-120000_s1")
    path = Path(settings.run).expanduser()
    show(f"run     {one_line(shown(path))}, again", flush=True)
    done = reproduce(path, until=settings.until, runs_dir=settings.runs_dir)
    if not done.is_complete:
        show(f"again   {one_line(shown(done.again))}: interrupted after {done.timesteps:,} steps")
        return INTERRUPTED
    _print_comparisons(done)
    show(json.dumps(with_finite_numbers(done.summary())))
    return 0 if done.equal else DIFFERENT


def _print_comparisons(done: Reproduction) -> None:
    show(f"again   {one_line(shown(done.again))}, {done.timesteps:,} steps")
    words = {True: "equal", False: "different", None: "not compared"}
    for name, each in done.comparisons.items():
        show(f"{name:<12}  {words[each.equal]}: {one_line(each.detail)}")
    if done.equal:
        return
    show("what is another:" if done.differences else "versions, machine and commit are the same")
    for name, (then, now) in done.differences.items():
        show(f"  {one_line(name)}: {one_line(then)} then, {one_line(now)} now")
