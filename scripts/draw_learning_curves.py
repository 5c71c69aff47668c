"""Draw the learning curves of the collection's runs: mean return of the evaluations over environment steps.

    .venv/bin/python scripts/draw_learning_curves.py --runs runs/collection

One panel an environment, one line an algorithm: the median over its runs, and the range between the lowest
and the highest. Needs matplotlib (the extra bench).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

REPOSITORY = Path(__file__).resolve().parent.parent

Curves = dict[str, dict[str, list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]]]
"""Environment → algorithm → steps and mean returns of each run."""


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


def read_curves(runs: Path) -> Curves:
    """Read `runs/<algo>/<env>/<run>/evaluations.npz`."""
    curves: Curves = {}
    for file in sorted(runs.glob("*/*/*/evaluations.npz")):
        algo, env = file.parts[-4], file.parts[-3]
        with np.load(file) as evaluations:
            curve = (evaluations["timesteps"].astype(float), evaluations["results"].mean(axis=1))
        curves.setdefault(env, {}).setdefault(algo, []).append(curve)
    return curves


def draw(curves: Curves, output: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, len(curves), figsize=(4.2 * len(curves), 3.2), squeeze=False, constrained_layout=True
    )
    for panel, (env, algorithms) in zip(panels[0], curves.items(), strict=True):
        for algo, runs in algorithms.items():
            steps = runs[0][0]
            returns = np.stack([np.interp(steps, *run) for run in runs])
            (line,) = panel.plot(steps, np.median(returns, axis=0), label=algo)
            panel.fill_between(
                steps, returns.min(axis=0), returns.max(axis=0), color=line.get_color(), alpha=0.2, lw=0
            )
        panel.set_title(env)
        panel.set_xlabel("environment steps")
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    panels[0][0].set_ylabel("mean return of an evaluation")
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=120)


if __name__ == "__main__":
    main()
