"""What TRPO's update promises: its bound, what it leaves alone, and what its options change."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from logged_envs import Logged
from torch import Tensor

from zoo import TRPO, make_vec_env
from zoo.algorithms.on_policy import standardized
from zoo.optim.natural_gradient import longest_step
from zoo.policies.recurrent import unrolled

N_STEPS, N_ENVS = 32, 2
POLICY = {"net_arch": [6]}
SPACES: list[spaces.Space[Any]] = [
    spaces.Discrete(3),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(2),
    spaces.Box(-1.0, 1.0, (2,), np.float32),
]


def trpo(actions: spaces.Space[Any] = SPACES[0], policy: Any = POLICY, **hyperparameters: Any) -> TRPO:
    settings = {"n_steps": N_STEPS, "batch_size": 16, "n_critic_updates": 2, **hyperparameters}
    env = make_vec_env(lambda: Logged(actions=actions), N_ENVS, check=False)
    return TRPO(policy, env, seed=1, compile=False, threads=1, **settings)


def collected(model: TRPO) -> dict[str, Any]:
    """Return a rollout, as an update takes it."""
    model.learn(1)
    model.collect()
    return model.finished_rollout()


def split(model: TRPO) -> tuple[Tensor, Tensor]:
    """Return the parameters that actions depend on, and the others."""
    of_critic = torch.zeros(model.updater.parameters.size, dtype=torch.bool)
    for name, part in model.updater.parameters.slices.items():
        of_critic[part] = name.startswith("critic")
    vector = model.runner.state["policy"].clone()
    return vector[~of_critic], vector[of_critic]


def explicit_fisher(model: TRPO, rollout: dict[str, Any]) -> Tensor:
    """Return the Hessian of the mean divergence by the policy's parameters, entry by entry."""
    vector = model.runner.state["policy"].clone()
    head, at, states = model.policy.head, model.updater.parameters.at, rollout.get("states")
    old = model.policy(rollout, states)[0].detach()

    def kl(moved: Tensor) -> Tensor:
        return head.kl(old, at(moved)(rollout, states)[0]).mean()

    return torch.autograd.functional.hessian(kl, vector)


@pytest.mark.parametrize("actions", SPACES, ids=str)
def test_products_are_those_of_the_explicit_fisher_matrix(actions: spaces.Space[Any]) -> None:
    model = trpo(actions, policy={"net_arch": [3]}, cg_damping=0.25)
    rollout = collected(model)
    fisher = explicit_fisher(model, rollout)
    product = model._damped(rollout)
    for vector in torch.randn(3, len(fisher)):
        expected = fisher @ vector + 0.25 * vector
        torch.testing.assert_close(product(vector), expected, rtol=1e-3, atol=1e-4)
    step = longest_step(torch.randn(len(fisher)), product, 0.01)
    damped = fisher + 0.25 * torch.eye(len(fisher))
    assert (0.5 * step @ damped @ step).item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    "memory",
    [
        {"recurrent": "lstm", "critic_lstm": "detached"},
        {"recurrent": "lstm", "critic_lstm": "detached", "lstm_layer_norm": True},
        {"recurrent": "gru", "critic_lstm": "detached"},
    ],
    ids=["lstm", "normalised lstm", "gru"],
)
def test_products_through_a_memory_are_those_of_the_explicit_fisher_matrix(memory: dict[str, Any]) -> None:
    """The matrix by PyTorch's own derivatives step by step, the products by Zoo's operation."""
    policy = {**memory, "lstm_hidden_size": 3, "net_arch": []}
    model = trpo(policy=policy, n_steps=16, chunk_length=8, cg_damping=0.25)
    rollout = collected(model)
    assert rollout["episode_starts"][:, 1:].any()
    with unrolled():
        fisher = explicit_fisher(model, rollout)
    product = model._damped(rollout)
    for vector in torch.randn(3, len(fisher)):
        expected = fisher @ vector + 0.25 * vector
        torch.testing.assert_close(product(vector), expected, rtol=1e-4, atol=1e-6)
    of_memory = [part for name, part in model.updater.parameters.slices.items() if name.startswith("core")]
    assert all(fisher[part].abs().max() > 1e-6 for part in of_memory)


@pytest.mark.parametrize(("actions", "target_kl"), list(zip(SPACES, [0.003, 0.5] * 2, strict=True)), ids=str)
def test_no_step_breaks_its_bound_or_loses(actions: spaces.Space[Any], target_kl: float) -> None:
    model = trpo(actions, target_kl=target_kl)
    accepted = []
    for _ in range(3):
        rollout = collected(model)
        rollout["advantages"] = standardized(rollout["advantages"], rollout)
        head, old = model.policy.head, model.policy(rollout)[0].detach()
        before = split(model)
        gained_before = model._objective(old, rollout)[0]
        model.read_metrics()
        model._move_policy(dict(rollout))
        new = model.policy(rollout)[0].detach()
        kl, metrics = head.kl(old, new).mean().item(), model.read_metrics()
        accepted.append(metrics["train/is_line_search_success"])
        assert kl < target_kl
        assert metrics["train/kl_divergence_loss"] == pytest.approx(kl, rel=1e-3, abs=1e-6)
        assert metrics["train/policy_objective"] == pytest.approx(
            model._objective(new, rollout)[0].item(), rel=1e-3, abs=1e-6
        )
        if accepted[-1]:
            assert model._objective(new, rollout)[0] > gained_before
            assert kl > target_kl / 20
        else:
            assert torch.equal(split(model)[0], before[0])
        assert torch.equal(split(model)[1], before[1]), "the critic has no part in it"
    assert sum(accepted) >= 2


@pytest.mark.parametrize(
    "spoiled",
    [
        {"advantages": torch.zeros(N_STEPS * N_ENVS)},
        {"advantages": torch.full((N_STEPS * N_ENVS,), torch.nan)},
    ],
    ids=["no direction", "not a number"],
)
def test_a_search_that_finds_nothing_leaves_the_policy_as_it_was(spoiled: dict[str, Tensor]) -> None:
    model = trpo()
    rollout = {**collected(model), **spoiled}
    before = model.runner.state["policy"].clone()
    model.read_metrics()
    model._move_policy(rollout)
    assert torch.equal(model.runner.state["policy"], before)
    metrics = model.read_metrics()
    assert metrics["train/is_line_search_success"] == metrics["train/kl_divergence_loss"] == 0
    assert metrics["train/entropy_loss"] < -0.1


@pytest.mark.parametrize("share_encoder", [True, False])
def test_the_critic_moves_nothing_that_actions_depend_on(share_encoder: bool) -> None:
    policy = {"net_arch": {"shared": [5], "pi": [4], "vf": [4]}, "share_encoder": share_encoder}
    model = trpo(policy=policy)
    rollout = collected(model)
    before = {name: value.copy() for name, value in model.get_parameters().items()}
    with torch.no_grad():
        actions_before = model.policy(rollout)[0]
    model._fit_critic(rollout)
    after = model.get_parameters()
    moved = {name for name in before if not np.array_equal(after[name], before[name])}
    assert moved == {name for name in before if name.startswith("critic")}
    assert torch.equal(model.policy(rollout)[0].detach(), actions_before)


class Resetting(gym.vector.VectorEnv[Any, Any, Any]):
    """Two copies whose every fourth step merely resets, with a reward that must not count."""

    metadata: ClassVar = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}

    def __init__(self, false_reward: float) -> None:
        self.num_envs, self.false_reward = 2, false_reward
        self.single_observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(-1.0, 1.0, (2, 2), np.float32)
        self.action_space = spaces.MultiDiscrete([2, 2])

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._steps = 0
        return self._seen(), {}

    def step(self, actions: Any) -> Any:
        self._steps += 1
        resets = self._steps % 4 == 0
        rewards = np.full(2, self.false_reward) if resets else np.asarray(actions, float)
        ended = np.full(2, self._steps % 4 == 3)
        return self._seen(), rewards, ended, np.zeros(2, bool), {}

    def _seen(self) -> Any:
        return np.array([[0.1 * (self._steps % 4), 0.5], [-0.3, 0.2 * (self._steps % 3)]], np.float32)


def test_steps_that_merely_reset_do_not_count() -> None:
    learned = []
    for false_reward in (0.0, 1000.0):
        model = TRPO(POLICY, Resetting(false_reward), seed=0, compile=False, n_steps=16, batch_size=8)
        model.learn(24)
        assert not model.buffer.valid.all()
        learned.append(model.get_parameters())
    for name, value in learned[0].items():
        np.testing.assert_array_equal(learned[1][name], value)
