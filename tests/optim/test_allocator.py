"""Whether what a step frees stays with the process, seen by the page faults of the next one."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "mallopt"),
    reason="glibc's settings",
)

FAULTS = """
import resource
import numpy as np
from zoo.optim.runtime import Runtime

def step():
    blocks = [np.ones(n_bytes, np.uint8) for _ in range(3)]

def faults(n_steps):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(n_steps):
        step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / n_steps

for n_bytes in (4 * 2**20, 40 * 2**20):
    with Runtime(device="cpu", compile=False, threads=1).in_force():
        faults(3)
        print(int(faults(10)))
"""


def faults_of_small_and_large_blocks(**environment: str) -> tuple[int, int]:
    """Return page faults a step that frees what it takes: three blocks of 4 MiB, and three of 40 MiB."""
    of_allocators = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")
    others = {name: value for name, value in os.environ.items() if not name.startswith(of_allocators)}
    ended = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env={**others, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    small, large = ended.stdout.split()
    return int(small), int(large)


def test_what_a_step_frees_stays_for_the_next_one_and_larger_blocks_go_back() -> None:
    small, large = faults_of_small_and_large_blocks()
    assert small < 10
    assert large > 30  # at least one for each huge page of 2 MiB


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
        ("MALLOC_MMAP_THRESHOLD_", "131072"),
        ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=131072"),
    ],
)
def test_what_the_environment_says_stays(name: str, value: str) -> None:
    small, _ = faults_of_small_and_large_blocks(**{name: value})
    assert small >= 6  # for huge pages of 2 MiB too
