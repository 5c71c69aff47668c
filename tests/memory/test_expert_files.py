"""The file of expert data as it is on the disk."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from test_expert_data import expert

from zoo.memory.expert_files import write_expert


def test_card_says_what_is_in_the_file_in_the_first_format(tmp_path: Path) -> None:
    with zipfile.ZipFile(write_expert(tmp_path / "expert.npz", expert())) as archive:
        card = json.loads(archive.read("card.json"))
    assert card["format"] == 1
    assert (card["n_episodes"], card["n_steps"], card["mean_return"]) == (3, 6, 7.0)
