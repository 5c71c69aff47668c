"""How all figures look, and how they become files, by matplotlib without a display or the user's settings."""

from __future__ import annotations

import contextlib
import io
import math
import textwrap
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from zoo.errors import ZooError, install_command
from zoo.files.printing import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = ("png", "svg", "pdf")

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B")
"""Okabe and Ito's colours, which people with any colour vision tell apart, without the yellow."""
LINES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))
"""After as many groups as there are colours, the lines change."""

GREY = "#6B6B6B"
CAPTION_SIZE = 7.5

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


@contextlib.contextmanager
def house_style() -> Iterator[None]:
    """Draw within the block as all figures look, whatever the user's matplotlibrc says.

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


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, on no screen; within `house_style`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def picture(figure: Figure, kind: str) -> bytes:
    """Return the figure as ``png``, ``svg`` or ``pdf``; the same figure is the same bytes at any time."""
    file = io.BytesIO()
    figure.savefig(file, format=kind, metadata=_NO_DATES[kind])
    return file.getvalue()


def look(number: int) -> dict[str, Any]:
    """Return colour and line of the n-th group."""
    return {
        "color": COLORS[number % len(COLORS)],
        "linestyle": LINES[number // len(COLORS) % len(LINES)],
    }


def short(value: float, _position: object = None) -> str:
    """Return a number as an axis shows it: 1.5k, 1M."""
    size = abs(value)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.4g}{letter}"
    return f"{value:.4g}" if math.isfinite(value) else ""


def shorten_ticks(axis: Any) -> None:
    """Let an axis show 1M for 1000000, on few ticks."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(short))


def title(axes: Axes, text: str) -> None:
    """Write the title of a panel, cut to what fits."""
    axes.set_title(one_line(text, 60), loc="left", color="#222222", fontweight="bold")


def caption(figure: Figure, text: str) -> None:
    """Say below a figure what is seen."""
    width = int(figure.get_figwidth() * 17)
    lines = textwrap.wrap(one_line(text, 1_000), width)[:6]
    figure.supxlabel("\n".join(lines), fontsize=CAPTION_SIZE, color=GREY, x=0.01, ha="left")
