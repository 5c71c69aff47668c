"""Figures: their common style, one run on a page, and scores; matplotlib needs no display for them."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.config.schema import PlotSettings
from zoo.core.printing import one_line
from zoo.errors import ZooError, install_command
from zoo.plots.curves import Curve, binned, caption, curves_of, series_of, smoothed
from zoo.plots.groups import Group
from zoo.plots.runs import Run
from zoo.plots.scores import AGGREGATES, NO_SCORE, SCORE_NAMES, GroupScore, Interval, Methods, aggregates

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

PICTURES = ("png", "svg", "pdf")

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B")
"""Okabe and Ito's colours, which people with any colour vision tell apart, without the yellow."""
LINES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))
"""After as many groups as there are colours, the lines change."""

Y_LABELS = {"train": "return in training", "eval": "return in evaluation", "length": "episode length"}

N_SCALARS = 5
"""Scalars of the updates that the page of one run shows."""

_STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#8A8A8A",
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "grid.color": "#E6E6E6",
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "savefig.dpi": 150,
    "svg.hashsalt": "zoo",
    "text.parse_math": False,
}

_NO_DATES: Any = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def render(kind: str, draw: Callable[..., Figure], *arguments: Any) -> bytes:
    """Return a figure in Zoo's style as ``png``, ``svg`` or ``pdf``, without dates. Raises `ZooError`."""
    try:
        from matplotlib import style
    except ImportError as error:
        raise ZooError(f"plots need: {install_command('plots')}") from error
    file = io.BytesIO()
    with style.context(_STYLE, after_reset=True):
        draw(*arguments).savefig(file, format=kind, metadata=_NO_DATES[kind])
    return file.getvalue()


def _make_panels(titles: Sequence[str], height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each title, at most three in a row; ``height`` in inches."""
    from matplotlib.figure import Figure

    n_columns = 2 if len(titles) == 4 else min(3, len(titles))
    n_rows = math.ceil(len(titles) / n_columns)
    figure = Figure(figsize=(max(6.4, 3.7 * n_columns), height * n_rows + 0.8))
    panels = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    for axes, title in zip(panels, titles, strict=False):
        axes.set_title(one_line(title, 60))
    for axes in panels[len(titles) :]:
        axes.set_axis_off()
    return figure, panels[: len(titles)]


def line_style(place: int) -> dict[str, Any]:
    """Return colour and line style of the n-th group."""
    return {"color": COLORS[place % len(COLORS)], "linestyle": LINES[place // len(COLORS) % len(LINES)]}


def short_numbers() -> EngFormatter:
    """Return the format of an axis' numbers: 1.5k, 1M."""
    from matplotlib.ticker import EngFormatter

    formatter = EngFormatter(sep="")
    formatter.ENG_PREFIXES = {0: "", 3: "k", 6: "M", 9: "G"}
    return formatter


def _shorten_ticks(*axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    for axis in axes:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(short_numbers())


def _format_axes(axes: Axes, x: str) -> None:
    _shorten_ticks(axes.xaxis, axes.yaxis)
    axes.set_xlim(left=0)
    axes.set_xlabel("environment steps" if x == "steps" else x)


def _add_caption(figure: Figure, heading: str | None, text: str) -> None:
    """Add a heading, and a caption below the figure."""
    if heading:
        figure.suptitle(one_line(heading, 100), x=0.01, ha="left", fontsize=12, fontweight="bold")
    lines = textwrap.wrap(one_line(text, 1_000), int(figure.get_figwidth() * 17))[:6]
    figure.supxlabel("\n".join(lines), fontsize=7.5, color="#6B6B6B", x=0.01, ha="left")


def curves_figure(groups: Sequence[Group], settings: PlotSettings) -> Figure:
    """Draw the groups' learning curves, a panel an environment."""
    curves = curves_of(groups, settings)
    envs = list(dict.fromkeys(curve.group.env for curve in curves))
    labels = list(dict.fromkeys(curve.group.label for curve in curves))
    figure, panels = _make_panels(envs, 3.4 + 0.2 * len(labels) / len(envs))
    handles: dict[str, Artist] = {}
    n_runs = dict.fromkeys(labels, 0)
    for curve in curves:
        axes, label = panels[envs.index(curve.group.env)], curve.group.label
        handles[label] = _draw_curve(axes, curve, **line_style(labels.index(label)))
        n_runs[label] = max(int(curve.n_runs.max()), n_runs[label])
    for axes in panels:
        _format_axes(axes, settings.x)
        axes.set_ylabel(one_line(Y_LABELS.get(settings.y, settings.y), 60))
    names = [f"{label} ({n_runs[label]} run{'s' * (n_runs[label] != 1)})" for label in labels]
    columns = 2 if len(labels) > 4 else 1
    figure.legend(
        [handles[label] for label in labels],
        names,
        loc="outside upper left",
        ncols=columns,
        alignment="left",
        title=one_line(settings.title or "", 100),  # a title of the figure would lie on the legend
        title_fontproperties={"size": 12, "weight": "bold"},
    )
    _add_caption(figure, None, caption(curves, settings))
    return figure


def _draw_curve(axes: Axes, drawn: Curve, *, color: str, linestyle: Any) -> Artist:
    """Draw a curve, dotted where some runs have ended, and return its handle for the legend."""
    axes.fill_between(drawn.x, drawn.low, drawn.high, color=color, alpha=0.18, linewidth=0)
    last = int(np.flatnonzero(drawn.n_runs == drawn.n_runs.max())[-1])
    marker = "o" if len(drawn.x) == 1 else ("." if len(drawn.x) <= 12 else "")
    style = {"linestyle": linestyle, "color": color, "marker": marker}
    (handle,) = axes.plot(drawn.x[: last + 1], drawn.center[: last + 1], **style)
    axes.plot(drawn.x[last:], drawn.center[last:], linestyle=":", color=color, linewidth=1.2)
    return handle


def run_figure(run: Run, settings: PlotSettings) -> Figure:
    """Draw return, evaluations, episode length and losses, a panel each. Raises `ZooError` without any."""
    x, smooth = settings.x, settings.smooth
    titles = {y: label.capitalize() for y, label in Y_LABELS.items()}
    titles |= {name: name for name in _training_scalars(run)}
    curves = {y: series for y in titles if (series := series_of(run, x, y)) is not None}
    if not curves:
        raise ZooError(f"nothing to draw in {run.name}: no episode has ended, and nothing was logged")
    figure, panels = _make_panels([titles[y] for y in curves], 2.6)
    for axes, (y, series) in zip(panels, curves.items(), strict=True):
        is_of_episodes = y in ("train", "length")
        line = binned(smoothed(series, smooth if is_of_episodes else 1, y))
        if is_of_episodes:
            axes.plot(series.x, series.y, ".", color=COLORS[5], alpha=0.4, markersize=2, rasterized=True)
        axes.plot(line.x, line.y, color=COLORS[0], marker="." if len(line.x) <= 60 else "")
        _format_axes(axes, x)
    seed = "" if run.seed is None else f", seed {run.seed}"
    window = "100 episodes (a tenth of shorter runs)" if smooth == "auto" else f"{smooth} episodes"
    ending = "" if run.is_complete else f" This run {run.ending}."
    seen = f"Lines: of episodes the rolling mean over {window}; behind it each episode.{ending}"
    _add_caption(figure, settings.title or f"{run.algo} on {run.env}{seed}", seen)
    return figure


def _training_scalars(run: Run) -> list[str]:
    """Return the names of some scalars of the updates, losses first."""
    names = {name for name, values in run.progress.items() if np.isfinite(values).sum() > 1}
    names -= {"train/n_updates", "train/learning_rate", "train/clip_range"}
    scalars = [name for name in names if name.startswith("train/")]
    return sorted(scalars, key=lambda name: ("loss" not in name, name))[:N_SCALARS]


def scores_figure(group_scores: Sequence[GroupScore], settings: PlotSettings) -> Figure:
    """Draw each group's runs as dots, with mean and IQM interval, a panel an environment."""
    with_scores = [score for score in group_scores if len(score.scores)]
    if not with_scores:
        raise ZooError(NO_SCORE)
    envs = list(dict.fromkeys(score.group.env for score in with_scores))
    labels = list(dict.fromkeys(score.group.label for score in with_scores))
    figure, panels = _make_panels(envs, 0.32 * len(labels) + 0.9)
    for score in with_scores:
        axes, place = panels[envs.index(score.group.env)], labels.index(score.group.label)
        color = line_style(place)["color"]
        _draw_interval(axes, place, score.iqm, score.ci95, color)
        places = np.full(len(score.scores), place)
        axes.plot(score.scores, places, "o", color=color, alpha=0.35, markersize=4)
    for axes in panels:
        _label_rows(axes, labels)
        axes.set_xlabel("return")
    bars = "diamond: interquartile mean, bar: its 95 % bootstrap interval."
    _add_caption(figure, settings.title, f"Dot: a run's score, the {SCORE_NAMES[settings.score]}; {bars}")
    return figure


def aggregates_figure(methods: Methods, settings: PlotSettings) -> Figure:
    """Draw median, IQM, mean and optimality gap of the normalised scores, with their intervals."""
    table = aggregates(methods)
    figure, panels = _make_panels([*AGGREGATES], 0.3 * len(table) + 0.9)
    for axes, name in zip(panels, AGGREGATES, strict=True):
        for place, row in enumerate(table.values()):
            _draw_interval(axes, place, *row[name], line_style(place)["color"])
        _label_rows(axes, [*table])
    gap = "The gap is how far runs stay below 1: less is better. Bars: 95 % stratified bootstrap intervals."
    _add_caption(figure, settings.title, f"{normalization_text(methods, settings.score)} {gap}")
    return figure


def profile_figure(methods: Methods, settings: PlotSettings) -> Figure:
    """Draw the share of runs above each normalised score, with a band."""
    highest = max(1.0, *(float(scores.max()) for strata in methods.scores.values() for scores in strata))
    points = np.linspace(0.0, highest, 201)
    figure, (axes,) = _make_panels([f"{len(methods.envs)} environments"], 3.4)
    for place, label in enumerate(methods.scores):
        share, low, high = methods.profile(label, points)
        axes.plot(points, share, label=one_line(label, 50), drawstyle="steps-post", **line_style(place))
        axes.fill_between(points, low, high, color=line_style(place)["color"], alpha=0.15, lw=0, step="post")
    axes.set_xlabel("normalised score")
    axes.set_ylabel("share of runs above it")
    figure.legend(loc="outside right upper")
    bands = "Bands: 95 % stratified bootstrap intervals, point by point."
    _add_caption(figure, settings.title, f"{normalization_text(methods, settings.score)} {bands}")
    return figure


def _draw_interval(axes: Axes, place: int, value: float, ci95: Interval | None, color: str) -> None:
    if ci95 is not None:
        axes.barh(place, ci95[1] - ci95[0], left=ci95[0], height=0.5, color=color, alpha=0.35, linewidth=0)
    axes.plot([value], [place], "D", color=color, markersize=5)


def _label_rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [one_line(label, 50) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    _shorten_ticks(axes.xaxis)


def normalization_text(methods: Methods, kind: str) -> str:
    """Return a sentence on what 0 and 1 of the normalised scores are."""
    how = "the lowest run here, 1 the highest" if methods.is_found else "the lower reference, 1 the higher"
    return f"Score: {SCORE_NAMES[kind]}, normalised for each environment: 0 is {how}."
