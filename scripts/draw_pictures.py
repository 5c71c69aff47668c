"""Draw the diagrams of the documentation, and take its screenshots.

    make docs                                                                 # the diagrams
    .venv/bin/python scripts/draw_pictures.py --terminal                      # zoo train in a terminal
    .venv/bin/python scripts/draw_pictures.py --runs runs/crossq runs/td3     # a figure and a report of runs
    .venv/bin/python scripts/draw_pictures.py --study runs/tune/ppo2/CartPole-v1/default    # a study's report

All go to docs/images/. Diagrams come from configs and docs/measured/ alone, and a test holds them to these.
Screenshots are of real runs; they need Chromium, and the extras plots, tune and test.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import OmegaConf

import zoo

REPOSITORY = Path(__file__).resolve().parent.parent
IMAGES = REPOSITORY / "docs" / "images"

STYLE = """
text { fill: #212121; font: 14px sans-serif; text-anchor: middle } .left { text-anchor: start }
.small { font-size: 12px } .code { font: 12px monospace } .strong { font-weight: bold }
.faint { fill: #6b6b6b } .old { fill: #6b6b6b; text-decoration: line-through } .ground { fill: #fff }
.box { fill: #e0f2f1; stroke: #00796b } .plain { fill: #f5f5f5; stroke: #9e9e9e }
.stop { fill: #fdecea; stroke: #c62828 } .line { fill: none; stroke: #616161 } .head { fill: #616161 }
@media (prefers-color-scheme: dark) {
text { fill: #eee } .faint, .old { fill: #b0b0b0 } .ground { fill: #1e2129 }
.box { fill: #123f3b; stroke: #4db6ac } .plain { fill: #2e323c; stroke: #8a8a8a }
.stop { fill: #4a1f1f; stroke: #ef9a9a } .line { stroke: #b0b0b0 } .head { fill: #b0b0b0 }
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the diagrams of docs/images/, and on demand more.")
    parser.add_argument("--terminal", action="store_true", help="also train PPO2 on CartPole, and draw that")
    parser.add_argument("--runs", nargs="+", metavar="PATH", help="also plot runs, and show their report")
    parser.add_argument("--study", type=Path, metavar="PATH", help="also show the report of a study")
    arguments = parser.parse_args()
    for name, svg in diagrams().items():
        (IMAGES / name).write_text(svg)
    if arguments.terminal:
        (IMAGES / "terminal.svg").write_text(terminal("zoo train algo=ppo2 env=CartPole-v1"))
    if arguments.runs:
        command = [sys.executable, "-m", "zoo", "plot", *arguments.runs, "y=eval"]
        with tempfile.TemporaryDirectory() as folder:
            for out in (page := Path(folder, "report.html"), figure := Path(folder, "plot.png")):
                subprocess.run([*command, f"out={out}"], check=True)
            take_screenshot(page, IMAGES / "report.png")
            shrink(figure, IMAGES / "plot.png")
    if arguments.study:
        take_screenshot(arguments.study / "report.html", IMAGES / "tuning.png")


@dataclass
class Drawing:
    """An SVG of boxes, lines and texts, for light and dark pages."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind}">{html.escape(text)}</text>')

    def box(self, x: float, y: float, width: float, *lines: str, kind: str = "box") -> None:
        """Draw a box around its centre, with a title and smaller lines."""
        top = y - 9 * len(lines) - 8
        self.bar(x - width / 2, top, width, 18 * len(lines) + 16, kind)
        for number, line in enumerate(lines):
            self.text(x, top + 22 + 18 * number, line, "small" if number else "strong")

    def bar(self, left: float, top: float, width: float, height: float, kind: str = "box") -> None:
        size = f'width="{width:.1f}" height="{height:g}"'
        self.parts.append(f'<rect x="{left:g}" y="{top:g}" {size} rx="5" class="{kind}"/>')

    def line(self, *points: tuple[float, float], end: str = ' marker-end="url(#head)"') -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" class="line"{end}/>')

    def svg(self) -> str:
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        head = '<marker id="head" markerWidth="8" markerHeight="8" refX="8" refY="4" orient="auto">'
        head += '<path d="M0,0 L8,4 L0,8 z" class="head"/></marker>'
        ground = '<rect width="100%" height="100%" rx="8" class="ground"/>'
        start = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{self.title}</title>'
        return "\n".join([start, f"<style>{STYLE}</style>", head, ground, *self.parts, "</svg>", ""])


def diagrams() -> dict[str, str]:
    """Return the SVG of each diagram that depends on the repository alone, by its file in docs/images/."""
    drawings = {"values": values(), "life": life(), "update": update(), "speed": speed()}
    return {f"{name}.svg": drawing.svg() for name, drawing in drawings.items()}


SHOWN = (
    *("algo.max_grad_norm", "algo.learning_rate", "algo.gamma", "algo.n_epochs", "n_envs", "n_timesteps"),
    *("callbacks.eval.every", "seed"),
)


def values() -> Drawing:
    """Draw the value of some settings in each layer that sets it; the last one counts."""
    line = ["experiment=cartpole_until_solved", "algo.gamma=0.97", "seed=3"]
    layers = {
        ("defaults", "declared in", "zoo/algorithms/ppo.py"): ["algo=ppo2", "env=CartPole-v1", "tuned=none"],
        ("tuned file", "hyperparams/ppo2/", "CartPole-v1.yaml"): ["algo=ppo2", "env=CartPole-v1"],
        ("experiment", "conf/experiment/", "cartpole_until_solved"): line[:1],
        ("command line", *line[1:]): line,
    }
    drawing = Drawing(960, 110 + 34 * len(SHOWN), f"Where the values of zoo train {' '.join(line)} come from")
    for column, lines in enumerate([*layers, ("the run", "config.yaml", "in its folder")]):
        drawing.box(255 + 155 * column, 50, 144, *lines, kind="box" if column == len(layers) else "plain")
    configs = [zoo.compose("train", layer) for layer in layers.values()]
    for row, key in enumerate(SHOWN):
        y = 120 + 34 * row
        drawing.text(20, y, key, "code left")
        stages = [OmegaConf.select(config, key) for config in configs]
        texts = [f"{each:,}" if isinstance(each, int) else str(each).replace("None", "–") for each in stages]
        columns = [n for n, text in enumerate(texts) if n == 0 or text != texts[n - 1]]
        for column in columns:
            drawing.text(255 + 155 * column, y, texts[column], "code old")
        drawing.parts.pop()  # the last one counts
        x = 255 + 155 * columns[-1]
        drawing.line((x + 60, y - 4), (255 + 155 * len(layers) - 60, y - 4))
        drawing.bar(x - 52, y - 18, 104, 26)
        drawing.text(x, y, texts[-1], "code")
        drawing.text(255 + 155 * len(layers), y, texts[-1], "code strong")
    return drawing


def life() -> Drawing:
    """Draw a run that is killed and resumed, beside one that never stopped."""
    drawing = Drawing(960, 330, "The life of a run: trained, killed, resumed, used")
    for y, end in ((65, 640), (165, 392)):
        drawing.box(100, y, 160, "zoo train", "algo=… env=… seed=1")
        drawing.line((180, y), (end, y))
        drawing.box(720, y, 160, "agent/", "best_agent/")
    drawing.box(430, 165, 76, "killed", kind="stop")
    drawing.box(390, 265, 190, "zoo train", "resume=runs/…/…_s1")
    drawing.line((310, 174), (310, 238))
    drawing.line((485, 265), (565, 265), (565, 165), (640, 165))
    for x, y in ((240, 65), (310, 65), (380, 65), (450, 65), (520, 65), (240, 165), (310, 165), (565, 215)):
        drawing.bar(x - 6, y - 6, 12, 12)
    drawing.line((720, 192), (720, 238))
    drawing.line((720, 92), (720, 138), end="")
    drawing.box(720, 265, 260, "zoo enjoy · evaluate · record", "zoo plot · compare · export", kind="plain")
    drawing.text(405, 45, "never stopped", "small faint")
    drawing.text(240, 195, "checkpoints", "small faint")
    drawing.text(225, 230, "replays the episodes", "small faint")
    drawing.text(728, 119, "the same weights, bit for bit", "small left")
    return drawing


def update() -> Drawing:
    """Draw the update of docs/inside-an-update.md, with shapes."""
    drawing = Drawing(960, 400, "One update of PPO2: 32 steps of 8 environments, then 16 gradient steps")
    drawing.text(20, 28, "collect: 32 steps", "strong left")
    drawing.box(130, 85, 190, "policy", "actions (8,)", "policies/acting.py")
    drawing.box(430, 85, 190, "8 environments", "observations (8, 4)", "envs/")
    drawing.box(770, 85, 230, "RolloutBuffer", "transitions (32, 8, …)", "buffers/rollout.py")
    drawing.text(150, 200, "update: 16 gradient steps", "strong left")
    drawing.box(770, 215, 230, "advantages, returns (256,)", "GAE(λ), truncations bootstrapped")
    drawing.box(770, 335, 230, "minibatch of 64 rows", "4 epochs × 4, shuffled", "algorithms/ppo.py")
    drawing.box(520, 335, 160, "policy(batch)", "parameters (64, 2)", "values (64,)")
    drawing.box(330, 335, 140, "losses", "policy, value,", "entropy")
    drawing.box(130, 335, 190, "gradient, clip, Adam", "one flat vector", "optim/optimizers.py")
    arrows = [(225, 75, 335, 75), (335, 97, 225, 97), (525, 85, 655, 85), (770, 120, 770, 188)]
    arrows += [(770, 242, 770, 300), (655, 335, 600, 335), (440, 335, 400, 335), (260, 335, 225, 335)]
    for x, y, to_x, to_y in [*arrows, (130, 300, 130, 120)]:
        drawing.line((x, y), (to_x, to_y))
    drawing.line((170, 370), (170, 388), (770, 388), (770, 370))
    for x, y, text in ((280, 68, "actions"), (280, 112, "observations"), (590, 78, "rewards, ends")):
        drawing.text(x, y, text, "small faint")
    drawing.text(138, 255, "new parameters", "small faint left")
    return drawing


def speed() -> Drawing:
    """Draw how many times faster than Stable-Baselines3 Zoo is, by docs/measured/speed.json."""
    medians = json.loads((REPOSITORY / "docs/measured/speed.json").read_text())["median_steps_per_second"]
    drawing = Drawing(760, 70 + 30 * len(medians), "Speed of training beside Stable-Baselines3")
    drawing.text(20, 26, "environment steps per second; the line is Stable-Baselines3", "small faint left")
    ratios = {work: speeds["zoo-compiled"] / speeds["sb3"] for work, speeds in medians.items()}
    scale = 340 / max(ratios.values())
    for row, (work, ratio) in enumerate(ratios.items()):
        y, end = 60 + 30 * row, 150 + scale * ratio
        drawing.text(20, y, work, "code left")
        drawing.bar(140, y - 15, scale * ratio, 20)
        drawing.text(end, y, f"{ratio:.1f}", "strong left")
        numbers = " beside ".join(f"{medians[work][system]:,.0f}" for system in ("zoo-compiled", "sb3"))
        drawing.text(end + 40, y, numbers, "small faint left")
    drawing.line((140 + scale, 38), (140 + scale, 50 + 30 * len(medians)), end="")
    return drawing


def terminal(command: str, columns: int = 104) -> str:
    """Carry out a command of Zoo in a pseudo-terminal; return an SVG of it late in the training."""
    from rich.console import Console
    from rich.text import Text

    environ = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(columns), "PYTHONPATH": str(REPOSITORY)}
    script = ["script", "-qec", f"{sys.executable} -m {command}", "/dev/null"]
    with tempfile.TemporaryDirectory() as folder:
        output = subprocess.check_output(script, cwd=folder, env=environ).decode()
    late = next(bar for bar in re.finditer(r"(\d+)/(\d+)", output) if int(bar[1]) > 0.6 * int(bar[2]))
    console = Console(record=True, width=columns, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    for line in output[: output.index("\r", late.end())].split("\n")[-32:]:
        last = line.rpartition("\x1b[2K")[2]  # after the line was erased
        console.print(Text.from_ansi(re.sub(r"\x1b\[\?25[hl]|\r", "", last)))
    svg = console.export_svg(title=command)
    return re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL)  # which fetches from another host


def take_screenshot(page: Path, output: Path) -> None:
    """Write an image of the top of an HTML page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1000, "height": 1000})
        tab.goto(page.absolute().as_uri(), timeout=0)
        tab.wait_for_timeout(2000)  # until plots are drawn
        tab.screenshot(path=output)
        browser.close()
    shrink(output, output)


def shrink(image: Path, output: Path) -> None:
    """Write a PNG with 32 colours."""
    from PIL import Image

    Image.open(image).convert("RGB").quantize(32, dither=Image.Dither.NONE).save(output, optimize=True)


if __name__ == "__main__":
    main()
