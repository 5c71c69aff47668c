"""The result of a study: the best values as a tuned file, every trial in a table, and a page of plots."""

from __future__ import annotations

import datetime
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from zoo.config.compose import compose
from zoo.config.environment_values import as_written
from zoo.core import atomic
from zoo.core.plain_data import to_yaml, value_at
from zoo.core.printing import csv_lines, one_line
from zoo.tuning.plan import Plan
from zoo.tuning.reevaluate import RankedTrial, best_trials, ranking, values_of
from zoo.tuning.space import put_at
from zoo.tuning.study import DIED, REASON, SharedStudy, counted, quiet_optuna, retry_of

ROWS_SHOWN = 10

TUNED_SECTIONS = ("algo", "env", "policy", "replay")
TUNED_VALUES = ("n_timesteps", "n_envs")
LABELS = ("name", "preset")

PLOTS = {
    "optimization_history": "History",
    "param_importances": "Importance",
    "parallel_coordinate": "Parallel coordinates",
    "slice": "Slices",
}
"""Optuna's plots of each objective, and their headings."""

MIN_TRIALS = 2
"""Complete trials that a plot needs."""


@dataclass
class Result:
    """The result of a study so far."""

    plan: Plan
    trials: list[FrozenTrial]
    """Those that count, by number."""
    ranking: list[RankedTrial]
    """The best trials by their scores on fresh seeds; empty without reevaluation."""
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
    """Return the result so far, and write its three files into the study's folder."""
    with quiet_optuna():
        everything = shared.trials()
        ranked = ranking(plan, shared)
        found = [everything[ranked[0].number]] if ranked else best_trials(plan, shared)[:1]
        best = found[0] if found else None
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
        rows.append([str(number), *scores, _fresh_score(rank), _values_text(trial)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = [
        "  ".join([*(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
    return "\n".join(lines)


def how_ended(trials: Sequence[FrozenTrial]) -> str:
    """Return how many of these trials ended how."""
    names = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
    numbers = {name: sum(trial.state.name == state for trial in trials) for state, name in names.items()}
    return ", ".join(f"{n} {name}" for name, n in numbers.items() if n) or "no trial has ended"


def counts(result: Result) -> str:
    """Return how many trials ended how, and why those failed that did."""
    lines = [how_ended(result.trials)]
    failed = [trial for trial in result.trials if trial.state == TrialState.FAIL]
    for trial in failed[-3:]:
        lines.append(f"trial {trial.number} failed: {_reason(trial)}")
    return "\n".join(lines)


def _fresh_score(rank: RankedTrial | None) -> str:
    if rank is None:
        return ""
    spread = "n/a" if rank.interval is None else "{:,.6g}, {:,.6g}".format(*rank.interval)
    failed = f", {rank.n_failed} failed" if rank.n_failed else ""
    return f"{rank.score:,.6g} [{spread}]{failed}"


def _values_text(trial: FrozenTrial) -> str:
    return " ".join(f"{path}={_as_flow(value)}" for path, value in values_of(trial).items())


def _as_flow(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _write_best(plan: Plan, best: FrozenTrial, ranked: list[RankedTrial], n_trials: int) -> Path:
    values = values_of(best)
    path = plan.folder / "best.yaml"
    config = as_written(plan.config_of_trial(values, 0, plan.folder))
    header = "".join(f"# {line}\n" for line in header_lines(plan, best, ranked, n_trials))
    atomic.write_text(path, header + to_yaml(_as_tuned(plan, config)))
    return path


def header_lines(plan: Plan, best: FrozenTrial, ranked: list[RankedTrial], n_trials: int) -> Iterator[str]:
    pairs = zip(plan.objective.names, best.values, strict=False)
    scores = ", ".join(f"{name} {value:,.6g}" for name, value in pairs)
    today = datetime.date.today().isoformat()
    where = f"trial {best.number} of {n_trials} of the study {plan.full_name}"
    yield f"Found by zoo tune on {today}: {where}, {scores}."
    if ranked:
        first, n_seeds = ranked[0], len(ranked[0].samples)
        what = "mean" if plan.objective.ranks_by_mean else "interquartile mean"
        spread = "no interval"
        if first.interval is not None:
            spread = "95 % interval {:,.6g} … {:,.6g}".format(*first.interval)
        yield f"On {n_seeds} fresh seed{'s' * (n_seeds > 1)}: {what} {first.score:,.6g}, {spread}."


def _as_tuned(plan: Plan, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tuned file's content: the values that differ from the algorithm's defaults."""
    overrides = [f"algo='{plan.algo}'", f"env='{plan.env}'", "tuned=none"]
    defaults: Any = compose("train", overrides)
    tuned: dict[str, Any] = {}
    policy = config["policy"]["name"]
    if policy != defaults["policy"]["name"]:
        defaults = compose("train", [*overrides, f"policy={policy}"])
        tuned["defaults"] = [{"override /policy": policy}]
    tuned |= {key: config[key] for key in TUNED_VALUES}
    for section in TUNED_SECTIONS:
        changed = _changed(config.get(section) or {}, defaults.get(section) or {})
        changed = {key: value for key, value in changed.items() if section != "algo" or key not in LABELS}
        if changed:
            tuned[section] = changed
    for path in plan.space.dimensions:  # also values equal to the defaults
        put_at(tuned, path, value_at(config, path))
    return tuned


def _changed(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that differ from ``usual``, a mapping as a whole where ``usual`` has none."""
    changed: dict[str, Any] = {}
    for key, value in values.items():
        was = defaults.get(key)
        if isinstance(value, Mapping) and isinstance(was, Mapping):
            inner = _changed(value, was)
            changed |= {key: inner} if inner else {}
        elif value != was or key not in defaults:
            changed[key] = value
    return changed


def _as_csv(plan: Plan, trials: list[FrozenTrial], ranked: list[RankedTrial]) -> str:
    paths = list(plan.space.dimensions)
    names = plan.objective.names
    columns = (
        *("trial", "state", *names, "steps", "seconds", "started", "reason", "goes_on_from", "origin"),
        *("rank", "fresh_score", "fresh_low", "fresh_high", *paths, "runs"),
    )
    places = {each.number: (place, each) for place, each in enumerate(ranked, 1)}
    lines: list[Sequence[Any]] = [columns]
    for trial in trials:
        attributes = trial.user_attrs
        row: dict[str, Any] = {
            "trial": trial.number,
            "state": trial.state.name.lower(),
            **dict(zip(names, trial.values or (), strict=False)),
            **{key: attributes[key] for key in ("steps", "seconds", "origin") if key in attributes},
            "started": trial.datetime_start and trial.datetime_start.isoformat(timespec="seconds"),
            "reason": _reason(trial),
            "goes_on_from": retry_of(trial),
            **{
                path: _as_flow(value) for path, value in attributes.get("values", {}).items() if path in paths
            },
            "runs": " ".join(attributes.get("runs", [])),
        }
        if trial.number in places:
            place, rank = places[trial.number]
            low, high = rank.interval or (None, None)
            row |= {"rank": place, "fresh_score": rank.score, "fresh_low": low, "fresh_high": high}
        lines.append([row.get(column) for column in columns])
    return csv_lines(lines)


def _reason(trial: FrozenTrial) -> str:
    """Return why a trial failed, or was ended early."""
    return str(trial.user_attrs.get(REASON, DIED if trial.state == TrialState.FAIL else ""))


# -- the page of plots ----------------------------------------------------------------------------------


def write_report(plan: Plan, study: Study) -> tuple[Path | None, str | None]:
    """Write ``report.html`` into the study's folder; return its path, or why there is none."""
    if importlib.util.find_spec("plotly") is None:
        return None, "the page of plots needs: pip install plotly"
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(complete) < MIN_TRIALS:
        return None, None
    path = plan.folder / "report.html"
    atomic.write_text(path, _page(plan, study))
    return path, None


def _page(plan: Plan, study: Study) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True
    )
    return environment.get_template("report.html.j2").render(
        title=f"{plan.algo} on {plan.env}: study {plan.name}",
        objectives=", ".join(plan.objective.names),
        trials=how_ended(counted(study.get_trials(deepcopy=False))),
        plots=_plots(study, plan.objective.names),
    )


def _plots(study: Study, names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each plot's heading, HTML and error; the first one's HTML includes plotly's script."""
    from optuna import visualization

    wanted: list[tuple[str, str, dict[str, Any]]] = []
    for plot, heading in PLOTS.items():
        for index, name in enumerate(names):
            options: dict[str, Any] = {"target": _value(index), "target_name": name}
            if plot == "param_importances":
                options["evaluator"] = optuna.importance.PedAnovaImportanceEvaluator()
            wanted.append((plot, heading if len(names) == 1 else f"{heading}: {name}", options))
    if len(names) == 1:
        wanted.append(("intermediate_values", "While trials ran", {}))
    else:
        wanted.insert(0, ("pareto_front", "Best compromises", {"target_names": names}))
    script = True
    for plot, heading, options in wanted:
        drawn, problem = "", ""
        try:
            figure = getattr(visualization, f"plot_{plot}")(study, **options)
            drawn = figure.to_html(full_html=False, include_plotlyjs=script, config={"displaylogo": False})
            script = False
        except (ValueError, RuntimeError) as error:
            problem = one_line(error)
        yield heading, drawn, problem


def _value(index: int) -> Callable[[FrozenTrial], float]:
    return lambda trial: float(trial.values[index])
