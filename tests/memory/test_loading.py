"""What a replay memory takes over from a checkpoint, and what it refuses: another memory's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zoo import DQN
from zoo.algorithms.callback import Callback
from zoo.errors import ZooError
from zoo.training.checkpoint import read_checkpoint, restore, write_checkpoint


def make(env: str = "FrozenLake-v1", **options: Any) -> DQN:
    settings = {"learning_starts": 20, "batch_size": 8, "buffer_size": 60, **options}
    return DQN({"net_arch": [4]}, env, seed=0, compile=False, threads=1, **settings)


def test_model_goes_back_to_before_a_number_that_was_not_finite(tmp_path: Any) -> None:
    """Rows behind those of the checkpoint are the model's own, of what came after it."""
    model = make(buffer_size=300).learn(50)
    write_checkpoint(tmp_path / "saved", model)
    model.learn(30, reset_num_timesteps=False)
    model.memory.columns["rewards"][70] = np.nan
    restore(read_checkpoint(tmp_path / "saved"), model)
    model.learn(10, reset_num_timesteps=False)


class Counting(Callback):
    """Has something to be kept."""

    def state(self) -> dict[str, Any]:
        return {"n": 1}


def test_checkpoint_that_lacks_a_callback_leaves_the_model_as_it_was(tmp_path: Any) -> None:
    write_checkpoint(tmp_path / "saved", make().learn(50), [Counting()])
    other = make()
    with pytest.raises(ZooError, match="holds the state of"):
        restore(read_checkpoint(tmp_path / "saved"), other)
    assert other.num_timesteps == 0
    other.learn(10)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"buffer_size": 30}, r"`algo\.buffer_size`"),
        ({"buffer_size": 300}, r"`algo\.buffer_size`"),
        ({"memory": {"prioritized": {}}}, r"`memory\.prioritized`"),
        ({"optimize_memory_usage": True}, r"`algo\.optimize_memory_usage`"),
    ],
)
def test_model_of_another_memory_says_which_setting_is_another_and_learns_no_more(
    options: dict[str, Any], named: str, tmp_path: Any
) -> None:
    write_checkpoint(tmp_path / "saved", make().learn(80))
    saved = read_checkpoint(tmp_path / "saved")
    restore(saved, usual := make())
    usual.learn(10, reset_num_timesteps=False)
    model = make(**options)
    with pytest.raises(ZooError, match=rf"does not fit this algorithm: .*{named}"):
        restore(saved, model)
    with pytest.raises(ZooError, match="was restored in part; make the model anew"):
        model.learn(10, reset_num_timesteps=False)
