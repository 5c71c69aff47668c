"""What is set for a whole multirun, as ``sweep.retries=2``; none of it is part of a job's config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zoo.config.fields import build, hyperparameter
from zoo.config.hydra_internals import parse_overrides
from zoo.errors import ZooError

SECTION = "sweep"


@dataclass
class SweepSettings:
    """What every command takes beside ``-m``."""

    retries: int = hyperparameter(0, "times that a job which failed by itself is tried again", ge=0)
    fail_fast: bool = hyperparameter(False, "after the first failure no more jobs start")
    resume: str | None = hyperparameter(None, "folder of a sweep whose unfinished jobs are run")
    wait: bool = hyperparameter(False, "on Slurm: wait for the jobs, and show how each ends")


def taken_out(overrides: Sequence[str]) -> tuple[SweepSettings | None, list[str]]:
    """Return the settings among the overrides, None if there are none, and the others.

    Raises `ZooError` for an unknown one, a wrong type, and a value out of range.
    """
    own = [each for each in overrides if each.lstrip("+").startswith(f"{SECTION}.")]
    others = [each for each in overrides if each not in own]
    values = dict(_value_of(each.lstrip("+")) for each in own)
    return (build(SweepSettings, values, SECTION) if own else None), others


def _value_of(override: str) -> tuple[str, object]:
    key, _, text = override.removeprefix(f"{SECTION}.").partition("=")
    if key == "resume" and text:  # a path may have characters that mean something to Hydra
        return key, text.strip("'\"")
    (parsed,) = parse_overrides([override])
    if parsed.is_sweep_override():
        raise ZooError(f"`{override}`: what is set for the whole sweep has one value")
    return key, parsed.value()
