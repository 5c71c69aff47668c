"""What `compute_reward` answers is one real number a goal, also after its trial."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from zoo.envs.goals import Asked, GoalOutcomes
from zoo.envs.vec_env import make_vec_env
from zoo.errors import ZooError


class LaterOtherwise(gym.Env[Any, Any]):
    """Answers its first call for many goals as it should, and later ones in another way."""

    observation_space = spaces.Dict(
        {key: spaces.Box(-1.0, 1.0, (2,)) for key in ("observation", "achieved_goal", "desired_goal")}
    )
    action_space = spaces.Discrete(2)

    def __init__(self, later: Any) -> None:
        self.later, self.n_of_many = later, 0

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        rewards = -np.linalg.norm(achieved - desired, axis=-1)
        self.n_of_many += np.ndim(achieved) > 1
        return rewards if self.n_of_many < 2 else self.later(rewards)


@pytest.mark.parametrize(
    ("later", "message"),
    [
        (lambda rewards: rewards[:-1], r"answered 40 of them in the shape \(39,\); expected .* \(40,\)$"),
        (lambda rewards: np.append(rewards, rewards), r"answered 40 of them in the shape \(80,\)"),
        (lambda rewards: rewards[:, None], r"answered 40 of them in the shape \(40, 1\)"),
        (lambda rewards: rewards + 1j, "gave complex numbers; expected real ones$"),
    ],
)
def test_an_answer_of_another_form_than_in_the_trial_is_refused(later: Any, message: str) -> None:
    outcomes = GoalOutcomes(make_vec_env(lambda: LaterOtherwise(later), 1, check=False))
    outcomes.try_out()
    with pytest.raises(ZooError, match=message):
        outcomes.rewards(*np.random.default_rng(0).uniform(-1, 1, (2, 40, 2)))


@pytest.mark.parametrize("form", [float, np.float32, np.array, np.atleast_1d, np.atleast_2d, bool, int])
def test_one_goal_is_answered_with_one_number_in_any_form(form: Any) -> None:
    class OneAtATime(LaterOtherwise):
        def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
            assert achieved.ndim == 1
            return form(achieved[0] > 0)

        compute_terminated = compute_reward

    outcomes = GoalOutcomes(make_vec_env(lambda: OneAtATime(None), 1, check=False))
    outcomes.try_out()
    achieved = np.array([[0.5, 0.0], [-0.5, 0.0], [1.0, 1.0]])
    assert outcomes.rewards(achieved, achieved).tolist() == [1.0, 0.0, 1.0]
    assert outcomes.terminated(achieved, achieved).tolist() == [True, False, True]


def test_complex_rewards_are_refused_in_the_trial_and_an_exception_is_told_on_one_line() -> None:
    def raising(achieved: Any, desired: Any, info: Any) -> Any:
        raise ValueError("no such\ngoal")

    def asked(answer: Any) -> Asked:
        return Asked(answer, spaces.Box(-1.0, 1.0, (2,)), "compute_reward")

    for number in (1j, np.complex64(1j), np.array(1j)):
        with pytest.raises(ZooError, match=r"it gave complex numbers; expected real ones"):
            asked(lambda achieved, desired, info, number=number: number).try_out()
    with pytest.raises(ZooError, match=r"it raised ValueError: no such goal$"):
        asked(raising).try_out()
