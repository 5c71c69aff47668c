"""`zoo evaluate`: how well an agent does, as a table for people and one line of JSON for programs."""

from __future__ import annotations

import json

from zoo.config.schema import EvaluateSettings
from zoo.core.plain_data import with_finite_numbers
from zoo.core.printing import aligned, decimal, show
from zoo.envs.replay import random_seed
from zoo.experiment.evaluation import Evaluation, evaluate
from zoo.experiment.open_agent import open_agent


def run(settings: EvaluateSettings) -> None:
    """Evaluate the agent that the config names; the last line of stdout is one JSON object."""
    agent = open_agent(settings)
    seed, is_greedy = random_seed(settings.seed), agent.env.is_greedy(settings.deterministic)
    show(agent.introduction(), flush=True)
    with agent.open_envs(min(settings.n_envs, settings.n_episodes)) as envs:
        evaluation = evaluate(agent.algorithm, envs, settings.n_episodes, deterministic=is_greedy, seed=seed)
    show(_table(evaluation))
    played = {"deterministic": is_greedy, "seed": seed}
    values = {"algo": agent.algo, "env": agent.env.id, **evaluation.summary(), **played}
    show(json.dumps(with_finite_numbers(values)))


def _table(evaluation: Evaluation) -> str:
    low, high = evaluation.ci95()
    returns, lengths = evaluation.returns, evaluation.lengths
    rows = [
        ("episodes", f"{evaluation.n_episodes:,}"),
        ("mean return", f"{decimal(evaluation.mean)} ± {decimal(evaluation.std)}"),
        ("95 % interval of the mean", f"{decimal(low)} … {decimal(high)}"),
        ("interquartile mean", f"{decimal(evaluation.iqm)}"),
        ("lowest, highest return", f"{decimal(returns.min())}, {decimal(returns.max())}"),
        ("mean length", f"{evaluation.mean_length:,.1f} steps ({lengths.min():,} to {lengths.max():,})"),
    ]
    if evaluation.success_rate is not None:
        rows.append(("successes", f"{evaluation.success_rate:.0%}"))
    return aligned(rows)
