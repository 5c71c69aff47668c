"""GAIL: the rewards that its generator learns from, when what is trained, exact resume, and wrong input."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import test_bc
from gymnasium.vector import SyncVectorEnv

import zoo
from zoo.algorithms.ppo import PPO2
from zoo.algorithms.registry import algorithm_class
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError
from zoo.experiment.evaluation import evaluate_policy
from zoo.experiment.expert_recording import record_expert
from zoo.imitation.discriminator import Discriminator
from zoo.imitation.expert_data import ExpertData
from zoo.imitation.gail import GAIL, GENERATORS, GAILConfig

Array = np.ndarray

SHORT = EnvConfig("CartPole-v1", max_episode_steps=100)
GENERATOR_CLASSES = {name: algorithm_class(name) for name in GENERATORS}
cartpole = test_bc.cartpole


def imitator(data: Any, policy: Any = None, **options: Any) -> GAIL:
    defaults = {"env": "CartPole-v1", "n_envs": 2, "n_steps": 32, "seed": 1, "compile": False, "threads": 1}
    if options.get("generator", "trpo") == "trpo":
        defaults |= {"batch_size": 32, "n_critic_updates": 2}
    if options.get("generator") == "ppo1":
        defaults |= {"batch_size": 32}
    return GAIL({"net_arch": [8]} if policy is None else policy, dataset=data, **{**defaults, **options})


# -- rewards --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("generator", ["ppo2", "trpo"])
def test_gail_uses_its_rewards_but_logs_env_returns(
    cartpole: ExpertData, generator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = imitator(cartpole, generator=generator, n_steps=64)
    seen: list[tuple[Array, Array]] = []
    learn = GENERATOR_CLASSES[generator].update

    def noted(self: Any) -> None:
        columns = self.buffer.columns
        pairs = (columns[name].reshape(-1, *columns[name].shape[2:]) for name in ("observations", "actions"))
        seen.append((self.buffer.rewards.reshape(-1).copy(), self.imitation_rewards(*pairs)))
        learn(self)

    monkeypatch.setattr(GENERATOR_CLASSES[generator], "update", noted)
    model.learn(1000)
    for used, judged in seen:
        np.testing.assert_allclose(used, judged, rtol=1e-5)
        assert used.std() > 0
    episodes = list(model.recent_episodes)
    assert all(episode.episode_return == episode.length for episode in episodes)
    metrics = model.read_metrics()
    assert metrics["rollout/imitation_reward"] == pytest.approx(np.mean([each.mean() for each, _ in seen]))
    assert metrics["rollout/ep_imitation_rew_mean"] > metrics["rollout/imitation_reward"]


@pytest.mark.parametrize("generator", ["ppo2", "trpo"])
def test_next_step_environments_earn_for_real_steps(cartpole: ExpertData, generator: str) -> None:
    env = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    model = imitator(cartpole, generator=generator, env=env, n_envs=None, n_steps=64).learn(1)
    buffer = model.buffer
    assert (buffer.rewards > 0).all()
    sums, returns = np.zeros(2), []
    for rewards, dones in zip(buffer.rewards, buffer.dones, strict=True):
        sums += rewards
        returns += sums[dones].tolist()
        sums[dones] = 0.0
    metrics = model.read_metrics()
    assert metrics["rollout/ep_imitation_rew_mean"] == pytest.approx(np.mean(returns))
    assert metrics["rollout/imitation_reward"] == pytest.approx(buffer.rewards.mean())


# -- what is trained when -------------------------------------------------------------------------------
@pytest.mark.parametrize("generator", GENERATORS)
def test_generator_and_discriminator_both_train(cartpole: ExpertData, generator: str) -> None:
    model = imitator(cartpole, generator=generator, g_step=2, d_step=3)
    assert isinstance(model, GAIL)
    assert isinstance(model, GENERATOR_CLASSES[generator])
    before, judge = model.get_parameters(), model.runner.state["discriminator"].clone()
    model.learn(64)
    assert any((model.get_parameters()[name] != value).any() for name, value in before.items())
    assert (model.runner.state["discriminator"] == judge).all()
    model.learn(64, reset_num_timesteps=False)
    assert (model.runner.state["discriminator"] != judge).any()
    assert model.runner.state["discriminator.count"] == 3
    model.learn(64 * 4, reset_num_timesteps=False)
    assert model.runner.state["discriminator.count"] == 9


def test_generator_equals_plain_ppo2_for_env_rewards(
    cartpole: ExpertData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the environment's rewards left in place, and no steps of a discriminator, it is that itself."""
    monkeypatch.setattr(Discriminator, "rewards", lambda self, rollout: rollout.rewards)
    imitating = imitator(cartpole, generator="ppo2", g_step=1000).learn(600)
    settings = {"n_envs": 2, "n_steps": 32, "seed": 1, "compile": False, "threads": 1}
    alone = PPO2({"net_arch": [8]}, "CartPole-v1", **settings).learn(600)
    for name, value in alone.get_parameters().items():
        np.testing.assert_array_equal(imitating.get_parameters()[name], value)


# -- exact resume ---------------------------------------------------------------------------------------

RESUMED: dict[str, dict[str, Any]] = {
    "trpo": {"d_spectral_norm": True},
    "ppo2": {"generator": "ppo2", "d_gradient_penalty": 1.0, "d_step": 2},
    "a2c": {"generator": "a2c", "policy": test_bc.LSTM},
    "acktr": {"generator": "acktr"},
}


@pytest.mark.parametrize("kind", RESUMED)
def test_same_seed_and_exact_resume(cartpole: ExpertData, kind: str) -> None:
    """From the middle between two of the discriminator's updates, and from after one."""
    env = EnvConfig("CartPole-v1", normalize=kind in ("trpo", "a2c"))
    make = partial(imitator, cartpole, env=env, g_step=2, **RESUMED[kind])
    test_bc.assert_resumes_exactly(make, 384, (192, 256))


# -- learning -------------------------------------------------------------------------------------------
def test_imitates_a_controller(cartpole: ExpertData) -> None:
    own: dict[str, Any] = {"n_envs": 8, "n_steps": 64, "batch_size": 128, "gamma": 0.98, "env": SHORT}
    own |= {"cg_damping": 0.001, "n_critic_updates": 10}
    judges = {"g_step": 1, "d_step": 4, "d_batch_size": 256, "d_learning_rate": 1e-3}
    model = imitator(cartpole, "MlpPolicy", **own, **judges)
    before, _ = evaluate_policy(model, SHORT, 20, seed=0)
    model.learn(25_000)
    after, _ = evaluate_policy(model, SHORT, 20, seed=0)
    assert before < 60 < 95 < after


@pytest.mark.slow
def test_imitates_from_pixels() -> None:
    name = "Zoo/IdentityImage-v0"
    data = record_expert(quarter, name, 2, seed=0)
    own = {"generator": "ppo2", "n_envs": 4, "batch_size": 64, "seed": 0, "learning_rate": 1e-3, "gamma": 0.0}
    judges = {"g_step": 1, "d_step": 8, "d_learning_rate": 1e-3, "d_batch_size": 64}
    model = imitator(data, {"name": "CnnPolicy", "features_dim": 32}, env=name, **own, **judges)
    rights = []
    for steps in (1, 5_000):
        model.learn(steps, reset_num_timesteps=False)
        rights.append(float((model.predict(data.observations)[0] == data.actions).mean()))
    assert rights[0] < 0.6 < 0.95 < rights[1]


def quarter(image: Array) -> int:
    half = len(image) // 2
    parts = [image[:half, :half], image[:half, half:], image[half:, :half], image[half:, half:]]
    return int(np.argmax([part.mean() for part in parts]))


# -- the agent ------------------------------------------------------------------------------------------
def test_agent_is_saved_loaded_and_goes_on(cartpole: ExpertData, tmp_path: Any) -> None:
    model = imitator(cartpole, generator="acktr", d_step=2).learn(256)
    loaded = zoo.load(model.save(tmp_path / "agent"))
    assert type(loaded) is type(model)
    assert loaded.config == model.config
    observations = cartpole.observations
    np.testing.assert_array_equal(loaded.predict(observations)[0], model.predict(observations)[0])
    with pytest.raises(ZooError, match="gail learns from expert data: dataset=PATH"):
        zoo.load(tmp_path / "agent", env="CartPole-v1").learn(100)
    before = loaded.get_parameters()
    again = GAIL.load(tmp_path / "agent", env="CartPole-v1", dataset=cartpole, g_step=1).learn(64)
    assert again.config.g_step == 1
    assert any((again.get_parameters()[name] != value).any() for name, value in before.items())
    with pytest.raises(ZooError, match="unknown key `clip_range`"):
        zoo.load(tmp_path / "agent", clip_range=0.1)


# -- wrong input ----------------------------------------------------------------------------------------
def test_wrong_input_gets_one_clear_line(cartpole: ExpertData, tmp_path: Any) -> None:
    with pytest.raises(ZooError, match=r"GAIL\.generator=sac`: a generator learns from its own rollouts"):
        imitator(cartpole, generator="sac")
    with pytest.raises(ZooError, match=r"unknown key `GAIL\.clip_range`"):
        imitator(cartpole, clip_range=0.1)
    with pytest.raises(ZooError, match=r"gail learns from expert data"):
        imitator(None).learn(100)
    assert imitator(cartpole, n_episodes=2).discriminator.data.n_episodes == 2  # type: ignore[union-attr]
    with pytest.raises(ZooError, match=r"acktr acts in|gail acts in"):
        imitator(None, env="Zoo/Composite-v0", generator="acktr")


def test_discriminator_inputs_are_raw_and_clipped() -> None:
    env = EnvConfig("Pendulum-v1", max_episode_steps=20, normalize=True)
    data = record_expert(lambda _: np.zeros(1, np.float32), "Pendulum-v1", 1, seed=0)
    model = imitator(data, {"net_arch": [8], "log_std_init": 2.0}, env=env)
    model.learn(200)
    steps, columns = model.reward_model.rollout()._asdict(), model.buffer.columns
    assert np.abs(columns["actions"]).max() > 2.0
    assert np.abs(steps["actions"]).max() == 2.0
    raw = steps["observations"]
    np.testing.assert_allclose(raw[:, 0] ** 2 + raw[:, 1] ** 2, 1.0, rtol=1e-5)
    shown = columns["observations"].reshape(-1, 3)
    assert not np.allclose(shown[:, 0] ** 2 + shown[:, 1] ** 2, 1.0)


@dataclass
class MyGAILConfig(GAILConfig):
    mine: int = 3


class MyGAIL(GAIL):
    config_class = MyGAILConfig


@pytest.mark.parametrize("generator", ["trpo", "ppo2"])
def test_subclass_of_gail_has_its_own_config(generator: str) -> None:
    model: Any = MyGAIL("MlpPolicy", "CartPole-v1", generator=generator, mine=5, compile=False)
    assert isinstance(model, GENERATOR_CLASSES[generator])
    assert isinstance(model.config, MyGAILConfig)
    assert (model.mine, model.config.generator) == (5, generator)
    assert type(model).config_class is type(model.config)
