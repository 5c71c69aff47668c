"""State-dependent exploration in whole algorithms: what is collected, learned, asked for, and refused."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from zoo import A2C, DQN, PPO2, SAC, make_vec_env
from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.sac import SACPolicy
from zoo.errors import ZooError

ON_POLICY = pytest.mark.parametrize("algorithm", [A2C, PPO2])
N_ENVS = 3


class Still(gym.Env[Any, Any]):
    """Shows always the same, so that actions change only where the noise does; episodes have five steps."""

    observation_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Box(np.float32([-1.0, 3.0]), np.float32([1.0, 7.0]))

    def __init__(self) -> None:
        self.taken: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._step = 0
        return np.float32([0.5, -0.5]), {}

    def step(self, action: np.ndarray) -> Any:
        assert self.action_space.contains(action)
        self._step += 1
        self.taken.append(np.array(action))
        return np.float32([0.5, -0.5]), 0.0, self._step == 5, False, {}


def made(algorithm: type[Algorithm[Any]], env: Any = Still, **options: Any) -> Algorithm[Any]:
    policy = {"net_arch": [8], **options.pop("policy", {})}
    n_envs = options.pop("n_envs", N_ENVS)
    envs = make_vec_env(env, n_envs, check=False)
    return algorithm(policy, envs, seed=0, compile=False, threads=1, use_sde=True, **options)


def changes(actions: np.ndarray) -> list[int]:
    """Return at which steps the actions (steps, n_envs, n) of all environments are others than before."""
    differ = (actions[1:] != actions[:-1]).any(-1)
    assert (differ.all(1) == differ.any(1)).all()
    return [int(step) + 1 for step in np.flatnonzero(differ.any(1))]


@ON_POLICY
@pytest.mark.parametrize(("every", "expected"), [(-1, []), (4, [4, 8]), (1, list(range(1, 12)))])
def test_noise_of_a_rollout_stays_for_its_steps(algorithm: Any, every: int, expected: list[int]) -> None:
    model = made(algorithm, n_steps=12, sde_sample_freq=every)
    model._reset_envs()
    model.collect()
    first = model.buffer.columns["actions"].copy()
    assert changes(first) == expected
    assert len(np.unique(first[0], axis=0)) == N_ENVS
    model.collect()
    assert not (model.buffer.columns["actions"][0] == first[-1]).any()


@pytest.mark.parametrize(
    ("every", "train_freq", "expected"),
    [(-1, 24, [8, 16]), (4, 24, [4, 8, 12, 16, 20]), (3, 24, [3, 6, 8, 11, 14, 16, 19, 22])],
)
def test_noise_of_a_collection_counts_from_its_start(
    every: int, train_freq: int, expected: list[int]
) -> None:
    model = made(SAC, sde_sample_freq=every, train_freq=train_freq, learning_starts=0)
    model._reset_envs()
    model.total_timesteps = 1000
    for _ in range(3):
        model.collect()
    actions = model.buffer.columns["actions"][:24]
    assert changes(actions) == expected
    assert len(np.unique(actions[0], axis=0)) == N_ENVS


@ON_POLICY
@pytest.mark.parametrize("squash", [None, True])
def test_first_minibatch_finds_the_policy_unchanged(algorithm: Any, squash: bool | None) -> None:
    model = made(algorithm, "Pendulum-v1", n_steps=16, sde_sample_freq=4, policy={"squash_output": squash})
    model._reset_envs()
    model.collect()
    rows = model._tensors(model.buffer.rows())
    parameters, _, _ = model.policy(rows)
    log_prob = model.policy.head.log_prob(parameters, rows["actions"])
    assert log_prob.std() > 0.1
    if algorithm is PPO2:
        np.testing.assert_allclose(model.finished_rollout()["log_prob"], log_prob.detach(), atol=1e-5)
    model = made(
        PPO2,
        "Pendulum-v1",
        n_steps=16,
        n_epochs=1,
        n_minibatches=1,
        sde_sample_freq=4,
        policy={"squash_output": squash},
    ).learn(48)
    metrics = model.read_metrics()
    assert metrics["train/clip_fraction"] == 0
    assert metrics["train/approx_kl"] == pytest.approx(0, abs=1e-6)


PPO2_SETTINGS = {"n_steps": 32, "batch_size": 64, "learning_rate": 5e-3, "gamma": 0.0, "ent_coef": 0.0}
LEARNING: dict[str, tuple[Any, dict[str, Any], int, float]] = {
    "squashed ppo2": (
        PPO2,
        {**PPO2_SETTINGS, "sde_sample_freq": 4, "policy": {"log_std_init": -2.0, "squash_output": True}},
        10_000,
        0.9,
    ),
    "sac": (
        SAC,
        {
            "learning_starts": 100,
            "gamma": 0.0,
            "learning_rate": 3e-3,
            "batch_size": 64,
            "train_freq": 32,
            "gradient_steps": 16,
            "use_sde_at_warmup": True,
            "policy": {"net_arch": [64, 64], "use_expln": True},
        },
        1600,
        0.85,
    ),
}


@pytest.mark.parametrize("name", LEARNING)
def test_it_learns_to_name_what_it_sees(name: str) -> None:
    algorithm, options, n_timesteps, enough = LEARNING[name]
    policy = {"net_arch": [64, 64], **options["policy"]}
    model = made(algorithm, "Zoo/IdentityBox-v0", n_envs=8, **{**options, "policy": policy})
    start = model.policy.state_dict()
    log_std = next(name for name in start if name.endswith("log_std"))
    before = start[log_std].clone()
    model.learn(n_timesteps)
    assert (model.policy.state_dict()[log_std] != before).float().mean() > 0.5
    env = make_vec_env("Zoo/IdentityBox-v0", 10)
    observations, _ = env.reset(seed=list(range(10)))
    total = 0.0
    for _ in range(30):
        observations, rewards, *_ = env.step(model.predict(observations)[0])
        total += rewards.mean()
    assert total / 30 >= enough


@pytest.mark.parametrize(
    ("algorithm", "env", "policy", "options", "message"),
    [
        (PPO2, "CartPole-v1", {}, {"use_sde": True}, "`algo.use_sde=true` is for Box actions, .*Discrete"),
        (A2C, "Pendulum-v1", {}, {"use_sde": True, "sde_sample_freq": 0}, "sde_sample_freq=0`: expected"),
        (SAC, "Pendulum-v1", {"squash_output": False}, {"use_sde": True}, "sac squashes all its actions"),
        (DQN, "CartPole-v1", {}, {"use_sde": True}, "unknown key `dqn.use_sde`"),
    ],
)
def test_what_can_not_be_done_is_refused(
    algorithm: Any, env: str, policy: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ZooError, match=message) as refused:
        algorithm(policy, env, **options)
    assert "\n" not in str(refused.value)


class Own(SACPolicy):
    """Knows nothing of state-dependent exploration."""

    def __init__(self, *args: Any, n_critics: int, ent_coef: float) -> None:
        super().__init__(*args, n_critics=n_critics, ent_coef=ent_coef)


def test_policies_of_ones_own_are_given_the_switch_only_where_it_is_on() -> None:
    policy = {"_target_": f"{__name__}.Own"}
    SAC(policy, "Pendulum-v1")
    with pytest.raises(ZooError, match=r"don't fit .*Own: .*'use_sde'"):
        SAC(policy, "Pendulum-v1", use_sde=True)
