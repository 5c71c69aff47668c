"""Normalised values: updates against the same written out in double precision, and what is saved."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from logged_envs import Logged
from torch import Tensor, distributions, nn

import zoo
from zoo import A2C, ACKTR, PPO1, PPO2, TRPO, ZooError, make_vec_env
from zoo.policies.actor_critic import ActorCritic

N_STEPS, N_ENVS, GAMMA, GAE_LAMBDA, CLIP = 16, 2, 0.9, 0.8, 0.1
BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


class LargeRewards(Logged):
    """Rewards far from zero, and ten times as large in every second episode."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        return observation, 50.0 + (10.0 if self._episode % 2 else 1.0) * reward, *rest  # type: ignore[return-value]


def made(algorithm: Any = PPO2, **options: Any) -> Any:
    env = make_vec_env(lambda: LargeRewards(actions=BOX), N_ENVS, check=False)
    settings = {"n_steps": N_STEPS, "gamma": GAMMA, "gae_lambda": GAE_LAMBDA, "value_normalization": True}
    return algorithm({"net_arch": [8]}, env, seed=1, compile=False, threads=1, **{**settings, **options})


# -- an update written out -------------------------------------------------------------------------------


class WrittenOut:
    """PPO2 with PopArt in double precision. ``error`` is planted: see the tests."""

    def __init__(self, model: Any, error: str) -> None:
        self.error, self.policy = error, copy.deepcopy(model.policy).double()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=model.config.learning_rate, eps=1e-5)
        self.seen: list[float] = []
        self.mean, self.std = 0.0, 1.0

    def outputs(self, observations: Any) -> Tensor:
        values: Tensor = self.policy.critic(torch.as_tensor(observations).double()).squeeze(-1)
        return values

    @torch.no_grad()
    def values(self, observations: Any) -> np.ndarray:
        outputs = self.outputs(observations).numpy()
        return outputs if self.error == "outputs are returns" else outputs * self.std + self.mean

    def distribution(self, observations: Tensor) -> distributions.Distribution:
        mean, log_std = self.policy.head(self.policy.actor(observations)).chunk(2, -1)
        return distributions.Independent(distributions.Normal(mean, log_std.exp()), 1)

    def advantages(self, model: Any) -> tuple[np.ndarray, np.ndarray]:
        buffer = model.buffer
        values = np.stack([self.values(row) for row in buffer.columns["observations"]])
        following = self.values(model.collector.policy_input["observations"])
        rewards, advantages = buffer.rewards.astype(np.float64), np.zeros_like(values)
        for step, env, final in zip(*buffer.truncations()[:3], strict=True):
            rewards[step, env] += GAMMA * self.values(final[None])[0]
        ahead = np.zeros(N_ENVS)
        for step in reversed(range(N_STEPS)):
            goes_on = ~buffer.dones[step]
            ahead = rewards[step] + GAMMA * goes_on * (following + GAE_LAMBDA * ahead) - values[step]
            advantages[step], following = ahead, values[step]
        return advantages, values

    def use_returns(self, returns: np.ndarray) -> None:
        old_mean, old_std = self.mean, self.std
        self.seen += returns.ravel().tolist()
        total = len(self.seen) + 0.01
        self.mean = sum(self.seen) / total
        self.std = float(np.sqrt((np.square(self.seen).sum() + 0.01) / total - self.mean**2))
        if self.error == "last layer stays":
            return
        layer = [part for part in self.policy.critic.modules() if isinstance(part, nn.Linear)][-1]
        with torch.no_grad():
            layer.weight *= old_std / self.std
            layer.bias.copy_((layer.bias * old_std + old_mean - self.mean) / self.std)

    def update(self, model: Any, rng: Any) -> None:
        advantages, values = self.advantages(model)
        returns = advantages + values
        before = self.mean, self.std
        self.use_returns(returns)
        units = before if self.error == "moments of before" else (self.mean, self.std)
        rows = {name: torch.from_numpy(column) for name, column in model.buffer.rows().items()}
        observations, actions = rows["observations"].double(), rows["actions"].double()
        as_rows = [torch.from_numpy(table.reshape(-1)) for table in (advantages, values, returns)]
        advantage, old, target = as_rows[0], *((table - units[0]) / units[1] for table in as_rows[1:])
        with torch.no_grad():
            old_log_prob = self.distribution(observations).log_prob(actions)
        clip_vf = CLIP / units[1] if self.error == "clips in rewards" else CLIP
        for batch in model.buffer.minibatch_rows(rng, model.config.n_epochs, *model._minibatches()):
            policy = self.distribution(observations[batch])
            ratio = (policy.log_prob(actions[batch]) - old_log_prob[batch]).exp()
            standard = (advantage[batch] - advantage[batch].mean()) / (advantage[batch].std() + 1e-8)
            surrogate = torch.min(ratio * standard, ratio.clamp(1 - CLIP, 1 + CLIP) * standard).mean()
            output = self.outputs(observations[batch])
            clipped = old[batch] + (output - old[batch]).clamp(-clip_vf, clip_vf)
            errors = torch.max((output - target[batch]) ** 2, (clipped - target[batch]) ** 2)
            loss = -surrogate - 0.01 * policy.entropy().mean() + 0.25 * errors.mean()
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
            self.optimizer.step()


class Watched(PPO2):
    error = ""

    def update(self) -> None:
        if self.n_updates == 0:
            self._start, self._twin = copy.deepcopy(self.policy), WrittenOut(self, self.error)
        rng = copy.deepcopy(self.rng)
        super().update()
        self._twin.update(self, rng)


def largest_difference(ours: nn.Module, theirs: nn.Module, start: nn.Module) -> float:
    """Return how far parameters are apart, as a part of the way that they have gone."""
    triples = zip(ours.parameters(), theirs.parameters(), start.parameters(), strict=True)
    return max(((a - b).abs().max() / (b - c).abs().max()).item() for a, b, c in triples)


ERRORS = ["outputs are returns", "last layer stays", "moments of before", "clips in rewards"]


@pytest.mark.parametrize("error", ["", *ERRORS])
def test_updates_as_written_out_in_double_precision(error: str) -> None:
    kind = type("Watched", (Watched,), {"error": error})
    model = made(kind, n_epochs=3, learning_rate=0.01, clip_range=CLIP).learn(3 * N_STEPS * N_ENVS)
    difference = largest_difference(model.policy, model._twin.policy, model._start)
    assert (difference > 2e-2) if error else (difference < 1e-3)
    units = model.return_normalizer.metrics(model.runner.state)
    assert model._twin.std > 5
    if not error:
        assert float(units["returns_mean"]) == pytest.approx(model._twin.mean, rel=1e-4)
        assert float(units["returns_std"]) == pytest.approx(model._twin.std, rel=1e-4)


def test_rollout_by_hand() -> None:
    """Returns 10, 20, 30, 40 have a mean of 25 and a variance of 125, but for the prior."""
    model = made(n_steps=2, n_minibatches=1)
    model._reset_envs()
    model.collect()
    model.advantages = lambda values, gae_lambda: np.array([[10, 20], [30, 40]], np.float32) - values
    rollout, state = model.finished_rollout(), model.runner.state
    mean = 100 / 4.01
    std = ((3000 + 0.01) / 4.01 - mean**2) ** 0.5
    assert float(state["returns.mean"]) == pytest.approx(mean, abs=1e-4)
    expected = (np.array([10.0, 20.0, 30.0, 40.0]) - mean) / std
    np.testing.assert_allclose(np.sort(rollout["returns"].numpy()), expected, rtol=1e-5)
    with torch.no_grad():  # the corrected critic says what it said, in the new units
        np.testing.assert_allclose(model.policy.values(rollout), rollout["values"], atol=1e-5)
    assert model.read_metrics()["train/returns_std"] == pytest.approx(std, rel=1e-5)


# -- other algorithms, files, errors ---------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [A2C, PPO1, TRPO, ACKTR])
def test_moments_alone_change_no_value(algorithm: Any) -> None:
    model = made(algorithm, learning_rate=0.0)
    inputs = {"observations": np.eye(3, dtype=np.float32)}
    expected, weights = model.acting.values(inputs), model.get_parameters()["critic.0.weight"]
    model.learn(2 * N_STEPS * N_ENVS)
    assert model.read_metrics()["train/returns_std"] > 5
    np.testing.assert_allclose(model._denormalized(model.acting.values(inputs)), expected, atol=2e-4)
    assert np.abs(model.acting.values(inputs) - expected).max() > 1
    np.testing.assert_array_equal(model.get_parameters()["critic.0.weight"], weights)


def test_saved_critic_predicts_returns(tmp_path: Path) -> None:
    model = made(learning_rate=0.01).learn(3 * N_STEPS * N_ENVS)
    inputs = {"observations": np.eye(3, dtype=np.float32)}
    expected = model._denormalized(model.acting.values(inputs))
    assert np.abs(expected).max() > 1
    loaded: Any = zoo.load(model.save(tmp_path / "agent"))
    assert loaded.return_normalizer.moments(loaded.runner.state) == model.return_normalizer.moments(
        model.runner.state
    )
    np.testing.assert_allclose(loaded._denormalized(loaded.acting.values(inputs)), expected, rtol=1e-4)
    plain: Any = zoo.load(tmp_path / "agent", value_normalization=False)
    np.testing.assert_allclose(plain.acting.values(inputs), expected, rtol=1e-4)
    observation = np.ones(3, np.float32)
    np.testing.assert_array_equal(loaded.predict(observation)[0], model.predict(observation)[0])


class Rectified(ActorCritic):
    """A critic that ends in an activation."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.critic = nn.Sequential(nn.Linear(8, 2), nn.ReLU())  # type: ignore[assignment]


def test_critic_without_a_last_layer_is_refused() -> None:
    with pytest.raises(ZooError, match=r"algo\.value_normalization"):
        PPO2(Rectified, "CartPole-v1", value_normalization=True)
