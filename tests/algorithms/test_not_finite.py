"""A number that is not finite ends the learning, named, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from zoo import A2C, ACER, ARS, DQN, PPO2, SAC, TRPO
from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.callback import Callback, Training
from zoo.envs.normalize import VecNormalize
from zoo.envs.vec_env import SyncVecEnv
from zoo.errors import NotFiniteError
from zoo.experiment.evaluation import evaluate

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Faulty(gym.Env[Any, Any]):
    """Goes wrong at step ``at`` of its life: its reward, its observation, or the last one of an episode."""

    observation_space = spaces.Box(-10.0, 10.0, (3,), np.float32)

    def __init__(
        self, what: str = "", value: float = np.nan, at: int = 0, action_space: Any = None, length: int = 7
    ) -> None:
        self.action_space = action_space or spaces.Discrete(2)
        self.what, self.value, self.at, self.length = what, value, at, length
        self.n_steps = self.n_episode_steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.n_episode_steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        self.n_episode_steps += 1
        observation, reward = self._observation(), 1.0
        if self.n_steps == self.at:
            if self.what == "reward":
                reward = self.value
            else:
                observation[1] = self.value
        return observation, reward, False, self.n_episode_steps == self.length, {}

    def _observation(self) -> Any:
        return self.np_random.standard_normal(3).astype(np.float32)


class Written(Callback):
    """Looks at what would have been written."""

    every = 1
    at = 0

    def on_steps(self, algorithm: Training) -> None:
        assert isinstance(algorithm, Algorithm)
        assert all(tensor.isfinite().all() for tensor in algorithm.runner.state.values())
        self.at = algorithm.num_timesteps


def envs(env: type[Faulty] = Faulty, **fault: Any) -> SyncVecEnv:
    """Return two environments, of which the second is faulty."""
    space = fault.get("action_space")
    return SyncVecEnv([partial(env, action_space=space), partial(env, **fault)])


def policy_of(env: Any) -> dict[str, Any]:
    is_dict = isinstance(env.single_observation_space, spaces.Dict)
    return {"name": "MultiInputPolicy" if is_dict else "MlpPolicy", "net_arch": [8]}


REPLAY = {"batch_size": 8, "buffer_size": 500, "learning_starts": 20}


def maker(algorithm: Any, **small: Any) -> Callable[..., Any]:
    def make(env: Any, **hyperparameters: Any) -> Any:
        return algorithm(policy_of(env), env, seed=0, compile=False, **{**small, **hyperparameters})

    return make


ppo2 = maker(PPO2, n_steps=16, n_minibatches=2, n_epochs=1)
a2c = maker(A2C, n_steps=5)
ars = maker(ARS, n_delta=2)
acer = maker(ACER, n_steps=4, buffer_size=500, replay_start=20)
trpo = maker(TRPO, n_steps=16, batch_size=16, n_critic_updates=1)
dqn = maker(DQN, **REPLAY)
sac = maker(SAC, **REPLAY)

ALGORITHMS = {
    "ppo2": (ppo2, spaces.Discrete(2)),
    "a2c": (a2c, BOX),
    "acer": (acer, spaces.Discrete(2)),
    "ars": (ars, spaces.Discrete(2)),
    "dqn": (dqn, spaces.Discrete(2)),
    "dqn, observations once": (partial(dqn, optimize_memory_usage=True), spaces.Discrete(2)),
    "sac": (sac, BOX),
}
algorithms = pytest.mark.parametrize(("make", "space"), ALGORITHMS.values(), ids=ALGORITHMS)
SOME = ("ppo2", "acer", "dqn, observations once", "sac")
some = pytest.mark.parametrize(("make", "space"), [ALGORITHMS[name] for name in SOME], ids=SOME)


@algorithms
@pytest.mark.parametrize(("what", "value", "at"), [("observation", np.inf, 32), ("reward", -np.inf, 101)])
def test_fault_of_an_environment_is_named(make: Any, space: Any, what: str, value: float, at: int) -> None:
    written = Written()
    model = make(envs(what=what, value=value, at=at, action_space=space))
    article = "a" if what == "reward" else "an"
    expected = rf"environment 1 gave {article} {what} that is not finite \({value}\) by step \d+ of the run"
    with pytest.raises(NotFiniteError, match=f"^{expected}$"):
        model.learn(2000, written)
    assert written.at < 2 * at
    assert all(tensor.isfinite().all() for tensor in model.runner.state.values())


@some
@pytest.mark.parametrize(("what", "value"), [("reward", 1e25), ("reward", -1e300), ("observation", 1e300)])
def test_number_too_large_for_32_bits_is_named(make: Any, space: Any, what: str, value: float) -> None:
    class Wide(Faulty):
        observation_space = spaces.Box(-10.0, 10.0, (3,), np.float64)

        def _observation(self) -> Any:
            return super()._observation().astype(np.float64)

    model = make(envs(Wide, what=what, value=value, at=32, action_space=space))
    with pytest.raises(
        NotFiniteError, match=rf"environment 1 gave an? {what} that is (too large|not finite)"
    ):
        model.learn(2000)


def test_learning_works_if_an_env_disables_gradients() -> None:
    class Careless(Faulty):
        def reset(self, **options: Any) -> Any:
            torch.set_grad_enabled(False)
            return super().reset(**options)

    try:
        for make in (ppo2, dqn):
            model = make(envs(Careless))
            before = model.get_parameters()
            model.learn(100)
            assert any((before[name] != value).any() for name, value in model.get_parameters().items())
    finally:
        torch.set_grad_enabled(True)


@some
def test_nonfinite_final_observation_is_found(make: Any, space: Any) -> None:
    model = make(envs(what="observation", at=28, action_space=space))
    with pytest.raises(NotFiniteError, match=r"environment 1 gave an observation .* by step"):
        model.learn(2000)


@pytest.mark.parametrize("gradient_steps", [-1, 8])
def test_nothing_is_learned_from_a_faulty_collection(gradient_steps: int) -> None:
    settings = {"train_freq": 128, "gradient_steps": gradient_steps, "learning_starts": 20}
    model = dqn(envs(what="observation", at=90), **settings).learn(50)
    with pytest.raises(NotFiniteError, match="by step 180 of the run"):
        model.learn(150, reset_num_timesteps=False)
    assert all(tensor.isfinite().all() for tensor in model.runner.state.values())


DIVERGING: dict[str, Any] = {
    "ppo2": lambda: ppo2(envs(), learning_rate=1e30, max_grad_norm=None),
    "a2c": lambda: a2c(envs(action_space=BOX), learning_rate=1e38),
    "acer": lambda: acer(envs(), learning_rate=1e30),
    "the critic of trpo": lambda: trpo(envs(action_space=BOX), learning_rate=1e38),
    "dqn": lambda: dqn(envs(), learning_rate=1e30),
    "sac": lambda: sac(envs(action_space=BOX), learning_rate=1e30),
}


@pytest.mark.parametrize("make", DIVERGING.values(), ids=DIVERGING)
def test_divergence_is_raised_before_anything_is_saved(make: Any) -> None:
    model: Algorithm = make()
    expected = r"(after \d+ updates `[\w.]+` is not finite|the policy's action .* is not finite)"
    with pytest.raises(NotFiniteError, match=rf"{expected}.*; smaller algo\.learning_rate.* may help$"):
        model.learn(2000, Written())


def test_nonfinite_image_values_blame_the_policy() -> None:
    cnn = {"encoder": "cnn", "features_dim": 8}
    model = PPO2(cnn, "Zoo/IdentityImage-v0", n_envs=2, n_steps=16, seed=0, compile=False)
    with torch.no_grad():
        list(model.policy.critic.parameters())[-1].fill_(np.nan)
    with pytest.raises(NotFiniteError, match="policy"):
        model.learn(32)


def test_evaluation_that_returns_no_number_is_refused() -> None:
    model = ppo2(envs())
    with pytest.raises(
        NotFiniteError, match=r"evaluation episode returned nan: environment 1 .* within 7 steps"
    ):
        evaluate(model, envs(what="reward", at=10), 4)


@some
@pytest.mark.parametrize(
    ("what", "value", "training"), [("reward", -np.inf, True), ("observation", np.nan, False)]
)
def test_raw_numbers_are_looked_at(make: Any, space: Any, what: str, value: float, training: bool) -> None:
    """Statistics would spread a NaN over all environments, and clipping would hide an infinity."""
    env = VecNormalize(envs(what=what, value=value, at=45, action_space=space))
    make(env).learn(60)
    env.training = training
    model = make(env)
    expected = rf"environment 1 gave an? {what} that is not finite \({value}\) by step"
    with pytest.raises(NotFiniteError, match=expected):
        model.learn(2000)
