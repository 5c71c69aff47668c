"""The one exception for what a user can mend, and the hint that names the nearest right thing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

PACKAGES_OF_EXTRAS = {
    "atari": "ale-py opencv-python-headless",
    "box2d": "box2d",
    "export": "onnx onnxruntime onnxscript",
    "hub": "huggingface-hub",
    "minari": "'minari[hdf5]'",
    "mujoco": "mujoco imageio",
    "plots": "matplotlib",
    "pybullet": "pybullet pybullet-envs-gymnasium",
    "robotics": "gymnasium-robotics highway-env panda-gym",
    "tune": "cmaes plotly 'psycopg[binary]' scipy",
    "video": "moviepy pillow pygame-ce",
    "wandb": "wandb",
}
"""What extras of pyproject.toml bring, as one types it: the package index does not have Zoo's own."""

MISTAKE = 2
"""Exit status after a `ZooError`."""

INTERRUPTED = 130
"""Exit status of what the user or the cluster ended."""


class ZooError(Exception):
    """A mistake that the user can mend: the command line prints the message and exits with status 2.

    The message says what was found, what was expected and what to do.
    """


class NotFiniteError(ZooError):
    """A NaN or an infinity where learning can't go on with one: from an environment, or in parameters."""


class ZooWarning(UserWarning):
    """What a user should know and need not mend: the command line prints the message in one line."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the name closest to ``name``, or "" if none is close."""
    candidates = list(names)
    by_lower_case = {candidate.lower(): candidate for candidate in reversed(candidates)}
    matches = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.6)
    return f"; did you mean '{by_lower_case[matches[0]]}'?" if matches else ""


def install_command(extra: str) -> str:
    """Return the command that installs what an extra brings, wherever Zoo itself has come from."""
    return f"pip install {PACKAGES_OF_EXTRAS[extra]}"
