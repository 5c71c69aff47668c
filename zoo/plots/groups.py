"""Groups of runs: those that differ in their seed alone, or are equal in the keys that a user names."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

from zoo.core.printing import one_line
from zoo.errors import ZooError, nearest
from zoo.plots.runs import Run

IGNORED_KEYS = (
    *("callbacks.checkpoint", "callbacks.video", "job", "logger", "progress_bar", "resume", "runs_dir"),
    *("seed", "tuned", "verbose"),
)
"""Config keys that change neither what a run learns nor how it is evaluated."""


@dataclass(frozen=True)
class Group:
    """Runs of one method on one environment; of equal config and seed only the newest that finished."""

    label: str
    env: str
    runs: list[Run]
    repeated: list[Run] = field(default_factory=list)

    @property
    def repeat_lines(self) -> list[str]:
        """A line for each finished run that does not count."""
        why = "another run with the same config and seed counts"
        return [f"{run.name}: {why}" for run in self.repeated if run.is_complete]


def group_runs(runs: Sequence[Run], by: Sequence[str] = ()) -> list[Group]:
    """Return the groups, sorted by environment and label; labels differ within an environment.

    Without ``by`` runs are one group whose whole configs are equal but for `IGNORED_KEYS`. ``by`` names what
    tells groups apart instead, beside the environment: ``algo``, ``seed``, or any key of the config. Raises
    `ZooError` for a key that no config has.
    """
    envs = {run.env for run in runs if run.env}
    for run in runs:  # those of SB3 whose files don't name it have that of all others, if these have the same
        run.env = run.env or (next(iter(envs)) if len(envs) == 1 else "unknown environment")
    _refuse_unknown_keys(runs, by)
    members, of_algo = defaultdict[str, list[Run]](list), defaultdict[tuple[str, str], list[Run]](list)
    for run in runs:
        identity = [_value(run, key) for key in by] if by else [run.is_sb3, run.algo, identifying_values(run)]
        members[_text([run.env, *identity])].append(run)
        of_algo[run.env, run.algo].append(run)
    varying = {place: _varying_keys(runs) for place, runs in of_algo.items()}
    groups: dict[tuple[str, str], Group] = {}
    for equal in members.values():
        first, env = equal[0], equal[0].env
        keys = by or ["algo", *filter(varying[env, first.algo].__contains__, identifying_values(first))]
        parts = [first.algo if key == "algo" else _key_value(first, key) for key in keys if key != "env"]
        label = one_line(", ".join(parts) or "all runs", 70)
        names = chain([label, f"{label}, {first.path.parents[1]}"], (f"{label} ({n})" for n in count(2)))
        name = next(name for name in names if (env, name) not in groups)
        groups[env, name] = Group(name, env, *_without_repeats(equal))
    return [groups[place] for place in sorted(groups)]


def _without_repeats(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Return the newest finished run of each config and seed, and the others."""
    same = defaultdict[str, list[Run]](list)
    for run in runs:
        is_known = run.config is not None and run.seed is not None
        key = _text([run.algo, run.seed, identifying_values(run)]) if is_known else str(run.path)
        same[key].append(run)
    newest = [
        max(repeats, key=lambda run: (run.is_complete, str(run.record.get("started") or ""), str(run.path)))
        for repeats in same.values()
    ]
    return newest, [run for run in runs if run not in newest]


def differences(first: Iterable[Run], second: Iterable[Run]) -> dict[str, tuple[list[Any], list[Any]]]:
    """Return the keys in which two sets of runs differ, with the values of each; none for SB3's runs."""
    of_a, of_b = _values_by_key(first), _values_by_key(second)
    if not of_a or not of_b:
        return {}
    pairs = {key: (of_a.get(key, {}), of_b.get(key, {})) for key in sorted(of_a.keys() | of_b.keys())}
    return {key: ([*a.values()], [*b.values()]) for key, (a, b) in pairs.items() if a.keys() != b.keys()}


def _values_by_key(runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """Return the distinct values of each key among the runs, by their texts."""
    by_key: dict[str, dict[str, Any]] = {}
    for run in runs:
        for key, value in identifying_values(run).items():
            by_key.setdefault(key, {})[_text(value)] = value
    return by_key


def identifying_values(run: Run) -> dict[str, Any]:
    """Return the values of a run's config by dotted key, without `IGNORED_KEYS`."""
    ignored = tuple(f"{key}." for key in IGNORED_KEYS)
    return {key: value for key, value in run.settings.items() if not f"{key}.".startswith(ignored)}


def _refuse_unknown_keys(runs: Sequence[Run], by: Sequence[str]) -> None:
    keys = {"algo", "env", "seed", *(key for run in runs for key in run.settings)}
    for key in by:
        if key not in keys:
            raise ZooError(
                f"by={one_line(key)}: no config of these runs has this key{nearest(key, keys)}"
                " (algo, env, seed, or a key such as algo.learning_rate)"
            )


def _value(run: Run, key: str) -> Any:
    return getattr(run, key) if key in ("algo", "env", "seed") else run.settings.get(key)


def _varying_keys(runs: Sequence[Run]) -> set[str]:
    items = [
        {(key, repr(value)) for key, value in identifying_values(run).items()} for run in runs if run.config
    ]
    return {key for key, _ in items[0].union(*items) - items[0].intersection(*items)} if items else set()


def _text(value: Any) -> str:
    """Serialise a value, to compare by value."""
    return json.dumps(value, default=str, sort_keys=True)


def as_override(value: Any) -> str:
    """Return a value as a user would write it on the command line: ``null``, ``true``, ``[64,64]``."""
    return value if isinstance(value, str) else json.dumps(value, default=str, separators=(",", ":"))


def _key_value(run: Run, key: str) -> str:
    return f"{key.rpartition('.')[2]}={one_line(as_override(_value(run, key)), 30)}"


def keys_of(by: str | Sequence[str] | None) -> list[str]:
    """Return the keys of ``by=``: a list, or a text with commas."""
    keys = by.split(",") if isinstance(by, str) else list(by or ())
    return [key.strip() for key in keys if key.strip()]
