"""`zoo benchmark`: a collection of agents, measured and put beside published scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.config.composing import env_id
from zoo.config.fields import build
from zoo.config.paths import shown
from zoo.config.sharing_settings import BenchmarkSettings
from zoo.errors import INTERRUPTED, ZooError
from zoo.files.printing import decimal, one_line, say, show


def run(config: Mapping[str, Any]) -> int | None:
    """Measure the agents that have no result yet; write benchmark.md, .csv and .json."""
    from zoo.training.benchmark import TABLE, Benchmark, Play, candidates

    settings = build(BenchmarkSettings, config, "")
    if settings.n_jobs == 0:
        raise ZooError("`n_jobs=0` measures nothing; expected -1 (one a core) or at least 1")
    env = None if settings.env is None else env_id(settings.env)
    agents = candidates(settings.agents, settings.algo, env)
    play = Play(
        *(settings.n_episodes, settings.n_envs, settings.deterministic, settings.seed, settings.trust)
    )
    benchmark = Benchmark(settings.out, play)
    n_missing = len(benchmark.missing(agents))
    show(f"agents  {len(agents)}, of which {n_missing} to measure, {settings.n_episodes:,} episodes each")
    is_complete = benchmark.measure(agents, settings.n_jobs, _tell)
    show(f"table   {one_line(shown(benchmark.folder.absolute() / TABLE))}")
    return None if is_complete else INTERRUPTED


def _tell(row: Mapping[str, Any]) -> None:
    name = f"{row['algo']} on {row['env']}"
    if row.get("problem") is not None:
        say(f"        {name}: not measured: {one_line(row['problem'])}")
    else:
        say(f"        {name}: {decimal(row['mean_return'])} ± {decimal(row['std_return'])}")
