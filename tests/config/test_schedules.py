"""Schedules: the value at each part of training, every way to write one, and what is refused."""

from __future__ import annotations

import math
from dataclasses import make_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.algorithms.ppo import PPO2, PPO2Config
from zoo.config.fields import build
from zoo.config.schedules import Schedule, parse
from zoo.errors import ZooError

TYPES = ("constant", "linear", "cosine", "double_linear_con", "middle_drop", "double_middle_drop")

numbers = st.floats(-1e3, 1e3, allow_subnormal=False)
each_example = settings(derandomize=True, max_examples=60)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("constant", {0.0: 2.0, 0.5: 2.0, 1.0: 2.0}),
        ("linear", {0.0: 2.0, 0.25: 1.5, 0.5: 1.0, 1.0: 0.0}),
        ("cosine", {0.0: 2.0, 0.25: 1 + math.sqrt(0.5), 0.5: 1.0, 1.0: 0.0}),
        ("double_linear_con", {0.0: 2.0, 0.25: 1.0, 0.4: 0.4, 0.43: 0.28, 0.44: 0.25, 0.7: 0.25, 1.0: 0.25}),
        ("middle_drop", {0.0: 2.0, 0.2: 1.6, 0.25: 1.5, 0.26: 0.15, 0.5: 0.15, 1.0: 0.15}),
        ("double_middle_drop", {0.0: 2.0, 0.25: 1.5, 0.26: 0.15, 0.75: 0.15, 0.76: 0.25, 1.0: 0.25}),
    ],
)
def test_value_of_each_type_as_training_goes_on(kind: str, values: dict[float, float]) -> None:
    schedule = parse({"type": kind, "start": 2.0})
    for done, expected in values.items():
        assert schedule(done) == pytest.approx(expected), done


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("lin_3e-4", Schedule("linear", 3e-4, 0.0)),
        ("linear_1", Schedule("linear", 1.0, 0.0)),
        ("cos_0.5", Schedule("cosine", 0.5, 0.0)),
        ("cosine_0.5", Schedule("cosine", 0.5, 0.0)),
        ("double_linear_con_1e-3", Schedule("double_linear_con", 1e-3, 0.0)),
        ("middle_drop_2", Schedule("middle_drop", 2.0, 0.0)),
        ("double_middle_drop_2", Schedule("double_middle_drop", 2.0, 0.0)),
        ("0.25", Schedule("constant", 0.25, 0.25)),
        ("3e-4", Schedule("constant", 3e-4, 3e-4)),
    ],
)
def test_text_forms(text: str, schedule: Schedule) -> None:
    assert parse(text) == schedule


@given(kind=st.sampled_from(TYPES), start=numbers, end=numbers, fraction=st.floats(1e-3, 1))
@each_example
def test_schedule_is_constant_after_its_fraction(
    kind: str, start: float, end: float, fraction: float
) -> None:
    schedule = parse({"type": kind, "start": start, "end": end, "fraction": fraction})
    assert schedule(0.0) == pytest.approx(start)
    assert schedule(fraction) == schedule(1.0) == schedule(1.5)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("lni_3e-4", r"unknown schedule 'lni' in 'lni_3e-4'; did you mean 'lin'\?"),
        ("lin_fast", "'lin_fast' is not a schedule"),
        ("", "'' is not a schedule"),
        ("fast", "'fast' is not a schedule"),
        ("lin_nan", "not a finite number"),
        ("inf", "not a finite number"),
        (math.nan, "not a finite number"),
        (math.inf, "not a finite number"),
        (True, "True is not a schedule"),
        (None, "None is not a schedule"),
        ([1.0, 0.0], r"\[1.0, 0.0\] is not a schedule"),
        ({}, "`start` is missing"),
        ({"type": "linear"}, "`start` is missing"),
        ({"type": "linear", "start": 1, "stop": 0}, "unknown key `stop`"),
        ({"type": "linaer", "start": 1}, r"unknown schedule 'linaer'.*did you mean 'linear'\?"),
        ({"start": "fast"}, "`start`.*is not a finite number"),
        ({"start": True}, "`start`.*is not a finite number"),
        ({"start": 1, "end": None}, "`end`.*is not a finite number"),
        ({"start": math.nan}, "not a finite number"),
        ({"start": 1, "fraction": 0}, "`fraction`.*more than 0 and at most 1"),
        ({"start": 1, "fraction": 1.5}, "`fraction`.*more than 0 and at most 1"),
    ],
)
def test_what_is_no_schedule_is_refused_in_words(value: Any, message: str) -> None:
    with pytest.raises(ZooError, match=message):
        parse(value)


def test_ready_config_names_its_wrong_schedule() -> None:
    with pytest.raises(ZooError, match="`learning_rate`: 'foo' is not a schedule"):
        PPO2(env="CartPole-v1", config=PPO2Config(learning_rate="foo"))


def test_missing_values_are_told_in_their_order() -> None:
    names = [f"value_{i}" for i in range(20)]
    config_class = make_dataclass("Config", [(name, int) for name in names])
    for i in range(20):
        with pytest.raises(ZooError, match=f"`value_{i}` is missing"):
            build(config_class, dict.fromkeys(names[:i], 1), "")
