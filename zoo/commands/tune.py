"""`zoo tune`: a search for hyperparameters, and what it says to whoever sits at the terminal."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import Any

from zoo.config.user_files import shown
from zoo.core.printing import say, show
from zoo.errors import INTERRUPTED
from zoo.tuning.report import Result, counts, result_of, table
from zoo.tuning.tune import Search


def run(config: Mapping[str, Any]) -> int | None:
    """Search as the checked config says. Returns 130 if the user or the cluster ended it."""
    verbose = config["verbose"]
    search = Search(config)
    if verbose:
        _print_start(search)
    is_done = False
    try:
        is_done = search.run()
    finally:  # also what came out before an error
        result = result_of(search.plan, search.shared)
        if verbose:
            _print_end(result, is_done=is_done)
    if is_done and result.best is None:
        say("zoo: no trial completed, so there is no best.yaml; trials.csv says how each ended", sys.stderr)
        return 1
    return None if is_done else INTERRUPTED


def _print_start(search: Search) -> None:
    plan = search.plan
    show(f"study   {shown(plan.folder)}")
    show(f"trials  {plan.config['n_trials']} in {search.shared.storage.name}")
    for remark in search.remarks:
        show(f"        {remark}")
    evaluation = plan.base["callbacks"]["eval"]["n_episodes"]
    cost = f"{plan.n_timesteps:,} steps and {plan.n_timesteps // plan.interval} evaluations of {evaluation}"
    show(f"        each trains {f'{plan.n_seeds} times ' if plan.n_seeds > 1 else ''}{cost} episodes")
    show(f"search  {', '.join(plan.space.dimensions)}")
    if plan.space.left_out:
        show(f"fixed   {', '.join(plan.space.left_out)}: set, so not searched")


def _print_end(result: Result, *, is_done: bool) -> None:
    for line in counts(result).splitlines():
        say(f"trials  {line}")
    if result.best is not None:
        say(table(result))
    if result.report_file is not None:
        say(f"plots   {shown(result.report_file)}")
    say(f"all     {shown(result.trials_file)}")
    if result.best_file is not None:
        plan = result.plan
        dataset = [f"dataset={plan.config['dataset']}"] if plan.config["dataset"] else []
        settings = [f"algo={plan.algo}", f"env={plan.env}", *dataset, f"tuned={shown(result.best_file)}"]
        say(f"train   zoo train {shlex.join(settings)}")
    if not is_done:
        say("go on   with the same command")
