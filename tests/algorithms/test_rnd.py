"""Random network distillation: its rewards, its critic, what it is made of, and that it explores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from zoo import A2C, PPO2, SAC, TRPO, ZooError, make_vec_env
from zoo.algorithms.rnd import RND, forward_filtered
from zoo.envs.normalize import RunningMoments

SMALL: dict[str, Any] = {
    "policy": {"net_arch": [8]},
    "n_steps": 16,
    "compile": False,
    "threads": 1,
    "seed": 0,
}


class Corridor(gym.Env[Any, Any]):
    """40 cells, a start at the first, and a reward of 1 at the last; left at the start or when late."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.time = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.place, self.time = max(0, self.place + 2 * int(action) - 1), self.time + 1
        is_end = self.place == 39
        return self._seen(), float(is_end), is_end, self.time == 80, {}

    def _seen(self) -> np.ndarray:
        return np.array([self.place / 20 - 1.0, np.cos(self.place)], np.float32)


def make(algorithm: Any = PPO2, env: Any = "CartPole-v1", intrinsic: Any = None, **options: Any) -> Any:
    envs = make_vec_env(env, 2) if isinstance(env, str) else env
    return algorithm(env=envs, intrinsic=intrinsic or {}, **{**SMALL, "seed": 0, **options})


def collected(model: Any) -> Any:
    model._reset_envs()
    model.collect()
    return model.reward_model


def test_forward_filter_runs_along_time() -> None:
    returns = forward_filtered(np.ones((3, 1)), np.zeros(1), 0.99)
    np.testing.assert_allclose(returns[:, 0], [1.0, 1.99, 2.9701])
    moments = RunningMoments(())
    moments.update(returns.ravel())
    assert moments.var == pytest.approx(0.646888, abs=1e-6)
    two = forward_filtered(np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([0.0, 4.0]), 0.5)
    np.testing.assert_allclose(two, [[1.0, 2.0], [1.5, 3.0]])


def test_rewards_are_errors_on_normalised_observations() -> None:
    """Written out, with a planted error: the observations before the step give other rewards."""
    model = make()
    rnd = collected(model)
    rollout = rnd.rollout()

    def rewards_of(seen: np.ndarray) -> np.ndarray:
        mean, std = rollout.next_observations.mean(0), rollout.next_observations.std(0)
        whitened = torch.from_numpy(np.clip((seen - mean) / std, -5, 5).astype(np.float32))
        with torch.no_grad():
            errors = (rnd.networks.predictor(whitened) - rnd.target.module(whitened)).square().mean(-1)
        errors = errors.numpy().reshape(16, 2)
        returns, total = [], np.zeros(2)
        for row in errors:
            total = 0.99 * total + row
            returns.append(total)
        return errors / np.std(returns)

    np.testing.assert_allclose(rnd.intrinsic, rewards_of(rollout.next_observations), rtol=1e-3)
    assert np.abs(rnd.intrinsic - rewards_of(rollout.observations)).max() > 0.01
    assert (model.buffer.rewards == 1.0).all()


def test_without_value_head_rewards_are_added() -> None:
    model = make(intrinsic={"value_head": False, "coef": 0.25})
    rnd = collected(model)
    np.testing.assert_allclose(model.buffer.rewards, 1.0 + 0.25 * rnd.intrinsic, rtol=1e-6)
    advantages = np.ones((16, 2), np.float32)
    assert rnd.advantages(advantages) is advantages


def test_predictor_equal_to_its_target_earns_nothing() -> None:
    rnd = make().reward_model
    rnd.networks.predictor = rnd.target.module
    assert (rnd._errors(torch.randn(5, 4)) == 0).all()


def test_intrinsic_advantages_ignore_episode_ends() -> None:
    model = make()
    rnd = collected(model)
    none = np.zeros((16, 2), np.float32)
    before = rnd.advantages(none), model.advantages(np.ones((16, 2), np.float32), 0.95)
    model.buffer.dones[:] = ~model.buffer.dones
    np.testing.assert_array_equal(rnd.advantages(none), before[0])
    assert np.abs(model.advantages(np.ones((16, 2), np.float32), 0.95) - before[1]).max() > 0.1


def test_intrinsic_critic_learns_intrinsic_returns() -> None:
    model = make(intrinsic={"coef": 2.0, "gamma": 0.9}, normalize_advantage=False, gae_lambda=1.0)
    rnd = collected(model)
    rollout = model.finished_rollout()
    last = rnd._whitened(model.collector.raw_observations)
    with torch.no_grad():
        value = rnd.networks.values(torch.from_numpy(last)).numpy()
    expected = []
    for row in rnd.intrinsic[::-1]:  # λ = 1: discounted sums, over all ends of episodes
        value = row + 0.9 * value
        expected.append(value)
    np.testing.assert_allclose(rnd.inputs["returns"].reshape(16, 2), expected[::-1], rtol=1e-4)
    extrinsic = (rollout["returns"] - rollout["values"]).numpy().reshape(16, 2)
    values = rnd.networks.values(torch.from_numpy(rnd.inputs["now"])).detach().numpy().reshape(16, 2)
    sums = extrinsic + 2.0 * (np.array(expected[::-1]) - values)
    np.testing.assert_allclose(rollout["advantages"].numpy().reshape(16, 2), sums, rtol=1e-3, atol=1e-3)


def test_reward_of_repeated_observations_falls() -> None:
    model = make(intrinsic={"learning_rate": 1e-3, "n_epochs": 10, "batch_size": 32}).learn(32)
    rnd, seen = model.reward_model, torch.from_numpy(model.reward_model.inputs["next"])
    target = {name: tensor.clone() for name, tensor in rnd.target.module.state_dict().items()}
    before = float(rnd._errors(seen).mean().detach())
    for _ in range(20):
        rnd.update(rnd.rollout())
    assert float(rnd._errors(seen).mean().detach()) < 0.3 * before
    assert all((target[name] == tensor).all() for name, tensor in rnd.target.module.state_dict().items())


def test_newest_frame_of_stacked_images_is_read() -> None:
    envs = make_vec_env("Zoo/IdentityImage-v0", 2, frame_stack=3)
    policy = {"name": "CnnPolicy", "encoder": "cnn", "features_dim": 8}
    model = make(A2C, envs, {"features_dim": 8}, policy=policy)
    rnd = collected(model)
    shape = rnd.rollout().observations.shape[1:]
    assert rnd.frame is not None
    assert np.prod(rnd.frame.shape) * 3 == np.prod(shape)
    seen = rnd._newest(rnd.rollout().next_observations)
    stacks = rnd.rollout().next_observations
    last = stacks[..., -seen.shape[-1] :] if seen.shape[1] == stacks.shape[1] else stacks[:, -seen.shape[1] :]
    assert (seen == last).all()
    model.learn(64)


def test_newest_frame_is_read_after_loading(tmp_path: Path) -> None:
    """A loaded agent has no environments yet, which know how many frames there are."""
    envs = make_vec_env("Zoo/IdentityImage-v0", 2, frame_stack=3)
    policy = {"name": "CnnPolicy", "encoder": "cnn", "features_dim": 8}
    model = make(A2C, envs, {"features_dim": 8}, policy=policy)
    model.save(tmp_path / "agent")
    loaded = A2C.load(tmp_path / "agent")
    loaded.set_env(make_vec_env("Zoo/IdentityImage-v0", 2, frame_stack=3))
    assert loaded.reward_model.frame == model.reward_model.frame
    assert model.reward_model.frame is not None
    kept = loaded.reward_model
    loaded.set_env(make_vec_env("Zoo/IdentityImage-v0", 2, frame_stack=3))
    assert loaded.reward_model is kept
    loaded.learn(64)


class Still(gym.Env[Any, Any]):
    """A bandit: one state."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), float(action), True, False, {}


def test_one_state_earns_nothing() -> None:
    model = make(A2C, make_vec_env(Still, 2)).learn(256)
    assert (model.reward_model.intrinsic == 0).all()
    assert all(np.isfinite(value).all() for value in model.get_parameters().values())


def test_last_values_use_the_following_observations() -> None:
    """Where resets take a step, environments that were full step on: the latest observations are others."""
    envs = make_vec_env("CartPole-v1", 32, vectorization="native")
    model = make(env=envs, intrinsic={"gamma": 0.9}, n_steps=32, gae_lambda=1.0)
    rnd = collected(model)
    rnd.advantages(np.zeros((32, 32), np.float32))
    latest, following = rnd._whitened(model.collector.raw_observations), rnd.inputs["next"][-32:]
    is_running = ~model.buffer.dones[-1]
    assert (latest != following).any(1)[is_running].sum() > 10

    def first_returns(observations: np.ndarray) -> np.ndarray:
        value = rnd.networks.values(torch.from_numpy(observations)).detach().numpy()
        for row in rnd.intrinsic[::-1]:
            value = row + 0.9 * value
        return value

    returns = rnd.inputs["returns"].reshape(32, 32)[0]
    np.testing.assert_allclose(returns[is_running], first_returns(following)[is_running], rtol=1e-4)
    assert np.abs(returns - first_returns(latest)).max() > 1e-3
    np.testing.assert_allclose(returns[~is_running], first_returns(latest)[~is_running], rtol=1e-4)


@pytest.mark.parametrize(
    ("algorithm", "env", "policy"),
    [
        (TRPO, "CartPole-v1", {"net_arch": [8]}),
        (PPO2, "Zoo/MaskedComposite-v0", {"net_arch": [8]}),
        (PPO2, "CartPole-v1", {"net_arch": [8], "recurrent": "lstm", "lstm_hidden_size": 4}),
        (PPO2, "Zoo/IdentityDict-v0", {"name": "MultiInputPolicy", "features_dim": 8, "net_arch": [8]}),
        (A2C, "FrozenLake-v1", {"net_arch": [8]}),
    ],
)
def test_other_algorithms_spaces_and_policies_learn(algorithm: Any, env: str, policy: Any) -> None:
    chunks = {"chunk_length": 4} if "recurrent" in policy else {}
    model = make(algorithm, env, policy=policy, **chunks).learn(96)
    assert model.read_metrics()["rollout/intrinsic_reward"] > 0


def test_corridor_is_solved_with_it_alone() -> None:
    def share_of_successes(**options: Any) -> float:
        envs = make_vec_env(lambda: Corridor(), 8)
        settings = {**SMALL, "policy": {"net_arch": [32]}, "n_steps": 128, "learning_rate": 1e-3, "seed": 0}
        model = PPO2(env=envs, **settings, ent_coef=0.0, **options).learn(60_000)
        return float(np.mean([episode.episode_return for episode in model.recent_episodes]))

    assert share_of_successes() < 0.1
    assert share_of_successes(intrinsic={"learning_rate": 1e-3}) > 0.9


def test_errors_name_the_key() -> None:
    with pytest.raises(ZooError, match=r"algo\.intrinsic"):
        make(reward_model={"_target_": "test_rnd.RND"})
    with pytest.raises(ZooError, match="intrinsic"):
        SAC(env="Pendulum-v1", intrinsic={})
    with pytest.raises(ZooError, match="coeff"):
        make(intrinsic={"coeff": 1.0})


def test_model_is_the_reward_model() -> None:
    assert isinstance(make().reward_model, RND)
