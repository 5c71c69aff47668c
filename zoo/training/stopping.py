"""Ending a run early: it is good enough, it no longer gets better, or it has seen enough episodes."""

from __future__ import annotations

from typing import Any

from zoo.algorithms.callback import Callback, Training
from zoo.envs.monitor import EpisodeRecord
from zoo.training.eval_callback import EvalCallback


class StopTrainingOnRewardThreshold(Callback):
    """Ends the run after an evaluation whose mean return is at least ``reward_threshold``.

    It stands after ``evaluation`` in the list of callbacks.
    """

    def __init__(self, evaluation: EvalCallback, reward_threshold: float) -> None:
        self.evaluation = evaluation
        self.reward_threshold = reward_threshold
        self.every = evaluation.every

    def on_steps(self, algorithm: Training) -> None:
        """Compare the latest evaluation."""
        latest = self.evaluation.last
        if latest is None or algorithm.stop_reason is not None:
            return
        if latest.mean >= self.reward_threshold:
            algorithm.request_stop(
                f"mean return {latest.mean:.4g} has reached the threshold {self.reward_threshold:g}"
            )


class StopTrainingOnNoModelImprovement(Callback):
    """Ends the run after more than ``max_no_improvement_evals`` evaluations in a row without a better mean.

    The first ``min_evals`` evaluations don't count. It stands after ``evaluation`` in the list of callbacks.
    """

    def __init__(self, evaluation: EvalCallback, max_no_improvement_evals: int, min_evals: int = 0) -> None:
        self.evaluation = evaluation
        self.max_no_improvement_evals = max_no_improvement_evals
        self.min_evals = min_evals
        self.every = evaluation.every
        self._n_seen = 0
        self._n_without = 0
        self._best: float | None = None

    def on_steps(self, algorithm: Training) -> None:
        """Count the latest evaluation."""
        if self.evaluation.n_evaluations == self._n_seen or self.evaluation.last is None:
            return
        self._n_seen = self.evaluation.n_evaluations
        mean = self.evaluation.last.mean
        if self._best is None or mean > self._best:
            self._best, self._n_without = mean, 0
        elif self._n_seen > self.min_evals:
            self._n_without += 1
        if self._n_without > self.max_no_improvement_evals and algorithm.stop_reason is None:
            algorithm.request_stop(
                f"no better mean return than {self._best:.4g} in {self._n_without} evaluations"
            )

    def state(self) -> dict[str, Any]:
        """Return what was counted."""
        return {"n_seen": self._n_seen, "n_without": self._n_without, "best": self._best}

    def load_state(self, values: dict[str, Any]) -> None:
        """Go on counting from there."""
        self._n_seen, self._n_without = values["n_seen"], values["n_without"]
        self._best = values["best"]


class StopTrainingOnMaxEpisodes(Callback):
    """Ends the run after ``max_episodes`` episodes of all environments together."""

    def __init__(self, max_episodes: int) -> None:
        self.max_episodes = max_episodes

    def on_episode(self, algorithm: Training, episode: EpisodeRecord) -> None:
        """Count it."""
        if algorithm.n_episodes >= self.max_episodes and algorithm.stop_reason is None:
            algorithm.request_stop(f"{algorithm.n_episodes:,} episodes are done")
