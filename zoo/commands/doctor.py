"""`zoo doctor`: what a bug report needs, without network: versions, the machine, and what PyTorch finds."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import subprocess
import sys
import textwrap

from zoo.config.schema import NoSettings
from zoo.core.printing import aligned, one_line, show
from zoo.envs.video import has_display, render_offscreen
from zoo.errors import distribution, packages_of
from zoo.experiment.run_folder import machine
from zoo.version import __version__

PACKAGES = (
    *("torch", "gymnasium", "numpy", "hydra-core", "omegaconf", "optuna", "tensorboard", "safetensors"),
    *("stable-baselines3", "sb3-contrib"),
)


def run(settings: NoSettings) -> None:
    """Print versions, hardware and PyTorch's report on its environment."""
    extras = distribution().get_all("Provides-Extra", [])
    optional = [packages_of(extra) for extra in extras if extra not in ("all", "test", "bench")]
    packages = {package.partition("[")[0]: None for package in itertools.chain(PACKAGES, *optional)}
    versions = {"zoo": __version__, "python": f"{sys.version.split()[0]} ({sys.executable})"}
    versions |= {name: _version(name) for name in packages}
    render_offscreen()
    window = "can be opened" if has_display() else "no display: record=true writes videos"
    drawing = {"window": window, "MuJoCo draws by": os.environ.get("MUJOCO_GL", "its own choice")}
    for subject, values in {"versions": versions, "machine": {**machine(), **drawing}}.items():
        show(f"{subject}\n{textwrap.indent(aligned(values.items()), '  ')}")
    quiet = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = [sys.executable, "-m", "torch.utils.collect_env"]
    try:  # in a process of its own: drivers may hang or crash
        report = subprocess.check_output(command, text=True, env=quiet, timeout=60)
    except (subprocess.SubprocessError, OSError) as error:
        report = f"  not found out: {one_line(error)}"
    show(f"torch\n{report}")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"
