"""What comes out of a study: the best values as a tuned file, every trial in a table, and a page of plots."""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from zoo.config.composing import compose
from zoo.config.environment_values import without_variables
from zoo.files import atomic
from zoo.files.cells import csv_text
from zoo.files.plain_data import to_yaml
from zoo.files.printing import one_line
from zoo.tuning.finals import Ranked, best_trials, has_values, ranking, values_of
from zoo.tuning.plan import Plan
from zoo.tuning.report import how_ended, write_report
from zoo.tuning.shared_study import GOES_ON, SharedStudy, counted
from zoo.tuning.space import put_at, value_at
from zoo.tuning.study import quiet_optuna

ROWS_SHOWN = 10

TUNED_SECTIONS = ("algo", "env", "policy", "memory")
TUNED_VALUES = ("n_timesteps", "n_envs")
LABELS = ("name", "preset")


@dataclass
class Result:
    """What came out of a study so far."""

    plan: Plan
    trials: list[FrozenTrial]
    """Those that count, in the order in which they began."""
    ranking: list[Ranked]
    """The best trials by how they did on fresh seeds; empty if they were not trained again."""
    best: FrozenTrial | None
    best_file: Path | None
    """The best values, as ``zoo train tuned=PATH`` takes them."""
    trials_file: Path
    report_file: Path | None
    remarks: list[str]

    @property
    def is_complete(self) -> bool:
        """Whether all trials that were asked for have ended."""
        n_ended = sum(trial.state.is_finished() for trial in self.trials)
        return n_ended >= int(self.plan.config["n_trials"])


def result_of(plan: Plan, shared: SharedStudy) -> Result:
    """Rank what there is; write ``best.yaml``, ``trials.csv`` and ``report.html`` into the study's folder."""
    with quiet_optuna():
        everything = shared.trials()
        ranked = ranking(plan, shared)
        best = _best(plan, shared, everything, ranked)
        best_file = None if best is None else _write_best(plan, best, ranked, len(counted(everything)))
        trials_file = plan.folder / "trials.csv"
        atomic.write_text(trials_file, _as_csv(plan, everything, ranked))
        report, remark = write_report(plan, shared.study)
    return Result(
        plan, counted(everything), ranked, best, best_file, trials_file, report, [remark] if remark else []
    )


def table(result: Result) -> str:
    """Return the best trials as lines of text."""
    ranks = {each.number: each for each in result.ranking}
    complete = [trial for trial in result.trials if trial.state == TrialState.COMPLETE]
    descending = result.plan.objective.directions[0] == "maximize"
    by_value = sorted(complete, key=lambda trial: trial.values[0], reverse=descending)
    best_first = [*ranks, *(trial.number for trial in by_value if trial.number not in ranks)][:ROWS_SHOWN]
    trials = {trial.number: trial for trial in result.trials}
    rows = [["trial", *result.plan.objective.names, "on fresh seeds", "values"]]
    for number in best_first:
        trial, rank = trials[number], ranks.get(number)
        scores = [f"{each:,.6g}" for each in trial.values]
        rows.append([str(number), *scores, _fresh(rank), _spelled(trial, result.plan)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = [
        "  ".join([*(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
    return "\n".join(lines)


def counts(result: Result) -> str:
    """Return how many trials ended how, and why those failed that did."""
    lines = [how_ended(result.trials)]
    failed = [trial for trial in result.trials if trial.state == TrialState.FAIL]
    for trial in failed[-3:]:
        lines.append(f"trial {trial.number} failed: {one_line(trial.user_attrs.get('reason', ''))}")
    return "\n".join(lines)


def _fresh(rank: Ranked | None) -> str:
    if rank is None:
        return ""
    spread = "n/a" if rank.interval is None else "{:,.6g}, {:,.6g}".format(*rank.interval)
    failed = f", {rank.n_failed} failed" if rank.n_failed else ""
    return f"{rank.score:,.6g} [{spread}]{failed}"


def _spelled(trial: FrozenTrial, plan: Plan) -> str:
    if not has_values(trial, plan):
        return "not of this study's space"
    return " ".join(f"{path}={_flow(value)}" for path, value in values_of(trial, plan).items())


def _flow(value: Any) -> str:
    return one_line(value if isinstance(value, str) else json.dumps(value))


def _best(
    plan: Plan, shared: SharedStudy, trials: list[FrozenTrial], ranked: list[Ranked]
) -> FrozenTrial | None:
    if ranked:
        return trials[ranked[0].number]
    return next(iter(best_trials(plan, shared)), None)


def _write_best(plan: Plan, best: FrozenTrial, ranked: list[Ranked], n_trials: int) -> Path:
    values = values_of(best, plan)
    path = plan.folder / "best.yaml"
    config = without_variables(plan.config_of_trial(values, 0, plan.folder))
    header = "".join(f"# {line}\n" for line in _source(plan, best, ranked, n_trials))
    atomic.write_text(path, header + to_yaml(_as_tuned(plan, config)))
    return path


def _source(plan: Plan, best: FrozenTrial, ranked: list[Ranked], n_trials: int) -> Iterator[str]:
    scores = ", ".join(
        f"{name} {value:,.6g}" for name, value in zip(plan.objective.names, best.values or (), strict=False)
    )
    today = datetime.date.today().isoformat()
    where = f"trial {best.number} of {n_trials} of the study {plan.full_name}"
    yield f"Found by zoo tune on {today}: {where}, {scores}."
    if ranked:
        first, n_seeds = ranked[0], len(ranked[0].samples)
        what = "mean" if plan.objective.ranks_by_mean else "interquartile mean"
        spread = (
            "no interval"
            if first.interval is None
            else "95 % interval {:,.6g} … {:,.6g}".format(*first.interval)
        )
        yield f"On {n_seeds} fresh seed{'s' * (n_seeds > 1)}: {what} {first.score:,.6g}, {spread}."


def _as_tuned(plan: Plan, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what differs from the algorithm's defaults, as a tuned file says it."""
    usual: Any = compose("train", [f"algo='{plan.algo}'", f"env='{plan.env}'", "tuned=none"])
    tuned: dict[str, Any] = {}
    policy = config["policy"]["name"]
    if policy != usual["policy"]["name"]:
        usual = compose(
            "train", [f"algo='{plan.algo}'", f"env='{plan.env}'", "tuned=none", f"policy={policy}"]
        )
        tuned["defaults"] = [{"override /policy": policy}]
    tuned |= {key: config[key] for key in TUNED_VALUES}
    for section in TUNED_SECTIONS:
        changed = _changed(config.get(section) or {}, usual.get(section) or {})
        changed = {key: value for key, value in changed.items() if section != "algo" or key not in LABELS}
        if changed:
            tuned[section] = changed
    for path in plan.space.dimensions:  # also what came out as usual
        put_at(tuned, path, value_at(config, path))
    return tuned


def _changed(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is not as usual; a mapping that is none usually is given as a whole."""
    changed: dict[str, Any] = {}
    for key, value in values.items():
        was = usual.get(key)
        if isinstance(value, Mapping) and isinstance(was, Mapping):
            inner = _changed(value, was)
            changed |= {key: inner} if inner else {}
        elif value != was or key not in usual:
            changed[key] = value
    return changed


def _as_csv(plan: Plan, trials: list[FrozenTrial], ranked: list[Ranked]) -> str:
    paths = list(plan.space.dimensions)
    ranks = {each.number: (place, each) for place, each in enumerate(ranked, 1)}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            *(
                "trial",
                "state",
                *plan.objective.names,
                "steps",
                "seconds",
                "started",
                "reason",
                "goes_on_from",
            ),
            *("origin", "rank", "fresh_score", "fresh_low", "fresh_high", *paths, "runs"),
        ]
    )
    for trial in trials:
        values = values_of(trial, plan) if has_values(trial, plan) else {}
        place, rank = ranks.get(trial.number, ("", None))
        fresh = ("", "", "") if rank is None else (rank.score, *(rank.interval or ("", "")))
        told = trial.user_attrs
        scores = list(trial.values or ()) + [""] * (len(plan.objective.names) - len(trial.values or ()))
        started = "" if trial.datetime_start is None else trial.datetime_start.isoformat(timespec="seconds")
        writer.writerow(
            [
                *(
                    trial.number,
                    trial.state.name.lower(),
                    *scores,
                    told.get("steps", ""),
                    told.get("seconds", ""),
                    started,
                ),
                *(_text(told.get("reason")), told.get(GOES_ON, ""), _text(told.get("origin"))),
                *(place, *fresh, *(_cell(values[path]) if path in values else "" for path in paths)),
                _text(told.get("runs")),
            ]
        )
    return text.getvalue()


def _cell(value: Any) -> str:
    return csv_text(value) if isinstance(value, str) else _flow(value)


def _text(told: Any) -> str:
    """Return a text, or several, for a cell; others may have written it."""
    several = told if isinstance(told, list) else [] if told is None else [told]
    return csv_text(" ".join(map(str, several)), 10_000)
