"""Texts are read as plain data, or refused in one line."""

from __future__ import annotations

import pytest

from zoo.core.plain_data import parse_json, parse_yaml

BAD_YAML = {
    "empty number": b"a: !!int ''",
    "no truth": b"a: !!bool maybe",
    "no time": b"a: !!timestamp x",
    "object": b"a: !!python/object/apply:os.getcwd []",
    "date": b"a: 2020-01-01",
    "list": b"[1, 2]",
    "no text": b"\xff\xfe\xfa",
    "open bracket": b"a: [1",
}


@pytest.mark.parametrize("content", BAD_YAML.values(), ids=BAD_YAML)
def test_yaml_that_is_no_plain_data_is_refused_in_one_line(content: bytes) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        parse_yaml(content)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("content", [b"[]", b"7", b"{", b"\xff", b"[" * 100_000])
def test_json_that_is_no_mapping_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_json(content)
