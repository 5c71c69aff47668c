"""What a bug report needs to say about a machine: found out in seconds, without network, whatever is broken.

What may hang, crash or take long (importing packages, compiling) is tried in processes of its own, which are
given up after a while.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zoo.training.machine import machine
from zoo.version import __version__

SECONDS = 40.0
"""How long trials may take together."""
LOOK_SECONDS = 10.0
"""How long a program may take to say its version."""

PACKAGES = (
    "torch",
    "gymnasium",
    "numpy",
    "hydra-core",
    "omegaconf",
    "optuna",
    "tensorboard",
    "stable-baselines3",
    "sb3-contrib",
)

EXTRAS = {
    "atari": ("ale_py", "cv2"),
    "box2d": ("Box2D",),
    "video": ("PIL", "pygame", "moviepy"),
    "plots": ("matplotlib",),
    "tune": ("cmaes", "plotly", "psycopg", "scipy"),
    "hub": ("huggingface_hub",),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "wandb": ("wandb",),
    "mujoco": ("mujoco", "imageio"),
    "pybullet": ("pybullet", "pybullet_envs_gymnasium"),
    "minari": ("minari",),
    "robotics": ("gymnasium_robotics", "highway_env", "panda_gym"),
}
"""What each extra lets Zoo import; what takes long comes last."""

VARIABLES = (
    r"ZOO_\w+|CUDA_\w+|NVIDIA_VISIBLE_DEVICES|(OMP|MKL|OPENBLAS)_NUM_THREADS|GOMP_SPINCOUNT|TORCH\w*|PYTORCH_\w+"
    r"|CC|CXX|MUJOCO_GL|PYOPENGL_PLATFORM|DISPLAY|WAYLAND_DISPLAY|SDL_\w+|SLURM_(JOB_ID|RESTART_COUNT|NNODES)"
    r"|TMPDIR|XDG_\w+_HOME|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|PYTHONHASHSEED|VIRTUAL_ENV|CONDA_PREFIX|LANG"
    r"|LC_ALL|HYDRA_FULL_ERROR|(HTTP|HTTPS|NO|ALL)_PROXY|WANDB_(MODE|DIR|PROJECT|BASE_URL|DISABLED|SILENT)"
)
"""Environment variables that change what Zoo does; others, and what may be secret in these, are not shown."""

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)

_FINDINGS_LIMIT = 300
_TOO_SLOW = "it takes longer than this command waits; the next time may be quicker"


def diagnosis() -> dict[str, Any]:
    """Return what was found out, by subject; what could not be found out says why."""
    busy = _busy()  # before the trials add to it
    started = _started(_TRIES)
    # What looks at the displays sets variables for them: it comes after they were looked at.
    found = {name: _found(look) for name, look in _LOOKS.items()}
    return {**found, **_read(started, time.monotonic() + SECONDS, busy)}


def _found(look: Callable[[], Any]) -> Any:
    try:
        return look()
    except Exception as error:
        return _why(error)


def _why(error: BaseException) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"not found out: {_TOO_SLOW}{_busy()}"
    return f"not found out: {type(error).__name__}: {' '.join(str(error).split())}"[:_FINDINGS_LIMIT]


def _busy() -> str:
    """Return what to add where something took long: that others use this machine, if they do."""
    try:
        load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    except (OSError, AttributeError):
        return ""
    return f" (this machine is busy: load {load:.1f} on {cores} cores)" if load > cores else ""


# What can be seen at once


def _versions() -> dict[str, str]:
    found = {"zoo": __version__, "python": f"{platform.python_version()} ({sys.executable})"}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _machine() -> dict[str, Any]:
    found = machine()
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    found["memory"] = f"{pages * size / 2**30:.1f} GiB, {_free_memory()} free"
    found["load"] = ", ".join(f"{each:.1f}" for each in os.getloadavg()) + _busy()
    return found


def _free_memory() -> str:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return f"{int(re.findall(r'MemAvailable: +([0-9]+)', text)[0]) / 2**20:.1f} GiB"
    except (OSError, IndexError):
        return "?"


def _compiler() -> str:
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        return f"none: there is no {name}; updates are not compiled (apt install g++, or CXX=PATH)"
    done = subprocess.run(
        [path, "--version"], capture_output=True, text=True, timeout=LOOK_SECONDS, check=False
    )
    return f"{path}: {(done.stdout or done.stderr).splitlines()[0]}"


def _displays() -> dict[str, str]:
    from zoo.envs.camera import has_display, render_offscreen

    render_offscreen()
    chosen = os.environ.get("MUJOCO_GL", "its own choice")
    return {
        "window": "can be opened" if has_display() else "no display: record=true writes videos",
        "MuJoCo draws by": chosen,
    }


def _ffmpeg() -> str:
    from zoo.envs.filming import ffmpeg
    from zoo.errors import ZooError

    try:
        path = ffmpeg()
    except ZooError as error:
        return str(error)
    done = subprocess.run(
        [path, "-version"], capture_output=True, text=True, timeout=LOOK_SECONDS, check=False
    )
    return f"{path}: {' '.join(done.stdout.split()[:3])}"


def _variables() -> dict[str, str]:
    names = [name for name in sorted(os.environ) if re.fullmatch(VARIABLES, name, re.IGNORECASE)]
    return {name: _without_secrets(os.environ[name]) for name in names if not _SECRET.search(name)}


def _without_secrets(value: str) -> str:
    """Return a value without the user and password that an address may hold."""
    return re.sub(r"(^|\s)([\w+.-]+://)?\S*@", r"\1\2…@", value)[:_FINDINGS_LIMIT]


def _folders() -> dict[str, str]:
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    places = {
        "working folder": Path.cwd(),
        "runs": Path("runs"),
        "temporary files": Path(tempfile.gettempdir()),
        "own settings": Path(config, "zoo"),
    }
    return {name: _found(lambda path=path: _place(path)) for name, path in places.items()}  # type: ignore[misc]


def _place(path: Path) -> str:
    existing = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            writable = "can be written"
    except OSError as error:
        writable = f"can't be written: {error.strerror}"
    missing = "" if existing == path.absolute() else ", not there yet"
    return f"{path.absolute()}{missing}: {writable}, {shutil.disk_usage(existing).free / 2**30:.1f} GiB free"


_LOOKS: dict[str, Callable[[], Any]] = {
    "versions": _versions,
    "machine": _machine,
    "compiler": _compiler,
    "environment variables": _variables,
    "displays": _displays,
    "ffmpeg": _ffmpeg,
    "folders": _folders,
}


# What has to be tried


_TORCH = """
import json, os, time
def say(name, value):
    print(json.dumps([name, value]), flush=True)
import torch
build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
say("torch", {"threads": torch.get_num_threads(), "built for": build})
def gpus():
    if not torch.cuda.is_available():
        return "none that torch can use"
    names = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return [f"{each.name}, {each.total_memory / 2**30:.1f} GiB" for each in names]
try:
    say("GPU", gpus())
except Exception as error:
    say("GPU", f"not found out: {error}")
started = time.perf_counter()
try:
    function = torch.compile(lambda values: torch.tanh(values) * 2 + values)
    values = torch.linspace(-1, 1, 64)
    right = torch.allclose(function(values), torch.tanh(values) * 2 + values)
    seconds = time.perf_counter() - started
    say("compiling", f"works ({seconds:.1f} s)" if right else "gives wrong numbers")
except BaseException as error:
    lines = [line for line in str(error).splitlines() if line.strip()]
    say("compiling", f"fails: {type(error).__name__}: {lines[0] if lines else ''}")
"""

_IMPORTS = """
import importlib, importlib.util, json, sys, warnings
warnings.simplefilter("ignore")
for extra, modules in json.loads(sys.argv[1]).items():
    found = "works"
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0] == name.partition(".")[0]
            found = "not installed" if missing else f"{name} fails: {error}"
            if missing and len(modules) > 1:
                found = f"not installed: {name} is missing"
        except BaseException as error:
            found = f"{name} fails: {type(error).__name__}: {' '.join(str(error).split())}"
        if found != "works":
            break
    print(json.dumps([extra, found[:300]]), flush=True)
"""

_TRIES = {"torch": [_TORCH], "extras": [_IMPORTS, json.dumps(EXTRAS)]}


def _started(tries: Mapping[str, list[str]]) -> dict[str, subprocess.Popen[bytes]]:
    return {
        name: subprocess.Popen(
            [sys.executable, "-c", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYGAME_HIDE_SUPPORT_PROMPT": "1", "WANDB_SILENT": "true"},
        )
        for name, arguments in tries.items()
    }


def _read(processes: Mapping[str, subprocess.Popen[bytes]], deadline: float, busy: str) -> dict[str, Any]:
    """Return what the trials say until the deadline, and of those that did not end that they did not.

    ``busy`` is what may be why they took long.
    """
    texts = dict.fromkeys(processes, b"")
    with selectors.DefaultSelector() as selector:
        for name, process in processes.items():
            assert process.stdout is not None
            selector.register(process.stdout, selectors.EVENT_READ, name)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                content = os.read(key.fd, 65536)
                texts[key.data] += content
                if not content:
                    selector.unregister(key.fileobj)
    status = {name: _ended(process, busy) for name, process in processes.items()}
    torch = {"torch": "", "GPU": "", "compiling": ""} | _said(texts["torch"])
    extras = dict.fromkeys(EXTRAS, "") | _said(texts["extras"])
    return {
        **{name: value or f"not found out: {status['torch']}" for name, value in torch.items()},
        "extras": {name: value or f"not found out: {status['extras']}" for name, value in extras.items()},
    }


def _ended(process: subprocess.Popen[bytes], busy: str) -> str:
    """End a trial, if it goes on, with all that it has started, and return how it ended."""
    is_slow = process.poll() is None
    if is_slow:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            is_slow = False
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    if is_slow:
        return f"{_TOO_SLOW}{busy}"
    return f"the process that tried it ended with status {process.returncode}"


def _said(text: bytes) -> dict[str, Any]:
    said = {}
    for line in text.decode(errors="replace").splitlines():
        try:
            name, value = json.loads(line)
        except (ValueError, TypeError):
            continue  # what a package prints while it is imported
        said[str(name)] = value
    return said
