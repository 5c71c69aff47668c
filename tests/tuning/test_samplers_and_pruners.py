"""Each sampler and pruner of `conf/tune` is Optuna's of that kind, and behaves as that one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.study import Study
from optuna.trial import TrialState

import zoo
from zoo.core.plain_data import parse_yaml
from zoo.errors import ZooError
from zoo.tuning.samplers import make_pruner, make_sampler
from zoo.tuning.study import quiet_optuna

CONF = Path(zoo.__file__).parents[1] / "conf" / "tune"
STEPS = (100, 200, 300, 400)


def section(kind: str, name: str, **settings: Any) -> dict[str, Any]:
    text = (CONF / kind / f"{name}.yaml").read_text().replace("${n_startup_trials}", "4")
    return {**parse_yaml(text.encode()), **settings}


def searched(name: str, n_trials: int, worth: float = 1.0, **settings: Any) -> list[dict[str, Any]]:
    """Return the trials of two numbers whose best is at (0.3, 0.3), or the worst with ``worth`` -1."""
    with quiet_optuna():
        study = optuna.create_study(direction="maximize")
        for number in range(n_trials):
            study.sampler = make_sampler(section("sampler", name, **settings), 1, 100 + number)
            trial = study.ask()
            x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
            study.tell(trial, -worth * ((x - 0.3) ** 2 + (y - 0.3) ** 2))
    return [trial.params for trial in study.trials]


@pytest.mark.parametrize("name", ["random", "qmc"])
def test_sampler_without_model_ignores_scores(name: str) -> None:
    pytest.importorskip("scipy")
    assert searched(name, 8) == searched(name, 8, worth=-1)


@pytest.mark.parametrize(("name", "settings"), [("tpe", {}), ("gp", {}), ("cmaes", {"popsize": 4})])
def test_model_based_sampler_uses_scores(name: str, settings: Any) -> None:
    pytest.importorskip("cmaes" if name == "cmaes" else "scipy")
    for_one, for_other = (searched(name, 14, worth=worth, **settings) for worth in (1, -1))
    assert for_one[:4] == for_other[:4]
    assert for_one[5:] != for_other[5:]


def test_target_selects_any_optuna_sampler_or_pruner() -> None:
    brute = make_sampler({"_target_": "optuna.samplers.BruteForceSampler"}, 1, 2)
    assert isinstance(brute, optuna.samplers.BruteForceSampler)
    values = {"_target_": "optuna.pruners.ThresholdPruner", "lower": 3.0}
    assert isinstance(make_pruner(values, 100, 400), optuna.pruners.ThresholdPruner)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"_target_": "optuna.samplers.TPESampler", "n_startup_trails": 3}, "n_startup_trials"),
        ({"_target_": "optuna.samplers.TPESampler", "seed": 3}, "sampler.seed"),
        ({"_target_": "optuna.samplers.TPE"}, "optuna.samplers.TPE"),
        ({"_target_": "os.getcwd"}, "os.getcwd"),
        ({"_target_": "optuna.samplers.TPESampler", "n_startup_trials": "abc"}, "n_startup_trials=abc"),
        ({"_target_": "optuna.samplers.NSGAIISampler", "crossover_prob": 3.0}, "crossover"),
    ],
)
def test_sampler_that_optuna_does_not_take_is_told(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ZooError, match=named):
        make_sampler(values, 1, 2)


@pytest.mark.parametrize(
    ("name", "settings", "scores", "ended_at"),
    [
        ("none", {}, (50.0, 40.0, 30.0, 20.0), None),
        # Of the trials before, which have 0 … 90, 55 is better than half and worse than the best quarter.
        ("median", {"n_warmup_steps": 0}, (55.0,) * 4, None),
        ("median", {"n_warmup_steps": 0}, (40.0,) * 4, 100),
        ("median", {}, (40.0,) * 4, 200),  # after a fifth of 1,000 steps
        ("percentile", {"n_warmup_steps": 0}, (55.0,) * 4, 100),
        ("patient", {"patience": 1}, (1.0, 2.0, 3.0, 4.0), None),
        ("patient", {"patience": 1}, (20.0, 15.0, 10.0, 5.0), 300),
        # The best third at the rungs of 100 and 300 steps, and nothing between.
        ("successive_halving", {}, (95.0, 1.0, 1.0, 1.0), 300),
        ("successive_halving", {}, (65.0,) * 4, 100),
    ],
)
def test_pruner_ends_a_trial_where_only_it_would(
    name: str, settings: dict[str, Any], scores: tuple[float, ...], ended_at: int | None
) -> None:
    with quiet_optuna():
        study = study_with(name, 1000, **settings)
        for worth in range(0, 100, 10):
            ended(study, (float(worth),) * 4, may_end=False)
        assert ended(study, scores) == ended_at


def test_hyperband_has_brackets_that_prune_later() -> None:
    with quiet_optuna():
        study = study_with("hyperband", 900)
        for worth in range(60, 0, -1):
            ended(study, (float(worth),) * 4)
    first_ends = {trial.last_step for trial in study.trials if trial.state == TrialState.PRUNED}
    assert first_ends == {100, 300}


def study_with(pruner: str, last: int, **settings: Any) -> Study:
    made = make_pruner(section("pruner", pruner, **settings), 100, last)
    return optuna.create_study(direction="maximize", pruner=made)


def ended(study: Study, scores: tuple[float, ...], *, may_end: bool = True) -> int | None:
    """Run a trial with these evaluations; return at which step it was ended, None if it was not."""
    trial = study.ask()
    for step, score in zip(STEPS, scores, strict=True):
        trial.report(score, step)
        if trial.should_prune() and may_end:
            study.tell(trial, state=TrialState.PRUNED)
            return step
    study.tell(trial, scores[-1])
    return None
