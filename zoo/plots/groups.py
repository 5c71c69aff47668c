"""Groups of runs: those that differ in their seed alone, or are equal in the keys that a user names."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zoo.core.printing import one_line
from zoo.errors import ZooError, nearest
from zoo.optim import schedules
from zoo.plots.runs import Run

IGNORED_KEYS = (
    "callbacks.checkpoint",
    "callbacks.video",
    "job",
    "logger",
    "progress_bar",
    "resume",
    "runs_dir",
    "seed",
    "tuned",
    "verbose",
)
"""Config keys that change neither what a run learns nor how it is evaluated."""

KEYS_IN_LABEL = 3
_LABEL_LIMIT = 70


@dataclass(frozen=True)
class Group:
    """Runs of one method on one environment."""

    label: str
    env: str
    runs: list[Run]

    @functools.cached_property
    def repeats(self) -> dict[Path, Run]:
        """Repeated runs by path: those whose config and seed another run has too, with the run that counts.

        The newest finished one counts.
        """
        same: dict[str, list[Run]] = {}
        for run in self.runs:
            if not run.is_sb3 and run.config is not None and run.seed is not None:
                key = _canonical_text([run.env, run.algo, run.seed, identifying_values(run)])
                same.setdefault(key, []).append(run)
        found = {}
        for runs in same.values():
            *others, counted = sorted(runs, key=_rank)
            found.update({run.path: counted for run in others})
        return found

    @property
    def counted(self) -> list[Run]:
        """The runs without the repeated ones."""
        return [run for run in self.runs if run.path not in self.repeats]

    @property
    def repeat_lines(self) -> list[str]:
        """A line for each finished run that does not count."""
        repeats = (run for run in self.runs if run.is_complete and run.path in self.repeats)
        return [f"{run.name}: {self.why_repeated(run)}" for run in repeats]

    def why_repeated(self, run: Run) -> str:
        """Return which run counts instead of a repeated one."""
        return f"the same config and seed as {self.repeats[run.path].name}, which counts"


def _rank(run: Run) -> tuple[bool, str, str]:
    return run.is_complete, str(run.record.get("started") or ""), str(run.path)


def group_runs(runs: Sequence[Run], by: Sequence[str] = ()) -> list[Group]:
    """Return the groups, sorted by environment and label; labels differ within an environment.

    Without ``by`` runs are one group whose whole configs are equal but for `IGNORED_KEYS`. ``by`` names what
    tells groups apart instead, beside the environment: ``algo``, ``seed``, or any key of the config. Raises
    `ZooError` for a key that no config has.
    """
    _name_environments(runs)
    _refuse_unknown_keys(runs, by)
    parts: dict[str, list[Run]] = {}
    for run in runs:
        identity = [run.env, *(_value(run, key) for key in by)] if by else _identity(run)
        parts.setdefault(_canonical_text(identity), []).append(run)
    members = list(parts.values())
    labels = [_label_by(each[0], by) for each in members] if by else _labels(members)
    groups = [Group(label, each[0].env, each) for label, each in zip(labels, members, strict=True)]
    return sorted(_unique_labels(groups), key=lambda group: (group.env, group.label))


def differences(first: Iterable[Run], second: Iterable[Run]) -> dict[str, tuple[list[Any], list[Any]]]:
    """Return the config keys in which two sets of runs differ, with the values of each.

    Empty where one has no config, such as SB3's runs.
    """
    ours, theirs = _values_by_key(first), _values_by_key(second)
    if not ours or not theirs:
        return {}
    found = {}
    for key in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(key, {}), theirs.get(key, {})
        if a.keys() != b.keys():
            found[key] = (list(a.values()), list(b.values()))
    return found


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a config with its dotted key; a schedule is one value."""
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and not ("start" in value and _schedule(value)):
            yield from flat(value, f"{path}.")
        else:
            yield path, value


def identifying_values(run: Run) -> dict[str, Any]:
    """Return the values of a run's config by dotted key, without `IGNORED_KEYS`."""
    return {key: value for key, value in flat(run.config or {}) if not _is_left_out(key)}


def _is_left_out(key: str) -> bool:
    return any(key == each or key.startswith(f"{each}.") for each in IGNORED_KEYS)


def _name_environments(runs: Sequence[Run]) -> None:
    """Set the environment of SB3's runs whose files don't name it, if all others have the same one."""
    known = {run.env for run in runs if run.env}
    for run in runs:
        run.env = run.env or (next(iter(known)) if len(known) == 1 else "unknown environment")


def _identity(run: Run) -> list[Any]:
    if run.is_sb3:
        return [run.env, "peer", run.algo]
    if run.config is None:
        return [run.env, "no config", run.algo]
    return [run.env, run.algo, identifying_values(run)]


def _refuse_unknown_keys(runs: Sequence[Run], by: Sequence[str]) -> None:
    known = {"algo", "env", "seed", *(key for run in runs for key, _ in flat(run.config or {}))}
    for key in by:
        if key not in known:
            raise ZooError(
                f"by={one_line(key)}: no config of these runs has this key{nearest(key, known)}"
                " (algo, env, seed, or a key such as algo.learning_rate)"
            )


def _value(run: Run, key: str) -> Any:
    if key in ("algo", "env", "seed"):
        return getattr(run, key)
    return dict(flat(run.config or {})).get(key)


def _label_by(run: Run, by: Sequence[str]) -> str:
    parts = [
        str(_value(run, key)) if key == "algo" else _key_value(key, _value(run, key))
        for key in by
        if key != "env"
    ]
    return one_line(", ".join(parts) or "all runs", _LABEL_LIMIT)


def _labels(members: list[list[Run]]) -> list[str]:
    """Return a label for each group: its algorithm, and the values that no other group of it has."""
    configs = [identifying_values(runs[0]) for runs in members]
    # Runs without a config, such as SB3's, are labelled apart from those with one.
    places = [
        (runs[0].env, runs[0].algo, bool(config)) for runs, config in zip(members, configs, strict=True)
    ]
    texts: dict[tuple[str, str, bool], dict[str, list[str]]] = {}
    for place, config in zip(places, configs, strict=True):
        for key, value in config.items():
            texts.setdefault(place, {}).setdefault(key, []).append(_canonical_text(value))
    sizes = Counter(places)
    labels = []
    for place, config in zip(places, configs, strict=True):
        differing = [
            _key_value(key, value)
            for key, value in config.items()
            if len(set(texts[place][key])) > 1 or len(texts[place][key]) < sizes[place]
        ]
        more = ["…"] if len(differing) > KEYS_IN_LABEL else []
        labels.append(one_line(", ".join([place[1], *differing[:KEYS_IN_LABEL], *more]), _LABEL_LIMIT))
    return labels


def _canonical_text(value: Any) -> str:
    """Return a text that is equal for values with the same meaning."""
    return json.dumps(_canonical(value), default=str)


def _canonical(value: Any) -> Any:
    """Return a value in one form, so that ``lin_1e-3`` and ``lin_0.001``, or 1 and 1.0, are equal."""
    if isinstance(value, Mapping):
        return _schedule(value) or {key: _canonical(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_canonical(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and "_" in value:
        return _schedule(value) or value
    return value


def _schedule(value: str | Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields of a schedule, or None if the value is none."""
    try:
        return asdict(schedules.parse(value))
    except ZooError:
        return None


def as_override(value: Any) -> str:
    """Return a value as a user would write it on the command line: ``null``, ``true``, ``[64,64]``."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list):
        return f"[{','.join(map(as_override, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{as_override(each)}' for key, each in value.items())}}}"
    return str(value)


def _key_value(key: str, value: Any) -> str:
    return f"{key.rpartition('.')[2]}={one_line(as_override(value), 30)}"


def _unique_labels(groups: list[Group]) -> Iterator[Group]:
    """Number the groups of an environment whose labels are the same."""
    counts: dict[tuple[str, str], int] = {}
    for group in groups:
        count = counts[group.env, group.label] = counts.get((group.env, group.label), 0) + 1
        yield group if count == 1 else Group(f"{group.label} ({count})", group.env, group.runs)


def _values_by_key(runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """Return the distinct values of each key among the runs, by their canonical texts."""
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        for key, value in identifying_values(run).items():
            found.setdefault(key, {})[_canonical_text(value)] = value
    return found


def keys_of(by: str | Sequence[str] | None) -> list[str]:
    """Return the keys of ``by=``: a list, or a text with commas."""
    keys = by.split(",") if isinstance(by, str) else list(by or ())
    return [key.strip() for key in keys if key.strip()]
