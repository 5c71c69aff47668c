"""Measure what masks of valid actions cost: PPO2 with them and without, in turns, in the same environment.

    python scripts/measure_masks.py
    python scripts/measure_masks.py --rounds 7 --seconds 8 --compile

The environment is CartPole, whose `ActionMasker` allows everything; without masks nobody asks it. Each
measurement is a process of its own, after a warm-up, on one thread. The time is that which the processor gave
it, so that other programs matter little. Prints one JSON object: the steps per second of each turn, their
medians, and the share of the speed without masks that is left with them.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

N_ENVS = 8
PPO2_ON_CARTPOLE: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 256,
    "n_epochs": 20,
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "learning_rate": 1e-3,
    "ent_coef": 0.0,
}
EVERYTHING = np.ones(2, np.bool_)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--seconds", type=float, default=5.0, help="time of one measurement after warm-up")
    parser.add_argument("--compile", action="store_true", help="compile the updates")
    parser.add_argument("--one", choices=("masked", "unmasked"), help="measure one of them, once, here")
    options = parser.parse_args()
    if options.one is not None:
        print(steps_per_second(options.one == "masked", options.seconds, compile=options.compile))
        return
    turns: dict[str, list[float]] = {"masked": [], "unmasked": []}
    for _ in range(options.rounds):
        for name, speeds in turns.items():
            speeds.append(measured_apart(name, options.seconds, compile=options.compile))
    medians = {name: statistics.median(speeds) for name, speeds in turns.items()}
    share = medians["masked"] / medians["unmasked"]
    print(json.dumps({"steps_per_second": turns, "medians": medians, "masked / unmasked": share}, indent=2))


def measured_apart(name: str, seconds: float, *, compile: bool) -> float:
    command = [sys.executable, __file__, "--one", name, "--seconds", str(seconds)]
    done = subprocess.run([*command, *["--compile"] * compile], capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def steps_per_second(mask_actions: bool, seconds: float, *, compile: bool) -> float:
    from zoo import PPO2
    from zoo.envs import ActionMasker, make_vec_env

    def make() -> Any:
        import gymnasium as gym

        return ActionMasker(gym.make("CartPole-v1"), lambda env: EVERYTHING)

    envs = make_vec_env(make, N_ENVS, seed=0, check=False, mask_actions=mask_actions)
    model = PPO2("MlpPolicy", envs, seed=0, compile=compile, threads=1, **PPO2_ON_CARTPOLE)
    model.learn(20 * N_ENVS * PPO2_ON_CARTPOLE["n_steps"])
    done, started = 0, time.process_time()
    while time.process_time() - started < seconds:
        steps = 10 * N_ENVS * PPO2_ON_CARTPOLE["n_steps"]
        model.learn(steps, reset_num_timesteps=False)
        done += steps
    return done / (time.process_time() - started)


if __name__ == "__main__":
    main()
