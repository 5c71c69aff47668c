"""One of several data-parallel ranks: statistics, episodes, scalars and resets shared between updates.

All ranks collect and update. In between they exchange running statistics, the number of episodes that have
ended, and whether a signal came. Callbacks and loggers run in rank 0 only, which gathers the other ranks'
episodes and scalars when it needs them. A process that learns alone shares nothing.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from zoo.algorithms.saving import Generators, run_tensors
from zoo.envs.replay import worker_seed
from zoo.envs.transition import EpisodeRecord

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm
    from zoo.optim.workers import Workers

EPISODES, METRICS, RESET = "episodes", "metrics", "reset"


class DistributedContext:
    """The algorithm's link to the other ranks.

    ``orders`` maps names to methods that rank 0 can run on all ranks.
    """

    def __init__(self, algorithm: Algorithm, workers: Workers | None = None) -> None:
        self.algorithm: Algorithm = weakref.proxy(algorithm)  # no circle: an algorithm let go closes its envs
        self.workers = workers
        self.size = 1 if workers is None else workers.size
        self.orders: dict[str, Any] = {
            EPISODES: self._exchange_episodes,
            METRICS: self.mean_metrics,
            RESET: self.reset_all,
        }
        self.pending_episodes: list[EpisodeRecord] = []
        """Episodes that ended on this rank since `gather_episodes` last recorded them."""
        self._n_pending = 0

    @property
    def leads(self) -> bool:
        """Whether this is rank 0 of several ranks."""
        return self.workers is not None and self.workers.is_first

    def total(self, number: int) -> int:
        """Return the sum over all ranks; every rank has to call it."""
        return number if self.workers is None else int(self.workers.sum(number)[0])

    def rows(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the vectors (n,) of all ranks as (size, n); every rank has to call it."""
        return vector[np.newaxis] if self.workers is None else self.workers.gather_vectors(vector)

    def begin(self) -> None:
        """Start all ranks from rank 0's tensors and share statistics; a process alone shares none."""
        algorithm, normalizer = self.algorithm, self.algorithm.normalizer
        algorithm.runtime.shared_by = 1 if self.workers is None else self.workers.local_size
        if self.workers is None:
            if normalizer is not None:
                normalizer.stop_sharing()
            return
        if rank := self.workers.rank:
            algorithm.generators.load_state(Generators(worker_seed(algorithm.seed, rank)).state())
        tensors = run_tensors(algorithm.runner.state, algorithm.policy).values()
        self.workers.broadcast(
            [value.view(torch.uint8) if value.dtype == torch.bool else value for value in tensors]
        )
        if normalizer is not None:
            state = normalizer.state()
            self.workers.broadcast(
                [torch.from_numpy(np.atleast_1d(value)) for value in state["arrays"].values()]
            )
            normalizer.load_state(state)
            normalizer.share()

    # -- while it learns --------------------------------------------------------------------------------

    def share_early_statistics(self, before: int) -> None:
        """Share statistics whenever the number of steps, which was ``before``, comes to a power of two."""
        if self.workers is not None and self.algorithm.num_timesteps.bit_length() > before.bit_length():
            self.share_statistics()

    def share_statistics(self) -> None:
        normalizer = self.algorithm.normalizer
        if self.workers is not None and normalizer is not None:
            normalizer.merge_shared(self.workers.gather_vectors(normalizer.local_statistics()))
            self.algorithm.collector.renormalize()

    def meet_before_update(self, is_preempted: bool) -> bool:
        """Exchange statistics and counts before an update; return whether a signal came to any rank."""
        if self.workers is None:
            return is_preempted
        self.share_statistics()
        n_preempted, self._n_pending = map(int, self.workers.sum(is_preempted, len(self.pending_episodes)))
        return n_preempted > 0

    def is_to_stop(self, wanted: bool) -> bool:
        """Return whether training stops before the next update, as rank 0 decides."""
        return wanted if self.workers is None else self.workers.is_to_stop(wanted, self.orders)

    # -- episodes and scalars of all ranks --------------------------------------------------------------

    def gather_episodes(self) -> None:
        """Record the episodes of all ranks since the last call, rank by rank."""
        if self.workers is None or not self.leads or not self._n_pending:
            return
        self.workers.order(EPISODES)
        envs = self.algorithm.envs
        assert envs is not None
        for rank, (start, records) in enumerate(self._exchange_episodes()):
            for record in records:
                if rank:
                    record.env_index += rank * self.algorithm.n_envs
                    record.seconds += start - envs.start
                    if envs.monitor is not None:
                        envs.monitor.write(record)
                self.algorithm.record_episode(record)

    def _exchange_episodes(self) -> list[Any]:
        """Return each rank's episodes, and the time at which its clock started."""
        assert self.workers is not None
        assert self.algorithm.envs is not None
        records, self.pending_episodes, self._n_pending = self.pending_episodes, [], 0
        return self.workers.gather([self.algorithm.envs.start, records])

    def mean_metrics(self) -> dict[str, float]:
        """Return the means of scalars over the ranks that have recorded them since the last call."""
        means = self.algorithm.scalars.read()
        if self.workers is None:
            return means
        if self.leads:
            self.workers.order(METRICS)
        values = defaultdict(list)
        for metrics in self.workers.gather(means):
            for name, value in metrics.items():
                values[name].append(value)
        return {name: float(np.mean(numbers)) for name, numbers in values.items()}

    def reset_all(self) -> None:
        """Truncate all episodes and reset the environments of all ranks; share the statistics."""
        if self.workers is not None and self.leads:
            self.workers.order(RESET)
        self.algorithm.reset_own_envs()
        self.share_statistics()
