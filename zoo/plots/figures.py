"""Figures: their common style, one run on a page, and scores over several environments.

They are drawn by matplotlib without a display or the user's settings.
"""

from __future__ import annotations

import contextlib
import io
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from zoo.core.printing import one_line
from zoo.errors import ZooError, install_command
from zoo.experiment import statistics
from zoo.plots.curves import (
    Curve,
    CurveOptions,
    GroupCurve,
    binned,
    binned_range,
    caption,
    series_of,
    smoothed,
)
from zoo.plots.runs import Run, finite_number
from zoo.plots.scores import (
    AGGREGATES,
    N_THRESHOLDS,
    SCORE_NAMES,
    GroupScore,
    Methods,
    aggregates,
    improvements,
    profile_thresholds,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Panel = Callable[[Axes], None]

PICTURES = ("png", "svg", "pdf")

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B")
"""Okabe and Ito's colours, which people with any colour vision tell apart, without the yellow."""
LINES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))
"""After as many groups as there are colours, the lines change."""

GREY = "#6B6B6B"

X_LABELS = {"steps": "environment steps", "episodes": "episodes", "hours": "hours"}
Y_LABELS = {"train": "return in training", "eval": "return in evaluation", "length": "episode length"}

N_SCALARS = 5
_SCALAR_ORDER = (
    "loss",
    "entropy",
    "approx_kl",
    "explained_variance",
    "clip_fraction",
    "std",
    "ent_coef",
    "qf",
    "q_",
)
"""Parts of names of scalars that are drawn before others, in this order."""
_NOT_DRAWN = ("n_updates", "learning_rate", "clip_range")

ACTIVITIES = {
    "env": "environments",
    "policy": "acting",
    "update": "updates",
    "compiling": "compiling",
    "evaluation": "evaluation",
    "other": "other",
}
"""What a run records its seconds under, and what that is called."""

_STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#8A8A8A",
    "axes.grid": True,
    "axes.labelcolor": "#333333",
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "savefig.dpi": 150,
    "svg.hashsalt": "zoo",
    "text.parse_math": False,
    "xtick.color": "#555555",
    "xtick.labelsize": 8.5,
    "ytick.color": "#555555",
    "ytick.labelsize": 8.5,
}

_NO_DATES: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


# -- how all of them look ---------------------------------------------------------------------------------


@contextlib.contextmanager
def house_style() -> Iterator[None]:
    """Use the style of all figures within the block, not the user's matplotlibrc.

    Raises `ZooError` where matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ZooError(f"plots need: {install_command('plots')}") from error
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(cast(Any, _STYLE))
        yield


def make_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches; within `house_style`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def make_panels(figure: Figure, n: int) -> list[Axes]:
    """Divide a figure into ``n`` panels, at most three in a row."""
    n_columns = min(3, n)
    panels = list(figure.subplots(math.ceil(n / n_columns), n_columns, squeeze=False).flat)
    for axes in panels[n:]:
        axes.set_axis_off()
    return panels[:n]


def render(figure: Figure, kind: str) -> bytes:
    """Return the figure as ``png``, ``svg`` or ``pdf``, without dates."""
    file = io.BytesIO()
    figure.savefig(file, format=kind, metadata=_NO_DATES[kind])
    return file.getvalue()


def line_style(place: int) -> dict[str, Any]:
    """Return colour and line style of the n-th group."""
    return {
        "color": COLORS[place % len(COLORS)],
        "linestyle": LINES[place // len(COLORS) % len(LINES)],
    }


def short_number(value: float, _position: object = None) -> str:
    """Return a number as an axis shows it: 1.5k, 1M."""
    size = abs(value)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.4g}{letter}"
    return f"{value:.4g}" if math.isfinite(value) else ""


def shorten_ticks(axis: Any) -> None:
    """Format an axis with few ticks: 1M for 1000000."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(short_number))


def format_axes(axes: Axes, x_label: str) -> None:
    """Format both axes and label the x-axis, which begins at 0."""
    shorten_ticks(axes.xaxis)
    shorten_ticks(axes.yaxis)
    axes.set_xlim(left=0)
    axes.set_xlabel(x_label)


def set_title(axes: Axes, text: str) -> None:
    """Set a panel's title, cut to what fits."""
    axes.set_title(one_line(text, 60), loc="left", color="#222222", fontweight="bold")


def add_caption(figure: Figure, heading: str | None, text: str) -> None:
    """Add a heading, and a caption below the figure."""
    if heading:
        figure.suptitle(one_line(heading, 100), x=0.01, ha="left", fontsize=12, fontweight="bold")
    lines = textwrap.wrap(one_line(text, 1_000), int(figure.get_figwidth() * 17))[:6]
    figure.supxlabel("\n".join(lines), fontsize=7.5, color=GREY, x=0.01, ha="left")


def x_unit(x: str, largest: float) -> tuple[float, str]:
    """Return x's scale and label: hours of short runs are shown as minutes, or seconds."""
    if x != "hours" or largest >= 1.5:
        return 1.0, X_LABELS[x]
    return (60.0, "minutes") if largest >= 1.5 / 60 else (3600.0, "seconds")


# -- curves -----------------------------------------------------------------------------------------------


def curves_figure(drawn: Sequence[GroupCurve], choices: CurveOptions, heading: str | None = None) -> Figure:
    """Draw the curves; within `house_style`."""
    envs = list(dict.fromkeys(each.group.env for each in drawn))
    labels = list(dict.fromkeys(each.group.label for each in drawn))
    n_columns = 2 if len(labels) > 4 else 1
    size = (6.4, 4.1) if len(envs) == 1 else (3.7 * min(3, len(envs)), 2.9 * math.ceil(len(envs) / 3))
    figure = make_figure(size[0], size[1] + 0.22 * math.ceil(len(labels) / n_columns) + 0.3)
    scale, x_label = x_unit(choices.x, max(float(each.curve.x[-1]) for each in drawn))
    handles: dict[str, Artist] = {}
    for axes, env in zip(make_panels(figure, len(envs)), envs, strict=True):
        for each in (each for each in drawn if each.group.env == env):
            label = each.group.label
            handles[label] = _draw_curve(axes, each.curve, scale, **line_style(labels.index(label)))
        set_title(axes, env)
        format_axes(axes, x_label)
        axes.set_ylabel(one_line(Y_LABELS.get(choices.y, choices.y), 60))
    names = [f"{label} ({_n_runs(drawn, label)})" for label in labels]
    figure.legend([handles[label] for label in labels], names, loc="outside upper left", ncols=n_columns)
    add_caption(figure, heading, caption(drawn, choices))
    return figure


def _draw_curve(axes: Axes, drawn: Curve, scale: float, *, color: str, linestyle: Any) -> Artist:
    """Draw a curve, dotted where some runs have ended, and return its handle for the legend."""
    x = drawn.x * scale
    if drawn.low is not None and drawn.high is not None:
        axes.fill_between(x, drawn.low, drawn.high, color=color, alpha=0.18, linewidth=0)
    is_full = drawn.n_runs == drawn.n_runs.max()
    last_full = int(np.flatnonzero(is_full)[-1])
    marker = "o" if len(drawn.x) == 1 else ("." if len(drawn.x) <= 12 else "")
    (handle,) = axes.plot(
        x[: last_full + 1],
        drawn.center[: last_full + 1],
        linestyle=linestyle,
        color=color,
        marker=marker,
    )
    axes.plot(x[last_full:], drawn.center[last_full:], linestyle=":", color=color, linewidth=1.2)
    return handle


def _n_runs(drawn: Sequence[GroupCurve], label: str) -> str:
    counts = sorted({each.n_runs for each in drawn if each.group.label == label})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{number} run{'' if counts[-1] == 1 else 's'}"


# -- one run ----------------------------------------------------------------------------------------------


def run_figure(run: Run, x: str, smooth: int | str, heading: str | None = None) -> Figure:
    """Draw return, evaluations, episode length, losses, and where the time went; within `house_style`.

    Raises `ZooError` if there is nothing in the run to draw.
    """
    panels = _panels(run, x, smooth)
    if not panels:
        raise ZooError(f"nothing to draw in {run.name}: no episode has ended, and nothing was logged")
    figure = make_figure(3.7 * min(3, len(panels)), 2.6 * math.ceil(len(panels) / 3) + 0.8)
    for axes, (name, draw) in zip(make_panels(figure, len(panels)), panels.items(), strict=True):
        set_title(axes, name)
        draw(axes)
    seed = "" if run.seed is None else f", seed {run.seed}"
    window = "100 episodes (a tenth of shorter runs)" if smooth == "auto" else f"{smooth} episodes"
    ending = "" if run.is_complete else f" This run {run.ending}."
    seen = f"Thick lines: rolling mean over {window}; behind them: each episode, or the range of many."
    add_caption(figure, heading or f"{run.algo} on {run.env}{seed}", f"{seen}{ending}")
    return figure


def _panels(run: Run, x: str, smooth: int | str) -> dict[str, Panel]:
    """Return the functions that draw a run's panels, by title."""
    panels: dict[str, Panel] = {}
    if series_of(run, x, "train") is not None:
        panels["Return in training"] = lambda axes: _draw_episodes(axes, run, x, "train", smooth, COLORS[0])
    if series_of(run, x, "eval") is not None:
        panels["Return in evaluation"] = lambda axes: _draw_evaluations(axes, run, x)
    if series_of(run, x, "length") is not None:
        panels["Episode length"] = lambda axes: _draw_episodes(axes, run, x, "length", smooth, COLORS[2])
    if seconds_by_activity(run):
        panels["Where the time went"] = lambda axes: _draw_time(axes, run)
    for name in training_scalars(run):
        panels[name] = lambda axes, name=name: _draw_scalar(axes, run, x, name)  # type: ignore[misc]
    return panels


def training_scalars(run: Run) -> list[str]:
    """Return the most telling scalars of the updates, losses first."""
    names = [
        name
        for name, values in run.progress().items()
        if name.startswith("train/")
        and not any(part in name for part in _NOT_DRAWN)
        and np.isfinite(values).sum() > 1
    ]

    def rank(name: str) -> int:
        return next((place for place, part in enumerate(_SCALAR_ORDER) if part in name), len(_SCALAR_ORDER))

    return sorted(names, key=lambda name: (rank(name), name))[:N_SCALARS]


def seconds_by_activity(run: Run) -> dict[str, float]:
    """Return a run's seconds by activity from its record, if it has them."""
    recorded = run.record.get("seconds")
    if not isinstance(recorded, Mapping):
        return {}
    found = {name: finite_number(recorded.get(name)) for name in ACTIVITIES}
    spent = {name: seconds for name, seconds in found.items() if seconds is not None and seconds > 0}
    rest = (run.seconds() or 0.0) - sum(spent.values())
    return {**spent, "other": rest} if spent and rest > 0 else spent


def _draw_episodes(axes: Axes, run: Run, x: str, y: str, smooth: int | str, color: str) -> None:
    series = series_of(run, x, y)
    assert series is not None
    places, low, high = binned_range(series)
    scale, x_label = x_unit(x, float(series.x[-1]))
    if len(series.x) > len(places):
        axes.fill_between(places * scale, low, high, color=color, alpha=0.16, linewidth=0)
    else:
        axes.plot(series.x * scale, series.y, color=color, alpha=0.3, linewidth=0.7)
    line = binned(smoothed(series, smooth, y))
    axes.plot(line.x * scale, line.y, color=color, marker="o" if len(line.x) == 1 else "")
    format_axes(axes, x_label)


def _draw_evaluations(axes: Axes, run: Run, x: str) -> None:
    series, evaluations = series_of(run, x, "eval"), run.evaluations()
    assert series is not None
    assert evaluations is not None
    spread = evaluations.returns.std(axis=1)
    scale, x_label = x_unit(x, float(series.x[-1]))
    places = series.x * scale
    axes.fill_between(places, series.y - spread, series.y + spread, color=COLORS[1], alpha=0.16, linewidth=0)
    axes.plot(places, series.y, color=COLORS[1], marker="." if len(series.x) <= 60 else "")
    seen = f"± std of {evaluations.returns.shape[1]} episodes"
    axes.text(0.99, 0.03, seen, transform=axes.transAxes, ha="right", fontsize=7, color=GREY)
    format_axes(axes, x_label)


def _draw_scalar(axes: Axes, run: Run, x: str, name: str) -> None:
    series = series_of(run, x, name)
    if series is None:
        axes.text(0.5, 0.5, f"not known by {x}", transform=axes.transAxes, ha="center", color=GREY)
        return
    line = binned(series)
    scale, x_label = x_unit(x, float(series.x[-1]))
    axes.plot(line.x * scale, line.y, color=COLORS[3], linewidth=1.3)
    format_axes(axes, x_label)


def _draw_time(axes: Axes, run: Run) -> None:
    spent = seconds_by_activity(run)
    total = sum(spent.values())
    axes.barh([ACTIVITIES[name] for name in spent], list(spent.values()), color=COLORS[5], height=0.6)
    for place, seconds in enumerate(spent.values()):
        axes.text(seconds, place, f" {seconds / total:.0%}", va="center", fontsize=8, color="#333333")
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, max(spent.values()) * 1.2)
    shorten_ticks(axes.xaxis)
    axes.set_xlabel("seconds")


# -- scores -----------------------------------------------------------------------------------------------


def scores_figure(group_scores: Sequence[GroupScore], kind: str, heading: str | None = None) -> Figure:
    """Draw each group's runs as dots, with mean and IQM interval, a panel an environment."""
    shown = [each for each in group_scores if len(each.scores)]
    if not shown:
        raise ZooError(
            "no run has a score: none has finished and was evaluated (score=train takes training episodes)"
        )
    envs = list(dict.fromkeys(each.group.env for each in shown))
    labels = list(dict.fromkeys(each.group.label for each in shown))
    height = max(1.6, 0.32 * len(labels) + 0.9)
    figure = make_figure(max(6.4, 3.7 * min(3, len(envs))), height * math.ceil(len(envs) / 3) + 0.6)
    for axes, env in zip(make_panels(figure, len(envs)), envs, strict=True):
        set_title(axes, env)
        for each in (each for each in shown if each.group.env == env):
            place = labels.index(each.group.label)
            color = line_style(place)["color"]
            _draw_interval(axes, place, each.iqm, each.ci95, color)
            rows = np.full(len(each.scores), place)
            axes.plot(each.scores, rows, "o", color=color, alpha=0.35, markersize=4, mec="none")
        _label_rows(axes, labels)
        axes.set_xlabel("return")
        shorten_ticks(axes.xaxis)
    add_caption(
        figure,
        heading,
        f"Dot: a run's score, the {SCORE_NAMES[kind]}; diamond: interquartile mean, bar: its 95 % bootstrap"
        " interval.",
    )
    return figure


def _draw_interval(
    axes: Axes, place: int, value: float, ci95: tuple[float, float] | None, color: str
) -> None:
    if ci95 is not None:
        axes.barh(place, ci95[1] - ci95[0], left=ci95[0], height=0.5, color=color, alpha=0.35, linewidth=0)
    axes.plot([value], [place], "D", color=color, markersize=5)


def _label_rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [one_line(label, 50) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def aggregates_figure(methods: Methods, kind: str, heading: str | None = None) -> Figure:
    """Draw median, IQM, mean and optimality gap of the normalised scores, with their intervals."""
    labels = list(methods.scores)
    found = aggregates(methods)
    figure = make_figure(9.5, max(1.3, 0.3 * len(labels) + 0.8) + 0.7)
    panels = figure.subplots(1, len(AGGREGATES), sharey=True, squeeze=False)
    for column, (axes, name) in enumerate(zip(panels.flat, AGGREGATES, strict=True)):
        set_title(axes, f"{name[0].upper()}{name[1:]}")
        for place, label in enumerate(labels):
            each = found[label][column]
            _draw_interval(axes, place, each.value, each.ci95, line_style(place)["color"])
        _label_rows(axes, labels)
        shorten_ticks(axes.xaxis)
    gap = "The gap is how far runs stay below 1: less is better. Bars: 95 % stratified bootstrap intervals."
    add_caption(figure, heading, f"{normalization_text(methods, kind)} {gap}")
    return figure


def profiles_figure(methods: Methods, kind: str, heading: str | None = None) -> Figure:
    """Draw for each method the share of its runs whose normalised score is above each threshold."""
    labels = list(methods.scores)
    thresholds = profile_thresholds(methods)
    figure = make_figure(6.4, 4.2)
    axes = figure.subplots()
    for place, label in enumerate(labels):
        strata, style = methods.scores[label], line_style(place)
        axes.plot(thresholds, statistics.performance_profile(strata, thresholds), label=label, **style)
        if any(len(scores) > 1 for scores in strata):
            resamples = statistics.bootstrapped(
                lambda strata: statistics.performance_profile(strata, thresholds),
                strata,
                n_resamples=2_000,
                width=N_THRESHOLDS,
            )
            low, high = statistics.interval(resamples)
            axes.fill_between(thresholds, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.set_xlabel("normalised score τ")
    axes.set_ylabel("share of runs above τ")
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlim(thresholds[0], thresholds[-1])
    n_envs = len(methods.envs)
    set_title(axes, f"Performance profiles, {n_envs} environment{'' if n_envs == 1 else 's'}")
    figure.legend(loc="outside upper left", ncols=2 if len(labels) > 4 else 1)
    bands = "Higher is better. Bands: 95 % stratified bootstrap intervals."
    add_caption(figure, heading, f"{normalization_text(methods, kind)} {bands}")
    return figure


def improvement_figure(methods: Methods, kind: str, heading: str | None = None) -> Figure:
    """Draw how likely a run of one method beats one of another, for every pair."""
    pairs = improvements(methods)
    n_envs = len(methods.envs)
    over = f", mean over {n_envs} environments" if n_envs > 1 else f" on {methods.envs[0]}"
    if not pairs:
        raise ZooError("figure=improvement compares groups, and there is one only")
    figure = make_figure(7.2, max(1.4, 0.36 * len(pairs) + 0.9) + 0.6)
    axes = figure.subplots()
    for place, pair in enumerate(pairs):
        _draw_interval(axes, place, pair.probability, pair.ci95, COLORS[0])
    axes.axvline(0.5, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    _label_rows(axes, [f"{one_line(pair.first, 30)}  >  {one_line(pair.second, 30)}" for pair in pairs])
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("probability of improvement")
    add_caption(
        figure,
        heading,
        f"How likely a run of the first beats one of the second{over};"
        f" score: {SCORE_NAMES[kind]}. Bars: 95 % stratified bootstrap intervals; one"
        " across 0.5 decides nothing.",
    )
    return figure


def normalization_text(methods: Methods, kind: str) -> str:
    """Return a sentence on what 0 and 1 of the normalised scores are."""
    how = "the lowest run here, 1 the highest" if methods.is_found else "the lower reference, 1 the higher"
    return f"Score: {SCORE_NAMES[kind]}, normalised for each environment: 0 is {how}."
