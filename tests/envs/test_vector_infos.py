"""Infos of single environments out of Gymnasium's vector form."""

from __future__ import annotations

import numpy as np

from zoo.envs.vector_infos import info_of


def test_what_is_not_one_value_for_each_environment_is_in_no_info() -> None:
    infos = {
        "score": np.array([1.0, 2.0]),
        "lives": [3, 4],
        "_lives": np.array([True, False]),
        "episode": {"r": np.array([5.0, 6.0])},
        "version": 7,
        "of the first": (8,),
    }
    assert info_of(infos, 0) == {"score": 1.0, "lives": 3, "episode": {"r": 5.0}, "of the first": 8}
    assert info_of(infos, 1) == {"score": 2.0, "episode": {"r": 6.0}}
