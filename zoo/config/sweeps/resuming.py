"""``sweep.resume=DIR``: the jobs of a sweep that are not done are run, or go on from their checkpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from hydra.types import RunMode

from zoo.config.hydra_internals import Override, launcher_with, parse_overrides
from zoo.config.loading import ConfigLoader
from zoo.config.overrides import quoted
from zoo.config.sweeps.folder import LAUNCHER, SweepFolder
from zoo.config.sweeps.states import RUNNING
from zoo.config.sweeps.sweep import Sweep
from zoo.errors import ZooError
from zoo.files.printing import one_line, say

PATIENCE = 120.0
"""Seconds for jobs of a multirun that was killed, which end with a checkpoint."""


class _Runs(Protocol):
    def run_jobs(self, numbers: Sequence[int]) -> Any: ...


def resume(loader: ConfigLoader, sweep: Sweep, given: Sequence[str]) -> None:
    """Run what is missing of the sweep that the settings name.

    Raises `ZooError` if there is none, if it is still going on, and for an override that it does not have.
    """
    assert sweep.settings.resume is not None
    folder = SweepFolder.open(sweep.settings.resume)
    record = folder.read_record()
    _refuse_another_command(folder, record, sweep.command)
    launcher_choices = _refuse_changes(record, given, folder)
    if folder.states.is_held(LAUNCHER):
        raise ZooError(
            f"the multirun in {folder.shown} is still going on; zoo status {folder.shown} shows it"
        )
    _wait_for_the_last(folder)
    numbers = [row.state.number for row in folder.rows() if row.is_missing]
    sweep.folder = folder
    if not numbers:
        say(f"zoo: nothing is missing in {folder.shown}")
        return
    say(f"zoo: {len(numbers)} of {len(folder.states.all())} jobs are run, or go on, in {folder.shown}")
    frame = [*_texts(record, "overrides"), *_texts(record, "hydra_overrides"), *launcher_choices]
    overrides = [*frame, f"hydra.sweep.dir={quoted(str(folder.path))}"]
    config = loader.load_configuration(loader.command, overrides, RunMode.MULTIRUN)
    launcher: _Runs = launcher_with(loader, config, sweep)
    launcher.run_jobs(numbers)


def _refuse_another_command(folder: SweepFolder, record: dict[str, Any], command: str) -> None:
    if record.get("command") != command:
        was = one_line(record.get("command"))
        raise ZooError(f"{folder.shown} is a sweep of zoo {was}: zoo {was} -m sweep.resume={folder.shown}")
    place = Path(str(record.get("working_folder") or Path.cwd()))
    if place.is_dir() and place.resolve() != Path.cwd().resolve():
        raise ZooError(
            f"the sweep in {folder.shown} was started in {one_line(place, 1000)};"
            " go there to resume it, as its settings may depend on that folder"
        )


def _refuse_changes(record: dict[str, Any], given: Sequence[str], folder: SweepFolder) -> list[str]:
    """Return which launcher was chosen now, and how; refuse by name what would make other jobs."""
    parsed = parse_overrides(given)
    known = {*_texts(record, "overrides"), *_texts(record, "hydra_overrides")}
    chosen = [str(each.input_line) for each in parsed if _is_of_the_launcher(each)]
    others = [str(each.input_line) for each in parsed if not _is_of_the_launcher(each)]
    changes = [one_line(each) for each in others if each not in known and each != "hydra.mode=MULTIRUN"]
    if changes:
        raise ZooError(
            f"sweep.resume goes on with the jobs in {folder.shown} as they were, so it can't take"
            f" {', '.join(changes)}; beside it there may be hydra/launcher, its settings, and others of sweep"
        )
    return chosen


def _is_of_the_launcher(override: Override) -> bool:
    return override.key_or_group == "hydra/launcher" or override.key_or_group.startswith("hydra.launcher.")


def _texts(record: dict[str, Any], key: str) -> list[str]:
    values = record.get(key)
    return [str(value) for value in values] if isinstance(values, list) else []


def _wait_for_the_last(folder: SweepFolder) -> None:
    """Wait for jobs on this machine whose multirun was killed: they are writing their checkpoints."""
    deadline = time.monotonic() + PATIENCE
    is_told = False
    while busy := [row for row in folder.rows() if row.status == RUNNING and row.state.slurm_job is None]:
        if not is_told:
            say(f"zoo: waiting for {len(busy)} jobs of the multirun before to end")
            is_told = True
        if time.monotonic() > deadline:
            raise ZooError(f"job {busy[0].state.number} in {folder.shown} is still running")
        time.sleep(0.2)
