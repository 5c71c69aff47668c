"""Training from Python, by what the command line takes or by a whole config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.algorithms.callback import PREEMPTED
from zoo.config.composing import as_overrides, compose
from zoo.config.paths import shown
from zoo.errors import ZooError
from zoo.training.experiment import Experiment, Result


def train(config: Mapping[str, Any] | str | None = None, *overrides: str, **settings: Any) -> Result:
    """Train as ``zoo train`` does with these overrides, tuned values included, and leave a run's folder.

    ``zoo.train("algo=ppo2", "env=CartPole-v1", n_timesteps=20_000, algo={"gamma": 0.98})``: ``settings`` are
    overrides with values of Python's. Or by a whole config, which `zoo.compose("train", …)` returned.

    A config that names an interrupted run in ``resume``, or its ``job``, goes on with it. SIGINT and SIGTERM
    end the training after the update under way; when all is saved, `TrainingInterrupted` is raised. With
    ``workers`` this process is the first of them; in the other tasks of a Slurm job this function does not
    return: they exit as the run ends. Raises `ZooError`
    for what does not go together.
    """
    if isinstance(config, Mapping):
        if overrides or settings:
            raise ZooError("a whole config takes no overrides: give them to zoo.compose")
    else:
        given = [] if config is None else [config]
        config = compose("train", [*given, *overrides, *as_overrides(settings)])
    with Experiment(config) as experiment:
        result = experiment.run_through()
    if result.algorithm.stop_reason == PREEMPTED and not result.is_complete:
        raise TrainingInterrupted(result)
    return result


class TrainingInterrupted(KeyboardInterrupt):
    """A signal ended a training, which is saved as far as it came; ``result`` is what came out."""

    def __init__(self, result: Result) -> None:
        self.result = result
        run, steps = shown(Path(result.run.path).absolute()), result.algorithm.num_timesteps
        goes_on = result.run.has_checkpoint or steps == 0
        how = f"zoo.train(resume={run!r}) goes on" if goes_on else f"{run} has no checkpoint to go on from"
        super().__init__(f"training ended by a signal after {steps:,} steps; {how}")
