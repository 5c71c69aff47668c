"""Giving a run more steps than it was begun with, where nothing that it has computed depends on their number.

The run then goes on from its last checkpoint, and ends bit for bit as if it had been begun with its config as
it stands afterwards: with the new number of steps, the intervals that followed from the old one, and what was
decided by it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.config.environment_values import as_written
from zoo.config.resuming import SHOWN_ONLY
from zoo.errors import ZooError
from zoo.files.printing import one_line
from zoo.training.configured_callbacks import with_intervals
from zoo.training.run_folder import RunFolder

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm

DECIDED = ("compile", "threads")
"""Settings that may be ``auto``: what is decided depends on the number of steps."""


def refuse_what_follows_the_length(
    algorithm: Algorithm[Any], run: RunFolder, config: Mapping[str, Any]
) -> None:
    """Raise `ZooError` if what the run has computed so far would have been another with more steps."""
    reasons = what_follows_the_length(algorithm, config)
    if not reasons:
        return
    path = shlex.quote(str(run.path))
    follow = "follow" if len(reasons) > 1 else "follows"
    raise ZooError(
        f"the run in {run.path} would have begun otherwise with n_timesteps={config['n_timesteps']}:"
        f" {' and '.join(reasons)} {follow} the number of steps; to go on in a new run instead:"
        f" zoo train experiment={path}/config.yaml init_from={path} init_with=all n_timesteps=…"
    )


def what_follows_the_length(algorithm: Algorithm[Any], config: Mapping[str, Any]) -> list[str]:
    """Return the settings by which what a run computes depends on its number of steps."""
    settings = [f"{name}={one_line(value)}" for name, value in algorithm.paced().items()]
    checkpoint = config["callbacks"].get("checkpoint")
    is_replayable = algorithm.envs is None or algorithm.envs.is_replayable
    if not is_replayable and isinstance(checkpoint, Mapping) and checkpoint.get("every") is None:
        settings.append("callbacks.checkpoint.every=null (its checkpoints reset the environments)")
    return settings


def extended(config: Mapping[str, Any], n_timesteps: int) -> dict[str, Any]:
    """Return a run's config for ``n_timesteps``, in the intervals of the steps that it had."""
    return {**with_intervals(config), "n_timesteps": n_timesteps}


def write_extended(run: RunFolder, config: Mapping[str, Any], algorithm: Algorithm[Any]) -> dict[str, Any]:
    """Write the config of a run that has been brought back to its checkpoint, and return it.

    First the run is recorded as one that is to go on. Raises `ZooError` if it can't be written.
    """
    decided = {name: value for name in DECIDED if (value := getattr(algorithm.runtime, name)) != "auto"}
    longer = {**config, **decided}
    before = run.read_config()
    run.update_record(status="preempted")
    written = {key: value for key, value in as_written(longer).items() if key not in SHOWN_ONLY}
    run.write_config(written | {key: before[key] for key in SHOWN_ONLY if key in before})
    return longer
