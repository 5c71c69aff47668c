"""Where and how updates run: device, threads, eager or compiled.

``"auto"`` is decided by rules from the size of the work, never by a clock, so that two runs of one config
make the same choice and end with the same weights. The size of a step is the number of tensor operations that
its first eager run takes.
"""

from __future__ import annotations

from typing import Any

import torch

from zoo.errors import ZooError
from zoo.optim.compile_clock import CompileClock

COMPILE_SECONDS = 30.0
"""What the first compilation of an update takes at most, with nothing cached."""

SECONDS_SAVED_PER_OPERATION = 5e-6
"""What compiling saves of a step, for each tensor operation of its eager form.

Measured for small networks on two cores: 4 µs for PPO2 and A2C (207 and 159 operations), 8 to 9 µs for DQN
and SAC (89 and 397).
"""

MULTIPLICATIONS_FOR_THREADS = {"eager": 8e6, "compiled": 3e6}
"""Multiplications in one forward pass from which a second thread gives more than it costs."""

_AVAILABLE_THREADS = torch.get_num_threads()
"""What OMP_NUM_THREADS, a launcher with several jobs on one machine, or the number of cores allows."""


class Runtime:
    """The choices of a run, resolved once its work is known.

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
        self.compile_clock = CompileClock()
        self._gradient_steps: float | None = None
        self._multiplications = 0.0
        torch.set_flush_denormal(True)

    @property
    def compiles(self) -> bool:
        """Whether updates are compiled, as far as that is decided."""
        return self.compile is True

    @property
    def is_undecided(self) -> bool:
        """Whether the next step should be counted, for `decide`."""
        return self.compile == "auto" and self._gradient_steps is not None

    def expect(self, gradient_steps: float, multiplications: float) -> None:
        """Hear how many steps the program will take in all, and set torch's threads.

        ``multiplications`` is the size of a gradient step's forward pass.
        """
        self._gradient_steps, self._multiplications = gradient_steps, multiplications
        self._set_threads()

    def decide(self, operations: int) -> None:
        """Compile if it would win back its own time, given the tensor operations of one eager step."""
        assert self._gradient_steps is not None
        saved = operations * SECONDS_SAVED_PER_OPERATION * self._gradient_steps
        self.compile = saved > COMPILE_SECONDS
        self._set_threads()

    def state(self) -> dict[str, Any]:
        """Return what was decided so far."""
        return {"compile": self.compile, "threads": self.threads}

    def load_state(self, tree: dict[str, Any]) -> None:
        """Take the decisions of the interrupted run, so that the numbers stay the same."""
        self.compile, self.threads = tree["compile"], tree["threads"]

    def _set_threads(self) -> None:
        threads = self.threads
        if threads == "auto":
            form = "compiled" if self.compiles else "eager"
            is_small = self._multiplications < MULTIPLICATIONS_FOR_THREADS[form]
            threads = 1 if is_small else min(_AVAILABLE_THREADS, 4)
            if self.compile != "auto":
                self.threads = threads
        torch.set_num_threads(int(threads))


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
