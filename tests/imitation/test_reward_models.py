"""A reward model of the user's own, on any on-policy algorithm: rewards, resume, config, wrong input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_bc

import zoo
from zoo.algorithms.registry import algorithm_class
from zoo.algorithms.reward_model import RewardModel, RewardRollout
from zoo.config.fields import hyperparameter
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError, ZooWarning

Array = np.ndarray

ON_POLICY = ("ppo2", "ppo1", "trpo", "a2c", "acktr")
BONUS = {"_target_": "test_reward_models.CountBonus", "coef": 0.5}


@dataclass
class CountBonusConfig:
    coef: float = hyperparameter(1.0, "weight of the bonus", ge=0)


class CountBonus(RewardModel):
    """Adds coef / √n where a step leads for the n-th time into a cell of pole angles."""

    config_class = CountBonusConfig
    uses_next_observations = True

    def __init__(self, config: CountBonusConfig, agent: Any) -> None:
        super().__init__(config, agent)
        self.counts = np.zeros(8, np.int64)
        self.last: Any = None

    def cells(self, rollout: RewardRollout) -> Array:
        return np.clip(rollout.next_observations[:, 2] * 20 + 4, 0, 7).astype(np.int64)

    def rewards(self, rollout: RewardRollout) -> Array:
        self.last = rollout._replace(rewards=rollout.rewards.copy())
        bonus = self.config.coef / np.sqrt(self.counts[self.cells(rollout)] + 1)
        return rollout.rewards + bonus.reshape(rollout.rewards.shape)

    def update(self, rollout: RewardRollout) -> None:
        np.add.at(self.counts, self.cells(rollout), 1)

    def state(self) -> dict[str, Any]:
        return {"counts": self.counts.copy()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.counts = np.array(state["counts"])


def explorer(name: str, reward_model: Any = BONUS, **options: Any) -> Any:
    settings = {"env": "CartPole-v1", "n_envs": 2, "n_steps": 32, "seed": 1, "compile": False, "threads": 1}
    settings |= {"batch_size": 32} if name in ("trpo", "ppo1") else {}
    policy = options.pop("policy", {"net_arch": [8]})
    return algorithm_class(name)(policy, **{**settings, **options}, reward_model=reward_model)


@pytest.mark.parametrize("name", ON_POLICY)
def test_policy_learns_from_model_rewards(name: str) -> None:
    env = EnvConfig("CartPole-v1", normalize={"rewards": False})
    model = explorer(name, env=env)
    plain = explorer(name, None, env=env)
    model.learn(64)
    rollout, learned = model.reward_model.last, model.buffer.rewards
    np.testing.assert_allclose(learned, rollout.rewards + 0.5)  # every cell was new
    assert model.reward_model.counts.sum() == 64
    model.learn(64, reset_num_timesteps=False)
    assert 0 < (model.buffer.rewards - 1.0).min() < 0.5
    plain.learn(128)
    assert any((model.get_parameters()[key] != value).any() for key, value in plain.get_parameters().items())
    assert all(episode.episode_return == episode.length for episode in model.recent_episodes)


def test_zero_bonus_changes_nothing() -> None:
    models = [explorer("ppo2", value).learn(300) for value in ({**BONUS, "coef": 0.0}, None)]
    first, second = (model.get_parameters() for model in models)
    for name, value in second.items():
        np.testing.assert_array_equal(first[name], value)


@pytest.mark.parametrize("vectorization", ["sync", "native"])
def test_rollout_has_raw_steps_and_final_observations(vectorization: str) -> None:
    model = explorer("a2c", env=EnvConfig("CartPole-v1", normalize=True, vectorization=vectorization))
    model.learn(256)
    rollout = model.reward_model.last
    dones = rollout.dones.reshape(-1)
    assert dones.any()
    is_out = (np.abs(rollout.next_observations[:, 0]) > 2.4) | (
        np.abs(rollout.next_observations[:, 2]) > 0.2095
    )
    np.testing.assert_array_equal(is_out, dones)
    following = rollout.observations.reshape(32, 2, -1)[1:][~rollout.dones[:-1]]
    np.testing.assert_array_equal(
        rollout.next_observations.reshape(32, 2, -1)[:-1][~rollout.dones[:-1]], following
    )
    positions, speeds = rollout.observations[:, 0], rollout.observations[:, 1]  # as the env moves
    np.testing.assert_allclose(rollout.next_observations[:, 0], positions + 0.02 * speeds, atol=1e-6)
    assert set(rollout.actions.tolist()) == {0, 1}


@pytest.mark.parametrize(("name", "policy"), [("ppo2", {"net_arch": [8]}), ("a2c", test_bc.LSTM)])
def test_same_seed_and_exact_resume(name: str, policy: Any) -> None:
    env = EnvConfig("CartPole-v1", normalize=True)
    make = partial(explorer, name, env=env, policy=policy)
    test_bc.assert_resumes_exactly(make, 384, (192, 256))


def test_command_line_takes_a_reward_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bonus = "algo.reward_model={_target_: test_reward_models.CountBonus, coef: 0.25}"
    run = ["algo=ppo2", "env=CartPole-v1", "n_timesteps=64", "n_envs=2", "algo.n_steps=32", "tuned=none"]
    result = zoo.train(*run, bonus, "callbacks=none", "verbose=0", "device=cpu", "compile=false")
    assert result.algorithm.reward_model.config == CountBonusConfig(0.25)
    with pytest.warns(ZooWarning, match=r"without `algo\.reward_model`.*trust=true"):
        zoo.load(result.algorithm.save(tmp_path / "agent"))
    again = zoo.load(tmp_path / "agent", env="CartPole-v1", trust=True).learn(300)
    assert again.reward_model.counts.sum() > 0


def test_class_is_saved_by_its_name() -> None:
    model = explorer("ppo2", {"_target_": CountBonus})
    assert model.config.reward_model == {"_target_": "test_reward_models.CountBonus"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coef": 1.0}, "needs the class"),
        ({**BONUS, "coeff": 1.0}, r"algo\.reward_model\.coeff"),
        ({"_target_": "test_reward_models.CountBonusConfig"}, "is not a subclass"),
    ],
)
def test_wrong_settings_get_one_clear_line(settings: Any, message: str) -> None:
    with pytest.raises(ZooError, match=message):
        explorer("ppo2", settings)


class Seven(CountBonus):
    """Returns 7, and keeps what it is given."""

    def rewards(self, rollout: RewardRollout) -> Array:
        self.last = rollout.rewards.copy()
        return np.full_like(rollout.rewards, 7)

    def update(self, rollout: RewardRollout) -> None:
        self.learned = rollout.rewards


@pytest.mark.parametrize("normalize", [False, True])
def test_model_sees_raw_rewards_before_and_after(normalize: bool) -> None:
    env = EnvConfig("CartPole-v1", normalize=normalize)
    model = explorer("ppo2", {"_target_": Seven}, env=env).learn(64)
    assert (model.buffer.rewards == 7).all()
    assert (model.reward_model.last == 1).all()
    assert (model.reward_model.learned == 1).all()


class Plain(RewardModel):
    """Without hyperparameters: returns what a test wants."""

    returned: Any = None

    def rewards(self, rollout: RewardRollout) -> Any:
        return self.returned(rollout.rewards)


class Same(Plain):
    returned = staticmethod(lambda rewards: rewards)


class Opposite(Same):
    """What was better is worse."""

    def advantages(self, advantages: Array) -> Array:
        return -advantages


@pytest.mark.parametrize("name", [*ON_POLICY, "pqn"])
def test_advantages_of_the_model_are_learned_from(name: str) -> None:
    first, second, again = (
        explorer(name, {"_target_": model}).learn(64).get_parameters() for model in (Same, Opposite, Same)
    )
    assert any((np.abs(first[key] - second[key]) > 1e-6).any() for key in first)
    assert all((first[key] == again[key]).all() for key in first)


@pytest.mark.parametrize(
    "returned",
    [lambda rewards: rewards[:1], lambda rewards: rewards * np.nan, lambda rewards: None],
    ids=["one step", "NaN", "None"],
)
def test_wrong_rewards_name_the_model(returned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plain, "returned", staticmethod(returned))
    model = explorer("ppo2", {"_target_": Plain})
    with pytest.raises(
        ZooError, match=r"Plain\.rewards returned .* expected finite numbers of shape \(32, 2\)"
    ):
        model.learn(64)
