"""A study as one page: importance, history, parallel and slice plots; all that a browser needs is inside."""

from __future__ import annotations

import html
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from zoo.files import atomic
from zoo.files.printing import one_line
from zoo.tuning.plan import Plan
from zoo.tuning.shared_study import counted

PLOTS = ("optimization_history", "param_importances", "parallel_coordinate", "slice", "intermediate_values")
TITLES = {
    "optimization_history": "History",
    "param_importances": "Importance",
    "parallel_coordinate": "Parallel coordinates",
    "slice": "Slices",
    "intermediate_values": "While trials ran",
}
FEWEST_TRIALS = 2
"""Complete trials without which there is nothing to plot."""

STYLE = (
    "body{font-family:system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#222}"
    "h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}p{color:#555}"
)

Figure = Any


def write_report(plan: Plan, study: Study) -> tuple[Path | None, str | None]:
    """Write ``report.html`` into the study's folder; return its path, or why there is none."""
    if importlib.util.find_spec("plotly") is None:
        return None, "the page of plots needs: pip install plotly"
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(complete) < FEWEST_TRIALS:
        return None, None
    path = plan.folder / "report.html"
    atomic.write_text(path, _page(plan, study))
    return path, None


def how_ended(trials: Sequence[FrozenTrial]) -> str:
    """Return how many of these trials ended how."""
    names = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
    numbers = {name: sum(trial.state.name == state for trial in trials) for state, name in names.items()}
    return ", ".join(f"{n} {name}" for name, n in numbers.items() if n) or "no trial has ended"


def _page(plan: Plan, study: Study) -> str:
    title = f"{plan.algo} on {plan.env}: study {plan.name}"
    ended = how_ended(counted(study.get_trials(deepcopy=False)))
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{html.escape(', '.join(plan.objective.names))}. Trials: {ended}.</p>",
        *_sections(plan, study),
    ]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head>\n'
        f"<body>\n{chr(10).join(parts)}\n</body></html>\n"
    )


def _sections(plan: Plan, study: Study) -> Iterator[str]:
    """Give each plot under its heading; the first one brings the script that draws them all."""
    script: bool | str = True
    for heading, draw in _plots(plan, study):
        try:
            figure = draw()
        except (ValueError, RuntimeError) as error:
            yield f"<h2>{html.escape(heading)}</h2><p>{html.escape(one_line(error))}</p>"
            continue
        drawn = figure.to_html(full_html=False, include_plotlyjs=script, config={"displaylogo": False})
        script = False
        yield f"<h2>{html.escape(heading)}</h2>{drawn}"


def _plots(plan: Plan, study: Study) -> Iterator[tuple[str, Callable[[], Figure]]]:
    from optuna import visualization

    names = plan.objective.names
    if len(names) > 1:
        yield "Best compromises", lambda: visualization.plot_pareto_front(study, target_names=names)
    for plot in PLOTS:
        if plot == "intermediate_values":
            if len(names) == 1:
                yield TITLES[plot], lambda: visualization.plot_intermediate_values(study)
            continue
        for index, name in enumerate(names):
            heading = TITLES[plot] if len(names) == 1 else f"{TITLES[plot]}: {name}"
            yield heading, _drawing(visualization, plot, study, index, name)


def _drawing(visualization: Any, plot: str, study: Study, index: int, name: str) -> Callable[[], Figure]:
    options: dict[str, Any] = {"target": _value(index), "target_name": name}
    if plot == "param_importances":
        options["evaluator"] = optuna.importance.PedAnovaImportanceEvaluator()
    return lambda: getattr(visualization, f"plot_{plot}")(study, **options)


def _value(index: int) -> Callable[[FrozenTrial], float]:
    return lambda trial: float(trial.values[index])
