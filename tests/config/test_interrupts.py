"""Ctrl-C while a config is put together ends the program, whichever line it comes at."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from omegaconf import base

from zoo.config.interrupts import interrupts_kept
from zoo.config.tuned_files import read_yaml
from zoo.errors import ZooError


def traced(at: int | None, call: Callable[[], Any]) -> set[int]:
    """Call, with Ctrl-C where that line of OmegaConf's base is reached; return the lines that were."""
    lines = set()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != base.__file__:
            return None
        if event == "line" and frame.f_lineno not in lines:
            lines.add(frame.f_lineno)
            if frame.f_lineno == at:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def test_interrupt_at_any_line_of_reading_is_one(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text("defaults:\n  - _self_\n  - algo: null\na: 1\nb:\n  c: 2\n")
    lines = traced(None, lambda: read_yaml(file))
    assert len(lines) > 20
    for line in lines:
        with pytest.raises(KeyboardInterrupt):
            traced(line, lambda: read_yaml(file))


def fail_while_cleaning_up() -> None:
    try:
        raise KeyboardInterrupt
    finally:
        raise AttributeError("what the line would have set")


@interrupts_kept()
def wrap_what_failed() -> None:
    try:
        fail_while_cleaning_up()
    except AttributeError as error:
        raise ZooError("can't read it") from error


@interrupts_kept()
def make_a_mistake() -> None:
    raise ZooError("a mistake")


def test_interrupt_behind_other_errors_is_one() -> None:
    with pytest.raises(KeyboardInterrupt):
        wrap_what_failed()


def test_interrupt_that_is_over_changes_no_error() -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(ZooError, match="a mistake"):
            make_a_mistake()
