"""Runs that belong together: they differ in nothing but the seed, or in nothing that a user asks for."""

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

NOT_COMPARED = (
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
"""What does not change what a run learns and how it is measured; tuned values stand where they apply."""

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
        """Runs of a config and seed that another one here has too, by path, with the one that counts.

        The newest finished one counts, and a run that `zoo reproduce` made only where no other is left.
        """
        same: dict[str, list[Run]] = {}
        for run in self.runs:
            if not run.is_peer and run.config is not None and run.seed is not None:
                same.setdefault(_text([run.env, run.algo, run.seed, compared(run)]), []).append(run)
        found = {}
        for runs in same.values():
            *others, counted = sorted(runs, key=_rank)
            found.update({run.path: counted for run in others})
        return found

    @property
    def counted(self) -> list[Run]:
        """The runs without the repeated ones: another seed each, or another config."""
        return [run for run in self.runs if run.path not in self.repeats]

    @property
    def repeats_in_words(self) -> list[str]:
        """What finished and is not counted, one line a run; those that did not finish are told as such."""
        repeats = (run for run in self.runs if run.is_whole and run.path in self.repeats)
        return [f"{run.name}: {self.why_not_counted(run)}" for run in repeats]

    def why_not_counted(self, run: Run) -> str:
        """Say of which run this one is a repetition."""
        return f"the same config and seed as {self.repeats[run.path].name}, which counts"


def _rank(run: Run) -> tuple[bool, bool, str, str]:
    is_reproduction = run.record.get("reproduces") is not None
    return not is_reproduction, run.is_whole, str(run.record.get("started") or ""), str(run.path)


def grouped(runs: Sequence[Run], by: Sequence[str] = ()) -> list[Group]:
    """Return the groups, sorted by environment and label; labels differ within an environment.

    Without ``by`` runs are one group whose whole configs are equal but for `NOT_COMPARED`. ``by`` names what
    tells groups apart instead, beside the environment: ``algo``, ``seed``, or any key of the config. Raises
    `ZooError` for a key that no config has.
    """
    _name_environments(runs)
    _refuse_unknown_keys(runs, by)
    parts: dict[str, list[Run]] = {}
    for run in runs:
        identity = [run.env, *(_value(run, key) for key in by)] if by else _identity(run)
        parts.setdefault(_text(identity), []).append(run)
    members = list(parts.values())
    labels = [_label_by(each[0], by) for each in members] if by else _labels(members)
    groups = [Group(label, each[0].env, each) for label, each in zip(labels, members, strict=True)]
    return sorted(_told_apart(groups), key=lambda group: (group.env, group.label))


def differences(first: Iterable[Run], second: Iterable[Run]) -> dict[str, tuple[list[Any], list[Any]]]:
    """Return for each key of the configs in which two sets of runs differ the values that each has.

    Nothing where one has no config, such as a peer's runs.
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
    """Give every value of a config with its dotted key; an empty section is a value, and so is a schedule."""
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and not ("start" in value and _schedule(value)):
            yield from flat(value, f"{path}.")
        else:
            yield path, value


def compared(run: Run) -> dict[str, Any]:
    """Return the values of a run's config that tell it from others, by dotted key."""
    return {key: value for key, value in flat(run.config or {}) if not _is_left_out(key)}


def _is_left_out(key: str) -> bool:
    return any(key == each or key.startswith(f"{each}.") for each in NOT_COMPARED)


def _name_environments(runs: Sequence[Run]) -> None:
    """Let a peer's run whose files don't name its environment be one on that of all the others."""
    known = {run.env for run in runs if run.env}
    for run in runs:
        run.env = run.env or (next(iter(known)) if len(known) == 1 else "unknown environment")


def _identity(run: Run) -> list[Any]:
    if run.is_peer:
        return [run.env, "peer", run.algo]
    if run.config is None:
        return [run.env, "no config", run.algo]
    return [run.env, run.algo, compared(run)]


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
        str(_value(run, key)) if key == "algo" else _spelled(key, _value(run, key))
        for key in by
        if key != "env"
    ]
    return one_line(", ".join(parts) or "all runs", _LABEL_LIMIT)


def _labels(members: list[list[Run]]) -> list[str]:
    """Return a label for each group: its algorithm, and what tells it from others of that algorithm there."""
    configs = [compared(runs[0]) for runs in members]
    # What has no config, such as a peer's runs, tells nothing about those that have one.
    places = [
        (runs[0].env, runs[0].algo, bool(config)) for runs, config in zip(members, configs, strict=True)
    ]
    texts: dict[tuple[str, str, bool], dict[str, list[str]]] = {}
    for place, config in zip(places, configs, strict=True):
        for key, value in config.items():
            texts.setdefault(place, {}).setdefault(key, []).append(_text(value))
    sizes = Counter(places)
    labels = []
    for place, config in zip(places, configs, strict=True):
        told = [
            _spelled(key, value)
            for key, value in config.items()
            if len(set(texts[place][key])) > 1 or len(texts[place][key]) < sizes[place]
        ]
        more = ["…"] if len(told) > KEYS_IN_LABEL else []
        labels.append(one_line(", ".join([place[1], *told[:KEYS_IN_LABEL], *more]), _LABEL_LIMIT))
    return labels


def _text(value: Any) -> str:
    """Return the same text for values that mean the same."""
    return json.dumps(_meant(value), default=str)


def _meant(value: Any) -> Any:
    """Return a value so that ``lin_1e-3`` and ``lin_0.001``, or 1 and 1.0, are equal."""
    if isinstance(value, Mapping):
        return _schedule(value) or {key: _meant(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_meant(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and "_" in value:
        return _schedule(value) or value
    return value


def _schedule(value: str | Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a value says as a schedule, or None if it is none."""
    try:
        return asdict(schedules.parse(value))
    except ZooError:
        return None


def as_typed(value: Any) -> str:
    """Return a value as a user would write it on the command line: ``null``, ``true``, ``[64,64]``."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list):
        return f"[{','.join(map(as_typed, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{as_typed(each)}' for key, each in value.items())}}}"
    return str(value)


def _spelled(key: str, value: Any) -> str:
    return f"{key.rpartition('.')[2]}={one_line(as_typed(value), 30)}"


def _told_apart(groups: list[Group]) -> Iterator[Group]:
    """Number the groups of an environment whose labels are the same."""
    seen: dict[tuple[str, str], int] = {}
    for group in groups:
        count = seen[group.env, group.label] = seen.get((group.env, group.label), 0) + 1
        yield group if count == 1 else Group(f"{group.label} ({count})", group.env, group.runs)


def _values_by_key(runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """Return for each key the different values among the runs, by their texts."""
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        for key, value in compared(run).items():
            found.setdefault(key, {})[_text(value)] = value
    return found


def keys_of(by: str | Sequence[str] | None) -> list[str]:
    """Return the keys that ``by=`` names: a list, or a text with commas."""
    keys = by.split(",") if isinstance(by, str) else list(by or ())
    return [key.strip() for key in keys if key.strip()]
