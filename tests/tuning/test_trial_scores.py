"""What a training that misses its threshold counts, and what one seed does not say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from optuna.trial import create_trial
from small_studies import plan_of

from zoo.experiment.evaluation import Evaluation
from zoo.tuning.objective import Training, steps_to
from zoo.tuning.reevaluate import Ranked, _score
from zoo.tuning.report import Result, _source, table


def best_return(score: float) -> Training:
    training = Training(1000)
    training.add(1000, Evaluation(np.full(2, score), np.ones(2, np.int64)))
    return training


@pytest.mark.parametrize("threshold", [475.0, 0.0, -1e-12, -200.0])
def test_training_that_misses_a_threshold_counts_more_the_farther_it_stays_away(threshold: float) -> None:
    counted = [steps_to(threshold, best_return(threshold - missing)) for missing in (0.01, 5, 500, 1e6)]
    assert counted == sorted(set(counted))
    assert 1000 < counted[0] < counted[-1] <= 2000


def ranked(*samples: list[float]) -> Ranked:
    plan = plan_of()
    found = Ranked(0, samples=list(samples))
    _score(found, plan.objective)
    trial = create_trial(value=1.0, user_attrs={"values": {}})
    trial.number = 0
    result = Result(plan, [trial], [found], trial, None, Path("trials.csv"), None, [])
    found.runs = [table(result).splitlines()[1], list(_source(plan, trial, [found], 1))[1]]
    return found


def test_several_fresh_seeds_have_one() -> None:
    found = ranked([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
    assert found.interval is not None
    assert found.interval[0] < found.score < found.interval[1]
