"""Draw curves and profiles of the collection, and film the best agents, for docs/collection.md.

    .venv/bin/python scripts/draw_collection.py
    .venv/bin/python scripts/draw_collection.py --no-films

Curves are read from docs/measured/curves/, agents from trained_agents/; the pictures go to
docs/images/collection/. A film that is there already is kept. Needs matplotlib and moviepy (the extras plots
and video).
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from make_docs_tables import AGGREGATED, profile_name, scores_of

from zoo.config.compose import ConfigLoader
from zoo.envs.make_env import make_vec_env
from zoo.envs.video import ffmpeg
from zoo.plots import figures

REPOSITORY = Path(__file__).resolve().parent.parent
CURVES = REPOSITORY / "docs/measured/curves"
PICTURES = REPOSITORY / "docs/images/collection"
AGENTS = REPOSITORY / "trained_agents"

LARGEST_FILM = 300_000
HEIGHTS = (240, 200, 160, 120, 90, 72)
"""Heights of a film in pixels: the first that gives a file of at most LARGEST_FILM bytes is taken."""

N_SECONDS = 5
GIF = "fps=12.5,scale=-2:{}:flags=lanczos,split[a][b];[b]palettegen=64[c];[a][c]paletteuse=dither=none"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--no-films", action="store_true", help="draw the curves alone")
    arguments = parser.parse_args()
    PICTURES.mkdir(parents=True, exist_ok=True)
    for env in sorted({path.stem for path in CURVES.glob("*/*.csv")}):
        draw_curves(env)
    for suite in AGGREGATED:
        settings = ConfigLoader("plot").settings(["score=best", f"title='{suite}'"])
        content = figures.render("png", figures.profile_figure, scores_of(suite), settings)
        (PICTURES / profile_name(suite)).write_bytes(content)
    if not arguments.no_films:
        for env in sorted({path.name for path in AGENTS.glob("*/*") if path.is_dir()}):
            film(env)


def draw_curves(env: str) -> None:
    """Draw a thin line a seed, and a thick one for the median, in a colour an algorithm."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(6.4, 3.6), constrained_layout=True)
    for number, path in enumerate(sorted(CURVES.glob(f"*/{env}.csv"))):
        colour, dashes = pyplot.get_cmap("tab20")(number % 20), "-" if number < 20 else "--"
        runs = read_curves(path)
        for steps, returns in runs:
            panel.plot(steps, returns, color=colour, alpha=0.25, lw=0.7)
        grid = max((steps for steps, _ in runs), key=len)
        median = np.median([np.interp(grid, *run) for run in runs], axis=0)
        panel.plot(grid, median, color=colour, lw=1.6, label=path.parent.name, ls=dashes)
    panel.set(title=env, xlabel="environment steps", ylabel="mean return", xscale="log")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(PICTURES / f"{env}.png", dpi=80, metadata={"Software": None})
    pyplot.close(figure)


def read_curves(path: Path) -> list[tuple[list[float], list[float]]]:
    """Return environment steps and mean returns of the evaluations, a pair a seed."""
    runs: dict[str, tuple[list[float], list[float]]] = {}
    for row in csv.DictReader(path.read_text().splitlines()):
        steps, returns = runs.setdefault(row["seed"], ([], []))
        steps.append(float(row["timesteps"]))
        returns.append(float(row["mean_return"]))
    return list(runs.values())


def film(env: str) -> None:
    """Film the best agent of an environment as a GIF, as large as LARGEST_FILM allows, if it draws images."""
    output = PICTURES / f"{env}.gif"
    if output.exists():
        return
    cards = [
        json.loads(path.read_text()) | {"path": path.parent} for path in AGENTS.glob(f"*/{env}/card.json")
    ]
    best = max(cards, key=lambda card: card["mean_return"])
    rate = make_vec_env(best["env"], check=False).metadata.get("render_fps", 30)
    with tempfile.TemporaryDirectory() as folder:
        video = str(Path(folder) / "film.mp4")
        length = f"length={int(N_SECONDS * rate)}"
        record = [sys.executable, "-m", "zoo", "record", f"agent={best['path']}", f"out={video}", "seed=0"]
        if subprocess.run([*record, length, f"size={HEIGHTS[0]}"], stdout=subprocess.DEVNULL).returncode:
            return  # what draws no images, as `zoo record` has said
        gif = Path(folder) / "film.gif"
        for height in HEIGHTS:
            encode = [ffmpeg(), "-v", "error", "-y", "-i", video, "-vf", GIF.format(height)]
            subprocess.run([*encode, str(gif)], check=True)
            if gif.stat().st_size <= LARGEST_FILM:
                break
        shutil.move(gif, output)
    print(f"{output.relative_to(REPOSITORY)}: {best['algo']}, {output.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
