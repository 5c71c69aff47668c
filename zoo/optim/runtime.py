"""Where and how updates run: device, threads, eager or compiled.

``"auto"`` is decided by rules from the size of the work, never by a clock, so that two runs of one config
make the same choice and end with the same weights. What compiling saves was measured (docs/speed.md).
"""

from __future__ import annotations

from typing import Any

import torch

from zoo.errors import ZooError

COMPILE_SECONDS = 30.0
"""What the first compilation of an update takes at most, with nothing cached."""

MULTIPLICATIONS_FOR_THREADS = {"eager": 8e6, "compiled": 3e6}
"""Multiplications in one forward pass from which a second thread gives more than it costs."""

_AVAILABLE_THREADS = torch.get_num_threads()
"""What OMP_NUM_THREADS, a launcher with several jobs on one machine, or the number of cores allows."""


class Runtime:
    """The choices of a run, resolved once its length is known.

    ``compile`` and ``threads`` are ``"auto"``, or a bool and a number. Raises `ZooError` for anything else,
    and for a device that is not there.
    """

    def __init__(self, *, device: str, compile: bool | str, threads: int | str) -> None:
        if isinstance(compile, str) and compile != "auto":
            raise ZooError(f"`compile={compile}` is not one of auto, true, false")
        if (isinstance(threads, str) and threads != "auto") or (not isinstance(threads, str) and threads < 1):
            raise ZooError(f"`threads={threads}` is neither auto nor a number of at least 1")
        self.device = _device(device)
        self.compile = compile
        self.threads = threads
        torch.set_flush_denormal(True)

    def prepare(self, saved_seconds: float, multiplications: float) -> bool:
        """Set torch's threads, and return whether to compile, which would save that many seconds in all.

        ``multiplications`` is the size of a gradient step's forward pass.
        """
        if self.compile == "auto":
            self.compile = saved_seconds > COMPILE_SECONDS
        if self.threads == "auto":
            is_small = multiplications < MULTIPLICATIONS_FOR_THREADS["compiled" if self.compile else "eager"]
            self.threads = 1 if is_small else min(_AVAILABLE_THREADS, 4)
        torch.set_num_threads(int(self.threads))
        return bool(self.compile)

    def resolved(self) -> dict[str, Any]:
        """Return what was decided, for a checkpoint."""
        return {"compile": self.compile, "threads": self.threads}

    def restore(self, values: dict[str, Any]) -> None:
        """Take the decisions of the interrupted run, so that the numbers stay the same."""
        self.compile, self.threads = values["compile"], values["threads"]


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ZooError(f"`device={name}` is not one of auto, cpu, cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ZooError(f"`device={name}`: this machine has no usable GPU; use device=cpu or device=auto")
    return device
