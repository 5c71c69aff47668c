"""Train agents with their tuned files over several seeds, score each, and keep the best in trained_agents/.

    .venv/bin/python scripts/train_collection.py
    .venv/bin/python scripts/train_collection.py --agents ppo2/CartPole-v1,sac/Pendulum-v1 --seeds 5
    .venv/bin/python scripts/train_collection.py --agents ppo2/Acrobot-v1 --scores-only

Everything goes through `zoo train` and `zoo evaluate`, one run after the other. Stopped and started again,
the script goes on where it was: finished runs are kept, a stopped one is resumed. Prints a line a seed, the
mean over the seeds, and writes `scores.csv` beside the runs. The agent that is kept is the best of the seeds;
the score on its card comes from episodes that had no part in the choice.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from zoo.agents.agent_folder import read_agent, write_agent
from zoo.envs.ids import folder_name

REPOSITORY = Path(__file__).resolve().parent.parent

GOALS = {
    "ppo2/CartPole-v1": 490.0,
    "ppo2/Acrobot-v1": -90.0,
    "a2c/CartPole-v1": 490.0,
    "dqn/CartPole-v1": 490.0,
    "sac/Pendulum-v1": -170.0,
}
"""The agents of the collection, and the mean return that each must reach."""

CHOOSING_SEED = 1_000
CARD_SEED = 2_000
"""Seeds of the episodes that choose the best agent, and of those that its card reports."""


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


def main() -> None:
    arguments = parse_arguments()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    for agent in arguments.agents:
        algo, env = agent.split("/", 1)
        own = []
        for seed in range(arguments.seeds):
            own.append(score_of_seed(algo, env, seed, arguments))
            add_scores(arguments.runs / "scores.csv", own)
        report_mean(agent, own)
        if not arguments.scores_only:
            keep(max(own, key=lambda score: score.mean_return), arguments)
    print(f"every score: {arguments.runs / 'scores.csv'}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--agents",
        type=lambda text: text.split(","),
        default=list(GOALS),
        help=f"algorithm/environment pairs (default: {','.join(GOALS)})",
    )
    parser.add_argument("--seeds", type=int, default=5, help="number of runs; their seeds are 0, 1, 2, …")
    parser.add_argument("--n-episodes", type=int, default=100, help="evaluation episodes a run")
    parser.add_argument("--runs", type=Path, default=Path("runs/collection"), help="folder of the runs")
    parser.add_argument("--into", type=Path, default=REPOSITORY / "trained_agents")
    parser.add_argument("--scores-only", action="store_true", help="keep no agent")
    parser.add_argument("overrides", nargs="*", help="passed on to `zoo train`: n_timesteps=1e4 …")
    return parser.parse_args()


def score_of_seed(algo: str, env: str, seed: int, arguments: argparse.Namespace) -> Score:
    run = finished_run(algo, env, seed, arguments)
    result = evaluate(run / "best_agent", arguments.n_episodes, CHOOSING_SEED)
    low, high = result["ci95"]
    score = Score(
        algo=algo,
        env=env,
        seed=seed,
        timesteps=json.loads((run / "run.json").read_text())["timesteps"],
        mean_return=result["mean_return"],
        std_return=result["std_return"],
        iqm_return=result["iqm_return"],
        ci95_low=low,
        ci95_high=high,
        n_episodes=result["n_episodes"],
        run=str(run.relative_to(arguments.runs)),
    )
    print(
        f"{algo} {env} seed {seed}: {score.mean_return:,.1f} ± {score.std_return:,.1f} "
        f"over {score.n_episodes} episodes, best agent of {score.timesteps:,} steps",
        flush=True,
    )
    return score


def finished_run(algo: str, env: str, seed: int, arguments: argparse.Namespace) -> Path:
    """Return the finished run of this seed; train it, or the rest of it, if there is none."""
    runs = existing_runs(algo, env, seed, arguments.runs)
    finished = [run for run in runs if status(run) == "finished"]
    if finished:
        return finished[-1]
    stopped = [run for run in runs if (run / "checkpoint").exists()]
    if stopped:
        zoo("train", f"resume={stopped[-1]}")
    else:
        options = [f"algo={algo}", f"env={env}", f"seed={seed}", f"runs_dir={arguments.runs}"]
        zoo("train", *options, "progress_bar=false", "verbose=0", *arguments.overrides)
    return finished_run(algo, env, seed, arguments)


def existing_runs(algo: str, env: str, seed: int, runs: Path) -> list[Path]:
    """Return the runs of this seed, oldest first: their names begin with the time."""
    folder = runs / algo / folder_name(env)
    return sorted(found.parent for found in folder.glob(f"*_s{seed}/run.json"))


def status(run: Path) -> str:
    return str(json.loads((run / "run.json").read_text())["status"])


def evaluate(agent: Path, n_episodes: int, seed: int) -> dict[str, Any]:
    output = zoo("evaluate", f"agent={agent}", f"n_episodes={n_episodes}", f"seed={seed}")
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def zoo(*arguments: str) -> str:
    """Run a `zoo` command of this environment and return its output; end here if it fails."""
    command = [str(Path(sys.executable).with_name("zoo")), *arguments]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if finished.returncode != 0:
        raise SystemExit(f"zoo {' '.join(arguments)}\nended with status {finished.returncode}")
    return finished.stdout


def report_mean(agent: str, scores: list[Score]) -> None:
    mean = statistics.mean(score.mean_return for score in scores)
    goal = GOALS.get(agent)
    reached = "" if goal is None else f"; goal {goal:g}: {'reached' if mean >= goal else 'not reached'}"
    print(f"{agent.replace('/', ' ')}: mean of {len(scores)} seeds {mean:,.1f}{reached}", flush=True)


def add_scores(path: Path, scores: list[Score]) -> None:
    """Write scores beside those of other agents and seeds; a seed that was scored before is replaced."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    if path.exists():
        with path.open(newline="") as file:
            rows = {row_key(row): row for row in csv.DictReader(file)}
    rows.update({row_key(asdict(score)): asdict(score) for score in scores})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Score)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[key] for key in sorted(rows))


def row_key(row: dict[str, Any]) -> tuple[str, ...]:
    return str(row["algo"]), str(row["env"]), str(row["seed"])


def keep(best: Score, arguments: argparse.Namespace) -> None:
    """Copy the best run's agent into the collection, with a score from fresh episodes on its card."""
    source = arguments.runs / best.run / "best_agent"
    agent = read_agent(source)
    result = evaluate(source, arguments.n_episodes, CARD_SEED)
    agent.card |= {
        "mean_return": result["mean_return"],
        "std_return": result["std_return"],
        "n_eval_episodes": result["n_episodes"],
    }
    kept = write_agent(arguments.into / best.algo / folder_name(best.env), agent)
    print(f"kept {kept}: {result['mean_return']:,.1f} over {result['n_episodes']} fresh episodes", flush=True)


if __name__ == "__main__":
    main()
