"""Texts of strangers are read as plain data, at little cost, or refused in one line."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from zoo.files.plain_data import BITS_LIMIT, VALUES_LIMIT, parse_config, parse_json, parse_yaml

BAD_YAML = {
    "hexadecimal": (b"a: [0x" + b"f" * 400 + b"]", "has 1,600 bits"),
    "long number": (b"a: 0x" + b"f" * 5_000, "line 1: a number is too long"),
    "digits": (b"a: " + b"9" * 1_100, "bits"),
    "key": (b"a: {0x" + b"f" * 400 + b": 1}", "has 1,600 bits"),
    "base 60": (b"a: 1" + b":59" * 20_000, "a number is too long"),
    "fraction in base 60": (b"a: 1" + b":59" * 300 + b":59.0", "too large"),
    "empty number": (b"a: !!int ''", "index out of range"),
    "no truth": (b"a: !!bool maybe", "maybe"),
    "no time": (b"a: !!timestamp x", "group"),
    "reference": (b"a: &b [1]\nc: *b", "a reference"),
}


@pytest.mark.parametrize(("content", "problem"), BAD_YAML.values(), ids=BAD_YAML)
def test_yaml_that_is_no_plain_data_is_refused_in_one_line(content: bytes, problem: str) -> None:
    started = time.process_time()
    with pytest.raises(ValueError, match=problem) as caught:
        parse_yaml(content)
    assert str(caught.value).isprintable()
    assert time.process_time() - started < 2


def test_whole_number_that_no_float_holds_is_refused_in_json() -> None:
    with pytest.raises(ValueError, match="has 1,001 bits"):
        parse_json(f'{{"a": [1, {{"b": -{2**BITS_LIMIT}}}]}}')
    assert parse_json(f'{{"a": {2**BITS_LIMIT - 1}}}') == {"a": 2**BITS_LIMIT - 1}


def test_config_with_more_values_than_any_is_refused_before_it_is_built() -> None:
    n_values = VALUES_LIMIT - 3  # beside the mapping, the name and the list
    flow = b"a: [" + b"1," * n_values + b"]"
    assert parse_config(flow) == {"a": [1] * n_values}
    started = time.process_time()
    for content in (flow[:-1] + b"1]", b"a:\n" + b"- \n" * 80_000):
        with pytest.raises(ValueError, match="too many values"):
            parse_config(content)
    assert time.process_time() - started < 30


def test_config_that_is_large_is_refused_unread() -> None:
    with pytest.raises(ValueError, match="it has 300,002 bytes"):
        parse_config(b"a:" + b" " * 300_000)
    assert parse_yaml(b"a:" + b" " * 300_000) == {"a": None}


def test_own_configs_are_far_below_the_limits() -> None:
    for file in Path(__file__).parents[2].glob("trained_agents/*/*/config.yaml"):
        assert parse_config(file.read_bytes())["format"] == 1
