"""Images of no steps, and where images are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from zoo.memory.stable_baselines_data import _images, _places


def test_no_paths_are_no_images(tmp_path: Path) -> None:
    assert _images([], tmp_path, None).shape == (0, 1, 1, 1)


@pytest.mark.parametrize(("n", "is_followed"), [(4095, True), (4096, True), (4097, False), (5000, False)])
def test_path_has_no_more_characters_than_linux_takes(n: int, is_followed: bool) -> None:
    assert list(_places("a" * n)) == (["a" * n] if is_followed else [])


@pytest.mark.parametrize(("n", "is_followed"), [(64, True), (65, False), (66, False)])
def test_folders_of_both_kinds_of_path_are_counted_together(n: int, is_followed: bool) -> None:
    path = "a/" * (n - 40) + "b\\" * 40 + "0.png"
    names = path.replace("\\", "/").split("/")
    expected = [path, *("/".join(names[i:]) for i in range(1, n + 1))]
    assert list(_places(path)) == (expected if is_followed else [])
