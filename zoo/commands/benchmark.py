"""`zoo benchmark`: a collection of agents, measured and put beside published scores.

Each agent is a job of `zoo evaluate` in a process of its own; results that are there already are kept.
"""

from __future__ import annotations

import csv
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from zoo.agents.agent_folder import POLICY, fingerprint, read_card, read_config
from zoo.agents.find import list_agents
from zoo.config.compose import env_id
from zoo.config.fields import build
from zoo.config.overrides import as_overrides
from zoo.config.paths import shown
from zoo.config.schema import BenchmarkSettings, preset_or_name
from zoo.core import atomic
from zoo.core.file_lock import FileLock
from zoo.core.free_memory import usable_cores
from zoo.core.plain_data import parse_json, plain, with_finite_numbers
from zoo.core.printing import decimal, one_line, say, show
from zoo.envs.config import EnvConfig, is_atari
from zoo.envs.registry import folder_name
from zoo.errors import INTERRUPTED, ZooError
from zoo.launch.processes import JobCommand, JobProcesses
from zoo.plots.tables import Table

RESULTS, TABLE, ROWS = "benchmark.json", "benchmark.md", "benchmark.csv"
PUBLISHED = Path(__file__).with_name("published_scores.csv")

OUR_NAMES = {"ppo": "ppo2", "ppo_lstm": "recurrent_ppo"}
"""What published scores call an algorithm that has another name here."""

PLAY = ("n_episodes", "n_envs", "deterministic", "seed")
"""What a result stands for, beside the agent."""

COLUMNS = ("algo", "env", "return", "IQM", "95 % interval", "episodes", "trained for", "published", "agent")
FIELDS = (
    *("algo", "env", "mean_return", "std_return", "iqm_return", "ci95_low", "ci95_high", "n_episodes"),
    *("timesteps", "published", "problem", "agent"),
)
HEADING = """\
# Agents, measured

Mean and standard deviation of the return over episodes, interquartile mean, 95 % bootstrap interval of the \
mean. Published scores are those of the named collections' own agents and episodes.

"""

Row = dict[str, Any]


def run(config: Mapping[str, Any]) -> int | None:
    """Measure the agents that have no result yet; write benchmark.md, .csv and .json."""
    settings = build(BenchmarkSettings, config, "")
    if settings.n_jobs == 0:
        raise ZooError("`n_jobs=0` measures nothing; expected -1 (one a core) or at least 1")
    env = None if settings.env is None else env_id(settings.env)
    agents = candidates(settings.agents, settings.algo, env)
    benchmark = Benchmark(settings)
    n_missing = len(benchmark.missing(agents))
    show(f"agents  {len(agents)}, of which {n_missing} to measure, {settings.n_episodes:,} episodes each")
    is_complete = benchmark.measure(agents, _print_result)
    show(f"table   {one_line(shown(benchmark.folder.absolute() / TABLE))}")
    return None if is_complete else INTERRUPTED


def _print_result(row: Row) -> None:
    name = f"{row['algo']} on {row['env']}"
    if row.get("problem") is not None:
        say(f"        {name}: not measured: {one_line(row['problem'])}")
    else:
        say(f"        {name}: {_mean_and_std(row['mean_return'], row['std_return'])}")


@dataclass(frozen=True)
class Candidate:
    """An agent to measure; ``problem`` says why it can't be."""

    path: Path
    algo: str
    """The preset or algorithm that was asked for."""
    env: str
    timesteps: int | None = None
    fingerprint: str | None = None
    problem: str | None = None
    base: str | None = None
    """The algorithm, of which ``algo`` may be a preset."""
    is_atari: bool = False
    is_native: bool = False
    """Whether the environment comes as many at once by itself."""

    @property
    def name(self) -> str:
        return one_line(shown(self.path.absolute()), 300)


def candidates(folder: str | None, algo: str | None, env: str | None) -> list[Candidate]:
    """Return the agents below ``folder``, or of the collections, that are wanted. Raises `ZooError`."""
    if folder is None:
        paths = [agent.path for agent in list_agents(runs=os.devnull)]
    else:
        root = Path(folder).expanduser()
        if not root.is_dir():
            raise ZooError(f"agents={one_line(folder)}: there is no such folder")
        paths = list(_agents_below(root))
    found = [_candidate(path) for path in paths]
    if folder is None:  # the collection in the working folder is often a copy of Zoo's own
        found = list({each.fingerprint or each.name: each for each in reversed(found)}.values())[::-1]
    wanted = [
        each
        for each in found
        if algo in (None, each.algo, each.base) and (env is None or folder_name(each.env) == folder_name(env))
    ]
    if not wanted:
        raise ZooError(f"there is no agent to measure{f' among the {len(found)} found' if found else ''}")
    return wanted


def _agents_below(root: Path) -> Iterator[Path]:
    """Give the agents below a folder, of a run its best one; no link is followed."""
    for parent, folders, files in os.walk(root):
        here = Path(parent)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "run.json" in files:
            yield from [here / each for each in ("best_agent", "agent") if (here / each / POLICY).is_file()][
                :1
            ]
            folders.clear()
        elif POLICY in files:
            yield here
            folders.clear()
        else:
            yield from (here / name for name in sorted(files) if name.endswith(".zip"))


def _candidate(path: Path) -> Candidate:
    try:
        config, card = read_config(path), read_card(path)
        env = config.get("env") or {}
        return Candidate(
            path,
            one_line(preset_or_name(config["algo"]), 40),
            one_line(env.get("id") or "?", 80),
            card.get("timesteps"),
            fingerprint(path),
            base=one_line(config["algo"]["name"], 40),
            is_atari="id" in env and is_atari(EnvConfig(env["id"], env.get("kwargs") or {})),
            is_native=env.get("vectorization") == "native",
        )
    except ZooError as error:
        return Candidate(path, one_line(path.parent.name, 40), one_line(path.name, 80), problem=str(error))


class Benchmark:
    """Results in a folder: those that are there are kept, those that are missing get measured."""

    def __init__(self, settings: BenchmarkSettings) -> None:
        self.settings, self.folder = settings, Path(settings.out).expanduser()
        self.play = {name: getattr(settings, name) for name in PLAY}
        self._rows = self._read()
        self._lock = Lock()

    def missing(self, agents: Sequence[Candidate]) -> list[Candidate]:
        """Return the agents that have no result of this kind yet, or another one than the agent now."""
        return [each for each in agents if each.problem is None and not self._has_result(each)]

    def measure(self, agents: Sequence[Candidate], on_result: Callable[[Row], None]) -> bool:
        """Measure what is missing, ``n_jobs`` agents at a time; all files are up to date after each of them.

        Returns False if it was interrupted.
        """
        for each in agents:
            if each.problem is not None:
                self._store(each, {"problem": each.problem}, on_result)
        waiting = self.missing(agents)
        cores, n_jobs = usable_cores(), self.settings.n_jobs
        at_once = max(1, min(len(waiting), n_jobs if n_jobs > 0 else cores))
        processes = JobProcesses()
        threads = {"OMP_NUM_THREADS": str(max(1, cores // at_once))}
        command = JobCommand("evaluate", "zoo.commands.evaluate:run", environment=threads)

        def measure_agent(agent: Candidate) -> None:
            result = self._evaluate(agent, command, processes)
            if result is not None:
                self._store(agent, result, on_result)

        with processes.handling_signals(), ThreadPoolExecutor(at_once) as pool:
            list(pool.map(measure_agent, waiting))
        self._write()
        return not processes.is_stopping

    def rows(self) -> list[Row]:
        """Return all results, ordered by environment and algorithm, the best first."""

        def place(row: Row) -> tuple[str, str, float, str]:
            mean = row.get("mean_return")
            return row["env"], row["algo"], float("inf") if mean is None else -mean, row["agent"]

        return sorted(self._rows.values(), key=place)

    def _evaluate(self, agent: Candidate, command: JobCommand, processes: JobProcesses) -> Row | None:
        """Return an agent's scores, or the problem with it; None if it was interrupted."""
        settings: dict[str, Any] = {**self.play, "trust": self.settings.trust, "agent": str(agent.path)}
        settings["n_envs"] = min(settings["n_envs"], settings["n_episodes"])
        if settings["deterministic"] is None:
            settings["deterministic"] = not agent.is_atari
        if not agent.is_native:  # processes of its own would not make one job of many faster
            settings["env"] = {"vectorization": "auto", "step_timeout": None}
        with tempfile.TemporaryFile() as output, open(os.devnull, "wb") as nothing:
            result = command.run(
                *(processes, as_overrides(settings)),
                stdout=output.fileno(),
                stderr=nothing.fileno(),
            )
            output.seek(0)
            lines = output.read().splitlines()
        if result.exit_status == INTERRUPTED:
            return None
        if result.exit_status != 0:
            return {"problem": one_line(result.message)}
        return {key: value for key, value in json.loads(lines[-1]).items() if key not in ("algo", "env")}

    def _has_result(self, agent: Candidate) -> bool:
        row = self._rows.get(agent.name, {"problem": "not measured"})
        kept = row.get("fingerprint"), row.get("play")
        return row.get("problem") is None and kept == (agent.fingerprint, self.play)

    def _store(self, agent: Candidate, result: Mapping[str, Any], on_result: Callable[[Row], None]) -> None:
        names = ("algo", "base", "env", "timesteps", "fingerprint")
        row = {"agent": agent.name, **{name: getattr(agent, name) for name in names}}
        row |= {"play": self.play, **result}
        with self._lock:
            self._write(row)
            on_result(row)

    def _read(self) -> dict[str, Row]:
        if not (self.folder / RESULTS).exists():
            return {}
        try:
            rows = parse_json((self.folder / RESULTS).read_bytes())["results"]
            table_of(rows, {})
            return {row["agent"]: row for row in rows if Path(row["agent"]).exists()}
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise ZooError(
                f"{one_line(self.folder / RESULTS)} is damaged ({one_line(error)});"
                " remove it, or choose another folder: out=DIR"
            ) from error

    def _write(self, *new: Row) -> None:
        """Write what is new, beside what others may have measured meanwhile."""
        atomic.make_folder(self.folder)
        with FileLock(self.folder / ".lock"):
            self._rows = {**self._read(), **{row["agent"]: row for row in new}}
            rows, table = self.rows(), table_of(self.rows(), published_scores())
            atomic.write_json(self.folder / RESULTS, with_finite_numbers(plain({"results": rows})))
            atomic.write_text(self.folder / ROWS, table.text("csv"))
            atomic.write_text(self.folder / TABLE, HEADING + table.text("md"))


def published_scores() -> dict[tuple[str, str], list[dict[str, str]]]:
    """Return what others have published, by algorithm (our name) and environment without its version."""
    scores: dict[tuple[str, str], list[dict[str, str]]] = {}
    with open(PUBLISHED, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            algo = OUR_NAMES.get(row["algo"], row["algo"])
            scores.setdefault((algo, _without_version(row["env"])), []).append(row)
    return scores


def published_of(
    algo: str, base: str, env: str, scores: Mapping[tuple[str, str], list[dict[str, str]]]
) -> list[dict[str, str]]:
    """Return the published scores of a preset, else those of its algorithm, in any version of ``env``."""
    base = algo if algo in ("recurrent_ppo", "maskable_ppo") else base  # what plain PPO reaches is no measure
    return scores.get((algo, _without_version(env))) or scores.get((base, _without_version(env)), [])


def _without_version(env: str) -> str:
    return re.sub(r"-v\d+$", "", env)


def _published_text(row: Row, scores: Mapping[tuple[str, str], list[dict[str, str]]]) -> str:
    algo, env = row["algo"], row["env"]
    return "; ".join(
        f"{_mean_and_std(float(each['mean_return']), float(each['std_return'] or 0))}"
        f" ({each['source']}{'' if each['env'] == env else ', ' + each['env']})"
        for each in published_of(algo, str(row.get("base") or algo), env, scores)
    )


def _mean_and_std(mean: float, std: float) -> str:
    return f"{decimal(mean)} ± {decimal(std)}"


def table_of(rows: Sequence[Row], published: Mapping[tuple[str, str], list[dict[str, str]]]) -> Table:
    """Return the results as a table for people and for programs."""
    lines, values = [], []
    for row in rows:
        beside = _published_text(row, published)
        steps = "?" if row.get("timesteps") is None else f"{row['timesteps']:,}"
        if row.get("problem") is not None:
            low, high = None, None
            scores = [f"not measured: {row['problem']}", "", "", ""]
        else:
            low, high = row["ci95"]
            scores = [
                *(_mean_and_std(row["mean_return"], row["std_return"]), decimal(row["iqm_return"])),
                *(f"{decimal(low)} … {decimal(high)}", f"{row['n_episodes']:,}"),
            ]
        lines.append([row["algo"], row["env"], *scores, steps, beside, row["agent"]])
        cells = {**row, "ci95_low": low, "ci95_high": high, "published": beside}
        values.append([cells.get(field) for field in FIELDS])
    return Table(list(COLUMNS), lines, list(FIELDS), values, len(COLUMNS))
