"""`zoo compare`: which of two is better, in words for people and one line of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from zoo.config.compose import ConfigLoader
from zoo.config.overrides import as_overrides
from zoo.config.schema import CompareSettings
from zoo.core.plain_data import with_finite_numbers
from zoo.core.printing import one_line, say, show
from zoo.plots.compare import Comparison, compare_sides, sentence, sides_of
from zoo.plots.groups import as_override, keys_of
from zoo.plots.runs import problems_of, read_runs
from zoo.plots.scores import SCORE_NAMES

LINES_SHOWN = 12


def run(settings: CompareSettings) -> None:
    """Compare two runs, groups or folders; the last line of stdout is one JSON object."""
    comparison = _compared(settings)
    show(comparison)
    for line in problems_of([run for side in comparison.sides.runs for run in side]):
        say(f"careful: {line}")
    values = {"score": settings.score, "aggregate": settings.aggregate, **comparison.as_json()}
    show(json.dumps(with_finite_numbers(values)))


def compare(a: Any, b: Any, **settings: Any) -> Comparison:
    """Compare two sides as `zoo compare` does: paths or patterns of runs, results of `zoo.train`, or lists.

    The comparison shows itself as text; ``verdicts`` and ``as_json()`` have the numbers. Raises `ZooError`.
    """
    return _compared(ConfigLoader("compare").settings(as_overrides({"runs": [a, b], **settings})))


def _compared(settings: CompareSettings) -> Comparison:
    sides = []
    for side in [settings.runs] if isinstance(settings.runs, str) else settings.runs or []:
        paths = side if isinstance(side, list) else [side]
        sides.append((", ".join(map(str, paths)), read_runs(paths)))
    both = sides_of(sides, keys_of(settings.by))
    comparison = compare_sides(both, settings.score, settings.aggregate, settings.reference)
    return replace(comparison, text="\n".join(_lines(comparison, SCORE_NAMES[settings.score])))


def _lines(comparison: Comparison, score: str) -> Iterator[str]:
    names = comparison.sides.names
    yield from (f"{letter}  {one_line(name)}" for letter, name in zip("AB", names, strict=True))
    yield f"score: {score}\n"
    for env, verdict in comparison.verdicts.items():
        yield sentence(env, verdict, names)
    if comparison.overall is not None:
        together = f"{len(comparison.verdicts)} environments together, normalised"
        yield sentence(together, comparison.overall, names)
    if comparison.left_out:
        yield "\n  ".join([f"\nleft out: {len(comparison.left_out)}", *comparison.left_out[:LINES_SHOWN]])
    sides, differing = zip(names, comparison.sides.runs, strict=True), comparison.config_differences
    if without := [name for name, runs in sides if not any(run.config for run in runs)]:
        yield f"\n{' and '.join(without)}: no config to compare"
    else:
        yield f"\ntheir configs {f'differ in {len(differing)} values:' if differing else 'are equal'}"
    for key, sides_values in list(differing.items())[:LINES_SHOWN]:
        texts = [", ".join(map(as_override, values)) or "not there" for values in sides_values]
        yield f"  {one_line(key, 60)}: {' | '.join(one_line(text, 60) for text in texts)}"
    if len(differing) > LINES_SHOWN:
        yield f"  … and {len(differing) - LINES_SHOWN} more, in the JSON line"
