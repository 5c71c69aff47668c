"""Compare the speed of two checkouts: the same trainings with each, in turn, in one run.

    git worktree add ../before some_commit
    .venv/bin/python scripts/compare_checkouts.py --old ../before
    .venv/bin/python scripts/compare_checkouts.py --old ../before --works ppo2,sac --rounds 5

Every training is a whole `zoo train` with that checkout's tuned file, compiled, in a process of its own, one
at a time. In each round old and new take turns, so that a machine that slows down slows both. Counted are the
environment steps a second of the later part of the run, by the clock in its `progress.csv`: compilation lies
before it. Before the first round each trains once uncounted, which fills the compiler's cache. Prints
medians, ranges and the ratio of medians.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parents[1]

WORKS = {
    "ppo2": "algo=ppo2 env=CartPole-v1 n_timesteps=300_000",
    "a2c": "algo=a2c env=CartPole-v1 n_timesteps=400_000",
    "dqn": "algo=dqn env=CartPole-v1 n_timesteps=60_000",
    "sac": "algo=sac env=Pendulum-v1 n_timesteps=4_000",
    "td3": "algo=td3 env=Pendulum-v1 n_timesteps=4_000 algo.learning_starts=100",
    "recurrent_ppo": "algo=recurrent_ppo env=CartPole-v1 n_timesteps=40_000",
    "trpo": "algo=trpo env=Pendulum-v1 n_timesteps=150_000",
    "pong": "algo=ppo2 env=ALE/Pong-v5 n_timesteps=12_288",
}
"""What is trained; all else comes from the tuned files, and the evaluations are those of every run."""

COMMON = ["seed=1", "device=cpu", "compile=true", "verbose=0", "progress_bar=false", "logger=csv"]
WARM_UP = 0.4
"""The part of a run that does not count."""


def main() -> None:
    arguments = parse_arguments()
    checkouts = {"old": arguments.old.resolve(), "new": arguments.new.resolve()}
    table = Table(title="environment steps per second: median (range) and ratio of medians")
    for heading in ("work", "old", "new", "new / old"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    for work in arguments.works:
        speeds: dict[str, list[float]] = {"old": [], "new": []}
        for number in range(arguments.rounds + 1):
            for name in sorted(checkouts, reverse=bool(number % 2)):  # none is always the first
                speed = measured(work, checkouts[name], arguments.threads)
                if number:
                    speeds[name].append(speed)
                label = f"round {number}" if number else "warm-up"
                print(f"{label:>8}  {work:<14} {name}  {speed:>10,.0f} steps/s", flush=True)
        old, new = (statistics.median(speeds[name]) for name in ("old", "new"))
        table.add_row(work, shown(speeds["old"]), shown(speeds["new"]), f"{new / old:.2f}")
    Console().print(table)


def parse_arguments() -> argparse.Namespace:
    def works(text: str) -> list[str]:
        if unknown := [name for name in text.split(",") if name not in WORKS]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(WORKS)}")
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--old", type=Path, required=True, help="the checkout to compare with")
    parser.add_argument("--new", type=Path, default=REPOSITORY, help="this one, if no other is named")
    parser.add_argument("--works", type=works, default=list(WORKS), help=",".join(WORKS))
    parser.add_argument("--rounds", type=int, default=3, help="trainings of each checkout that count")
    parser.add_argument("--threads", default="auto", help="threads of an update")
    return parser.parse_args()


def measured(work: str, checkout: Path, threads: str) -> float:
    """Train once with a checkout; return the environment steps a second after the warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "zoo", "train", *WORKS[work].split(), *COMMON, f"threads={threads}"]
        finished = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(checkout), "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode != 0:
            raise SystemExit(f"{checkout}: {' '.join(command)}\nended with {finished.stderr}")
        (log,) = Path(folder).glob("runs/**/progress.csv")
        with log.open() as file:
            rows = [row for row in csv.DictReader(file) if row["time/time_elapsed"]]
    marks = [(float(row["time/total_timesteps"]), float(row["time/time_elapsed"])) for row in rows]
    last_step, last_time = marks[-1]
    first_step, first_time = next(mark for mark in marks if mark[0] >= WARM_UP * last_step)
    return (last_step - first_step) / (last_time - first_time)


def shown(speeds: list[float]) -> str:
    return f"{statistics.median(speeds):,.0f} ({min(speeds):,.0f} – {max(speeds):,.0f})"


if __name__ == "__main__":
    main()
