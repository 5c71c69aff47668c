"""How the policy's parameters are distributed, every so many steps."""

from __future__ import annotations

from zoo.algorithms.callback import Callback, Training
from zoo.training.trackers import Trackers


class HistogramCallback(Callback):
    """Hands the policy's parameters to the trackers every ``every`` environment steps."""

    def __init__(self, every: int, trackers: Trackers) -> None:
        self.every = every
        self.trackers = trackers

    def on_steps(self, algorithm: Training) -> None:
        """Hand them on."""
        self.trackers.histograms(algorithm.get_parameters(), algorithm.num_timesteps)
