"""Train the agents of the collection with their tuned files, score each, and keep the best of the seeds.

    .venv/bin/python scripts/train_collection.py
    .venv/bin/python scripts/train_collection.py --jobs 2
    .venv/bin/python scripts/train_collection.py --agents ppo2/CartPole-v1,sac/Pendulum-v1

The queue is scripts/collection.csv: algorithm, environment, number of seeds, overrides for `zoo train`, in
the order of training. A seed is finished when docs/measured/scores.csv has a row for it and
docs/measured/curves/ its evaluations; only the seeds that are missing are trained. --agents trains all
seeds of a pair again. Stopped and started again, the script goes on where it was: finished runs are kept, a
stopped one is resumed. For trainings at the same time use --jobs: two scripts would overwrite each other's
scores.

Best and last agent of each run are scored over the same 100 episodes. The best agent of the best seed is
kept; the score on its card is that of 100 other episodes.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shlex
import subprocess
import sys
from collections.abc import Collection
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

LARGEST_AGENT = 300_000
"""Bytes of tensors from which on an agent is stored in half the precision."""

EXPERTS = {
    "CartPole-v1": ("ppo2", 10),
    "Pendulum-v1": ("sac", 20),
    "HalfCheetah-v5": ("ppo2", 20),
    "Hopper-v5": ("ppo", 50),
    "Walker2d-v5": ("trpo", 20),
}
"""What `bc` and `gail` learn from: the collection's agent of an algorithm, and a number of episodes."""

LEARN_FROM_EXPERTS = ("bc", "gail")

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
    """Returns of one run's best agent, and the mean return of its last one."""

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
    last_mean_return: float | None
    """Mean return of the run's last agent; None if only the best one was scored."""


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
    arguments = parser.parse_args()
    arguments.runs, arguments.repository = arguments.runs.absolute(), arguments.repository.absolute()
    return arguments


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
    return not set(range(pair.seeds)) - scored_seeds(pair, repository).keys()


def scored_seeds(pair: Pair, repository: Path) -> dict[int, float]:
    """Return each finished seed's mean return; none if the collection lacks the agent or the curves."""
    card = repository / "trained_agents" / pair.folder / "card.json"
    if not (card.exists() and curves_file(pair, repository).exists()):
        return {}
    return {
        int(row["seed"]): float(row["mean_return"])
        for row in read_scores(repository)
        if (row["algo"], row["env"]) == (pair.algo, pair.env)
    }


def train_pair(pair: Pair, arguments: argparse.Namespace) -> None:
    """Train and score the seeds that a pair lacks; write agent, curve and score as each is finished."""
    scored = {} if arguments.agents else scored_seeds(pair, arguments.repository)
    for seed in sorted(set(range(pair.seeds)) - scored.keys()):
        name = f"{pair.algo} {pair.env} seed {seed}"
        try:
            run = finished_run(pair, seed, arguments)
            score = score_run(pair, seed, run, arguments.runs)
            if score.mean_return > max(scored.values(), default=-np.inf):
                how = how_it_was_made(pair, run, score)
                keep(run / "best_agent", arguments.repository / "trained_agents" / pair.folder, how)
        except Exception as error:  # the queue goes on
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            continue
        scored[seed] = score.mean_return
        with _writing:
            add_curve(curves_file(pair, arguments.repository), seed, run, kept=scored.keys())
            add_score(arguments.repository, score, kept=scored.keys())
        print(f"{name}: {score.mean_return:,.1f} ({score.minutes or 0:.0f} minutes)", flush=True)


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
        options = [f"runs_dir={arguments.runs}", "progress_bar=false", "verbose=0"]
        if pair.algo in LEARN_FROM_EXPERTS:
            options.append(f"dataset={expert_data(pair.env, arguments)}")
        zoo("train", *settings(pair, seed), *options)
    return finished_run(pair, seed, arguments)


def settings(pair: Pair, seed: int) -> list[str]:
    """Return the overrides of a run, besides its folder and what it shows."""
    pairs = [f"algo={pair.algo}", f"env={pair.env}", f"seed={seed}", "threads=1", "callbacks.eval.confirm=50"]
    return pairs + pair.overrides.split()


def how_it_was_made(pair: Pair, run: Path, score: Score) -> dict[str, Any]:
    """Return what a card says of the training: command, commit, processor, return of the last agent."""
    command = shlex.join(["zoo", "train", *settings(pair, score.seed)])
    record = json.loads((run / "run.json").read_text())
    return {
        "command": None if pair.algo in LEARN_FROM_EXPERTS else command,
        "commit": record["git_commit"] and record["git_commit"][:8],
        "processor": record["machine"]["cpu"],
        "last_mean_return": score.last_mean_return,
    }


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
    last = evaluate(run / "agent", CHOOSING_SEED)
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
        last_mean_return=last["mean_return"],
    )


def evaluate(agent: Path, seed: int) -> dict[str, Any]:
    output = zoo("evaluate", f"agent={agent}", f"n_episodes={N_EPISODES}", f"n_envs={N_ENVS}", f"seed={seed}")
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def zoo(*arguments: str) -> str:
    """Run a `zoo` command in this checkout and return its output; raise CalledProcessError if it fails."""
    command = [sys.executable, "-m", "zoo", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=REPOSITORY).stdout


def keep(source: Path, target: Path, how: dict[str, Any]) -> None:
    """Copy an agent into the collection, with a score from fresh episodes and its training on its card."""
    agent = read_agent(source)
    if sum(tensor.nbytes for tensor in agent.tensors.values()) > LARGEST_AGENT:
        halve(agent)
    write_agent(target, agent)
    result = evaluate(target, CARD_SEED)
    agent.card |= how | {
        "mean_return": result["mean_return"],
        "std_return": result["std_return"],
        "n_eval_episodes": result["n_episodes"],
        "deterministic": result["deterministic"],
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


def add_curve(path: Path, seed: int, run: Path, kept: Collection[int]) -> None:
    """Write a run's evaluations beside those of the other ``kept`` seeds: seed, steps, mean return."""
    rows = list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []
    lines = [",".join(row.values()) for row in rows if int(row["seed"]) in set(kept) - {seed}]
    with np.load(run / "evaluations.npz") as evaluations:
        means = evaluations["results"].mean(axis=1)
        steps = evaluations["timesteps"]
        lines += [f"{seed},{step},{mean:.6g}" for step, mean in zip(steps, means, strict=True)]
    lines.sort(key=lambda line: int(line.split(",")[0]))  # stable: a seed's rows stay in order
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, "\n".join(["seed,timesteps,mean_return", *lines, ""]))


def read_scores(repository: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((repository / "docs/measured/scores.csv").read_text().splitlines()))


def add_score(repository: Path, score: Score, kept: Collection[int]) -> None:
    """Write a seed's score beside those of the pair's other ``kept`` seeds, and of all other pairs."""
    pair = (score.algo, score.env)
    rows: dict[tuple[str, ...], dict[str, Any]] = {
        row_key(row): row
        for row in read_scores(repository)
        if (row["algo"], row["env"]) != pair or int(row["seed"]) in kept
    }
    rows[row_key(asdict(score))] = asdict(score)
    table = io.StringIO()
    writer = csv.DictWriter(table, [field.name for field in fields(Score)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows[key] for key in sorted(rows))
    atomic.write_text(repository / "docs/measured/scores.csv", table.getvalue())


def row_key(row: dict[str, Any]) -> tuple[str, ...]:
    return str(row["algo"]), str(row["env"]), str(row["seed"])


if __name__ == "__main__":
    main()
