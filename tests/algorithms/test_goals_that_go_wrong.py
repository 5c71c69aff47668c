"""What hindsight needs of an environment is asked for before it learns, and told when it goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zoo import DQN, SAC, make_vec_env
from zoo.envs.toys import BitFlipping
from zoo.errors import ZooError

SMALL = {"net_arch": [8]}
HINDSIGHT: dict[str, Any] = {"hindsight": {}}


class Failing(BitFlipping):
    """Answers about goals as long as there are few of them in all, then with ``after``."""

    def __init__(self, after: Any, n_answers: int = 0) -> None:
        super().__init__(4)
        self.after, self.n_answers = after, n_answers

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        self.n_answers -= 1
        if self.n_answers >= 0:
            return super().compute_reward(achieved_goal, desired_goal, info)
        if isinstance(self.after, Exception):
            raise self.after
        return np.full(np.shape(achieved_goal)[:-1], self.after)


def dqn(after: Any, n_answers: int, **options: Any) -> DQN:
    env = make_vec_env(lambda: Failing(after, n_answers), 1, check=False)
    options = {"learning_starts": 40, "batch_size": 8, "replay": HINDSIGHT, **options}
    return DQN(SMALL, env, seed=0, compile=False, **options)


def test_reward_that_cannot_be_asked_for_is_told() -> None:
    model = dqn(RuntimeError("no reward for that"), 0)
    with pytest.raises(
        ZooError, match=r"hindsight asks compute_reward.* raised RuntimeError: no reward for that"
    ):
        model.learn(200)


def test_environment_that_is_refused_takes_the_place_of_none() -> None:
    class Silent(BitFlipping):
        compute_reward = None  # type: ignore[assignment]

    model = SAC(
        SMALL,
        make_vec_env(lambda: BitFlipping(4, continuous=True), 2),
        seed=0,
        compile=False,
        replay=HINDSIGHT,
    ).learn(120)
    with pytest.raises(ZooError, match="compute_reward"):
        model.set_env(make_vec_env(lambda: Silent(4, continuous=True), 1, check=False))
    assert model.n_envs == 2
    model.learn(20, reset_num_timesteps=False)
