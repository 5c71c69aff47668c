"""Where and how updates run: device, threads, eager or compiled.

``"auto"`` is decided by rules from the size of the work, never by a clock, so that two runs of one config
make the same choice and end with the same weights. The size of a step is the number of tensor operations that
its first eager run takes.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import torch
from torch import nn

from zoo.core.free_memory import usable_cores
from zoo.core.printing import one_line
from zoo.errors import ToldInterrupt, ZooError

COMPILE_SECONDS = 30.0  # what the first compilation of an update takes at most, with nothing cached

SECONDS_SAVED_PER_OPERATION = 5e-6
"""What compiling saves of a step, for each tensor operation of its eager form.

Measured for small networks on two cores: 4 µs for PPO2 and A2C (207 and 159 operations), 8 to 9 µs for DQN
and SAC (89 and 397). A GPU is taken to save as much.
"""

MULTIPLICATIONS_FOR_THREADS = {"eager": 8e6, "compiled": 3e6}
"""Multiplications in one forward pass from which a second thread gives more than it costs."""

MOST_THREADS = 4  # threads that a gradient step gets at most with ``threads=auto``
THREADS_A_CORE = 4  # threads that may be asked for, for each core of the machine
LARGE_BLOCK = 31 * 2**20  # bytes of the largest block, nearly, that glibc can learn to keep

logger = logging.getLogger(__name__)


class CompilingInterrupted(ToldInterrupt):
    """The user did not want to wait until the update was compiled."""

    def __init__(self) -> None:
        super().__init__("the update is not compiled; the next learn() compiles it only if that saves time")


class CompileClock:
    """The ``seconds`` that a run has spent on compiling, and whether it ``is_running``."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_running = False
        self.on_change: Callable[[], None] | None = None
        """Called as compiling begins and ends, by whoever shows the progress."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Take the time of the block, which compiles; the first one is logged."""
        if not self.seconds:
            logger.info("compiling the update, about 20 s")
        started, was_running = time.perf_counter(), self.is_running
        self.is_running = True
        try:
            self._tell()
            yield
        finally:
            self.is_running = was_running
            self.seconds += time.perf_counter() - started
            self._tell()

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change()


class Runtime:
    """The choices of a run, resolved once its work is known.

    ``compile`` and ``threads`` are ``"auto"``, or a bool and a number. Raises `ZooError` for anything else,
    and for a device that is not there.
    """

    def __init__(self, *, device: str, compile: bool | str, threads: int | str) -> None:
        _check_choices(compile, threads)
        self.device = _device(device)
        self.compile = self.chosen_compile = compile
        self.threads = threads
        self.compile_clock = CompileClock()
        self.shared_by = 1
        """Processes among which the cores of this machine are divided."""
        self.expected_gradient_steps: float | None = None
        """How many steps will be taken in all, once that is known."""
        self._multiplications = 0.0

    def expect(self, gradient_steps: float, multiplications: float) -> None:
        """Take note of how many steps will be taken in all, and of the size of a step's forward pass."""
        self.expected_gradient_steps, self._multiplications = gradient_steps, multiplications

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Within the block torch computes by these choices; see `torch_settings`."""
        keep_freed_memory()
        try:
            with torch_settings(self._decided_threads()):
                yield
        except CompilingInterrupted:
            raise CompilingInterrupted from None  # without hundreds of lines of the compiler

    def disable_if_uncompilable(self, module: nn.Module) -> None:
        """Turn compilation off if the module is recurrent or has frozen parameters or unsaved buffers."""
        saved = module.state_dict()
        uncompilable = [name for name, tensor in module.named_parameters() if not tensor.requires_grad]
        uncompilable += [name for name, _ in module.named_buffers() if name not in saved]
        reasons = [f"no gradient step trains the policy's `{name}`" for name in uncompilable]
        if getattr(module, "state_size", 0):
            reasons = ["recurrent policies are not compiled"]
        if reasons:
            if self.compile is True:
                logger.warning("the update runs eagerly: %s", reasons[0])
            self.compile = False

    def decide(self, operations: int) -> None:
        """Compile if it would win back its own time, given the tensor operations of one eager step."""
        assert self.expected_gradient_steps is not None
        saved = operations * SECONDS_SAVED_PER_OPERATION * self.expected_gradient_steps
        self.compile = saved > COMPILE_SECONDS
        torch.set_num_threads(self._decided_threads())

    def state(self) -> dict[str, Any]:
        """Return the choices of compilation and threads."""
        return {"compile": self.compile, "threads": self.threads}

    def load_state(self, tree: dict[str, Any]) -> None:
        """Take the decisions of the interrupted run, so that the numbers stay the same."""
        self.compile, self.threads = tree["compile"], tree["threads"]

    def _decided_threads(self) -> int:
        """Return the number of threads; a number once chosen is kept, also by a resumed run."""
        if self.threads != "auto":
            return int(self.threads)
        form = "compiled" if self.compile is True else "eager"
        is_small = self._multiplications < MULTIPLICATIONS_FOR_THREADS[form]
        limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # as launchers of several jobs set it
        available = int(limit) if limit.isdecimal() and int(limit) > 0 else usable_cores()
        own_cores = max(1, available // self.shared_by)
        threads = 1 if is_small else min(own_cores, MOST_THREADS)
        if self.compile != "auto" and self.expected_gradient_steps is not None:
            self.threads = threads
        return threads


@contextmanager
def gradients_on() -> Iterator[None]:
    """Enable gradients within the block, even if an environment has disabled them."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        yield


@contextmanager
def torch_settings(threads: int) -> Iterator[None]:
    """Within the block torch computes with so many threads and takes denormal numbers for zero.

    So does all else that this thread computes, environments included, and every thread that is started
    within; threads that torch has started before keep their own. Afterwards torch's settings are what they
    were.
    """
    threads_before, dtype_before = torch.get_num_threads(), torch.get_default_dtype()
    precision_before = torch.get_float32_matmul_precision()
    flushed_before = bool(torch.full((), 1e-40, dtype=torch.float32) * 0.5 == 0)
    torch.set_flush_denormal(True)  # before torch starts the other threads, which take it from this one
    torch.set_num_threads(threads)
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    try:
        # Gradients are recorded whatever an interrupt has left switched off.
        with gradients_on():
            yield
    finally:
        torch.set_num_threads(threads_before)
        torch.set_flush_denormal(flushed_before)
        torch.set_default_dtype(dtype_before)
        torch.set_float32_matmul_precision(precision_before)


@functools.cache
def keep_freed_memory() -> None:
    """Let glibc keep freed memory for reuse by the next step, for the rest of the process.

    It learns from the largest block that was freed: smaller ones stay (mallopt(3): the dynamic threshold of
    M_MMAP_THRESHOLD). Nothing is written here, so no memory is taken. Other allocators don't mind.
    """
    torch.empty(LARGE_BLOCK, dtype=torch.uint8)


def _check_choices(compile: Any, threads: Any) -> None:
    if not isinstance(compile, bool) and compile != "auto":
        raise ZooError(f"`compile={one_line(compile)}` is not one of auto, true, false")
    is_number = isinstance(threads, Integral) and not isinstance(threads, bool)
    if threads != "auto" and not (is_number and threads >= 1):
        raise ZooError(f"`threads={one_line(threads)}` is neither auto nor a number of at least 1")
    if is_number and threads > THREADS_A_CORE * (os.cpu_count() or 1):  # thousands would crash torch
        raise ZooError(f"`threads={threads}` are too many for the {os.cpu_count()} cores of this machine")


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, colon, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (colon and not number.isdigit()):
        raise ZooError(f"`device={name}` is not one of auto, cpu, cuda, cuda:1")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ZooError(f"`device={name}`: this machine has no usable GPU; use device=cpu or device=auto")
    return device
