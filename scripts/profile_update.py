"""Show where the time of an off-policy gradient step goes, eagerly or compiled.

    .venv/bin/python scripts/profile_update.py --work sac --threads 2
    .venv/bin/python scripts/profile_update.py --work dqn --threads 2 --compile

The work is that of `compare_speed.py`. Steps are timed without a profiler first; PyTorch's profiler then
divides them between kinds of operations, in the fastest of several rounds, because it slows some of them.
What it does not see (Python, autograd's bookkeeping, threads that wait for each other) is what is left of the
time without it; its own cost, about a microsecond an operation, is in the other rows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from measure_speed import SAME_AS_PEERS, WORKS
from rich.console import Console
from rich.table import Table

from zoo.optim.runtime import PRECISIONS

WARM_UP = 30
"""Gradient steps before anything is timed."""

ROUNDS = 7
"""Timed without the profiler, and again with it."""

KINDS = {
    "matrix products": ("::mm", "::addmm", "_mm_out", "_addmm_out", "blocked_product"),
    "optimizer, target": ("fused_adam", "::lerp", "foreach_add", "addcdiv"),
    "copies": ("::copy_", "::cat", "::stack", "::clone"),
}
OTHER_OPERATIONS = "activations, losses, gradients"
NOT_SEEN = "Python, bookkeeping, waiting"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--work", choices=["dqn", "qrdqn", "sac", "td3", "tqc", "ddpg"], required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--calls", type=int, default=100, help="gradient steps in a round")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    milliseconds, parts = profile(arguments)
    table = Table(title=f"{arguments.work}: {milliseconds:.2f} ms a gradient step")
    table.add_column("kind")
    table.add_column("ms", justify="right")
    table.add_column("calls", justify="right")
    for kind, (part, calls) in sorted(parts.items(), key=lambda item: -item[1][0]):
        table.add_row(kind, f"{part:.2f}", f"{calls:.0f}" if calls else "")
    Console().print(table)


def profile(arguments: argparse.Namespace) -> tuple[float, dict[str, tuple[float, float]]]:
    """Return milliseconds a gradient step, and for each kind of operation milliseconds and calls.

    The milliseconds are those of a model whose kernels say nothing to a profiler: to say it takes time.
    """
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    with timed_updates(arguments, is_watched=False) as (timed, _):
        milliseconds = statistics.median(timed() for _ in range(ROUNDS))
    profiles: list[tuple[float, int, Any]] = []
    with timed_updates(arguments, is_watched=True) as (timed, n_taken):
        for _ in range(ROUNDS):
            with profiler(activities=[ProfilerActivity.CPU]) as seen:
                seconds = timed()
            profiles.append((seconds, len(profiles), seen))
    return milliseconds, divided(min(profiles)[2], n_taken, milliseconds)


@contextmanager
def timed_updates(
    arguments: argparse.Namespace, *, is_watched: bool
) -> Iterator[tuple[Callable[[], float], int]]:
    """Give what takes many gradient steps and returns milliseconds for each, and how many they are."""
    model = trained_a_little(arguments, is_watched=is_watched)
    n_steps = model.config.gradient_steps
    calls = max(3, arguments.calls // n_steps)
    shape = (n_steps, model.config.batch_size)

    def update() -> None:
        model._learn_from(model._tensors(model.buffer.sample(model.rng, shape)), n_steps)

    def timed() -> float:
        started = time.perf_counter()
        for _ in range(calls):
            update()
        return (time.perf_counter() - started) / calls / n_steps * 1e3

    with model.runtime.in_force():
        for _ in range(max(3, WARM_UP // n_steps)):
            update()
        yield timed, calls * n_steps


def divided(seen: Any, n_taken: int, milliseconds: float) -> dict[str, tuple[float, float]]:
    """Divide the ``milliseconds`` of a step between kinds of operations, as a profile of many saw them."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in seen.key_averages():
        kind = kind_of(event.key)
        if kind is not None:
            sums[kind][0] += event.self_cpu_time_total / 1e3 / n_taken
            sums[kind][1] += event.count / n_taken
    parts = {kind: (part, count) for kind, (part, count) in sums.items()}
    parts[NOT_SEEN] = (max(0.0, milliseconds - sum(part for part, _ in parts.values())), 0.0)
    return parts


def kind_of(operation: str) -> str | None:
    """Return the kind of a profiled operation; None for what merely calls others."""
    for kind, names in KINDS.items():
        if any(name in operation for name in names):
            return kind
    is_operation = operation.startswith("aten::") or "cpp_fused" in operation
    return OTHER_OPERATIONS if is_operation else None


def trained_a_little(arguments: argparse.Namespace, *, is_watched: bool) -> Any:
    from zoo.algorithms.registry import algorithm_class

    if arguments.compile:
        from zoo.optim import compile

        compile.INDUCTOR_OPTIONS["cpp.enable_kernel_profile"] = is_watched
    work = WORKS[arguments.work]
    model = algorithm_class(arguments.work)(
        {"name": "MlpPolicy", "net_arch": work.net_arch},
        work.env,
        seed=0,
        device="cpu",
        compile=arguments.compile,
        precision=arguments.precision,
        threads=arguments.threads,
        **work.hyperparameters,
        **work.policy,
        **SAME_AS_PEERS[arguments.work],
    )
    return model.learn(work.hyperparameters["learning_starts"] + 2 * work.hyperparameters["train_freq"])


if __name__ == "__main__":
    main()
