"""Draw the learning curves of the collection's runs: mean return of the evaluations over environment steps.

    .venv/bin/python scripts/draw_learning_curves.py --runs runs/collection

One panel an algorithm and environment: a thin line a run, a thick one for their median. Needs matplotlib (the
extra bench).
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

REPOSITORY = Path(__file__).resolve().parent.parent

Curve = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Environment steps, and the mean return of the evaluation at each."""

COLUMNS = 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/collection"))
    parser.add_argument("--output", type=Path, default=REPOSITORY / "docs" / "images" / "learning_curves.png")
    arguments = parser.parse_args()
    curves = read_curves(arguments.runs)
    if not curves:
        raise SystemExit(f"no run in {arguments.runs} has evaluations")
    draw(curves, arguments.output)
    print(arguments.output)


def read_curves(runs: Path) -> dict[str, list[Curve]]:
    """Read the evaluations of all finished runs, `runs/<algo>/<env>/<run>`, by algorithm and environment."""
    curves: dict[str, list[Curve]] = {}
    for run in sorted(file.parent for file in runs.glob("*/*/*/evaluations.npz")):
        if json.loads((run / "run.json").read_text())["status"] != "finished":
            continue
        with np.load(run / "evaluations.npz") as evaluations:
            curve = (evaluations["timesteps"].astype(float), evaluations["results"].mean(axis=1))
        curves.setdefault(f"{run.parts[-3]} on {run.parts[-2]}", []).append(curve)
    return curves


def draw(curves: dict[str, list[Curve]], output: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    n_rows = math.ceil(len(curves) / COLUMNS)
    figure, panels = pyplot.subplots(
        n_rows, COLUMNS, figsize=(3.6 * COLUMNS, 2.6 * n_rows), squeeze=False, constrained_layout=True
    )
    for panel in panels.flat[len(curves) :]:
        panel.set_axis_off()
    for panel, (title, runs) in zip(panels.flat, curves.items(), strict=False):
        steps = runs[0][0]
        for run in runs:
            panel.plot(run[0] / 1000, run[1], color="tab:blue", alpha=0.3, lw=0.8)
        median = np.median([np.interp(steps, *run) for run in runs], axis=0)
        panel.plot(steps / 1000, median, color="tab:blue", lw=1.8)
        panel.set_title(title)
        panel.set_xlabel("thousand environment steps")
        panel.grid(alpha=0.3)
    for row in panels:
        row[0].set_ylabel("mean return")
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    main()
