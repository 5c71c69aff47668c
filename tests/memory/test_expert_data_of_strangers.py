"""Expert data that somebody sent: whatever stands in them is told in one line, and fills no memory."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from test_expert_data import expert, npy, rewritten

from zoo.envs.spaces import space_to_dict
from zoo.errors import ZooError
from zoo.memory.expert_files import read_expert, write_expert
from zoo.memory.expert_summary import summary


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"rewards__npy": npy(np.array(["1"] * 6))}, r"its rewards are <U1 of shape \(6,\), expected rows"),
        ({"rewards__npy": npy(np.float32(1))}, r"its rewards are float32 of shape \(\), expected rows"),
        ({"rewards__npy": npy(np.zeros((6, 3)))}, r"its rewards are float64 of shape \(6, 3\)"),
        ({"episode_starts__npy": npy(np.bool_(True))}, r"its episode_starts are bool of shape \(\)"),
        ({"episode_returns__npy": npy(np.array(["a"] * 2))}, "its episode_returns are <U1"),
    ],
)
def test_what_is_of_another_kind_is_named(tmp_path: Path, members: dict[str, bytes], message: str) -> None:
    path = rewritten(write_expert(tmp_path / "expert.npz", expert()), **members)
    with pytest.raises(ZooError, match=message):
        read_expert(path)


def with_card(tmp_path: Path, **values: Any) -> Path:
    path = write_expert(tmp_path / "expert.npz", expert())
    with zipfile.ZipFile(path) as archive:
        card = json.loads(archive.read("card.json"))
    return rewritten(path, card__json=json.dumps({**card, **values}).encode())


@pytest.mark.parametrize(
    "source", ["x", ["a"], 5, True, {"a\n\x1b[2J": "b"}, {str(i): i for i in range(9000)}]
)
def test_source_of_any_kind_is_shown_on_one_line(tmp_path: Path, source: Any) -> None:
    shown = summary(read_expert(with_card(tmp_path, source=source)))
    [line] = [each for each in shown.splitlines() if each.startswith("source ")]
    assert line.isprintable()
    assert len(line) < 1100


@pytest.mark.parametrize(
    ("name", "space", "message"),
    [
        ("observation_space", spaces.Tuple([spaces.Discrete(2)] * 2), "type Tuple is not supported"),
        ("observation_space", spaces.Dict(a=spaces.Dict(b=spaces.Discrete(2))), "type Dict is not supported"),
        ("action_space", spaces.Tuple([]), "need parts, at least one"),
    ],
)
def test_spaces_that_nothing_learns_from_are_refused(
    tmp_path: Path, name: str, space: spaces.Space[Any], message: str
) -> None:
    with pytest.raises(ZooError, match=message):
        read_expert(with_card(tmp_path, **{name: space_to_dict(space)}))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "space",
    [
        {"type": "Discrete", "n": 2**62, "start": 2**62},
        {"type": "MultiDiscrete", "nvec": [2**62, 2], "start": [2**62, 0]},
    ],
)
def test_choices_beyond_64_bits_are_refused_without_a_warning(tmp_path: Path, space: dict[str, Any]) -> None:
    with pytest.raises(ZooError, match="choices with numbers above those of 64 bits"):
        read_expert(with_card(tmp_path, action_space=space))
