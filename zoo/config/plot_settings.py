"""The settings of `zoo plot` and `zoo compare`; their defaults stand in ``conf/``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo.config.fields import hyperparameter


@dataclass
class PlotSettings:
    """What `zoo plot` takes."""

    runs: str | list[str] = hyperparameter(help="run folders, folders of runs, or patterns with *")
    figure: str = hyperparameter(
        help="auto: one run on a page, several as curves",
        choices=("auto", "run", "curves", "scores", "aggregates", "profiles", "improvement"),
    )
    x: str = hyperparameter(help="of curves", choices=("steps", "episodes", "hours"))
    y: str = hyperparameter(help="of curves: train, eval, length, or a scalar of progress.csv")
    smooth: int | str = hyperparameter(
        help="episodes (or evaluations, or log entries) of which each point is the mean; auto: 100 episodes",
        ge=1,
    )
    aggregate: str = hyperparameter(help="of the runs of a group, in curves", choices=("mean", "iqm"))
    interval: str = hyperparameter(help="band around a group's line", choices=("ci", "std", "minmax", "none"))
    by: str | list[str] | None = hyperparameter(
        help="keys that tell groups apart; null: the whole config without the seed"
    )
    score: str = hyperparameter(help="of a run, in tables and statistics", choices=("final", "best", "train"))
    reference: str | dict[str, Any] | None = hyperparameter(
        help="returns that are 0 and 1, by environment, or a YAML file of them; null: lowest and highest"
    )
    format: str | None = hyperparameter(
        help="null: as the ending of out says, else png",
        choices=("png", "svg", "pdf", "html", "md", "tex", "csv"),
    )
    report: bool = hyperparameter(help="one HTML page with everything; the same as format=html")
    title: str | None = hyperparameter(help="heading of the figure or report")
    out: str | None = hyperparameter(help="file to write; null: one in plots/")


@dataclass
class CompareSettings:
    """What `zoo compare` takes."""

    runs: str | list[Any] | None = hyperparameter(
        help="the two to compare, each a run, a folder of runs, a pattern with *, or a list of them"
    )
    score: str = hyperparameter(help="what is compared", choices=("final", "best", "train"))
    aggregate: str = hyperparameter(help="of the runs of a group", choices=("mean", "iqm"))
    by: str | list[str] | None = hyperparameter(
        help="keys that tell groups apart; null: the whole config without the seed"
    )
    reference: str | dict[str, Any] | None = hyperparameter(
        help="returns that are 0 and 1, by environment, or a YAML file of them; null: lowest and highest"
    )
