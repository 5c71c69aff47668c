"""What is known of the processor where kernels are chosen."""

from __future__ import annotations

import functools
from pathlib import Path

import torch


@functools.cache
def mkl_holds_back(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Tell whether MKL leaves 512-bit units alone that are there, as it does on AMD's processors."""
    made_by_amd = cpuinfo.is_file() and "AuthenticAMD" in cpuinfo.read_text()
    return made_by_amd and torch.backends.cpu.get_cpu_capability() == "AVX512"
