"""Reproducing a run: train by its config again, and compare the files of both runs bit for bit."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from zoo.algorithms.callback import Callback, Training
from zoo.config.compose import compose
from zoo.config.environment_values import resolved
from zoo.config.validate import checked
from zoo.core.plain_data import flat
from zoo.core.printing import one_line
from zoo.core.tensors import Arrays, parse_tensors
from zoo.core.zips import UNREADABLE
from zoo.errors import ZooError
from zoo.experiment.callbacks import read_evaluations
from zoo.experiment.checkpoint import Checkpoint, read_checkpoint
from zoo.experiment.experiment import Experiment
from zoo.experiment.run_folder import FINISHED, RunFolder

ENVIRONMENT = ("versions", "machine", "host", "git_commit", "git_changed")
"""Entries of a run's record that may explain a difference."""

Episodes = list[dict[str, str]]


@dataclass
class Comparison:
    """Whether something is equal in both runs (None: there is nothing to compare), and the details."""

    equal: bool | None
    detail: str


@dataclass
class Reproduction:
    """Two runs of one config, compared."""

    run: Path
    again: Path
    timesteps: int
    is_complete: bool
    """Whether the new run came to its end, or as far as was asked for."""
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    differences: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Versions, machine and commit that differ, as (then, now)."""

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
    record, config = run.read_record(), _config(run)
    if until is None and record.get("status") != FINISHED:
        reached = record.get("timesteps")
        raise ZooError(
            f"the run in {one_line(path)} is {one_line(record.get('status'))}, not finished;"
            f" compare it as far as it came: until={reached or 'STEPS'}"
        )
    is_part = until is not None
    before = _read_files(run, agents=not is_part)
    checkpoint = read_checkpoint(run.checkpoint) if is_part and run.has_checkpoint else None
    with Experiment(_config_of_repetition(config, runs_dir)) as experiment:
        repetition = _Repetition(experiment.run, path, until, checkpoint)
        experiment.callbacks.append(repetition)
        result = experiment.run_through()
    done = Reproduction(path, result.run.path, experiment.algorithm.num_timesteps, result.is_complete)
    if not result.is_complete:
        return done
    after = _read_files(result.run, agents=not is_part)
    done.comparisons = {
        "weights": repetition.weights if is_part else _compare_agents(before.agents, after.agents),
        "evaluations": _compare_evaluations(before.evaluations, after.evaluations, done.timesteps, is_part),
        "monitor": _compare_episodes(before.episodes, after.episodes, is_part),
    }
    done.differences = _differences(record, result.run.read_record())
    if all(each.equal is None for each in done.comparisons.values()):
        raise ZooError(f"the run in {one_line(path)} left nothing behind that could be compared")
    return done


class _Repetition(Callback):
    """Ends a run at ``until`` environment steps, and compares it with the checkpoint of the first run.

    The new run's record names the run in ``path``, so that the two count as one.
    """

    every = 1
    looks_often = True

    def __init__(self, run: RunFolder, path: Path, until: int | None, checkpoint: Checkpoint | None) -> None:
        self.run, self.path, self.until, self.checkpoint = run, path, until, checkpoint
        reason = "the run has kept no checkpoint"
        if checkpoint is not None:
            reason = f"the run's checkpoint is of step {checkpoint.timesteps:,}"
        self.weights = Comparison(None, reason)

    def on_training_start(self, algorithm: Training) -> None:
        self.run.update_record(reproduces=str(self.path.absolute()))

    def on_steps(self, algorithm: Training) -> None:
        steps = algorithm.num_timesteps
        if self.checkpoint is not None and steps == self.checkpoint.timesteps:
            theirs, ours = self.checkpoint.algorithm["tensors"], algorithm.state()["tensors"]
            self.weights = _compare_arrays(theirs, ours, f"at the checkpoint of step {steps:,}")
        if self.until is not None and steps >= self.until:
            algorithm.request_stop(f"until={self.until}")


def _config(run: RunFolder) -> dict[str, Any]:
    """Return the run's config, checked. Raises `ZooError` for one that is damaged."""
    config = resolved(run.read_config())
    defaults = compose("train", ["algo=ppo2", "env=CartPole-v1", "tuned=none"])  # of settings that are newer
    return checked("train", {**{str(key): defaults[key] for key in defaults if key != "replay"}, **config})


def _config_of_repetition(config: Mapping[str, Any], runs_dir: str) -> dict[str, Any]:
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


@dataclass
class _RunFiles:
    """Agents, evaluations and episodes of a run."""

    agents: dict[str, Arrays]
    """By file."""
    evaluations: dict[int, Any]
    """Returns, lengths and successes, by environment steps."""
    episodes: dict[str, Episodes]
    """By monitor."""


def _read_files(run: RunFolder, *, agents: bool) -> _RunFiles:
    """Read all files that are compared. Raises `ZooError` for a damaged one."""
    folders = (run.agent, run.best_agent) if agents else ()
    names = ("policy.safetensors", "normalization.safetensors")
    files = [path for folder in folders for name in names if (path := folder / name).exists()]
    path = run.path
    try:
        tensors = {}
        for path in files:
            tensors[str(path.relative_to(run.path))] = parse_tensors(path.read_bytes())[0]
        path = run.evaluations
        evaluations = {steps: each.as_lists() for steps, each in read_evaluations(path)}
        episodes = {}
        for path in sorted(run.monitor.glob("*.monitor.csv")):
            rows = csv.DictReader(path.read_text(encoding="utf-8").split("\n")[1:-1])
            episodes[path.name] = [{key: each for key, each in row.items() if key != "t"} for row in rows]
    except UNREADABLE as error:
        raise ZooError(f"can't read {one_line(path)}: {one_line(error)}") from error
    return _RunFiles(tensors, evaluations, episodes)


def _compare_agents(before: Mapping[str, Arrays], after: Mapping[str, Arrays]) -> Comparison:
    if not before and not after:
        return Comparison(None, "the run has saved no agent")
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            return Comparison(False, f"{name} is in one of the runs only")
        compared = _compare_arrays(before[name], after[name], f"in {name}")
        if not compared.equal:
            return compared
    return Comparison(True, "agent and best agent")


def _compare_arrays(theirs: Mapping[str, Any], ours: Mapping[str, Any], where: str) -> Comparison:
    if theirs.keys() != ours.keys():
        return Comparison(False, f"other tensors {where}")
    pairs = [(np.asarray(theirs[name]), np.asarray(ours[name])) for name in theirs]
    different = [
        (a, b) for a, b in pairs if (a.dtype, a.shape, a.tobytes()) != (b.dtype, b.shape, b.tobytes())
    ]
    if not different:
        return Comparison(True, f"all {len(theirs)} tensors {where}")
    distance = max(
        float(np.abs(a.astype(np.float64) - b).max(initial=0.0)) if a.shape == b.shape else np.inf
        for a, b in different
    )
    return Comparison(
        False, f"{len(different)} of {len(theirs)} tensors differ {where}, by up to {distance:.3g}"
    )


def _compare_evaluations(
    theirs: Mapping[int, Any], ours: Mapping[int, Any], timesteps: int, is_part: bool
) -> Comparison:
    if is_part:
        theirs = {steps: values for steps, values in theirs.items() if steps <= timesteps}
        ours = {steps: values for steps, values in ours.items() if steps in theirs}
    if not theirs and (is_part or not ours):
        return Comparison(None, "the run has none so early" if is_part else "the run has none")
    different = sorted(steps for steps in theirs.keys() | ours.keys() if theirs.get(steps) != ours.get(steps))
    if different:
        return Comparison(False, f"they differ from step {different[0]:,} on")
    return Comparison(True, f"all {len(theirs)}, the last at step {max(theirs):,}")


def _compare_episodes(
    before: Mapping[str, Episodes], after: Mapping[str, Episodes], is_part: bool
) -> Comparison:
    """Compare the episodes of each environment by all but the clock; of a part, as far as both go."""
    n_episodes = 0
    for name, ours in after.items():
        theirs = before.get(name)
        if theirs is None:
            return Comparison(None, f"the run has no {name}")
        common = min(len(theirs), len(ours)) if is_part else max(len(theirs), len(ours))
        if theirs[:common] != ours[:common]:
            at = next(i for i in range(common) if theirs[i : i + 1] != ours[i : i + 1])
            return Comparison(False, f"{name} differs from episode {at + 1:,} on")
        n_episodes += common
    if not n_episodes:
        return Comparison(None, "no episode was finished")
    return Comparison(True, f"all {n_episodes:,} episodes")


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the entries of two records that differ, by path, as (then, now)."""
    then, now = _facts(theirs), _facts(ours)
    return {name: (then.get(name), now.get(name)) for name in then | now if then.get(name) != now.get(name)}


def _facts(record: Mapping[str, Any]) -> dict[str, Any]:
    facts = flat({name: record.get(name) for name in ENVIRONMENT})
    return {path: one_line(value) for path, value in facts if value is not None}
