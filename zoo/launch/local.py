"""The jobs of a multirun on this machine, each in a process of its own, which takes no other with it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from zoo.core.free_memory import usable_cores
from zoo.errors import ZooError
from zoo.launch.processes import JobRunner
from zoo.launch.sweep_folder import SweepFolder


class LocalLauncher:
    """The launcher ``hydra/launcher=local`` (one job after the other) and ``=joblib`` (side by side).

    ``n_jobs`` is the number of jobs at a time, -1 for one a core. Jobs side by side would print over each
    other: each prints to its log.
    """

    def __init__(self, folder: SweepFolder, function: str, n_jobs: int) -> None:
        if n_jobs < -1 or n_jobs == 0:
            raise ZooError(f"`hydra.launcher.n_jobs={n_jobs}` is neither -1 (one job a core) nor at least 1")
        self.folder, self.function, self.n_jobs = folder, function, n_jobs

    def run_jobs(self, numbers: Sequence[int]) -> bool:
        """Run jobs that the sweep has, and wait for all of them."""
        cores = usable_cores()
        at_once = min(len(numbers), self.n_jobs if self.n_jobs > 0 else cores)
        # Each job would take all cores for its threads.
        environment = {"OMP_NUM_THREADS": str(max(1, cores // at_once))} if at_once > 1 else {}
        runner = JobRunner(self.folder, self.function, environment)
        self.folder.queue(numbers)
        logs = [None if self.n_jobs == 1 else self.folder.path / f"{number}.log" for number in numbers]
        with runner.processes.handling_signals(), ThreadPoolExecutor(at_once) as pool:
            list(pool.map(runner.run_and_report, numbers, logs))
        return True
