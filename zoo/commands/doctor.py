"""`zoo doctor`: what a bug report needs, without network: what PyTorch finds, and a few lines of our own."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from zoo.config.fields import build
from zoo.config.schema import DoctorSettings
from zoo.core.printing import one_line, show

TIMEOUT = 60.0
"""How long PyTorch's account, and compiling something, may each take."""

PACKAGES = (
    *("torch", "gymnasium", "numpy", "hydra-core", "omegaconf", "optuna", "tensorboard", "safetensors"),
    *("stable-baselines3", "sb3-contrib"),
)

_TORCH_REPORT = """
import json
from torch.utils.collect_env import get_env_info
print(json.dumps(get_env_info()._asdict()))
"""

_COMPILE_CHECK = """
import json, time, torch
started = time.perf_counter()
try:
    function = torch.compile(lambda values: torch.tanh(values) * 2 + values)
    values = torch.linspace(-1, 1, 64)
    right = torch.allclose(function(values), torch.tanh(values) * 2 + values)
    said = f"works ({time.perf_counter() - started:.1f} s)" if right else "gives wrong numbers"
except Exception as error:
    said = f"fails: {type(error).__name__}: {error}"
print(json.dumps(" ".join(said.split())[:300]))
"""


def run(config: Mapping[str, Any]) -> None:
    """Print what is known about this machine, as text or as one JSON object."""
    found = findings()
    if build(DoctorSettings, config, "").format == "json":
        show(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for subject, what in found.items():
        if isinstance(what, Mapping):
            show(subject)
            width = max(map(len, what), default=0)
            for name, value in what.items():
                show(f"  {one_line(name):<{width}}  {one_line(value, 400)}")
        else:
            show(f"{subject}\n  {one_line(what, 400)}")


def findings() -> dict[str, Any]:
    """Return what was found out, by subject; what hangs or crashes is a process of its own and says so."""
    from zoo.envs.video import has_display, render_offscreen
    from zoo.errors import packages_of
    from zoo.experiment.run_folder import machine
    from zoo.version import __version__

    with ThreadPoolExecutor() as pool:
        compiling, torch = pool.map(_run_and_parse, (_COMPILE_CHECK, _TORCH_REPORT))
    window = "can be opened" if has_display() else "no display: record=true writes videos"
    render_offscreen()
    return {
        "versions": {
            "zoo": __version__,
            "python": f"{sys.version.split()[0]} ({sys.executable})",
            **{name: _version(name) for name in PACKAGES},
        },
        "machine": machine(),
        "window": window,
        "MuJoCo draws by": os.environ.get("MUJOCO_GL", "its own choice"),
        "compiling": compiling,
        "extras": {
            extra: ", ".join(
                f"{name} {_version(name)}" for name in (each.partition("[")[0] for each in packages_of(extra))
            )
            for extra in importlib.metadata.metadata("zoo").get_all("Provides-Extra") or []
            if extra not in ("all", "test", "bench")
        },
        "torch": torch,
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _run_and_parse(code: str) -> Any:
    """Return what a process prints as JSON, or how it failed to."""
    quiet = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, env=quiet, timeout=TIMEOUT, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return f"not found out within {TIMEOUT:.0f} s; the next time may be quicker"
    except subprocess.CalledProcessError as error:
        return f"not found out: the process that tried it ended with status {error.returncode}"
