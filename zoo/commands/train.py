"""`zoo train`: an experiment, and what it says to whoever sits at the terminal."""

from __future__ import annotations

import contextlib
import logging
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from zoo.config.schema import preset_or_name
from zoo.config.user_files import shown
from zoo.core.printing import decimal, discard_unwritten, handlers_print, say
from zoo.errors import INTERRUPTED
from zoo.experiment.experiment import Experiment, Result
from zoo.experiment.run_folder import FinishedJobError


def run(config: Mapping[str, Any]) -> int | None:
    """Train as the checked config says. Returns 130 if the user or the cluster ended the run."""
    verbose = config["verbose"]
    experiment = Experiment(config)
    try:
        with _logging_to_terminal(verbose):
            with experiment:
                if verbose:
                    _print_start(experiment)
                result = experiment.run_through()
            if verbose:
                _print_end(result, experiment)
    except FinishedJobError as error:
        say(f"zoo: {error}")
        return None
    except KeyboardInterrupt:
        if experiment.is_finished:
            return None
        raise
    return None if result.is_complete else INTERRUPTED


@contextlib.contextmanager
def _logging_to_terminal(verbose: int) -> Iterator[None]:
    """Print the engine's log records within the block, such as why an update is not compiled."""
    handler = _TerminalHandler()
    logger = logging.getLogger("zoo")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel([logging.WARNING, logging.INFO, logging.DEBUG][verbose])
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        discard_unwritten()  # else Python would end with an error


class _TerminalHandler(logging.Handler):
    """Prints the engine's log records as messages, unless a handler of the user's prints them."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "zoo" and not handlers_print():
            say(f"zoo: {record.getMessage()}", sys.stderr)


def _print_start(experiment: Experiment) -> None:
    from zoo.policies.encoders import SmallCnn

    config, algorithm = experiment.config, experiment.algorithm
    if config["init_from"] is not None and not algorithm.num_timesteps:
        say(f"start   with {experiment.init}")
        for line in experiment.changed_settings:
            say(f"        {line}")
    algo, env = preset_or_name(config["algo"]), config["env"]["id"]
    say(f"run     {shown(experiment.run.path)}")
    no_file = {None: f"no file for {algo} on {env}", "none": "left out by tuned=none"}.get(config["tuned"])
    say(f"tuned   {f'{no_file}; defaults of the algorithm' if no_file else config['tuned']}")
    is_small = any(isinstance(part, SmallCnn) for part in algorithm.policy.modules())
    if is_small and config["policy"]["encoder"] != "small_cnn":
        say("encoder small_cnn; policy.flatten_images=true reads boards and small images as vectors")
    if experiment.is_resumed:
        steps, start = algorithm.num_timesteps, "from the start: the run had no checkpoint yet"
        say(f"resume  {f'from step {steps:,}, its last checkpoint' if steps else start}")


def _print_end(result: Result, experiment: Experiment) -> None:
    algorithm, last = result.algorithm, result.evaluation
    if algorithm.stop_reason is not None:
        say(f"ended   after {algorithm.num_timesteps:,} steps: {algorithm.stop_reason}")
    if last is not None:
        best = "" if result.best_mean is None else f", best {decimal(result.best_mean)}"
        success = "" if last.success_rate is None else f", success {last.success_rate:.0%}"
        episodes = f"{last.n_episodes} episode{'s' * (last.n_episodes != 1)}"
        say(f"score   {decimal(last.mean)} ± {decimal(last.std)} over {episodes}{success}{best}")
    if result.agent.exists():
        say(f"agent   {shown(result.agent)}")
    run = shown(result.run.path)
    if result.is_complete:
        runs_dir = experiment.config["runs_dir"]
        where = "" if runs_dir == "runs" else f" {shlex.quote(f'runs_dir={runs_dir}')}"
        say(f"watch   zoo enjoy {shlex.quote(f'agent={run}')}{where}")
        say(f"more    {result.run.continuation()}")
    elif result.run.has_checkpoint or algorithm.num_timesteps == 0:
        say(f"resume  zoo train {shlex.quote(f'resume={run}')}")
    else:
        say(f"go on   {result.run.continuation()} (the run has no checkpoint)")
