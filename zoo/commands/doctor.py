"""`zoo doctor`: what a bug report needs, without network: versions, the machine, and what PyTorch finds."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from zoo.config.schema import NoSettings
from zoo.core.printing import one_line, show
from zoo.envs.video import has_display, render_offscreen
from zoo.errors import packages_of
from zoo.experiment.run_folder import machine
from zoo.version import __version__

PACKAGES = (
    *("torch", "gymnasium", "numpy", "hydra-core", "omegaconf", "optuna", "tensorboard", "safetensors"),
    *("stable-baselines3", "sb3-contrib"),
)

TIMEOUT = 60.0
"""Seconds that PyTorch's report may take."""


def run(settings: NoSettings) -> None:
    """Print versions, hardware and PyTorch's report on its environment."""
    for subject, values in findings():
        show(subject)
        for name, value in values.items():
            show(f"  {name:<20}  {one_line(value, 400)}")
    quiet = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = [sys.executable, "-m", "torch.utils.collect_env"]
    try:  # in a process of its own: drivers may hang or crash
        report = subprocess.check_output(command, text=True, env=quiet, timeout=TIMEOUT)
    except (subprocess.SubprocessError, OSError) as error:
        report = f"  not found out: {one_line(error)}"
    show(f"torch\n{report}")


def findings() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield pairs of a subject, such as ``versions``, and its values by name."""
    python = f"{sys.version.split()[0]} ({sys.executable})"
    yield "versions", {"zoo": __version__, "python": python, **{name: _version(name) for name in PACKAGES}}
    render_offscreen()
    window = "can be opened" if has_display() else "no display: record=true writes videos"
    mujoco = os.environ.get("MUJOCO_GL", "its own choice")
    yield "machine", {**machine(), "window": window, "MuJoCo draws by": mujoco}
    extras = importlib.metadata.metadata("zoo").get_all("Provides-Extra") or []
    packages = {
        extra: [package.partition("[")[0] for package in packages_of(extra)]
        for extra in extras
        if extra not in ("all", "test", "bench")
    }
    yield "extras", {key: ", ".join(f"{name} {_version(name)}" for name in packages[key]) for key in packages}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"
