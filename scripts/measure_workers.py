"""Steps per second of one worker and of several, on an environment whose step keeps a core busy for a while.

    python scripts/measure_workers.py --step-us 300 --workers 1 2 --repetitions 3

Takes turns, and prints the median of each, and how many times the first one it is: by the clock, and by the
seconds that the first worker has computed, which other processes on the machine hardly change.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv


class Busy(CartPoleEnv):
    """CartPole whose step takes BUSY_US microseconds of this process's own time, whoever else runs."""

    def step(self, action: Any) -> Any:
        end = time.thread_time_ns() + 1000 * int(os.environ["BUSY_US"])
        while time.thread_time_ns() < end:
            pass
        return super().step(action)  # type: ignore[no-untyped-call]


if "Busy-v0" not in gym.registry:  # the first worker runs this file, and imports it
    gym.register("Busy-v0", "measure_workers:Busy", max_episode_steps=500)


def speed(n_workers: int, n_timesteps: int, arguments: list[str]) -> tuple[float, float]:
    """Train once with so many workers; return the steps per second, and per second of computing."""
    import zoo

    with tempfile.TemporaryDirectory() as folder:
        config = zoo.compose(
            "train",
            [
                *("algo=ppo2", "env=measure_workers:Busy-v0", "tuned=none", "env.check=false", "seed=0"),
                *(f"workers={n_workers}", f"n_timesteps={n_timesteps}", f"runs_dir={folder}", "n_envs=4"),
                *("compile=false", "threads=1", "callbacks=none", "logger=none", "progress_bar=false"),
                *("verbose=0", *arguments),
            ],
        )
        before = time.process_time()
        run = zoo.train(config).run
        computed = time.process_time() - before
        record = json.loads(Path(run.record).read_text())
        return float(record["steps_per_second"]), record["timesteps"] / computed


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--step-us", type=int, default=300, help="microseconds of a step")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--timesteps", type=int, default=20_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("settings", nargs="*", help="of zoo train, such as algo.n_steps=256")
    asked = parser.parse_args()
    os.environ["BUSY_US"] = str(asked.step_us)
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    speeds: dict[int, list[tuple[float, float]]] = {n: [] for n in asked.workers}
    for _ in range(asked.repetitions):
        for n_workers, found in speeds.items():
            found.append(speed(n_workers, asked.timesteps, asked.settings))
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"step of {asked.step_us} µs, {asked.timesteps:,} steps, load {load}")
    medians = {
        n: [statistics.median(each) for each in zip(*found, strict=True)] for n, found in speeds.items()
    }
    first = medians[asked.workers[0]]
    for n_workers, (by_clock, by_computing) in medians.items():
        ratios = f"{by_clock / first[0]:.2f} times, {by_computing / first[1]:.2f} by computing"
        print(f"{n_workers} workers: {by_clock:,.0f} steps/s; {ratios}")


if __name__ == "__main__":
    main()
