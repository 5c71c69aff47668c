"""Studies: their trials, what fails and what is pruned, going on with one, storages, and the result."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import TrialState
from small_studies import begin_study, overrides, process_of, run_one_trial, run_study, sampling_objective

import zoo
from zoo.cli import status_of
from zoo.errors import ZooError
from zoo.experiment.evaluation import Evaluation
from zoo.tuning.objective import value_of
from zoo.tuning.reevaluate import score_of
from zoo.tuning.report import counts, result_of, table
from zoo.tuning.study import SharedStudy, Storage, counted, quiet_optuna, retry_of
from zoo.tuning.tune import Search

STUDY = Path("runs/tune/a2c/CartPole-v1/default")


def states(found: Search) -> list[str]:
    return [trial.state.name for trial in found.shared.trials()]


def seed_of(run: str) -> str:
    return Path(run).name.split("_")[1].removeprefix("s")


def one_trial(*more: str) -> None:
    """Begin a study in which one trial is done, without a training."""
    found = begin_study("n_trials=1", *more)
    assert run_one_trial(found, sampling_objective(found))


@pytest.mark.parametrize("storage", ["null", "journal"])
def test_same_command_goes_on_to_the_total(storage: str) -> None:
    settings = ("sampler=random", "pruner=none", f"storage={storage}")
    first = [trial.params for trial in run_study("n_trials=2", *settings).shared.trials()]
    found = run_study("n_trials=4", *settings)
    assert states(found) == ["COMPLETE"] * 4
    assert [trial.params for trial in found.shared.trials()[:2]] == first
    assert len({str(trial.params) for trial in found.shared.trials()}) == 4
    assert found.remarks == ["goes on: 2 of 4 trials are done"]
    assert (STUDY / ("study.journal" if storage == "journal" else "study.db")).is_file()


def test_trials_keep_their_runs_without_agents() -> None:
    trial = run_study("n_trials=1", "n_seeds=2").shared.trials()[0]
    runs = [Path(run) for run in trial.user_attrs["runs"]]
    assert len({run.name for run in runs}) == 2
    for run in runs:
        assert run.is_relative_to(STUDY / "trials")
        assert (run / "run.json").is_file()
        assert not (run / "agent").exists()
        assert not (run / "best_agent").exists()
    assert list(trial.intermediate_values) == [100]


PRUNED = """
import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Falling(gym.Env):
    '''Episodes of a step; what they return falls from one environment that is made to the next.'''

    made = 0
    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        type(self).made += 1
        self.worth = -float(self.made)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), self.worth, True, False, {}


gym.register("Falling-v0", Falling)
"""


def test_worse_trial_is_pruned(working_folder: Path) -> None:
    (working_folder / "falling.py").write_text(PRUNED)
    settings = ("env=falling:Falling-v0", "pruner=median", "n_startup_trials=1", "n_evaluations=4")
    found = run_study("n_trials=3", *settings, "pruner.n_warmup_steps=0", "sampler=random")
    assert states(found) == ["COMPLETE", "PRUNED", "PRUNED"]
    rows = list(csv.DictReader(result_of(found.plan, found.shared).trials_file.open()))
    trained = [json.loads((Path(row["runs"]) / "run.json").read_text())["timesteps"] for row in rows]
    assert trained[0] >= 200 > max(trained[1:])
    pruned = found.shared.trials()[1]
    assert list(pruned.intermediate_values) == [50]
    assert "pruned after 50 steps" in pruned.user_attrs["reason"]


class PrunesTheSecond(optuna.pruners.BasePruner):
    """Ends a trial when it is asked a second time."""

    n_asked = 0

    def prune(self, study: Any, trial: Any) -> bool:
        self.n_asked += 1
        return self.n_asked > 1


@pytest.mark.parametrize("objective", ["iqm", "mean_return"])
def test_only_first_seed_is_pruned_and_all_seeds_count(objective: str) -> None:
    """Its value is of the last evaluations of all its trainings together."""
    found = begin_study("n_trials=1", "n_seeds=2", f"objective={objective}", "callbacks.eval.n_episodes=4")
    process = process_of(found)
    process.shared.study.pruner = pruner = PrunesTheSecond()
    with quiet_optuna():
        process.work()
    (trial,) = found.shared.trials()
    assert (trial.state, pruner.n_asked) == (TrialState.COMPLETE, 1)
    returns = [np.load(Path(run) / "evaluations.npz")["results"][-1] for run in trial.user_attrs["runs"]]
    pooled = np.sort(np.concatenate(returns))
    assert len(pooled) == 8
    expected = pooled.mean() if objective == "mean_return" else pooled[2:6].mean()
    assert trial.value == pytest.approx(expected)
    assert trial.value != pytest.approx(returns[0].mean())


BREAKS = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv


class Breaks(CartPoleEnv):
    made = 0

    def __init__(self, first=0, last=0, how="ValueError('broken')"):
        super().__init__()
        Breaks.made += 1
        self.is_broken = first <= Breaks.made < last
        self.how = how

    def step(self, action):
        if self.is_broken:
            raise eval(self.how)
        return super().step(action)


gym.register("Breaks-v0", Breaks, max_episode_steps=50)
"""


@pytest.fixture
def broken(working_folder: Path) -> None:
    (working_folder / "breaks.py").write_text(BREAKS)
    import sys

    sys.modules.pop("breaks", None)


@pytest.mark.usefixtures("broken")
def test_failed_trial_has_reason_and_study_continues() -> None:
    how = "MemoryError('no room')"
    kwargs = f'env.kwargs={{first: 3, last: 6, how: "{how}"}}'
    found = run_study("env=breaks:Breaks-v0", "n_trials=3", "env.check=false", kwargs, "pruner=none")
    assert "FAIL" in states(found)
    assert states(found)[-1] == "COMPLETE"
    failed = next(trial for trial in found.shared.trials() if trial.state == TrialState.FAIL)
    assert "no room" in failed.user_attrs["reason"]
    assert "Traceback" in failed.user_attrs["traceback"]
    result = result_of(found.plan, found.shared)
    assert "no room" in counts(result)
    rows = list(csv.DictReader(result.trials_file.open()))
    assert all((Path(row["runs"]) / "run.json").is_file() for row in rows)
    assert [row["state"] for row in rows].count("fail") == states(found).count("FAIL")
    assert "no room" in next(row["reason"] for row in rows if row["state"] == "fail")


@pytest.mark.usefixtures("broken")
def test_three_failures_alike_in_a_row_end_the_study(capfd: pytest.CaptureFixture[str]) -> None:
    kwargs = "env.kwargs={first: 3, last: 1000}"
    found = begin_study("env=breaks:Breaks-v0", "n_trials=10", "env.check=false", kwargs)
    with quiet_optuna(), pytest.raises(ZooError, match="broken"):
        process_of(found).work()
    assert states(found) == ["FAIL"] * 3
    assert "Traceback" in capfd.readouterr().err


BREAKING = ("env=breaks:Breaks-v0", "env.check=false", "env.kwargs={first: 3, last: 1000}")
DIVERGING = ("space.algo.learning_rate.low=1e30", "space.algo.learning_rate.high=1e35")
EXAMPLES = [((*DIVERGING, "warm_start=false"), 5, 1), (BREAKING, 3, 2)]


@pytest.mark.parametrize(("settings", "n_failed", "status"), EXAMPLES)
@pytest.mark.usefixtures("broken")
def test_search_goes_on_after_divergence_alone(
    settings: tuple[str, ...], n_failed: int, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["tune", *overrides(*settings, "n_trials=5", "verbose=1")]) == status
    printed = capfd.readouterr()
    assert f"trials  {n_failed} failed" in printed.out
    assert ("no trial completed" in printed.err) == (status == 1)
    [path] = Path("runs/tune").rglob("trials.csv")
    assert [row["state"] for row in csv.DictReader(path.open())] == ["fail"] * n_failed


@pytest.mark.usefixtures("broken")
def test_broken_env_costs_no_trial() -> None:
    found = begin_study("env=breaks:Breaks-v0", "n_trials=10", "env.check=false", "env.kwargs={last: 1000}")
    with quiet_optuna(), pytest.raises(ZooError, match="broken"):
        process_of(found).work()
    assert states(found) == []
    assert not list(STUDY.parents[1].rglob("run.json"))


class Killed(BaseException):
    """As SIGKILL between two lines."""


@pytest.mark.parametrize(("storage", "end"), [("null", Killed), ("journal", KeyboardInterrupt)])
def test_interrupted_trial_is_retried_with_same_values(storage: str, end: type[BaseException]) -> None:
    settings = ("n_trials=2", "sampler=random", f"storage={storage}")
    found, other = begin_study(*settings), begin_study(*settings)
    queued = {"1 - algo.gamma": 0.05, "algo.n_steps": 7}
    drawn: list[dict[str, Any]] = []

    def ends(trial: optuna.Trial) -> float:
        trial.suggest_float("1 - algo.gamma", 0.0001, 0.1, log=True)  # and not yet what else was queued
        raise end

    def draws(trial: optuna.Trial) -> float:
        drawn.append(other.plan.space.suggest(trial, other.plan.base))
        return 1.0

    with quiet_optuna():
        found.shared.study.enqueue_trial(queued)
    with pytest.raises(end):
        run_one_trial(found, ends, "the-dead")
    assert run_one_trial(other, draws)
    assert run_one_trial(other, draws)
    assert not run_one_trial(other, draws)
    assert (drawn[0]["algo.gamma"], drawn[0]["algo.n_steps"]) == (0.95, 7)
    assert drawn[1] != drawn[0]
    trials = other.shared.trials()
    assert [trial.state.name for trial in trials] == ["FAIL", "COMPLETE", "COMPLETE"]
    assert [retry_of(trial) for trial in trials] == [None, 0, None]
    assert [trial.number for trial in counted(trials)] == [1, 2]


def test_no_trial_starts_after_the_time_is_up() -> None:
    found = begin_study("n_trials=5")
    with quiet_optuna():
        process_of(found, time.time() - 1).work()
    assert states(found) == []


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("n_timesteps=300", r"`n_timesteps` is 300 \(the study has 200\)"),
        ("space.algo.gamma.low=0.95", "space.algo.gamma"),
        ("~space.algo.gamma", "`space.algo.gamma` is not set"),
        ("objective=iqm", "objective"),
        ("algo.gamma=0.9", "`algo.gamma` is 0.9"),
        ("seed=2", r"`seed` is 2 \(the study has 1\)"),
        ("env.max_episode_steps=50", "env.max_episode_steps"),
    ],
)
def test_error_names_settings_that_differ_from_study(override: str, named: str) -> None:
    one_trial()
    with pytest.raises(ZooError, match=named):
        begin_study("n_trials=2", override)


def test_first_trial_has_the_tuned_files_values(working_folder: Path) -> None:
    (working_folder / "mine.yaml").write_text("algo: {gamma: 0.93, learning_rate: lin_2e-3, n_steps: 8}\n")
    found = begin_study("n_trials=1", "tuned=mine.yaml")
    assert run_one_trial(found, sampling_objective(found))
    values = found.shared.trials()[0].user_attrs["values"]
    wanted = {"algo.gamma": 0.93, "algo.learning_rate": "lin_0.002", "algo.n_steps": 8}
    assert {path: values[path] for path in wanted} == wanted
    assert found.remarks == ["first trial with the values of mine.yaml"]


@pytest.mark.parametrize(
    ("sampler", "pruner"),
    [
        ("cmaes", "successive_halving"),
        pytest.param("qmc", "patient", marks=pytest.mark.slow),
        pytest.param("gp", "hyperband", marks=pytest.mark.slow),
        pytest.param("tpe", "percentile", marks=pytest.mark.slow),
    ],
)
def test_samplers_and_pruners_work(sampler: str, pruner: str) -> None:
    if sampler == "cmaes":
        pytest.importorskip("cmaes")
    found = run_study("n_trials=4", f"sampler={sampler}", f"pruner={pruner}", "n_timesteps=60")
    assert set(states(found)) <= {"COMPLETE", "PRUNED"}
    assert len({str(trial.params) for trial in found.shared.trials()}) == 4


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("storage=postgresql+psycopg://me:secret@127.0.0.1:1/none", r"me:\*\*\*@"),
        ("storage=nosuch://me:secret@host/none", "nosuch"),
        ("storage=plain.txt", "is neither a file"),
        ("storage=/proc/study.db", "can't write into /proc"),
        ("storage=missing/study.db", "in a folder that is there"),
        ("sampler.n_ei=3", r"unknown key `sampler.n_ei`"),
        ("pruner.n_startup=3", r"unknown key `pruner.n_startup`"),
        ("callbacks.eval=null", "switched off"),
        ("n_jobs=0", "n_jobs=0"),
        ("study=../x", "is not a name"),
        ("timeout=2hh", "`timeout=2hh` is not a time; expected seconds, 30min or 2h"),
        ("timeout=0min", "`timeout=0min` is not a time"),
    ],
)
def test_mistake_is_told_in_one_line(override: str, message: str) -> None:
    with pytest.raises(ZooError, match=message) as raised:
        begin_study(override)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_best_trials_are_retrained_and_winner_is_used(capfd: pytest.CaptureFixture[str]) -> None:
    settings = ("sampler=random", "pruner=none", "top_k=2", "top_seeds=2", "n_trials=3", "verbose=1")
    found = run_study(*settings)
    assert capfd.readouterr().out.count("top ") == 4
    assert len(run_study(*settings).shared.trials()) == 3
    assert capfd.readouterr().out.count("top ") == 0
    result = result_of(found.plan, found.shared)
    assert len(result.ranking) == 2
    winner = result.ranking[0]
    assert winner.score >= result.ranking[1].score
    assert winner.interval[0] <= winner.score <= winner.interval[1]
    seeds = {seed_of(run) for each in result.ranking for run in each.runs}
    used = {seed_of(run) for trial in result.trials for run in trial.user_attrs["runs"]}
    assert len(seeds) == 2
    assert not seeds & used
    assert f"{winner.number}" in table(result).splitlines()[0]
    assert result.best_file is not None
    text = result.best_file.read_text()
    assert text.startswith("# Found by zoo tune on ")
    assert "2 fresh seeds: " in text
    seed = seed_of(winner.runs[0])
    trained = zoo.train(
        *("algo=a2c", "env=CartPole-v1", f"tuned={result.best_file}", f"seed={seed}", "compile=false"),
        *("threads=1", "callbacks=eval", "callbacks.eval.n_episodes=2", "callbacks.eval.every=100"),
        *("logger=none", "progress_bar=false"),
    )
    assert trained.evaluation is not None
    assert trained.evaluation.returns.tolist() == winner.samples[0]


def evaluation(score: float) -> Evaluation:
    return Evaluation(np.full(2, score), np.ones(2, np.int64))


def test_score_has_interval_with_several_seeds_only() -> None:
    score, interval = score_of([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]], "mean_return")
    assert interval is not None
    assert interval[0] < score < interval[1]
    assert score_of([[1.0, 2.0, 3.0]], "mean_return") == (2.0, None)


def test_objective_is_of_all_last_evaluations_together() -> None:
    successes = np.array([True, False])
    found = [evaluation(1.0), Evaluation(np.array([2.0, 100.0]), np.ones(2, np.int64), successes)]
    assert value_of("mean_return", found) == 26
    assert value_of("iqm", found) == 1.5
    assert value_of("success_rate", found[1:]) == 0.5
    with pytest.raises(ZooError, match="success"):
        value_of("success_rate", found)


@pytest.mark.parametrize("storage", ["null", "journal"])
def test_new_study_takes_no_trial_of_earlier_command(storage: str) -> None:
    first = begin_study("n_trials=1", f"storage={storage}")
    second = begin_study("n_trials=1", f"storage={storage}", "n_timesteps=300")
    with pytest.raises(ZooError, match="n_timesteps"):
        process_of(first)
    assert second.shared.trials() == []


def machine(name: str) -> SharedStudy:
    """Return the study as another machine sees it: they share a database with heartbeats, and no files."""
    folder = Path(name)
    folder.mkdir()
    signs = {"heartbeat_interval": 1, "grace_period": 2}
    stale = RetryHeartbeatStaleTrialCallback()
    server = RDBStorage("sqlite:///shared.db", heartbeat_stale_trial_callback=stale, **signs)
    study = optuna.create_study(study_name="shared", storage=server, load_if_exists=True)
    return SharedStudy(study, Storage(server, "shared.db", folder, is_file=False), 1, name)


def test_trial_without_heartbeat_is_rerun_elsewhere() -> None:
    drawn: list[float] = []

    def killed(trial: optuna.Trial) -> float:
        drawn.append(trial.suggest_float("x", 0, 1))
        raise Killed

    def run(trial: optuna.Trial) -> float:
        drawn.append(trial.suggest_float("x", 0, 1))
        return 1.0

    with quiet_optuna():
        one, other = machine("one"), machine("other")
        with pytest.raises(Killed):
            one.run_next(killed, lambda trial: None)
        assert not other.run_next(run, lambda trial: None), "it may still live"
        deadline = time.monotonic() + 30
        while not other.run_next(run, lambda trial: None):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        dead, again = other.trials()
    assert [dead.state.name, again.state.name] == ["FAIL", "COMPLETE"]
    assert retry_of(again) == dead.number
    assert drawn[0] == drawn[1]


URL = "postgresql+psycopg://me:secret@127.0.0.1:1/none"


def written() -> bytes:
    return b"".join(path.read_bytes() for path in Path().rglob("*") if path.is_file())


def test_sweep_refuses_password_before_writing(capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of(["tune", "-m", *overrides("worker=range(2)", f"storage='{URL}'")]) == 2
    told = capfd.readouterr().err
    assert "'storage=${oc.env:NAME}'" in told
    assert "secret" not in told
    assert list(Path().iterdir()) == []


def test_sweep_never_writes_password_of_variable(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_STORAGE", URL)
    variable = "storage=${oc.env:MY_STORAGE}"
    assert status_of(["tune", "-m", *overrides("worker=range(1)", variable)]) == 2
    told = capfd.readouterr()
    assert "can't reach the storage postgresql+psycopg://me:***@127.0.0.1:1/none" in told.err
    assert "secret" not in told.out + told.err
    assert variable.encode() in written()
    assert b"secret" not in written()


def test_search_prints_cost_and_slow_trials(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("zoo.tuning.study_process.SLOW_SECONDS", 0)
    found = run_study("verbose=1", "n_trials=1")
    assert "trial    0  under way: 100 of 200 steps\n" in capfd.readouterr().out
    rows = table(result_of(found.plan, found.shared)).splitlines()
    assert len(rows) > 1
    assert all(len(row) <= 60 for row in rows)
    assert status_of(["tune", *overrides("verbose=1", "n_trials=1")]) == 0  # it is done already
    assert "each trains 200 steps and 2 evaluations of 2 episodes\n" in capfd.readouterr().out
