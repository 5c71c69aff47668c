"""`zoo compare`: which of two is better, in words for people and one line of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, cast

from zoo.config.fields import build
from zoo.config.schema import CompareSettings
from zoo.core.plain_data import plain, with_finite_numbers
from zoo.core.printing import one_line, say, show
from zoo.errors import ZooError
from zoo.plots.compare import Comparison, compare_sides, sentence, sides_of
from zoo.plots.groups import as_override, keys_of
from zoo.plots.runs import Run, Score, find_runs, problems_of, read_run
from zoo.plots.scores import SCORE_NAMES

DIFFERENCES_SHOWN = 12


def run(config: Mapping[str, Any]) -> None:
    """Compare two runs, groups or folders; the last line of stdout is one JSON object."""
    settings = build(CompareSettings, config, "")
    given = [(_text(each), _runs_of(each)) for each in _given(settings.runs)]
    sides = sides_of(given, keys_of(settings.by))
    comparison = compare_sides(
        sides,
        cast(Score, settings.score),
        cast(Literal["mean", "iqm"], settings.aggregate),
        settings.reference,
    )
    for letter, name in zip("AB", sides.names, strict=True):
        show(f"{letter}  {one_line(name)}")
    show(f"score: {SCORE_NAMES[settings.score]}\n")
    _print_comparison(comparison)
    for line in problems_of([each for side in sides.runs for each in side]):
        say(f"careful: {line}")
    said = {"score": settings.score, "aggregate": settings.aggregate, **plain(comparison.as_json())}
    show(json.dumps(with_finite_numbers(said), allow_nan=False))


def _given(runs: str | list[Any] | None) -> list[Any]:
    return [] if runs is None else [runs] if isinstance(runs, str) else runs


def _runs_of(given: Any) -> list[Run]:
    paths = given if isinstance(given, list) else [given]
    if not all(isinstance(path, str) for path in paths):
        raise ZooError(f"runs={one_line(given)}: expected paths, and lists of paths")
    return [read_run(path) for path in find_runs(paths)]


def _text(given: Any) -> str:
    return ", ".join(map(str, given)) if isinstance(given, list) else str(given)


def _print_comparison(comparison: Comparison) -> None:
    names = comparison.sides.names
    for env, verdict in comparison.verdicts.items():
        show(sentence(env, verdict, names))
    if comparison.overall is not None:
        together = f"{len(comparison.verdicts)} environments together, normalised"
        show(sentence(together, comparison.overall, names))
    if comparison.left_out:
        show(f"\nleft out: {len(comparison.left_out)}")
        for line in comparison.left_out[:10]:
            show(f"  {line}")
    without = [name for name, side in zip(names, comparison.sides.runs, strict=True) if not _has_config(side)]
    if without:
        show(f"\n{' and '.join(without)}: no config to compare")
        return
    found = comparison.config_differences
    show(
        f"\ntheir configs differ in {len(found)} values{':' if found else ''}"
        if found
        else "\ntheir configs are equal"
    )
    for key, (first, second) in list(found.items())[:DIFFERENCES_SHOWN]:
        show(f"  {one_line(key, 60)}: {_values(first)} | {_values(second)}")
    if len(found) > DIFFERENCES_SHOWN:
        show(f"  … and {len(found) - DIFFERENCES_SHOWN} more, in the line below")


def _has_config(runs: list[Run]) -> bool:
    return any(run.config is not None for run in runs)


def _values(values: list[Any]) -> str:
    return one_line(", ".join(map(as_override, values)) or "not there", 60)
