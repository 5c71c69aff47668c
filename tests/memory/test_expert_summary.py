"""The histogram of an expert's returns, by hand."""

from __future__ import annotations

import numpy as np

from zoo.memory.expert_summary import histogram


def test_histogram_has_ten_bins_and_bounds_as_wide_as_the_widest() -> None:
    lines = histogram(np.arange(-100.0, 1.0))
    assert [float(line.split()[0]) for line in lines] == list(range(-100, 0, 10))
    widest = max(len(line.split()[0]) for line in lines)
    assert {line.index("…") for line in lines} == {2 + widest + 1}
    assert {line.index("█") for line in lines} == {2 + widest + 3 + widest + 2}
    assert min(len(line.split()[2]) for line in lines) < widest
