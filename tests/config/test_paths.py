"""Where the folders that users edit are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from zoo.config import paths


def test_checkout_has_them_at_the_top() -> None:
    top = Path(paths.__file__).parents[2]
    assert paths.data_folder("conf") == top / "conf"
    assert paths.data_folder("nothing_like_it") is None


def test_wheel_has_them_inside_of_the_package(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = working_folder / "site-packages" / "zoo"
    (package / "conf").mkdir(parents=True)
    (package.parent / "conf").mkdir()
    monkeypatch.setattr(paths, "PACKAGE", package)
    assert paths.data_folder("conf") == package / "conf"


def test_working_folder_comes_first_and_only_once(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = paths.data_folder("conf")
    assert own is not None
    assert paths.search_folders("conf") == [own]
    (working_folder / "conf").mkdir()
    assert paths.search_folders("conf") == [working_folder / "conf", own]
    monkeypatch.chdir(own.parent)
    assert paths.search_folders("conf") == [own]
