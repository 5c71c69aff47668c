"""Keeping agents as a run goes, each under the number of its environment steps."""

from __future__ import annotations

import shutil
from typing import Any

from zoo.agents.finding import kept_agents, kept_name
from zoo.algorithms.callback import Callback, Training
from zoo.training.eval_callback import EvalCallback, score_for_card
from zoo.training.problems import told
from zoo.training.run_folder import RunFolder


class KeepAgentsCallback(Callback):
    """Saves the agent every ``every`` environment steps, whole or not at all, into the run's ``agents``.

    One that ``evaluation`` has scored at the same step has its score on its card.
    """

    def __init__(self, run: RunFolder, *, every: int, evaluation: EvalCallback | None = None) -> None:
        self.run, self.every, self.evaluation = run, every, evaluation
        self._kept_at = 0

    def on_steps(self, algorithm: Training) -> None:
        """Save; what can't be written is told, and the run goes on."""
        with told("the run goes on, and keeps no agent of this step"):
            algorithm.save(
                self.run.kept_agents / kept_name(algorithm.num_timesteps), card=self._score(algorithm)
            )
            self._kept_at = algorithm.num_timesteps

    def state(self) -> dict[str, Any]:
        """Return the steps of the newest one."""
        return {"kept_at": self._kept_at}

    def load_state(self, values: dict[str, Any]) -> None:
        """Go back to there: what was kept later will be once more."""
        self._kept_at = values["kept_at"]
        for steps, folder in kept_agents(self.run.path).items():
            if steps > self._kept_at:
                shutil.rmtree(folder, ignore_errors=True)

    def _score(self, algorithm: Training) -> dict[str, Any]:
        evaluation = self.evaluation
        if (
            evaluation is None
            or evaluation.last is None
            or evaluation.evaluated_at != algorithm.num_timesteps
        ):
            return {}
        return score_for_card(evaluation.last)
