"""Goal environments are asked what other goals would have been worth, many at once where that is the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import env_checker
from gymnasium.vector import AsyncVectorEnv

from zoo.envs import WITHOUT_VELOCITIES
from zoo.envs.adapter import VecEnvAdapter, make_adapter
from zoo.envs.env_checker import check_env
from zoo.envs.goals import GoalRewards
from zoo.envs.make_env import make_vec_env
from zoo.envs.toys import BitFlipping
from zoo.envs.wrappers import VELOCITIES
from zoo.errors import NotFiniteError, ZooError

Array = np.ndarray


class Silent(gym.Env[Any, Any]):
    """Goals are places (2,), but nothing is said of others."""

    observation_space = spaces.Dict(
        {key: spaces.Box(-1.0, 1.0, (2,)) for key in ("observation", "achieved_goal", "desired_goal")}
    )
    action_space = spaces.Discrete(2)
    n_calls = 0

    def _shown(self) -> dict[str, Array]:
        return dict.fromkeys(self.observation_space, np.zeros(2, np.float32))  # type: ignore[call-overload]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._shown(), 0.0, False, False, {}


class Walk(Silent):
    """Answers for many goals, or for one."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        self.n_calls += 1
        return -np.linalg.norm(achieved - 2 * desired, axis=-1)


class OneByOne(Walk):
    """Answers for many goals as if they were one."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        self.n_calls += 1
        return -np.linalg.norm(achieved - 2 * desired)


class Picky(Walk):
    """Fails for more than one goal, and in its own way."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        self.n_calls += 1
        if achieved.ndim > 1 or "anything" in info:
            raise KeyError("only one")
        return -float(np.hypot(*(achieved - 2 * desired)))


class Ending(Walk):
    """Says whether all goals taken together end the episode."""

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> bool:
        return bool(np.linalg.norm(achieved - desired) < 0.1)


def goals(n: int = 40) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    achieved, desired = rng.uniform(-1, 1, (2, n, 2)).astype(np.float32)
    desired[::3] = achieved[::3]
    return achieved, desired


@pytest.mark.parametrize(("env", "n_calls"), [(Walk, 1), (OneByOne, 40), (Picky, 40)])
def test_compute_reward_is_batched_if_results_agree(env: type[Walk], n_calls: int) -> None:
    envs = make_vec_env(env, 2, check=False)
    outcomes = GoalRewards(envs)
    achieved, desired = goals()
    expected = -np.linalg.norm(achieved - 2 * desired, axis=-1)
    np.testing.assert_allclose(outcomes.rewards(achieved, desired), expected, rtol=1e-5)
    first = envs.unwrapped.envs[0].unwrapped  # type: ignore[attr-defined]
    before = first.n_calls
    rewards = outcomes.rewards(achieved, desired)
    assert rewards.dtype == np.float32
    np.testing.assert_allclose(rewards, expected, rtol=1e-5)
    assert first.n_calls - before == n_calls


def test_nonfinite_goal_reward_error_shows_first_goal() -> None:
    class Wrong(Walk):
        def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
            return np.where(achieved[..., 0] > 2, np.nan, 0.0)

    achieved, desired = goals(4)
    achieved[1:3], desired[1] = [[3.0, 0.5], [4.0, 0.5]], [0.0, 0.25]
    with pytest.raises(
        NotFiniteError, match=r"gave nan for achieved_goal \[3.0, 0.5\] and desired_goal \[0.0, 0.25\]"
    ):
        GoalRewards(make_vec_env(Wrong, 1, check=False)).rewards(achieved, desired)


def test_one_answer_for_all_is_not_that_for_each() -> None:
    achieved, desired = goals()
    some = GoalRewards(make_vec_env(Ending, 1, check=False)).terminated(achieved, desired)
    np.testing.assert_array_equal(some, np.linalg.norm(achieved - desired, axis=-1) < 0.1)


def stepped(envs: Any) -> VecEnvAdapter:
    stepper = make_adapter(envs)
    stepper.reset(list(range(envs.num_envs)))
    return stepper


OPTIONS: dict[str, dict[str, Any]] = {
    "in_process": {},
    "workers": {"vectorization": "workers", "n_workers": 2, "start_method": "fork"},
    "wrapped": {
        "wrappers": [{"_target_": "gymnasium.wrappers.TimeLimit", "max_episode_steps": 3}],
        "frame_stack": 2,
        "time_feature": {"max_steps": 3},
    },
    "checked_for_nan": {"nan_check": True},
    "normalised": {"normalize": True},
    "renewed": {"renew": True, "reseed_every": 2},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_recomputed_goal_rewards_equal_those_of_steps(name: str) -> None:
    env = make_vec_env("Zoo/BitFlipping-v0", 3, kwargs={"n_bits": 2}, **OPTIONS[name])
    stepper = stepped(env)
    outcomes = GoalRewards(stepper.env)
    rng, seen = np.random.default_rng(0), set()
    for _ in range(30):
        step = stepper.step(rng.integers(2, size=3))
        following = {key: values.copy() for key, values in step.new_observations.items()}
        for row, i in enumerate(step.finished):
            for key, values in following.items():
                values[i] = step.final_observations[key][row]
        achieved, desired = following["achieved_goal"], following["desired_goal"]
        assert achieved.shape == (3, 2)
        np.testing.assert_array_equal(outcomes.rewards(achieved, desired), step.rewards)
        np.testing.assert_array_equal(outcomes.terminated(achieved, desired), step.terminated)
        seen |= set(step.rewards.tolist())
    assert seen == {-1.0, 0.0}
    stepper.close()


class OtherGoals(Walk):
    observation_space = spaces.Dict(
        {**Walk.observation_space.spaces, "desired_goal": spaces.Box(-1, 1, (3,))}
    )

    def _shown(self) -> dict[str, Array]:
        return {**super()._shown(), "desired_goal": np.zeros(3, np.float32)}


class NeedsInfo(Walk):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return info["distance"]


def test_hindsight_refuses_envs_without_usable_goals() -> None:
    with pytest.raises(ZooError, match=r"hindsight needs an env with goals: .* but they are Box\(4,\)"):
        GoalRewards(make_vec_env("CartPole-v1"))
    with pytest.raises(ZooError, match=r"achieved_goal is Box\(2,\) float32 and desired_goal Box\(3,\)"):
        GoalRewards(make_vec_env(OtherGoals, check=False))
    with pytest.raises(ZooError, match=r"a method compute_reward\(achieved_goal, desired_goal, info\)"):
        GoalRewards(make_vec_env(Silent, check=False))
    with pytest.raises(ZooError, match=r"with an empty info, and it raised KeyError: 'distance'"):
        GoalRewards(make_vec_env(NeedsInfo, check=False)).rewards(*goals())
    out_of_reach = AsyncVectorEnv([BitFlipping] * 2)
    with pytest.raises(ZooError, match="a method compute_reward"):
        GoalRewards(out_of_reach)
    out_of_reach.close()


class Stepping(Silent):
    """Goes towards a goal; what a step pays is what `compute_reward` says of it."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        gym.Env.reset(self, seed=seed)
        self._place, self._goal = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        return self._shown(), {}

    def _shown(self) -> dict[str, Array]:
        return {"observation": self._place, "achieved_goal": self._place, "desired_goal": self._goal}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._place = np.clip(self._place + self.np_random.normal(0, 0.1, 2), -1, 1).astype(np.float32)
        reward = float(Stepping.compute_reward(self, self._place, self._goal, {}))
        return self._shown(), reward, bool(self.np_random.random() < 0.1), False, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -np.linalg.norm(achieved - desired, axis=-1)


class PaysMore(Stepping):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return super().compute_reward(achieved, desired, info) + 0.5


class TakesOne(Stepping):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        assert np.ndim(achieved) == 1
        return super().compute_reward(achieved, desired, info)


class PaysNaN(Stepping):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.log(super().compute_reward(achieved, desired, info))


class AsksTheInfo(Stepping):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return info["reward"]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (PaysMore, "step 1 gave the reward .* but compute_reward gives .* of .* steps differ"),
        (TakesOne, "compute_reward answers for one goal at a time, so hindsight replay asks it row by row"),
        (PaysNaN, "compute_reward gives nan"),
        (AsksTheInfo, "with an empty info, and it raised KeyError: 'reward'"),
        (Silent, "there are goals, but no method compute_reward"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in log")
def test_trial_tells_what_hindsight_would_stumble_over(env: type[Stepping], message: str) -> None:
    found = check_env(env, max_episode_steps=1000)
    assert len(found) == 1
    assert re.search(message, found[0])


@pytest.mark.parametrize("env", [Stepping, BitFlipping])
def test_check_env_accepts_consistent_compute_reward(env: Any) -> None:
    assert check_env(env) == []


TOYS = sorted(env_id for env_id in gym.registry if env_id.startswith("Zoo/"))


def mean_return(env_id: str, act: Callable[[Any, Any], Any], n_episodes: int = 30) -> float:
    env = gym.make(env_id)
    total = 0.0
    for episode in range(n_episodes):
        observation, _ = env.reset(seed=episode)
        env.action_space.seed(1000 + episode)
        done = False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(act(env, observation))
            total += float(reward)
            done = terminated or truncated
    return total / n_episodes


def sampled(env: Any, observation: Any) -> Any:
    return env.action_space.sample()


@pytest.mark.parametrize("env_id", TOYS)
def test_toy_is_a_proper_env(env_id: str) -> None:
    env_checker.check_env(gym.make(env_id).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("kind", ["", "Discrete", "Box", "MultiDiscrete", "MultiBinary"])
def test_repeating_the_observation_is_best(kind: str) -> None:
    env_id = f"Zoo/Identity{kind}-v0"
    assert mean_return(env_id, lambda env, observation: observation) == pytest.approx(20.0)
    assert mean_return(env_id, sampled) < 13.0


def test_forbidden_action_ends_the_masked_env() -> None:
    def act(env: Any, observation: Any) -> int:
        return int(np.argmax(np.where(env.unwrapped.action_masks(), observation, -1.0)))

    assert mean_return("Zoo/Masked-v0", act) == pytest.approx(20.0)
    assert mean_return("Zoo/Masked-v0", lambda env, observation: int(np.argmax(observation))) < 4.0


LIGHT = [env_id for env_id in WITHOUT_VELOCITIES if "Lander" not in env_id]


@pytest.mark.parametrize("env_id", LIGHT)
def test_only_velocities_are_hidden(env_id: str) -> None:
    hiding, showing = gym.make(env_id), gym.make(WITHOUT_VELOCITIES[env_id])
    assert hiding.spec is not None
    assert showing.spec is not None
    assert hiding.spec.max_episode_steps == showing.spec.max_episode_steps
    hidden = list(VELOCITIES[env_id.partition("NoVel")[0]])
    seen = [env.reset(seed=3)[0] for env in (hiding, showing)]
    moved = False
    hiding.action_space.seed(0)
    for _ in range(5):
        moved |= bool(seen[1][hidden].all())
        expected = seen[1].copy()
        expected[hidden] = 0
        np.testing.assert_array_equal(seen[0], expected)
        action = hiding.action_space.sample()
        steps = [env.step(action) for env in (hiding, showing)]
        assert steps[0][1:4] == steps[1][1:4]
        seen = [step[0] for step in steps]
    assert moved
