"""Workers learn as from the batches of all, also where resets make them step at different paces."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from forked_workers import together
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.on_policy import standardized
from zoo.algorithms.registry import algorithm_class
from zoo.imitation.bc import Cloning, CloningTerms
from zoo.optim.optimizers import Adam
from zoo.optim.update_runner import averaging_over
from zoo.optim.workers import Workers
from zoo.policies.recurrent import unrolled

N_STEPS, N_ENVS = 8, 2


class Short(gym.Env[Any, Any]):
    """Episodes of so many steps."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._seen(), float(self.length + action), self.steps >= self.length, False, {}

    def _seen(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)


OPTIONS: dict[str, dict[str, Any]] = {
    "a2c": {"normalize_advantage": True},
    "acktr": {"cold_updates": 1, "normalize_advantage": True},
    "ppo1": {"batch_size": N_STEPS, "clip_range": 0.2},
    "ppo2": {"n_minibatches": 1, "target_kl": 10.0},
    "trpo": {"batch_size": N_STEPS, "ent_coef": 0.01},
}
MEMORY = {"recurrent": "lstm", "lstm_hidden_size": 4, "lstm_layer_norm": True}
CASES = [(name, is_recurrent) for name in OPTIONS for is_recurrent in (True, False)]


def in_double_precision(algorithm: type[Algorithm]) -> type[Algorithm]:
    class Double(algorithm):  # type: ignore[valid-type, misc]
        def _make_policy(self) -> nn.Module:
            policy: Any = super()._make_policy().double()
            policy.encoder.register_forward_hook(lambda module, inputs, output: output.double())
            return policy

    return Double


def model_of(name: str, is_recurrent: bool, length: int = 1, *, double: bool = True) -> Any:
    env = SyncVectorEnv([lambda: Short(length)] * N_ENVS, autoreset_mode=AutoresetMode.NEXT_STEP)
    policy = {"net_arch": [5], "activation": "relu", **(MEMORY if is_recurrent else {})}
    options = {"n_steps": N_STEPS, "gamma": 0.9, **OPTIONS[name]}
    algorithm = algorithm_class(name)
    algorithm = in_double_precision(algorithm) if double else algorithm
    return algorithm(policy, env, seed=1, device="cpu", compile=False, threads=1, **options)


def collected(name: str, is_recurrent: bool, length: int) -> dict[str, Any]:
    """Return a rollout in double precision, as if collected by another policy, and noise."""
    model = model_of(name, is_recurrent, length, double=False)
    model._reset_envs()
    model.total_timesteps = 1000
    model.collect()
    columns = model.finished_rollout().items()
    rollout = {key: each.double() if each.is_floating_point() else each for key, each in columns}
    rng = torch.Generator().manual_seed(length)
    shape = rollout["returns"].shape
    rollout["noise"] = torch.randn(shape, generator=rng, dtype=torch.float64)
    if "log_prob" in rollout:
        change = torch.randn(shape, generator=rng, dtype=torch.float64)
        rollout["log_prob"] += (0.05 if model.name == "trpo" else 0.2) * change
    return rollout


def learned(model: Any, rollout: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Take each kind of step that an update takes, on all of the rollout; return the changes, and metrics."""
    if hasattr(model.updater.optimizer, "eps"):
        # Steps in proportion to gradients: so that rounding stays rounding.
        model.updater.optimizer = dataclasses.replace(model.updater.optimizer, eps=1.0)
    before = {name: tensor.clone() for name, tensor in model.runner.state.items()}
    rates = {name: rate.double() for name, rate in model.rates(0.0).items()}
    rates["learning_rate"] = torch.tensor(0.1, dtype=torch.float64)
    rows = torch.arange(len(rollout["returns"]))[None]
    shared = {"rollout": rollout, **rates}
    model.scalars.read()
    if model.name == "a2c":
        model.take_steps(model._gradient_step, rollout, rates["learning_rate"].reshape(1))
    elif model.name == "acktr":
        model.take_steps(model._gradient_step, shared, rollout["noise"][None])
        model._update_inverses()
        model.take_steps(model._gradient_step, shared, rollout["noise"][None])
    elif model.name == "trpo":
        advantages = standardized(rollout["advantages"])
        model._move_policy({**rollout, "advantages": advantages})
        shared["critic_only"] = model._critic_only_mask(rollout)
        model.take_steps(model._critic_step, shared, rows)
    else:
        model.take_steps(model._gradient_step, shared, rows)
    state = model.runner.state
    changes = {name: state[name] - before[name] for name in before if state[name].is_floating_point()}
    return changes, {name: torch.tensor(value) for name, value in model.scalars.read().items()}


@pytest.mark.parametrize(("name", "is_recurrent"), CASES)
def test_unequal_batches_match_one_process(name: str, is_recurrent: bool) -> None:
    """One resets in each second step, the other never."""

    def work(workers: Workers) -> Any:
        rollout = collected(name, is_recurrent, 1 if workers.rank else 100)
        model = model_of(name, is_recurrent)
        model.join(workers)
        with averaging_over(workers), unrolled():
            return rollout, *learned(model, rollout)

    (one, changes, metrics), (two, their_changes, their_metrics) = together(work)
    joined = {key: torch.cat([one[key], two[key]]) for key in one}
    with unrolled():
        expected, expected_metrics = learned(model_of(name, is_recurrent), joined)
    assert expected["policy"].abs().max() > 1e-4
    for key, change in expected.items():
        assert torch.equal(changes[key], their_changes[key]), key
        assert change.dtype == torch.float64 or change.dim() == 0, key
        torch.testing.assert_close(changes[key], change, rtol=1e-6, atol=1e-10, msg=key)
    for key, value in expected_metrics.items():
        mean = (metrics[key] + their_metrics[key]) / 2
        torch.testing.assert_close(mean, value, rtol=1e-5, atol=1e-6, msg=key)


def test_cloning_on_two_ranks_matches_one_process() -> None:
    """The end of an episode's last sequence does not count."""
    generator = torch.Generator().manual_seed(0)
    rows = {
        "observations": torch.rand(4, 3, 2, generator=generator),
        "actions": torch.randint(3, (4, 3), generator=generator),
        "episode_starts": torch.zeros(4, 3, dtype=torch.bool),
        "weights": torch.tensor([[1, 1, 1], [1, 1, 1], [1, 0, 0], [1, 1, 0]]).double(),
    }

    def cloned(chosen: slice) -> torch.Tensor:
        model = model_of("a2c", is_recurrent=True)
        cloning = Cloning(model.policy, CloningTerms())
        cloning.updater.optimizer = Adam(eps=1.0)
        state = cloning.updater.initial_state()
        before = state["policy"].clone()
        states = model.policy.initial_state(4).double()
        shared = {"rows": {**rows, "states": states}, "learning_rate": torch.tensor(0.1)}
        with unrolled():
            state = cloning.step(state, shared, torch.arange(4)[chosen]).state
        return state["policy"] - before

    def work(workers: Workers) -> Any:
        with averaging_over(workers):
            return cloned(slice(2 * workers.rank, 2 * workers.rank + 2))

    one, two = together(work)
    assert torch.equal(one, two)
    torch.testing.assert_close(one, cloned(slice(None)), rtol=1e-6, atol=1e-10)
