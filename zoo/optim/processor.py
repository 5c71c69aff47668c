"""What is known of the processor where kernels are chosen."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import torch

ZEN_5 = 26
"""The family of AMD's processors from which on 512 bits are computed at once, as Linux numbers them."""

LANES = 16
"""Numbers of float32 that a processor of 512 bits takes at once."""


@functools.cache
def mkl_holds_back(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Tell whether oneDNN uses 512-bit units that MKL leaves alone, as it does on AMD's processors."""
    backends = torch.backends
    if not (backends.mkl.is_available() and backends.mkldnn.is_available() and cpuinfo.is_file()):
        return False
    text = cpuinfo.read_text()
    family = re.search(r"^cpu family\s*: (\d+)$", text, re.MULTILINE)
    is_zen_5 = "AuthenticAMD" in text and family is not None and int(family[1]) >= ZEN_5
    return is_zen_5 and backends.cpu.get_cpu_capability() == "AVX512"


@functools.cache
def has_bfloat16_vectors() -> bool:
    """Tell whether it multiplies vectors of bfloat16 (AVX512_BF16), without matrix units for them.

    PyTorch then rounds nothing for `torch.set_float32_matmul_precision`; it uses them for what is bfloat16.
    """
    if not torch.backends.mkldnn.is_available():
        return False
    return torch.cpu._is_avx512_bf16_supported() and not torch.cpu._is_amx_tile_supported()
