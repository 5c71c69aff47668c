"""`zoo benchmark`: a collection of agents, measured by `zoo evaluate` and put beside published scores."""

from __future__ import annotations

import csv
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from zoo.agents.agent_folder import POLICY, fingerprint, read_card, read_config
from zoo.agents.card import steps
from zoo.agents.find import agent_of_run, list_agents
from zoo.config.compose import env_id
from zoo.config.overrides import as_overrides
from zoo.config.schema import BenchmarkSettings, preset_or_name
from zoo.config.user_files import shown
from zoo.core import atomic
from zoo.core.file_lock import FileLock
from zoo.core.free_memory import usable_cores
from zoo.core.plain_data import with_finite_numbers
from zoo.core.printing import decimal, one_line, say, show
from zoo.envs.config import EnvConfig
from zoo.envs.registry import folder_name
from zoo.errors import INTERRUPTED, ZooError
from zoo.plots.tables import Table

RESULTS, TABLE = "benchmark.json", "benchmark.md"
PUBLISHED = Path(__file__).with_name("published_scores.csv")

_VERSION = re.compile(r"-v\d+$")

COLUMNS = ("algo", "env", "return", "IQM", "95 % interval", "episodes", "trained for", "published", "agent")
HEADING = """\
# Agents, measured

Mean and standard deviation of the return over episodes, interquartile mean, 95 % bootstrap interval of the \
mean. Published scores are those of the named collections' own agents and episodes.

"""

Row = dict[str, Any]
"""An agent: path, algorithm, environment, … and its scores, or the ``problem`` that it has."""


def run(settings: BenchmarkSettings) -> None:
    """Measure the agents that have no result yet; write benchmark.md and benchmark.json."""
    agents = _wanted_agents(settings)
    folder = Path(settings.out).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ZooError(f"out={one_line(settings.out)}: can't write there: {error.strerror}") from error
    lock = FileLock(folder / ".lock")
    if not lock.acquire(wait=False):
        raise ZooError(f"out={settings.out}: another zoo benchmark writes there; give this one its own")
    file = folder / RESULTS
    stored = json.loads(file.read_bytes())["results"] if file.exists() else []
    results: dict[str, Row] = {row["agent"]: row for row in stored if Path(row["agent"]).exists()}
    n_episodes, deterministic = settings.n_episodes, settings.deterministic
    play = {"n_episodes": n_episodes, "n_envs": min(settings.n_envs, n_episodes), "seed": settings.seed}
    for agent in agents:
        agent["play"] = {**play, "deterministic": EnvConfig(agent["env"]).is_greedy(deterministic)}
    measured = {path: row for path, row in results.items() if "mean_return" in row}
    waiting = [agent for agent in agents if not agent.items() <= measured.get(agent["agent"], {}).items()]
    say(f"agents  {len(agents)}, of which {len(waiting)} to measure, {n_episodes:,} episodes each")
    n_jobs = usable_cores() if settings.n_jobs == -1 else max(1, settings.n_jobs)
    with ThreadPoolExecutor(n_jobs) as pool:
        jobs = [pool.submit(_evaluated, agent, settings, n_jobs) for agent in waiting]
        try:
            for job in as_completed(jobs):
                row = job.result()
                results[row["agent"]] = row
                _write_results(folder, results.values())
                say(f"        {row['algo']} on {row['env']}: {_outcome(row)}")
        finally:
            pool.shutdown(cancel_futures=True)
    _write_results(folder, results.values())
    lock.release()
    show(f"table   {one_line(shown(folder / TABLE))}")


def _wanted_agents(settings: BenchmarkSettings) -> list[Row]:
    """Return the agents below the folder ``agents``, or of the collections. Raises `ZooError`."""
    if settings.agents is None:
        rows = [_agent(agent.path) for agent in list_agents(runs=os.devnull)]
        # The collection in the working folder is often a copy of Zoo's own.
        rows = list({row.get("fingerprint") or row["agent"]: row for row in reversed(rows)}.values())
    elif (root := Path(settings.agents).expanduser()).is_dir():
        rows = [_agent(path) for path in _agents_below(root)]
    else:
        raise ZooError(f"agents={settings.agents}: there is no such folder")
    env = None if settings.env is None else folder_name(env_id(settings.env))
    wanted = [
        row
        for row in rows
        if settings.algo in (None, row["algo"], row.get("base")) and env in (None, folder_name(row["env"]))
    ]
    if not wanted:
        raise ZooError(f"there is no agent to measure{f' among the {len(rows)} found' if rows else ''}")
    return wanted


def _agents_below(root: Path) -> Iterable[Path]:
    for parent, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if POLICY in files or "run.json" in files:
            folders.clear()
            agent = Path(parent) if POLICY in files else agent_of_run(Path(parent))
            yield from [] if agent is None else [agent]
        else:
            yield from (Path(parent, name) for name in sorted(files) if name.endswith(".zip"))


def _agent(path: Path) -> Row:
    row: Row = {"agent": one_line(shown(path), 300), "algo": path.parent.name, "env": path.name}
    try:
        config, card = read_config(path), read_card(path)
        row |= {
            "algo": one_line(preset_or_name(config["algo"]), 40),
            "base": one_line(config["algo"]["name"], 40),
            "env": one_line((config.get("env") or {}).get("id") or "?", 80),
            "timesteps": card.get("timesteps"),
            "fingerprint": fingerprint(path),
        }
    except ZooError as error:
        row["problem"] = str(error)
    return row


def _evaluated(agent: Row, settings: BenchmarkSettings, n_jobs: int) -> Row:
    """Return an agent with its scores, or with its problem. Raises `KeyboardInterrupt`."""
    if "problem" in agent:
        return agent
    overrides = as_overrides({**agent["play"], "agent": agent["agent"], "trust": settings.trust})
    done = subprocess.run(
        [sys.executable, "-m", "zoo", "evaluate", *overrides],
        capture_output=True,
        text=True,
        env={"OMP_NUM_THREADS": str(max(1, usable_cores() // n_jobs)), **os.environ},
        check=False,
    )
    if done.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    if done.returncode != 0:
        error = (done.stderr.splitlines() or [f"ended with status {done.returncode}"])[-1]
        return {**agent, "problem": one_line(error.removeprefix("zoo: "))}
    return {**json.loads(done.stdout.splitlines()[-1]), **agent}


def _write_results(folder: Path, rows: Iterable[Row]) -> None:
    """Write the results, ordered by environment and algorithm, the best first."""

    def place(row: Row) -> tuple[Any, ...]:
        mean = row.get("mean_return")
        return row["env"], row["algo"], mean is None, -(mean or 0), row["agent"]

    ordered = sorted(rows, key=place)
    atomic.write_json(folder / RESULTS, with_finite_numbers({"results": ordered}))
    atomic.write_text(folder / TABLE, HEADING + table_of(ordered))


@functools.cache
def _published_scores() -> dict[tuple[str, str], list[dict[str, str]]]:
    """Return the published scores by algorithm and environment, without its version."""
    scores: dict[tuple[str, str], list[dict[str, str]]] = {}
    with open(PUBLISHED, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            scores.setdefault((row["algo"], _VERSION.sub("", row["env"])), []).append(row)
    return scores


def published_scores(algo: str, base: str, env: str) -> list[dict[str, str]]:
    """Return the published scores of a preset, else of its algorithm, on any version of ``env``."""
    base = algo if algo in ("recurrent_ppo", "maskable_ppo") else base  # what plain PPO reaches is no measure
    scores, name = _published_scores(), _VERSION.sub("", env)
    return scores.get((algo, name)) or scores.get((base, name), [])


def table_of(rows: Iterable[Row]) -> str:
    """Return the results as a table in Markdown."""
    lines = []
    for row in rows:
        algo, env = row["algo"], row["env"]
        beside = "; ".join(
            f"{_mean_and_std(score)} ({score['source']}{'' if score['env'] == env else ', ' + score['env']})"
            for score in published_scores(algo, row.get("base") or algo, env)
        )
        scores = ["", "", ""]
        if "problem" not in row:
            interval = " … ".join(map(decimal, row["ci95"]))
            scores = [decimal(row["iqm_return"]), interval, f"{row['n_episodes']:,}"]
        lines.append([algo, env, _outcome(row), *scores, steps(row), beside, row["agent"]])
    return Table(list(COLUMNS), lines, [], [], len(COLUMNS)).text("md")


def _outcome(row: Row) -> str:
    return f"not measured: {one_line(row['problem'])}" if "problem" in row else _mean_and_std(row)


def _mean_and_std(row: Mapping[str, Any]) -> str:
    std = row["std_return"]
    return decimal(float(row["mean_return"])) + ("" if std == "" else f" ± {decimal(float(std or 0))}")
