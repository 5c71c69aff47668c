"""Measuring a collection of agents, each in a process of its own, and the table beside published scores."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from zoo.agents.agent_folder import POLICY, fingerprint, read_card, read_config
from zoo.agents.finding import list_agents
from zoo.config.algorithm_names import asked_for
from zoo.config.paths import shown
from zoo.config.sweeps.processes import RunningJobs
from zoo.envs.ids import folder_name
from zoo.errors import INTERRUPTED, ZooError
from zoo.files import atomic
from zoo.files.cells import csv_text, markdown_cell
from zoo.files.file_lock import FileLock
from zoo.files.plain_data import parse_json, plain, with_finite_numbers
from zoo.files.printing import decimal, one_line

RESULTS, TABLE, ROWS = "benchmark.json", "benchmark.md", "benchmark.csv"
PUBLISHED = Path(__file__).with_name("published_scores.csv")

OUR_NAMES = {"ppo": "ppo2"}
"""What published scores call an algorithm that has another name here."""

COLUMNS = (
    *("algo", "env", "mean_return", "std_return", "iqm_return", "ci95_low", "ci95_high", "n_episodes"),
    *("timesteps", "published", "problem", "agent"),
)

Row = dict[str, Any]


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

    @property
    def name(self) -> str:
        return one_line(shown(self.path.absolute()), 300)


@dataclass(frozen=True)
class Play:
    """How the agents play: what a result stands for, beside the agent."""

    n_episodes: int
    n_envs: int
    deterministic: bool | None
    seed: int
    trust: bool

    def as_key(self) -> dict[str, Any]:
        """Return what another result would come from."""
        return {key: value for key, value in vars(self).items() if key != "trust"}


def candidates(folder: str | None, algo: str | None, env: str | None) -> list[Candidate]:
    """Return the agents below ``folder``, or of the collections, that are wanted. Raises `ZooError`."""
    if folder is None:
        paths = [agent.path for agent in list_agents(runs=os.devnull)]
    else:
        root = Path(folder).expanduser()
        if not root.is_dir():
            raise ZooError(f"agents={one_line(folder)}: there is no such folder")
        paths = _below(root)
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


def _below(root: Path) -> list[Path]:
    """Return the agents below a folder, of a run its best one; no link is followed."""
    found: list[Path] = []
    for parent, folders, files in os.walk(root):
        here = Path(parent)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "run.json" in files:
            best = next(
                (here / name for name in ("best_agent", "agent") if (here / name / POLICY).is_file()), None
            )
            found += [] if best is None else [best]
            folders.clear()
        elif POLICY in files:
            found.append(here)
            folders.clear()
        else:
            found += [here / name for name in sorted(files) if name.endswith(".zip")]
    return found


def _candidate(path: Path) -> Candidate:
    try:
        config, card = read_config(path), read_card(path)
        env = (config.get("env") or {}).get("id")
        return Candidate(
            path,
            one_line(asked_for(config["algo"]), 40),
            "?" if env is None else one_line(env, 80),
            card.get("timesteps"),
            fingerprint(path),
            base=one_line(config["algo"]["name"], 40),
        )
    except ZooError as error:
        return Candidate(path, one_line(path.parent.name, 40), one_line(path.name, 80), problem=str(error))


class Benchmark:
    """Results in a folder: those that are there are kept, those that are missing get measured."""

    def __init__(self, folder: str | Path, play: Play) -> None:
        self.folder, self.play = Path(folder).expanduser(), play
        self._rows = self._read()
        self._lock = Lock()

    def missing(self, agents: Sequence[Candidate]) -> list[Candidate]:
        """Return the agents that have no result of this kind yet, or another one than the agent now."""
        return [each for each in agents if each.problem is None and not self._has(each)]

    def measure(self, agents: Sequence[Candidate], n_jobs: int, told: Callable[[Row], None]) -> bool:
        """Measure what is missing, ``n_jobs`` agents at a time; all files are up to date after each of them.

        Returns False if it was interrupted.
        """
        for each in agents:
            if each.problem is not None:
                self._keep(each, {"problem": each.problem}, told)
        waiting = self.missing(agents)
        cores = len(os.sched_getaffinity(0))
        at_once = max(1, min(len(waiting), n_jobs if n_jobs > 0 else cores))
        running = RunningJobs()
        threads = str(max(1, cores // at_once))

        def measured(agent: Candidate) -> None:
            result = _in_a_process(agent, self.play, running, threads)
            if result is not None:
                self._keep(agent, result, told)

        with running.heeding_signals(), ThreadPoolExecutor(at_once) as pool:
            list(pool.map(measured, waiting))
        self._write()
        return not running.is_ending

    def rows(self) -> list[Row]:
        """Return all results, ordered by environment and algorithm, the best first."""
        return sorted(
            self._rows.values(),
            key=lambda row: (
                row["env"],
                row["algo"],
                float("inf") if row.get("mean_return") is None else -row["mean_return"],
                row["agent"],
            ),
        )

    def _has(self, agent: Candidate) -> bool:
        row = self._rows.get(agent.name)
        return (
            row is not None
            and row.get("problem") is None
            and row.get("fingerprint") == agent.fingerprint
            and row.get("play") == self.play.as_key()
        )

    def _keep(self, agent: Candidate, result: Mapping[str, Any], told: Callable[[Row], None]) -> None:
        row = {
            "agent": agent.name,
            "algo": agent.algo,
            "base": agent.base,
            "env": agent.env,
            "timesteps": agent.timesteps,
            "fingerprint": agent.fingerprint,
            "play": self.play.as_key(),
            **result,
        }
        with self._lock:
            self._write(row)
            told(row)

    def _read(self) -> dict[str, Row]:
        if not (self.folder / RESULTS).exists():
            return {}
        try:
            rows = parse_json((self.folder / RESULTS).read_bytes())["results"]
            if not all(_is_result(row) for row in rows):
                raise ValueError("a result in it is none")
            return {row["agent"]: row for row in rows if Path(row["agent"]).exists()}
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise ZooError(
                f"{one_line(self.folder / RESULTS)} is damaged ({one_line(error)});"
                " remove it, or choose another folder: out=DIR"
            ) from error

    def _write(self, *new: Row) -> None:
        """Write what is new, beside what others may have measured meanwhile."""
        with self._alone():
            self._rows = {**self._read(), **{row["agent"]: row for row in new}}
            self._write_tables(self.rows())

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other benchmarks from writing into the folder within the block."""
        try:
            atomic.make_folder(self.folder)
        except OSError as error:
            reason = error.strerror or error
            raise ZooError(f"can't write into {one_line(self.folder, 1000)}: {reason}") from error
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):  # a file system without locks
                held.enter_context(FileLock(self.folder / ".lock"))
            yield

    def _write_tables(self, rows: list[Row]) -> None:
        published = published_scores()
        atomic.write_json(self.folder / RESULTS, with_finite_numbers(plain({"results": rows})))
        atomic.write_text(self.folder / ROWS, as_csv(rows, published))
        atomic.write_text(self.folder / TABLE, as_markdown(rows, published))


def _is_result(row: Any) -> bool:
    """Whether a row of a file has what the tables say of it."""
    texts = ("agent", "algo", "env")
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in texts):
        return False
    known = [row[key] for key in ("mean_return", "timesteps") if row.get(key) is not None]
    if row.get("problem") is None:
        low, high = row["ci95"]
        known += [low, high, *(row[key] for key in ("mean_return", "std_return", "iqm_return", "n_episodes"))]
    return all(isinstance(each, int | float) and abs(each) < 1e300 for each in known)


def _in_a_process(agent: Candidate, play: Play, running: RunningJobs, threads: str) -> dict[str, Any] | None:
    """Return an agent's result, or the problem with it; None if no more may start."""
    with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as output:
        arguments = {**vars(play), "path": str(agent.path), "report": report.fileno()}
        code = (
            f"import sys; sys.path[:] = {sys.path!r};"
            " import signal; signal.signal(signal.SIGINT, signal.SIG_DFL);"
            f" from zoo.training.benchmark_job import main; main(**{arguments!r})"
        )

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": threads},
                pass_fds=[report.fileno()],
                start_new_session=True,
            )

        status = running.run(start)
        report.seek(0)
        reported = report.read()
        if reported:
            result: dict[str, Any] = json.loads(reported)
            return None if running.is_ending and result.get("problem") else result
        if status is None or running.is_ending:
            return None
        output.seek(0)
        last = output.read()[-1000:].decode("utf-8", "replace").strip().rpartition("\n")[2]
        how = "was interrupted" if status == INTERRUPTED else f"ended with status {status}"
        return {"problem": one_line(f"its process {how}{f': {last}' if last else ''}")}


# Published scores


def published_scores() -> dict[tuple[str, str], list[dict[str, str]]]:
    """Return what others have published, by algorithm (our name) and environment."""
    scores: dict[tuple[str, str], list[dict[str, str]]] = {}
    with open(PUBLISHED, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            algo = OUR_NAMES.get(row["algo"], row["algo"])
            scores.setdefault((algo, row["env"]), []).append(row)
    return scores


def _published(row: Row, scores: Mapping[tuple[str, str], list[dict[str, str]]]) -> str:
    return "; ".join(
        f"{_spread(float(each['mean_return']), float(each['std_return'] or 0))} ({each['source']})"
        for each in scores.get((str(row.get("base") or row["algo"]), row["env"]), [])
    )


# Tables


def _spread(mean: float, std: float) -> str:
    return f"{decimal(mean)} ± {decimal(std)}"


def as_csv(rows: Sequence[Row], published: Mapping[tuple[str, str], list[dict[str, str]]]) -> str:
    """Return the results as CSV."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        low, high = row.get("ci95") or (None, None)
        cells = {**row, "ci95_low": low, "ci95_high": high, "published": _published(row, published)}
        writer.writerow(
            {key: csv_text(cell) if isinstance(cell, str) else cell for key, cell in cells.items()}
        )
    return file.getvalue()


def as_markdown(rows: Sequence[Row], published: Mapping[tuple[str, str], list[dict[str, str]]]) -> str:
    """Return the results as a page."""
    header = (
        "algo",
        "env",
        "return",
        "IQM",
        "95 % interval",
        "episodes",
        "trained for",
        "published",
        "agent",
    )
    lines = [_line(header), _line(["---"] * len(header))]
    for row in rows:
        steps = "?" if row.get("timesteps") is None else f"{row['timesteps']:,}"
        if row.get("problem") is not None:
            cells = [row["algo"], row["env"], f"not measured: {row['problem']}", "", "", "", steps]
        else:
            low, high = row["ci95"]
            cells = [
                *(row["algo"], row["env"], _spread(row["mean_return"], row["std_return"])),
                *(decimal(row["iqm_return"]), f"{decimal(low)} … {decimal(high)}"),
                *(f"{row['n_episodes']:,}", steps),
            ]
        lines.append(_line([*cells, _published(row, published), row["agent"]]))
    return (
        "# Agents, measured\n\n"
        "Mean and standard deviation of the return over episodes, interquartile mean, 95 % bootstrap interval"
        " of the mean. Published scores are those of the named collections' own agents and episodes.\n\n"
        + "\n".join(lines)
        + "\n"
    )


def _line(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(map(markdown_cell, cells)) + " |"
