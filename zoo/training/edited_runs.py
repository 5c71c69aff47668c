"""Whether a run's config is still the one that its checkpoint comes from: somebody may have edited it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from zoo.errors import ZooError
from zoo.files.opening import TEXT_LIMIT, DamagedFileError, read_regular
from zoo.files.plain_data import parse_config
from zoo.files.printing import one_line
from zoo.training.run_folder import RunFolder

if TYPE_CHECKING:
    from zoo.algorithms.base import Algorithm

OF_THE_MEMORY = ("memory.n_step", "memory.prioritized", "memory.hindsight")
OF_ITS_ROWS = ("algo.buffer_size", "algo.optimize_memory_usage")

MISSING = object()


def refuse_edited(run: RunFolder, state: Mapping[str, Any], algorithm: Algorithm[Any]) -> None:
    """Raise `ZooError` if a run's config has another replay memory or precision than the run had so far.

    ``state`` is that of the algorithm in the checkpoint. What this does not tell, the agents say that the run
    has saved, if there are any.
    """
    edits = dict(_of_checkpoint(state, algorithm))
    for key, edit in _of_agent(run, algorithm):
        edits.setdefault(key, edit)
    if edits:
        raise ZooError(
            f"{run.config} has been edited: {', '.join(edits.values())}; a run goes on as it was. Undo that,"
            f" or train its agent with other settings: init_from={run.path}"
        )


def _of_checkpoint(state: Mapping[str, Any], algorithm: Algorithm[Any]) -> Iterator[tuple[str, str]]:
    """Give the settings that differ from those that the state shows."""
    was, now = state["runtime"]["precision"], algorithm.runtime.precision
    if was != now:
        yield "precision", _edit("precision", was, now)
    if not (algorithm.has_replay and "memory" in state):
        return
    is_prioritized = bool(state["memory"]["sampler"])
    now = _today(algorithm)["memory"]["prioritized"]
    if is_prioritized != (now is not None):
        yield "memory.prioritized", f"memory.prioritized is {one_line(now)}, {_had(is_prioritized)}"


def _of_agent(run: RunFolder, algorithm: Algorithm[Any]) -> Iterator[tuple[str, str]]:
    """Give the settings that differ from those of an agent that the run has saved."""
    if not algorithm.has_replay:
        return
    trained, today = _saved_config(run), _today(algorithm)
    for path in (*OF_THE_MEMORY, *OF_ITS_ROWS):
        section, _, key = path.partition(".")
        had = trained.get(section)
        was = had.get(key, MISSING) if isinstance(had, Mapping) else MISSING
        now = today[section].get(key, MISSING)
        if MISSING not in (was, now) and was != now:
            yield path, _edit(path, was, now)


def _saved_config(run: RunFolder) -> Mapping[str, Any]:
    """Return the config of the last agent that was saved, or of the best; nothing where neither is whole."""
    for agent in (run.agent, run.best_agent):
        try:
            return parse_config(read_regular(agent / "config.yaml", TEXT_LIMIT, follow_links=False))
        except (OSError, ValueError, DamagedFileError):
            continue
    return {}


def _today(algorithm: Any) -> dict[str, dict[str, Any]]:
    return {
        "algo": dataclasses.asdict(algorithm.config),
        "memory": dataclasses.asdict(algorithm.memory_config),
    }


def _edit(path: str, was: Any, now: Any) -> str:
    return f"{path} is {one_line(now)}, the run had {one_line(was)}"


def _had(is_prioritized: bool) -> str:
    return f"the run {'had priorities' if is_prioritized else 'had none'}"
