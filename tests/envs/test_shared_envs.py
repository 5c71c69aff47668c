"""One environment in several hands: refused where it can't be, left open, noticed where others step it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from zoo import A2C, DQN, PPO2, check_env, evaluate_policy
from zoo.envs import EnvStepper, make_vec_env
from zoo.envs.sync_vec_env import InProcessVectorEnv
from zoo.errors import ZooError

SMALL = {"net_arch": [4]}


class Clock(gym.Env[Any, Any]):
    """Observes how often it was reset and stepped in all, so that no two moments look alike."""

    observation_space = spaces.Box(0, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.n_resets = self.n_steps = self.n_closed = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.n_resets += 1
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.n_steps += 1
        return self._shown(), 1.0, self.n_steps % 10 == 0, False, {}

    def _shown(self) -> Any:
        return np.array([self.n_resets, self.n_steps], np.float32)

    def close(self) -> None:
        self.n_closed += 1


def one(count: int, **options: Any) -> Callable[[Clock], Any]:
    return lambda env: make_vec_env(lambda: env, count, **options)


@pytest.mark.parametrize(
    "make",
    [
        one(2),
        one(3, check=False),
        one(2, training=False),
        one(2, vectorization="workers"),
        one(2, vectorization="workers", check=False, start_method="fork", n_workers=1),
        lambda env: make_vec_env(lambda: gym.wrappers.TimeLimit(env, 5), 2, check=False),
        lambda env: make_vec_env(lambda: env, 1, renew=True),
        lambda env: InProcessVectorEnv([lambda: Clock(), lambda: env, lambda: env]),
        lambda env: EnvStepper(gym.vector.SyncVectorEnv([lambda: env] * 2)),
        lambda env: PPO2(SMALL, lambda: env, n_envs=8, compile=False),
        lambda env: evaluate_policy(PPO2(SMALL, Clock, compile=False), lambda: env, n_envs=2),
    ],
)
def test_one_env_in_several_places_is_refused_by_name_and_left_open(make: Callable[[Clock], Any]) -> None:
    env = Clock()
    with pytest.raises(ZooError, match=r"Clock.*expected"):
        make(env)
    assert env.n_closed == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda env: PPO2(SMALL, lambda: env, compile=False),
        lambda env: PPO2(SMALL, env, compile=False),
        lambda env: make_vec_env(lambda: gym.wrappers.TimeLimit(env, 5)),
        lambda env: check_env(lambda: env, frame_stack=2),
        lambda env: check_env(env),
    ],
)
def test_trial_closes_nothing_of_the_users_own(use: Callable[[Clock], Any]) -> None:
    env = Clock()
    used = use(env)
    assert used is not None
    assert env.n_closed == 0


def test_trial_closes_each_env_that_a_function_makes() -> None:
    made: list[Clock] = []

    def make() -> Clock:
        made.append(Clock())
        return made[-1]

    check_env(make)
    assert made
    assert all(env.n_closed == 1 for env in made)


def test_env_of_which_there_can_be_only_one_at_a_time_is_tried() -> None:
    class Single(Clock):
        is_open = False

        def __init__(self) -> None:
            if Single.is_open:
                raise OSError("the port is taken")
            super().__init__()
            Single.is_open = True

        def close(self) -> None:
            Single.is_open = False

    assert check_env(Single) is not None
    make_vec_env(Single).close()
    assert not Single.is_open


def by_hand(env: Any) -> None:
    env.reset()
    env.step(env.action_space.sample())


def held(kind: str) -> tuple[Any, Any]:
    """Return what a model is given, and by what somebody else holds the same environment."""
    env = Clock()
    inner = gym.wrappers.TimeLimit(env, 50)
    if kind == "function":
        return lambda: env, env
    if kind == "inside":
        return gym.wrappers.TransformReward(inner, float), env
    if kind == "wrapper":
        return gym.wrappers.TransformReward(inner, float), inner
    if kind == "outside":
        return env, inner
    if kind == "vector":
        envs = gym.vector.SyncVectorEnv([Clock, Clock])
        return envs, envs
    if kind == "in a vector":
        return gym.vector.SyncVectorEnv([Clock, lambda: env]), env
    if kind == "of ours":
        ours = make_vec_env("CartPole-v1", 2)
        return ours, ours.envs[1]
    return env, env


@pytest.mark.parametrize(
    "kind", ["itself", "function", "inside", "wrapper", "outside", "vector", "in a vector", "of ours"]
)
@pytest.mark.parametrize("step", [by_hand, lambda env: env.reset()])
def test_whoever_steps_what_a_model_holds_disturbs_it(kind: str, step: Callable[[Any], Any]) -> None:
    given, handle = held(kind)
    model = A2C(SMALL, given, seed=0, n_steps=4, compile=False).learn(12)
    assert model.envs is not None
    assert not model.envs.was_disturbed
    step(handle)
    assert model.envs.was_disturbed
    model.learn(12, reset_num_timesteps=False)
    assert not model.envs.was_disturbed


@pytest.mark.parametrize("name", ["reset", "step"])
@pytest.mark.parametrize("vectorization", ["sync", "workers"])
def test_calls_by_name_disturb_too(name: str, vectorization: str) -> None:
    stepper = EnvStepper(make_vec_env("CartPole-v1", 2, vectorization=vectorization, start_method="fork"))
    stepper.reset([0, 1])
    stepper.env.call("spec")
    assert not stepper.was_disturbed
    stepper.env.call(name, **({"action": 0} if name == "step" else {}))
    assert stepper.was_disturbed
    stepper.close()


@pytest.mark.parametrize(
    "disturb",
    [
        lambda model, env: evaluate_policy(model, env, 2),
        lambda model, env: evaluate_policy(model, lambda: env, 2),
        lambda model, env: evaluate_policy(model, make_vec_env(gym.wrappers.TimeLimit(env, 3)), 2),
        lambda model, env: A2C(SMALL, env, compile=False).learn(10),
        lambda model, env: by_hand(env),
    ],
)
def test_replay_holds_only_transitions_that_were(disturb: Callable[[DQN, Clock], Any]) -> None:
    env = Clock()
    model = DQN(SMALL, env, seed=0, learning_starts=10, batch_size=4, train_freq=4, compile=False)
    model.learn(55)
    disturb(model, env)
    model.learn(55, reset_num_timesteps=False)
    batch = model.memory.sample(np.random.default_rng(0), (2_000,))
    before, after = batch["observations"].reshape(-1, 2), batch["next_observations"].reshape(-1, 2)
    assert len(np.unique(before[:, 1])) > 80
    assert np.array_equal(after, before + np.array([0, 1]))


def test_copy_of_a_watched_env_is_one_of_its_own() -> None:
    env = Clock()
    stepper = EnvStepper(make_vec_env(env, check=False))
    stepper.reset([0])
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        by_hand(other)
        assert (env.n_steps, other.n_steps) == (0, 1)
    assert not stepper.was_disturbed
    assert make_vec_env(copy.deepcopy(env)).num_envs == 1
