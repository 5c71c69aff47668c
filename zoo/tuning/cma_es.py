"""CMA-ES without pickles: where the evolution stands is found anew from the trials, not kept in the storage.

Optuna's sampler keeps its optimizer as a pickled object in the storage, and loads what it finds there:
whoever can write into a study could run code in each process that goes on with it. The optimizer is a
function of the trials of each generation alone, so here it is told these once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna._transform import _SearchSpaceTransform
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


class CmaEsSampler(optuna.samplers.CmaEsSampler):
    """Optuna's CMA-ES, which neither loads a pickled object nor stores one; made anew for each trial."""

    _space: _SearchSpaceTransform
    _direction: StudyDirection

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return what the optimizer draws for a trial."""
        if search_space:
            self._space = _SearchSpaceTransform(
                search_space, transform_step=not self._with_margin, transform_0_1=True
            )
            self._direction = study.direction
        return super().sample_relative(study, trial, search_space)

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> Any:
        """Return the optimizer after all generations that are complete, which Optuna then asks."""
        optimizer = self._init_optimizer(self._space, self._direction)
        sign = 1 if self._direction == StudyDirection.MINIMIZE else -1
        while True:
            found = self._get_solution_trials(completed_trials, optimizer.generation)
            if len(found) < optimizer.population_size:
                return optimizer
            of_generation = found[: optimizer.population_size]
            optimizer.tell([(self._point(trial), sign * trial.values[0]) for trial in of_generation])

    def _get_solution_trials(self, trials: list[FrozenTrial], generation: int) -> list[FrozenTrial]:
        """Return the trials of a generation that the optimizer drew."""
        found = super()._get_solution_trials(trials, generation)
        return [trial for trial in found if trial.values and self._point(trial) is not None]

    def _point(self, trial: FrozenTrial) -> np.ndarray[Any, Any] | None:
        """Return what the optimizer drew for a trial, in its own coordinates; None for what it never drew."""
        if not self._with_margin:
            names = self._space._search_space
            return self._space.transform(trial.params) if names.keys() <= trial.params.keys() else None
        try:
            point = np.asarray(trial.system_attrs.get("x_for_tell"), np.float64)
        except (TypeError, ValueError):
            return None
        is_inside = point.shape == (len(self._space.bounds),) and bool(np.all(np.abs(point) <= FARTHEST))
        return point if is_inside else None


FARTHEST = 1e6
"""Coordinates of points lie around 0 and 1; any farther one was not drawn."""
