"""Measure how long a replay buffer takes to give a batch: Zoo's in turns with Stable-Baselines3's.

    python scripts/measure_sampling.py
    python scripts/measure_sampling.py --work hindsight --rounds 30 --output sampling.json

Prints one JSON object: microseconds a batch, medians over all batches, and their ratio. Both memories hold
the same transitions and give tensors. Stable-Baselines3 has no prioritised replay, so Zoo's uniform
replay of the same memory is what that is compared with. ``draw`` is the choice of places alone.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import statistics  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from gymnasium import spaces  # noqa: E402

from zoo.buffers.arrays import (  # noqa: E402
    ArraySpec,
    Transition,
    observation_spec,
    transform,
)
from zoo.buffers.config import PrioritizedConfig  # noqa: E402
from zoo.buffers.hindsight import Hindsight  # noqa: E402
from zoo.buffers.prioritized import PrioritizedSampler  # noqa: E402
from zoo.buffers.replay import ReplayBuffer  # noqa: E402
from zoo.envs.adapter import Step  # noqa: E402
from zoo.envs.goals import GoalOutcomes  # noqa: E402
from zoo.envs.toys import BitFlipping  # noqa: E402
from zoo.envs.vec_env import make_vec_env  # noqa: E402

BATCH = 256
N_BITS = 15
OBSERVED, ACTED = 4, 1
"""Numbers that an observation and an action have where there are no goals."""

Timed = dict[str, Callable[[], Any]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", default=",".join(WORKS), help=f"some of {','.join(WORKS)}")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each system")
    parser.add_argument("--batches", type=int, default=200, help="batches in a turn")
    parser.add_argument("--output", type=Path, help="file for the JSON, beside printing it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured = {
        name: medians(WORKS[name](), options.rounds, options.batches) for name in options.work.split(",")
    }
    text = json.dumps({"batch": BATCH, "microseconds": measured}, indent=2)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")


def medians(timed: Timed, rounds: int, n_batches: int) -> dict[str, float]:
    """Return the median time of each in microseconds, taken in turns, and the peer's over Zoo's.

    Every batch is timed alone, so that what else the machine does moves no median.
    """
    times: dict[str, list[float]] = {name: [] for name in timed}
    for function in timed.values():
        for _ in range(n_batches):
            function()
    for _ in range(rounds):
        for name, function in timed.items():
            for _ in range(n_batches):
                start = time.perf_counter()
                function()
                times[name].append((time.perf_counter() - start) * 1e6)
    found = {name: round(statistics.median(each), 1) for name, each in times.items()}
    if "sb3" in found:
        found["ratio"] = round(found["sb3"] / found["zoo"], 2)
    return found


def uniform(capacity: int = 1_000_000, n_envs: int = 100) -> Timed:
    """Both draw uniformly from a full memory of vectors."""
    from stable_baselines3.common.buffers import ReplayBuffer

    memory = ReplayBuffer(capacity, n_envs, vector_specs())
    box = spaces.Box(-1, 1, (OBSERVED,), np.float32)
    theirs = ReplayBuffer(capacity, box, spaces.Box(-1, 1, (ACTED,), np.float32), "cpu", n_envs=n_envs)
    for transition, following in vectors(capacity // n_envs, n_envs):
        memory.add(transition)
        actions, outcome = transition.columns["actions"], transition.outcome
        theirs.add(
            transition.observations, following, actions, outcome.rewards, transition.ended, [{}] * n_envs
        )
    rng = np.random.default_rng(0)
    return {"zoo": lambda: tensors(memory.sample(rng, (BATCH,))), "sb3": lambda: theirs.sample(BATCH)}


def prioritized(capacity: int = 1_000_000, n_envs: int = 100) -> Timed:
    """Zoo's alone, with priorities as various as errors are, and given new ones after each batch."""
    sampler = PrioritizedSampler(PrioritizedConfig(), capacity // n_envs, n_envs)
    memory = ReplayBuffer(capacity, n_envs, vector_specs(), sampler=sampler)
    plain = ReplayBuffer(capacity, n_envs, vector_specs())
    for transition, _ in vectors(capacity // n_envs, n_envs):
        memory.add(transition)
        plain.add(transition)
    rng = np.random.default_rng(0)
    for _ in range(200):
        sampler.sample(rng, (20_000,), memory, 0.5)
        sampler.update_priorities(rng.lognormal(0, 1, 20_000))
    errors = rng.lognormal(0, 1, (1000, BATCH))

    def learned() -> None:
        sampler.sample(rng, (BATCH,), memory, 0.5)
        sampler.update_priorities(errors[rng.integers(1000)])

    return {
        "draw": lambda: sampler.sample(rng, (BATCH,), memory, 0.5),
        "draw and learned": learned,
        "zoo": lambda: tensors(memory.sample(rng, (BATCH,), 0.5)),
        "zoo uniform": lambda: tensors(plain.sample(rng, (BATCH,))),
    }


def hindsight(capacity: int = 100_000, n_envs: int = 4) -> Timed:
    """Both give future goals to four of five transitions of bit flipping, continuous actions, in 4 envs."""
    from stable_baselines3 import HerReplayBuffer
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = make_vec_env("Zoo/BitFlippingContinuous-v0", n_envs, kwargs={"n_bits": N_BITS})
    space, actions = env.single_observation_space, env.single_action_space
    specs = {"observations": observation_spec(space), "actions": ArraySpec((N_BITS,), np.float32)}
    memory = ReplayBuffer(capacity, n_envs, specs, relabelling=Hindsight(GoalOutcomes(env)))
    their_env = DummyVecEnv([lambda: BitFlipping(N_BITS, continuous=True) for _ in range(n_envs)])
    assert isinstance(space, spaces.Dict)
    theirs = HerReplayBuffer(capacity, space, actions, their_env, "cpu", n_envs=n_envs)
    for transition, following in goals(capacity // n_envs, n_envs):
        memory.add(transition)
        outcome = transition.outcome
        theirs.add(
            *(transition.observations, following, transition.columns["actions"]),
            *(outcome.rewards, transition.ended, [{}] * n_envs),
        )
    rng = np.random.default_rng(0)
    return {"zoo": lambda: tensors(memory.sample(rng, (BATCH,))), "sb3": lambda: theirs.sample(BATCH)}


WORKS: dict[str, Callable[[], Timed]] = {
    "uniform": uniform,
    "prioritized": prioritized,
    "hindsight": hindsight,
}


def tensors(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: transform(torch.from_numpy, column) for name, column in batch.items()}


def vector_specs() -> dict[str, Any]:
    return {"observations": ArraySpec((OBSERVED,), np.float32), "actions": ArraySpec((ACTED,), np.float32)}


def vectors(n_steps: int, n_envs: int) -> Any:
    """Give experiences of episodes of 200 steps, and what was observed after each."""
    rng = np.random.default_rng(0)
    for step in range(n_steps):
        observations, following = rng.normal(size=(2, n_envs, OBSERVED)).astype(np.float32)
        actions = rng.normal(size=(n_envs, ACTED)).astype(np.float32)
        ended = np.full(n_envs, step % 200 == 199)
        yield of_step(observations, actions, following, ended), following


def goals(n_steps: int, n_envs: int) -> Any:
    """Give experiences of episodes of as many steps as there are bits, and what was observed after each."""
    rng = np.random.default_rng(0)
    for step in range(n_steps):
        bits = rng.integers(0, 2, (3, n_envs, N_BITS)).astype(np.float32)
        before, after = (
            {"observation": each, "achieved_goal": each, "desired_goal": bits[2]} for each in bits[:2]
        )
        actions = rng.uniform(-1, 1, (n_envs, N_BITS)).astype(np.float32)
        yield of_step(before, actions, after, np.full(n_envs, step % N_BITS == N_BITS - 1)), after


def of_step(observations: Any, actions: Any, following: Any, ended: Any) -> Transition:
    """Return one step of all environments, of which some were cut short."""
    n_envs = len(actions)
    finished = np.flatnonzero(ended)
    final = transform(lambda array: array[finished], following) if len(finished) else None
    none = np.zeros(n_envs, np.bool_)
    outcome = Step(
        *(following, -np.ones(n_envs, np.float32), none, ended),
        *(None, None, None, None),  # type: ignore[arg-type]
        finished=finished,
        final_observations=final,
    )
    return Transition({"observations": observations, "actions": actions}, observations, outcome)


if __name__ == "__main__":
    main()
