"""Images of no steps."""

from __future__ import annotations

from pathlib import Path

from zoo.memory.stable_baselines_data import _images


def test_no_paths_are_no_images(tmp_path: Path) -> None:
    assert _images([], tmp_path, None).shape == (0, 1, 1, 1)
