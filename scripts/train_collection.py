"""Train the agents of the collection with their tuned files, score each, and keep the best of the seeds.

    .venv/bin/python scripts/train_collection.py
    .venv/bin/python scripts/train_collection.py --jobs 2
    .venv/bin/python scripts/train_collection.py --agents ppo2/CartPole-v1,sac/Pendulum-v1

The queue is scripts/collection.csv: algorithm, environment, number of seeds, overrides for `zoo train`, in
the order of training. A pair is finished when trained_agents/ holds its agent, docs/measured/curves/ the
evaluations of its seeds, and docs/measured/scores.csv a row for each; --agents trains a finished one again.
Stopped and started again, the script goes on where it was: finished runs are kept, a stopped one is resumed.
For trainings at the same time use --jobs: two scripts would overwrite each other's scores.

The agent that is kept is the best of the seeds by the mean return of 100 episodes; the score on its card is
that of 100 other episodes.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from zoo.agents.agent_folder import AgentFiles, read_agent, write_agent
from zoo.core import atomic
from zoo.envs.registry import folder_name

REPOSITORY = Path(__file__).resolve().parent.parent
N_EPISODES, N_ENVS = 100, 10
CHOOSING_SEED = 1_000
CARD_SEED = 2_000
"""Seeds of the episodes that choose the best agent, and of those that its card reports."""

LARGEST_AGENT = 1_500_000
"""Bytes of tensors from which on an agent is stored in half the precision."""

EXPERTS = {
    "CartPole-v1": ("ppo2", 10),
    "Pendulum-v1": ("sac", 20),
    "HalfCheetah-v5": ("ppo2", 20),
    "Hopper-v5": ("ppo", 50),
    "Walker2d-v5": ("trpo", 20),
}
"""What `bc` and `gail` learn from: the collection's agent of an algorithm, and a number of episodes."""

_writing = Lock()


@dataclass(frozen=True)
class Pair:
    algo: str
    env: str
    seeds: int
    overrides: str

    @property
    def folder(self) -> Path:
        return Path(self.algo) / folder_name(self.env)


@dataclass(frozen=True)
class Score:
    """What the best agent of one run reaches."""

    algo: str
    env: str
    seed: int
    timesteps: int
    mean_return: float
    std_return: float
    iqm_return: float
    ci95_low: float
    ci95_high: float
    n_episodes: int
    run: str
    """The run's folder, below that of all runs."""
    minutes: float | None
    """How long the run trained, beside others on the same machine; None if that is not known."""


def main() -> None:
    arguments = parse_arguments()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    waiting = [
        pair
        for pair in read_queue(arguments.queue, arguments.agents)
        if arguments.agents or not is_finished(pair, arguments.repository)
    ]
    print(f"{len(waiting)} pairs to train", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda pair: train_pair(pair, arguments), waiting))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--agents", type=lambda text: text.split(","), help="these: ALGO/ENV,… (default: all unfinished ones)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="trainings at the same time, a thread each")
    parser.add_argument("--runs", type=Path, default=REPOSITORY / "runs/collection", help="where to train")
    parser.add_argument("--queue", type=Path, default=REPOSITORY / "scripts/collection.csv")
    parser.add_argument("--repository", type=Path, default=REPOSITORY, help="the checkout to write into")
    return parser.parse_args()


def read_queue(path: Path, wanted: list[str] | None) -> list[Pair]:
    pairs = [
        Pair(row["algo"], row["env"], int(row["seeds"]), row["overrides"] or "")
        for row in csv.DictReader(path.read_text().splitlines())
    ]
    names = [f"{pair.algo}/{pair.env}" for pair in pairs]
    if unknown := set(wanted or names) - set(names):
        raise SystemExit(f"not in {path}: {', '.join(sorted(unknown))}")
    return [pair for pair, name in zip(pairs, names, strict=True) if wanted is None or name in wanted]


def is_finished(pair: Pair, repository: Path) -> bool:
    """Tell whether the collection has the pair's agent, its curves, and a score for each seed."""
    scored = {row_key(row) for row in read_scores(repository)}
    return (
        (repository / "trained_agents" / pair.folder / "card.json").exists()
        and curves_file(pair, repository).exists()
        and all((pair.algo, pair.env, str(seed)) in scored for seed in range(pair.seeds))
    )


def train_pair(pair: Pair, arguments: argparse.Namespace) -> None:
    """Train and score each seed of a pair, and write its agent, scores and curves into the repository."""
    name = f"{pair.algo} {pair.env}"
    try:
        runs = [finished_run(pair, seed, arguments) for seed in range(pair.seeds)]
        scores = [score_run(pair, seed, run, arguments.runs) for seed, run in enumerate(runs)]
        best = max(scores, key=lambda score: score.mean_return)
        keep(arguments.runs / best.run / "best_agent", arguments.repository / "trained_agents" / pair.folder)
    except Exception as error:  # the queue goes on
        print(f"{name}: {type(error).__name__}: {error}", flush=True)
        return
    with _writing:
        atomic.write_text(curves_file(pair, arguments.repository), curves_of(runs))
        add_scores(arguments.repository, scores)
    seeds = ", ".join(f"{score.mean_return:,.1f}" for score in scores)
    print(f"{name}: {seeds} ({sum(score.minutes or 0 for score in scores):.0f} minutes)", flush=True)


def finished_run(pair: Pair, seed: int, arguments: argparse.Namespace) -> Path:
    """Return the finished run of this seed; train it, or the rest of it, if there is none."""
    runs = sorted(found.parent for found in (arguments.runs / pair.folder).glob(f"*_s{seed}/run.json"))
    for run in reversed(runs):
        if json.loads((run / "run.json").read_text())["status"] == "finished":
            return run
    stopped = [run for run in runs if (run / "checkpoint").exists()]
    if stopped:
        zoo("train", f"resume={stopped[-1]}")
    else:
        options = [f"algo={pair.algo}", f"env={pair.env}", f"seed={seed}", f"runs_dir={arguments.runs}"]
        if pair.algo in ("bc", "gail"):
            options.append(f"dataset={expert_data(pair.env, arguments)}")
        zoo(
            "train",
            *options,
            "threads=1",
            "progress_bar=false",
            "verbose=0",
            "callbacks.eval.confirm=50",
            *pair.overrides.split(),
        )
    return finished_run(pair, seed, arguments)


def expert_data(env: str, arguments: argparse.Namespace) -> Path:
    """Return a file of an expert's episodes; record it if there is none."""
    path: Path = arguments.runs / "experts" / f"{folder_name(env)}.npz"
    algo, n_episodes = EXPERTS[env]
    if not path.exists():
        agent = arguments.repository / "trained_agents" / algo / folder_name(env)
        zoo("expert", f"agent={agent}", f"n_episodes={n_episodes}", f"out={path}", "seed=0")
    return path


def score_run(pair: Pair, seed: int, run: Path, runs: Path) -> Score:
    result = evaluate(run / "best_agent", CHOOSING_SEED)
    low, high = result["ci95"]
    record = json.loads((run / "run.json").read_text())
    speed = record["steps_per_second"]  # 0 of a run that had no step left when it was resumed
    return Score(
        algo=pair.algo,
        env=pair.env,
        seed=seed,
        timesteps=record["timesteps"],
        mean_return=result["mean_return"],
        std_return=result["std_return"],
        iqm_return=result["iqm_return"],
        ci95_low=low,
        ci95_high=high,
        n_episodes=result["n_episodes"],
        run=str(run.relative_to(runs)),
        minutes=round(record["timesteps"] / speed / 60, 2) if speed else None,
    )


def evaluate(agent: Path, seed: int) -> dict[str, Any]:
    output = zoo("evaluate", f"agent={agent}", f"n_episodes={N_EPISODES}", f"n_envs={N_ENVS}", f"seed={seed}")
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def zoo(*arguments: str) -> str:
    """Run a `zoo` command of this environment and return its output; raise CalledProcessError if it fails."""
    command = [sys.executable, "-m", "zoo", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def keep(source: Path, target: Path) -> None:
    """Copy an agent into the collection, with a score from fresh episodes on its card."""
    agent = read_agent(source)
    if sum(tensor.nbytes for tensor in agent.tensors.values()) > LARGEST_AGENT:
        halve(agent)
    write_agent(target, agent)
    result = evaluate(target, CARD_SEED)
    agent.card |= {
        "mean_return": result["mean_return"],
        "std_return": result["std_return"],
        "n_eval_episodes": result["n_episodes"],
    }
    write_agent(target, agent)


def halve(agent: AgentFiles) -> None:
    """Store what does not act, and what sees pictures, in float16; a loaded agent computes in float32."""
    sees = any(tensor.ndim == 4 for tensor in agent.tensors.values())
    for name, tensor in agent.tensors.items():
        if tensor.dtype == np.float32 and (sees or name.startswith("critic")):
            agent.tensors[name] = tensor.astype(np.float16)


def curves_file(pair: Pair, repository: Path) -> Path:
    return repository / "docs/measured/curves" / pair.algo / f"{folder_name(pair.env)}.csv"


def curves_of(runs: Iterable[Path]) -> str:
    """Return the evaluations of runs as CSV: seed, environment steps, mean return."""
    lines = ["seed,timesteps,mean_return"]
    for seed, run in enumerate(runs):
        with np.load(run / "evaluations.npz") as evaluations:
            means = evaluations["results"].mean(axis=1)
            lines += [
                f"{seed},{step},{mean:.6g}"
                for step, mean in zip(evaluations["timesteps"], means, strict=True)
            ]
    return "\n".join(lines) + "\n"


def read_scores(repository: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((repository / "docs/measured/scores.csv").read_text().splitlines()))


def add_scores(repository: Path, scores: list[Score]) -> None:
    """Write a pair's scores in the place of those that it had."""
    added = {row_key(asdict(score)): asdict(score) for score in scores}
    pairs = {key[:2] for key in added}
    kept = (row for row in read_scores(repository) if (row["algo"], row["env"]) not in pairs)
    rows: dict[tuple[str, ...], dict[str, Any]] = {row_key(row): row for row in kept} | added
    table = io.StringIO()
    writer = csv.DictWriter(table, [field.name for field in fields(Score)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows[key] for key in sorted(rows))
    atomic.write_text(repository / "docs/measured/scores.csv", table.getvalue())


def row_key(row: dict[str, Any]) -> tuple[str, ...]:
    return str(row["algo"]), str(row["env"]), str(row["seed"])


if __name__ == "__main__":
    main()
