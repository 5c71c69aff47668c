"""The result of a study: the best values as a tuned file, every trial in a table, and a page of plots."""

from __future__ import annotations

import datetime
import html
import importlib.util
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from zoo.config.compose import compose
from zoo.config.environment_values import as_written
from zoo.core import atomic
from zoo.core.notebook import as_html
from zoo.core.plain_data import flat, to_yaml, value_at
from zoo.core.printing import csv_lines, one_line
from zoo.tuning.reevaluate import RankedTrial, best_trials, ranking, values_of
from zoo.tuning.space import put_at
from zoo.tuning.study import DIED, REASON, Plan, SharedStudy, counted, quiet_optuna, retry_of

ROWS_SHOWN = 10

TUNED_SECTIONS = ("algo", "env", "policy", "replay")
TUNED_VALUES = ("n_timesteps", "n_envs")
LABELS = ("algo.name", "algo.preset")

PLOTS = {
    "optimization_history": "History",
    "param_importances": "Importance",
    "parallel_coordinate": "Parallel coordinates",
    "slice": "Slices",
    "intermediate_values": "While trials ran",
}
"""Optuna's plots, and their headings."""


@dataclass(repr=False)
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
    """The page of plots; None without plotly, or with too few trials."""

    def __repr__(self) -> str:
        return f"{counts(self)}\n{table(self)}\nbest: {self.best_file}"

    def _repr_html_(self) -> str:
        return as_html(repr(self))


def result_of(plan: Plan, shared: SharedStudy) -> Result:
    """Return the result so far, and write its three files into the study's folder."""
    with quiet_optuna():
        everything = shared.trials()
        trials, ranked = counted(everything), ranking(plan, shared)
        best = [everything[trial.number] for trial in ranked] or best_trials(shared, 1)
        best_file = _write_best(plan, best[0], ranked, len(trials)) if best else None
        trials_file = plan.folder / "trials.csv"
        atomic.write_text(trials_file, _as_csv(plan, everything, ranked))
        report_file = _write_report(plan, shared)
    return Result(plan, trials, ranked, best[0] if best else None, best_file, trials_file, report_file)


def table(result: Result) -> str:
    """Return the best trials as lines of text."""
    fresh = {trial.number: f", on fresh seeds {_fresh(trial)}" for trial in result.ranking}
    order = {number: place for place, number in enumerate(fresh)}
    complete = [trial for trial in result.trials if trial.state == TrialState.COMPLETE]
    complete.sort(key=lambda trial: (order.get(trial.number, len(order)), -trial.values[0]))
    wrapper = textwrap.TextWrapper(
        get_terminal_size().columns,
        subsequent_indent=" " * 12,
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines = []
    for trial in complete[:ROWS_SHOWN]:
        values = " ".join(f"{path}={_as_flow(value)}" for path, value in values_of(trial).items())
        score = f"{trial.values[0]:,.6g}{fresh.get(trial.number, '')}"
        lines.append(wrapper.fill(f"trial {trial.number:>4}  {score}  {values}"))
    return "\n".join(lines)


def counts(result: Result) -> str:
    """Return how many trials ended how, and why those failed that did."""
    failed = [trial for trial in result.trials if trial.state == TrialState.FAIL]
    reasons = [f"trial {trial.number} failed: {_reason(trial)}" for trial in failed[-3:]]
    return "\n".join([_how_ended(result.trials), *reasons])


def _how_ended(trials: Sequence[FrozenTrial]) -> str:
    names = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
    numbers = {name: sum(trial.state.name == state for trial in trials) for state, name in names.items()}
    return ", ".join(f"{n} {name}" for name, n in numbers.items() if n) or "no trial has ended"


def _fresh(rank: RankedTrial) -> str:
    spread = "one seed" if rank.interval is None else "{:,.6g}, {:,.6g}".format(*rank.interval)
    failed = f", {rank.n_failed} failed" if rank.n_failed else ""
    return f"{rank.score:,.6g} [{spread}]{failed}"


def _as_flow(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _reason(trial: FrozenTrial) -> str:
    """Return why a trial failed, or was ended early."""
    return str(trial.user_attrs.get(REASON, DIED if trial.state == TrialState.FAIL else ""))


def _write_best(plan: Plan, best: FrozenTrial, ranked: Sequence[RankedTrial], n_trials: int) -> Path:
    path, score = plan.folder / "best.yaml", f"{plan.objective} {best.values[0]:,.6g}"
    config = as_written(plan.config_of_trial(values_of(best), 0, plan.folder))
    where = f"trial {best.number} of {n_trials} of the study {plan.full_name}"
    fresh = [f"# On {len(rank.samples)} fresh seeds: {_fresh(rank)}.\n" for rank in ranked[:1]]
    header = f"# Found by zoo tune on {datetime.date.today()}: {where}, {score}.\n{''.join(fresh)}"
    atomic.write_text(path, header + to_yaml(_as_tuned(plan, config)))
    return path


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
    sections = ({key: values.get(key) or {} for key in TUNED_SECTIONS} for values in (config, defaults))
    now, default = (dict(flat(values)) for values in sections)
    for path, value in now.items():
        if path not in (*TUNED_SECTIONS, *LABELS) and (path not in default or default[path] != value):
            put_at(tuned, path, value)
    for path in plan.space.dimensions:  # also values equal to the defaults
        put_at(tuned, path, value_at(config, path))
    return tuned


def _as_csv(plan: Plan, trials: Sequence[FrozenTrial], ranked: Sequence[RankedTrial]) -> str:
    ranks = {trial.number: [place, trial.score] for place, trial in enumerate(ranked, 1)}
    columns = ["trial", "state", plan.objective, "seconds", "reason", "goes_on_from", "origin", "rank"]
    lines: list[Sequence[Any]] = [[*columns, "fresh_score", *plan.space.dimensions, "runs"]]
    for trial in trials:
        attributes, score = trial.user_attrs, trial.values[0] if trial.values else None
        seconds = trial.duration and trial.duration.total_seconds()
        line = [trial.number, trial.state.name.lower(), score, seconds, _reason(trial), retry_of(trial)]
        line += [attributes.get("origin"), *ranks.get(trial.number, [None, None])]
        values = attributes.get("values", {})
        line += [_as_flow(values[path]) if path in values else None for path in plan.space.dimensions]
        lines.append([*line, " ".join(attributes.get("runs", []))])
    return csv_lines(lines)


def _write_report(plan: Plan, shared: SharedStudy) -> Path | None:
    """Write ``report.html`` into the study's folder; return its path, None if there is nothing to draw."""
    complete = [trial for trial in shared.trials() if trial.state == TrialState.COMPLETE]
    if importlib.util.find_spec("plotly") is None or len(complete) < 2:
        return None
    title = html.escape(f"{plan.algo} on {plan.env}: study {plan.name}")
    head = f'<meta charset="utf-8"><title>{title}</title><link rel="icon" href="data:,">'
    body = (
        f"<h1>{title}</h1><p>{_how_ended(counted(shared.trials()))}</p>{''.join(_plots(plan, shared.study))}"
    )
    path = plan.folder / "report.html"
    atomic.write_text(path, f"<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>\n")
    return path


def _plots(plan: Plan, study: optuna.Study) -> Iterator[str]:
    """Yield each plot as HTML; the first one includes plotly's script."""
    from optuna import visualization

    name: dict[str, Any] = {"target_name": plan.objective}
    importance = {"evaluator": optuna.importance.PedAnovaImportanceEvaluator()}
    options = {"param_importances": name | importance, "intermediate_values": {}}
    has_script = False
    for plot, heading in PLOTS.items():
        try:
            figure = getattr(visualization, f"plot_{plot}")(study, **options.get(plot, name))
            drawn = figure.to_html(full_html=False, include_plotlyjs=not has_script)
            has_script = True
        except (ValueError, RuntimeError) as error:
            drawn = html.escape(one_line(error))
        yield f"<h2>{heading}</h2>{drawn}"
