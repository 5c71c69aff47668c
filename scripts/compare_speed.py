"""Compare training speed: the same work on Zoo, Stable-Baselines3 and SBX, in turn, in one run.

    make speed
    .venv/bin/python scripts/compare_speed.py --work ppo,dqn --rounds 5 --seconds 10

Every measurement is a process of its own (`measure_speed.py`), one at a time; the systems take turns in each
round, so that a machine that slows down slows all of them. Measured is the wall clock of training with all
that a real run has on: episode monitor, CSV and TensorBoard loggers, an evaluation of five episodes each
interval. Imports, compilation and everything before the end of the first interval are left out.

In the first round each system shows in two tries which of the numbers of threads in `--threads` it runs
faster with, and keeps it; the fastest try is its first measurement. Prints a table of medians with their
ranges and ratios, and writes the measurements as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from measure_speed import FOR_GPUS, PEERS, SYSTEMS, WORKS, systems_for
from rich.console import Console
from rich.table import Table

Measurements = dict[tuple[str, str], list[dict[str, Any]]]

TRIES = 2
"""Measurements with each number of threads before one is chosen; one alone may be a noisy neighbour's."""

USUAL = [work for work in WORKS if work not in FOR_GPUS]

MEASURE = Path(__file__).with_name("measure_speed.py")


def main() -> None:
    arguments = parse_arguments()
    contestants = [
        (work, system)
        for work in arguments.work
        for system in arguments.systems
        if system in systems_for(work)
    ]
    measurements = measured_in_turns(contestants, arguments)
    console = Console(width=max(Console().width, 110))
    console.print(table(measurements, arguments.work, arguments.systems))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(summary(measurements, arguments), indent=2) + "\n")
    console.print(f"every measurement: {arguments.output}")


def measured_in_turns(contestants: list[tuple[str, str]], arguments: argparse.Namespace) -> Measurements:
    measurements: Measurements = {contestant: [] for contestant in contestants}
    for turn in range(arguments.rounds):
        for contestant in contestants:
            if turn == 0:
                result = measured_with_best_threads(*contestant, arguments)
            else:
                threads = measurements[contestant][0]["threads"]
                result = measured(*contestant, threads, arguments.seconds, seed=turn)
            measurements[contestant].append(result)
            report(f"round {turn + 1}/{arguments.rounds}", result)
    return measurements


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=names_among(WORKS), default=USUAL, help=",".join(WORKS))
    parser.add_argument("--systems", type=names_among(SYSTEMS), default=list(SYSTEMS), help=",".join(SYSTEMS))
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each system at each work")
    parser.add_argument("--seconds", type=float, default=10.0, help="time of one measurement after warm-up")
    parser.add_argument(
        "--threads",
        type=lambda text: [int(number) for number in text.split(",")],
        default=[1, 2],
        help="numbers of threads that each system may choose from; 0: the system's own choice (default: 1,2)",
    )
    parser.add_argument("--output", type=Path, default=Path("runs/speed.json"))
    return parser.parse_args()


def names_among(known: Any) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(known)}")
        return names

    return parse


def measured_with_best_threads(work: str, system: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the system with each number of threads; return what it does with the one it keeps."""
    n_tries = TRIES if len(arguments.threads) > 1 else 1
    numbers = arguments.threads * n_tries  # in turns
    tries = [measured(work, system, threads, arguments.seconds, seed=0) for threads in numbers]
    if len(tries) > 1:
        for result in tries:
            report("threads", result)
    return max(tries, key=lambda result: float(result["steps_per_second"]))


def measured(work: str, system: str, threads: int, seconds: float, seed: int) -> dict[str, Any]:
    command = [sys.executable, str(MEASURE), "--work", work, "--system", system]
    command += ["--threads", str(threads), "--seconds", str(seconds), "--seed", str(seed)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nended with status {finished.returncode}:\n{finished.stderr}")
    result: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return result


def report(stage: str, result: dict[str, Any]) -> None:
    print(
        f"{stage:>12}  {result['work']:>4}  {result['system']:<13} {result['threads']} threads "
        f"{result['steps_per_second']:>10,.0f} steps/s  ({result['steps']:,} steps in "
        f"{result['seconds']:.1f} s after {result['warm_up_seconds']:.1f} s)",
        flush=True,
    )


def speeds(measurements: Measurements, work: str, system: str) -> list[float]:
    return [float(result["steps_per_second"]) for result in measurements.get((work, system), [])]


def table(measurements: Measurements, works: list[str], systems: list[str]) -> Table:
    """Return medians and ranges in steps per second, with the ratio to each peer."""
    peers = [system for system in systems if system in PEERS]
    shown = Table(title="environment steps per second: median (range) and ratio of medians")
    for heading in ("work", "system", "threads", "median", "min – max"):
        shown.add_column(heading, justify="left" if heading in ("work", "system") else "right")
    for peer in peers:
        shown.add_column(f"× {peer}", justify="right")
    for work in works:
        for system in systems:
            own = speeds(measurements, work, system)
            if not own:
                continue
            median = statistics.median(own)
            row = [work, system, str(measurements[work, system][0]["threads"])]
            row += [f"{median:,.0f}", f"{min(own):,.0f} – {max(own):,.0f}"]
            for peer in peers:
                theirs = speeds(measurements, work, peer)
                ratio = f"{median / statistics.median(theirs):.2f}" if theirs and system != peer else "–"
                row.append(ratio)
            shown.add_row(*row)
        shown.add_section()
    return shown


def summary(measurements: Measurements, arguments: argparse.Namespace) -> dict[str, Any]:
    medians = {
        work: {
            system: statistics.median(own)
            for system in arguments.systems
            if (own := speeds(measurements, work, system))
        }
        for work in arguments.work
    }
    return {
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": {"cpus": os.cpu_count(), "processor": processor(), "python": platform.python_version()},
        "versions": {name: found for name in PACKAGES if (found := installed_version(name))},
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "median_steps_per_second": medians,
        "measurements": [result for results in measurements.values() for result in results],
    }


PACKAGES = ("zoo", "torch", "numpy", "gymnasium", "stable-baselines3", "sb3-contrib", "sbx-rl", "jax")


def installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor() -> str:
    """Return the processor's name as Linux tells it, else as Python knows it."""
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
