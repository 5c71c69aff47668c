"""Whole updates of PPO1 against the same written out plainly, and what it does where PPO2 does otherwise."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from gymnasium import spaces
from test_on_policy_updates import (
    ACTIONS,
    GAE_LAMBDA,
    GAMMA,
    N_ENVS,
    N_STEPS,
    POLICY,
    advantages_and_values,
    assert_same_parameters,
    log_prob_and_entropy,
    logged_env,
    value_of,
)
from torch import nn

from zoo import PPO1


class WatchedPPO1(PPO1):
    """Does every update a second time, plainly, on a copy of its policy."""

    def update(self) -> None:
        if self.n_updates == 0:
            self.start, self.reference = copy.deepcopy(self.policy), copy.deepcopy(self.policy)
            self.optimizer = torch.optim.Adam(self.reference.parameters(), eps=self.config.adam_eps)
        rng = copy.deepcopy(self.rng)
        advantages, old_values = advantages_and_values(self.reference, self)
        super().update()
        config, memory, rows = self.config, self.buffer, self.buffer.rows()
        observations, actions = (torch.from_numpy(rows[name]) for name in ("observations", "actions"))
        with torch.no_grad():
            old_log_prob, _ = log_prob_and_entropy(self.reference, observations, actions)
        returns = advantages + old_values
        if config.normalize_advantage:
            advantages = (advantages - advantages.mean()) / advantages.std()
        done = (self.num_timesteps - N_STEPS * N_ENVS) / self.total_timesteps
        self.optimizer.param_groups[0]["lr"] = 0.02 * (1 - done)
        clip = 0.1 * (1 - done)
        for batch in memory.minibatch_rows(rng, config.n_epochs, *self._minibatches()):
            log_prob, entropy = log_prob_and_entropy(self.reference, observations[batch], actions[batch])
            ratio, advantage = (log_prob - old_log_prob[batch]).exp(), advantages[batch]
            surrogate = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
            error = (value_of(self.reference, observations[batch]) - returns[batch]) ** 2
            loss = -surrogate.mean() - config.ent_coef * entropy.mean() + config.vf_coef * error.mean()
            self.optimizer.zero_grad()
            loss.backward()
            if config.max_grad_norm is not None:
                nn.utils.clip_grad_norm_(self.reference.parameters(), config.max_grad_norm)
            self.optimizer.step()


@pytest.mark.parametrize(
    ("actions", "hyperparameters"),
    [
        *((space, {}) for space in ACTIONS),
        (ACTIONS[0], {"batch_size": 7, "ent_coef": 0.2, "max_grad_norm": 0.1}),
        (ACTIONS[3], {"normalize_advantage": False, "vf_coef": 0.3}),
    ],
    ids=str,
)
def test_ppo1_updates_as_written_out(actions: spaces.Space[Any], hyperparameters: dict[str, Any]) -> None:
    settings = {"n_steps": N_STEPS, "batch_size": 16, "n_epochs": 3, **hyperparameters}
    settings |= {
        "learning_rate": "lin_0.02",
        "clip_range": "lin_0.1",
        "gamma": GAMMA,
        "gae_lambda": GAE_LAMBDA,
    }
    model = WatchedPPO1(POLICY, logged_env(actions), seed=1, compile=False, **settings)
    model.learn(3 * N_STEPS * N_ENVS)
    metrics = model.read_metrics()
    assert metrics["train/clip_fraction"] > 0.05
    assert metrics["train/learning_rate"] == pytest.approx(0.02 * 2 / 3)
    assert metrics["train/clip_range"] == pytest.approx(0.1 * 2 / 3)
    assert_same_parameters(model.policy, model.reference, model.start)


def ppo1(**hyperparameters: Any) -> PPO1:
    settings = {"n_steps": N_STEPS, "batch_size": 16, "n_epochs": 3, **hyperparameters}
    return PPO1(POLICY, logged_env(), seed=1, compile=False, **settings)


def test_what_fills_no_minibatch_is_left_out_of_an_epoch() -> None:
    model = ppo1(batch_size=12).learn(N_STEPS * N_ENVS)
    assert model.n_updates == 3 * 2 == model.gradient_steps_in(N_STEPS * N_ENVS)
    rows = model.buffer.minibatch_rows(model.rng, 3, *model._minibatches())
    assert rows.shape == (6, 12)
    for epoch in rows.reshape(3, 24):
        assert len(set(epoch.tolist())) == 24, "no step twice"
    assert len(set(rows.reshape(-1).tolist())) > 24, "not always the same steps"
