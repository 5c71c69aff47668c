"""Running a run's config again, and comparing what comes of it with what the run left behind, bit for bit."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from zoo.algorithms.callback import Callback, Training
from zoo.config import sections
from zoo.config.composing import compose
from zoo.config.environment_values import resolved_values
from zoo.config.sections import PRESET
from zoo.config.validation import checked
from zoo.errors import ZooError, nearest
from zoo.files.printing import one_line
from zoo.files.tensors import Arrays, parse_tensors
from zoo.files.zips import UNREADABLE, parse_arrays
from zoo.training.checkpoint import Checkpoint, read_checkpoint
from zoo.training.experiment import Experiment
from zoo.training.run_folder import RunFolder

ENVIRONMENT = ("versions", "machine", "host", "git_commit", "git_changed")
"""What of a run's record may explain that the same config led elsewhere."""

_CLOCK = "t"
_AGENTS = ("agent", "best_agent")

Episodes = list[dict[str, str]]


@dataclass
class Comparison:
    """Whether one thing is equal in both runs (None: there is nothing to compare), and how that was seen."""

    equal: bool | None
    detail: str


@dataclass
class Reproduction:
    """What came of running a run again."""

    run: Path
    again: Path
    timesteps: int
    is_complete: bool
    """Whether the new run came to its end, or as far as was asked for."""
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    differences: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """What is another around the two runs: versions, machine, commit."""

    @property
    def equal(self) -> bool:
        """Whether all that can be compared is equal."""
        known = [each.equal for each in self.comparisons.values() if each.equal is not None]
        return bool(known) and all(known)

    def summary(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "equal": self.equal,
            "run": str(self.run),
            "again": str(self.again),
            "timesteps": self.timesteps,
            **{name: each.equal for name, each in self.comparisons.items()},
            "differences": {name: list(values) for name, values in self.differences.items()},
        }


def reproduce(path: Path, *, until: int | None = None, runs_dir: str = "runs") -> Reproduction:
    """Run the config of the run in ``path`` again, in a new folder below ``runs_dir``, and compare.

    With ``until`` environment steps it ends there, and what both runs did before is compared; only then may
    the run be unfinished. Raises `ZooError` if there is no run.
    """
    run = RunFolder(path)
    record = run.read_record()
    config = _config(path)
    if until is None and record.get("status") != "finished":
        reached = record.get("timesteps")
        hint = f" until={reached}" if isinstance(reached, int) and reached else " until=STEPS"
        raise ZooError(
            f"the run in {one_line(path)} is {one_line(record.get('status'))}, not finished;"
            f" compare it as far as it came:{hint}"
        )
    before = _left_by(run, agents=until is None)
    checkpoint = read_checkpoint(run.checkpoint) if until is not None and run.has_checkpoint else None
    watch = _Watch(until, checkpoint)
    with Experiment(_again(config, runs_dir)) as experiment:
        experiment.callbacks += [watch, _Mark(experiment.run, path)]
        result = experiment.run_through()
    done = Reproduction(path, result.run.path, experiment.algorithm.num_timesteps, result.is_complete)
    if not result.is_complete:
        return done
    after = _left_by(result.run, agents=until is None)
    done.comparisons["weights"] = (
        watch.comparison() if until is not None else _compare_agents(before.agents, after.agents)
    )
    done.comparisons["evaluations"] = _compare_evaluations(
        before.evaluations, after.evaluations, done.timesteps, until
    )
    done.comparisons["monitor"] = _compare_episodes(
        before.episodes, after.episodes, partial=until is not None
    )
    done.differences = _differences(record, result.run.read_record())
    if all(each.equal is None for each in done.comparisons.values()):
        raise ZooError(f"the run in {one_line(path)} left nothing behind that could be compared")
    return done


class _Watch(Callback):
    """Ends a run at ``until`` environment steps, and looks whether it passes the checkpoint as it was."""

    every = 1
    looks_often = True

    def __init__(self, until: int | None, checkpoint: Checkpoint | None) -> None:
        self.until, self.checkpoint = until, checkpoint
        self.found: Comparison | None = None

    def on_steps(self, algorithm: Training) -> None:
        """Look where the run is."""
        steps = algorithm.num_timesteps
        if self.checkpoint is not None and steps == self.checkpoint.timesteps:
            theirs, ours = self.checkpoint.algorithm["tensors"], algorithm.state()["tensors"]
            self.found = _compared_arrays(theirs, ours, f"at the checkpoint of step {steps:,}")
        if self.until is not None and steps >= self.until:
            algorithm.request_stop(f"until={self.until}")

    def comparison(self) -> Comparison:
        """Return how the weights compare."""
        if self.found is not None:
            return self.found
        if self.checkpoint is None:
            return Comparison(None, "the run has kept no checkpoint")
        return Comparison(None, f"the run's checkpoint is of step {self.checkpoint.timesteps:,}")


class _Mark(Callback):
    """Records of which run the new one is a repetition: the two are one where runs are counted."""

    def __init__(self, run: RunFolder, path: Path) -> None:
        self.run, self.path = run, path

    def on_training_start(self, algorithm: Training) -> None:
        """Record it."""
        self.run.update_record(reproduces=str(self.path.absolute()))


# The config


def _config(path: Path) -> dict[str, Any]:
    """Return the run's config, checked. Raises `ZooError` for one that is damaged."""
    origin = one_line(path)
    config = RunFolder(path).read_config()
    for section in ("algo", "env", "policy", "callbacks", "logger"):
        if not isinstance(config.get(section), Mapping):
            raise ZooError(f"{origin} is not a run: its config has no section `{section}`")
    config = resolved_values(config)
    algo = config["algo"]
    _known_algorithm(algo.get("name"), origin)
    if algo.get("preset") is not None and not PRESET.fullmatch(str(algo["preset"])):
        raise ZooError(f"{origin} is damaged: `algo.preset` in its config.yaml is no name")
    usual = compose("train", ["algo=ppo2", "env=CartPole-v1", "tuned=none"])
    return checked("train", {**{str(key): usual[key] for key in usual if key != "memory"}, **config})


def _known_algorithm(name: Any, origin: str) -> None:
    known = list(sections.algorithm_names())
    if name not in known:
        name = one_line(name)
        raise ZooError(f"{origin} was trained with an unknown algorithm '{name}'{nearest(name, known)}")


def _again(config: Mapping[str, Any], runs_dir: str) -> dict[str, Any]:
    """Return the config for the second time: the same training, which is not tracked and not filmed."""
    logger = {"every": config["logger"].get("every"), "console": False, "csv": True}
    return {
        **config,
        "callbacks": {**config["callbacks"], "video": None},
        "logger": {**logger, "tensorboard": None, "wandb": None},
        "runs_dir": runs_dir,
        "resume": None,
        "job": None,
        "verbose": 0,
        "progress_bar": False,
    }


# What the two runs left behind


@dataclass
class _Left:
    """What a run has left behind."""

    agents: dict[str, Arrays | None]
    """By file."""
    evaluations: dict[int, tuple[bytes, ...]]
    """The bits of returns, lengths and successes, by environment steps."""
    episodes: dict[str, Episodes]
    """By monitor."""


def _left_by(run: RunFolder, *, agents: bool) -> _Left:
    """Read it all, before anything is trained. Raises `ZooError` for a file that is damaged."""
    names = [f"{name}/{file}.safetensors" for name in _AGENTS for file in ("policy", "normalization")]
    monitors = sorted(path.name for path in run.monitor.glob("*.monitor.csv"))
    return _Left(
        {name: _tensors(run.path / name) for name in names if agents},
        _evaluations(run),
        {name: episodes for name in monitors if (episodes := _episodes(run, name)) is not None},
    )


def _compare_agents(before: Mapping[str, Arrays | None], after: Mapping[str, Arrays | None]) -> Comparison:
    compared = []
    for name, theirs in before.items():
        ours = after[name]
        if theirs is None and ours is None:
            continue
        if theirs is None or ours is None:
            return Comparison(False, f"{name} is in one of the runs only")
        compared.append(_compared_arrays(theirs, ours, f"in {name}"))
    if not compared:
        return Comparison(None, "the run has saved no agent")
    return next((each for each in compared if not each.equal), Comparison(True, "agent and best agent"))


def _tensors(path: Path) -> Arrays | None:
    try:
        return parse_tensors(path.read_bytes())[0] if path.exists() else None
    except (OSError, ValueError) as error:
        raise ZooError(f"can't read {one_line(path)}: {error}") from error


def _compared_arrays(theirs: Mapping[str, Any], ours: Mapping[str, Any], where: str) -> Comparison:
    if theirs.keys() != ours.keys():
        return Comparison(False, f"other tensors {where}")
    different = [name for name in theirs if not _same_bits(theirs[name], ours[name])]
    if not different:
        return Comparison(True, f"all {len(theirs)} tensors {where}")
    distances = [_distance(theirs[name], ours[name]) for name in different]
    return Comparison(
        False, f"{len(different)} of {len(theirs)} tensors differ {where}, by up to {max(distances):.3g}"
    )


def _same_bits(first: Any, second: Any) -> bool:
    first, second = np.asarray(first), np.asarray(second)
    return (first.dtype, first.shape) == (second.dtype, second.shape) and first.tobytes() == second.tobytes()


def _distance(first: Any, second: Any) -> float:
    first, second = np.asarray(first), np.asarray(second)
    if first.shape != second.shape:
        return float("inf")
    return float(np.abs(first.astype(np.float64) - second.astype(np.float64)).max(initial=0.0))


def _compare_evaluations(
    theirs: Mapping[int, Any], ours: Mapping[int, Any], timesteps: int, until: int | None
) -> Comparison:
    if until is not None:
        theirs = {steps: values for steps, values in theirs.items() if steps <= timesteps}
        ours = {steps: values for steps, values in ours.items() if steps in theirs}
    if not theirs and (until is not None or not ours):
        return Comparison(None, "the run has none" if until is None else "the run has none so early")
    different = sorted(steps for steps in theirs.keys() | ours.keys() if theirs.get(steps) != ours.get(steps))
    if different:
        return Comparison(False, f"they differ from step {different[0]:,} on")
    return Comparison(True, f"all {len(theirs)}, the last at step {max(theirs):,}")


def _evaluations(run: RunFolder) -> dict[int, tuple[bytes, ...]]:
    try:
        if not run.evaluations.exists():
            return {}
        arrays = parse_arrays(
            run.evaluations.read_bytes(), ("timesteps", "results", "ep_lengths", "successes")
        )
        steps, results = arrays.pop("timesteps"), arrays["results"]
        if steps.ndim != 1 or any(len(each) != len(steps) for each in (results, *arrays.values())):
            raise ValueError("its arrays don't fit together")
        rows = zip(steps.tolist(), *arrays.values(), strict=True)
        return {int(step): tuple(values.tobytes() for values in others) for step, *others in rows}
    except UNREADABLE as error:
        raise ZooError(f"can't read {one_line(run.evaluations)}: {one_line(error)}") from error


def _compare_episodes(
    before: Mapping[str, Episodes], after: Mapping[str, Episodes], *, partial: bool
) -> Comparison:
    """Compare the episodes of each environment by all but the clock; of a part, as far as both go."""
    n_episodes = 0
    for name, ours in after.items():
        theirs = before.get(name)
        if theirs is None:
            return Comparison(None, f"the run has no {name}")
        common = min(len(theirs), len(ours)) if partial else max(len(theirs), len(ours))
        if theirs[:common] != ours[:common]:
            at = next(i for i in range(common) if theirs[i : i + 1] != ours[i : i + 1])
            return Comparison(False, f"{name} differs from episode {at + 1:,} on")
        n_episodes += common
    if not n_episodes:
        return Comparison(None, "no episode was finished")
    return Comparison(True, f"all {n_episodes:,} episodes")


def _episodes(run: RunFolder, name: str) -> Episodes | None:
    try:
        if not (run.monitor / name).exists():
            return None
        lines = (run.monitor / name).read_text(encoding="utf-8").split("\n")[1:-1]
        return [{key: value for key, value in row.items() if key != _CLOCK} for row in csv.DictReader(lines)]
    except (OSError, ValueError, csv.Error) as error:
        raise ZooError(f"can't read {one_line(run.monitor / name)}: {one_line(error)}") from error


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what is another around the runs, by its path, as (then, now)."""
    then, now = _facts(theirs), _facts(ours)
    names = [*then, *(name for name in now if name not in then)]
    return {name: (then.get(name), now.get(name)) for name in names if then.get(name) != now.get(name)}


def _facts(record: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name in ENVIRONMENT:
        value = record.get(name)
        inside = value.items() if isinstance(value, Mapping) else [("", value)]
        facts |= {
            one_line(f"{name}.{key}" if key else name, 60): one_line(each)
            for key, each in inside
            if each is not None
        }
    return facts
