"""What a training that misses its threshold counts, and what one seed does not say."""

from __future__ import annotations

import numpy as np
import pytest
from small_studies import plan_of

from zoo.experiment.evaluation import Evaluation
from zoo.tuning.objective import TrainingResult, steps_to
from zoo.tuning.reevaluate import score_of


def best_return(score: float) -> TrainingResult:
    training = TrainingResult(1000)
    training.add(1000, Evaluation(np.full(2, score), np.ones(2, np.int64)))
    return training


@pytest.mark.parametrize("threshold", [475.0, 0.0, -1e-12, -200.0])
def test_training_that_misses_a_threshold_counts_more_the_farther_it_stays_away(threshold: float) -> None:
    counted = [steps_to(threshold, best_return(threshold - missing)) for missing in (0.01, 5, 500, 1e6)]
    assert counted == sorted(set(counted))
    assert 1000 < counted[0] < counted[-1] <= 2000


def test_score_on_several_fresh_seeds_has_an_interval_and_on_one_has_none() -> None:
    objective = plan_of().objective
    score, interval = score_of([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]], objective)
    assert interval is not None
    assert interval[0] < score < interval[1]
    assert score_of([[1.0, 2.0, 3.0]], objective) == (2.0, None)
