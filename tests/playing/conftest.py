"""A working folder of its own for every test."""

from __future__ import annotations

from pathlib import Path

import pytest
from playing_agents import RUN, save_agent


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without agents, on a machine without a display."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def run_folder(working_folder: Path) -> Path:
    """A run with a best agent on CartPole."""
    save_agent(RUN / "best_agent")
    (RUN / "run.json").write_text("{}")
    return RUN
