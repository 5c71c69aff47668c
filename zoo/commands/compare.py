"""`zoo compare`: which of two is better, in words for people and one line of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, cast

from zoo.config.fields import build
from zoo.config.schema import CompareSettings
from zoo.core.plain_data import plain, with_finite_numbers
from zoo.core.printing import one_line, say, show
from zoo.plots.compare import Comparison, compare_sides, sentence, sides_of
from zoo.plots.groups import as_override, keys_of
from zoo.plots.runs import Run, Score, find_runs, problems_of, read_run
from zoo.plots.scores import SCORE_NAMES

LINES_SHOWN = 12


def run(config: Mapping[str, Any]) -> None:
    """Compare two runs, groups or folders; the last line of stdout is one JSON object."""
    settings = build(CompareSettings, config, "")
    given = [settings.runs] if isinstance(settings.runs, str) else settings.runs or []
    sides = sides_of([_named_runs(each) for each in given], keys_of(settings.by))
    comparison = compare_sides(
        sides,
        cast(Score, settings.score),
        cast(Literal["mean", "iqm"], settings.aggregate),
        settings.reference,
    )
    for letter, name in zip("AB", sides.names, strict=True):
        show(f"{letter}  {one_line(name)}")
    show(f"score: {SCORE_NAMES[settings.score]}\n")
    for env, verdict in comparison.verdicts.items():
        show(sentence(env, verdict, sides.names))
    if comparison.overall is not None:
        together = f"{len(comparison.verdicts)} environments together, normalised"
        show(sentence(together, comparison.overall, sides.names))
    if comparison.left_out:
        show("\n  ".join([f"\nleft out: {len(comparison.left_out)}", *comparison.left_out[:LINES_SHOWN]]))
    _print_config_differences(comparison)
    for line in problems_of([run for side in sides.runs for run in side]):
        say(f"careful: {line}")
    said = {"score": settings.score, "aggregate": settings.aggregate, **plain(comparison.as_json())}
    show(json.dumps(with_finite_numbers(said), allow_nan=False))


def _named_runs(given: str | list[str]) -> tuple[str, list[Run]]:
    """Return the runs that a path, or a list of paths, stands for, with what was given as their name."""
    paths = given if isinstance(given, list) else [given]
    return ", ".join(paths), [read_run(path) for path in find_runs(paths)]


def _print_config_differences(comparison: Comparison) -> None:
    sides = comparison.sides
    without = [
        name
        for name, runs in zip(sides.names, sides.runs, strict=True)
        if all(run.config is None for run in runs)
    ]
    if without:
        show(f"\n{' and '.join(without)}: no config to compare")
        return
    found = comparison.config_differences
    show(f"\ntheir configs differ in {len(found)} values:" if found else "\ntheir configs are equal")
    for key, (first, second) in list(found.items())[:LINES_SHOWN]:
        show(f"  {one_line(key, 60)}: {_values(first)} | {_values(second)}")
    if len(found) > LINES_SHOWN:
        show(f"  … and {len(found) - LINES_SHOWN} more, in the line below")


def _values(values: list[Any]) -> str:
    return one_line(", ".join(map(as_override, values)) or "not there", 60)
