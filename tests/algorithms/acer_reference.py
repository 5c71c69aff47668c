"""ACER's gradient, slow and obvious: formulas of the paper step by step, and differences of what is climbed.

Weights and targets are computed at the policy's parameters and kept. Then the objective is evaluated at
parameters a little off, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo import ACER
from zoo.optim.update_runner import UpdateRunner

Array = np.ndarray
EPSILON = 1e-6
N_SEQUENCES, N_STEPS = 2, 4
HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)

OBSERVATIONS = spaces.Box(-1.0, 1.0, (2,), np.float32)
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "box": spaces.Box(-2.0, 2.0, (2,), np.float32),
}


class Plain:
    """Plain gradient descent, whose step says what the gradient was."""

    def initial(self, parameters: Tensor) -> dict[str, Tensor]:
        return {}

    def step_(self, parameters: Tensor, gradient: Tensor, slots: Any, learning_rate: Tensor) -> None:
        parameters -= learning_rate * gradient


def make_model(kind: str, **hyperparameters: Any) -> ACER:
    """Return a tiny agent in double precision, of plain gradient descent, away from its average policy."""
    model = ACER(
        {"net_arch": [3], "ortho_init": False},
        observation_space=OBSERVATIONS,
        action_space=ACTIONS[kind],
        **{"seed": 0, "compile": False, "max_grad_norm": None, **hyperparameters},
    )
    model.policy.encoder = nn.Identity()  # the usual one gives single precision
    model.policy.double()
    model.runner = UpdateRunner(model._make_state(), model.runtime)
    model.updater.optimizer, model.updater._slot_names = Plain(), {}
    state = model.runner.state
    generator = torch.Generator().manual_seed(1)
    if model.config.trust_region:
        state["average"] += 0.3 * torch.randn(
            state["average"].shape, generator=generator, dtype=torch.float64
        )
    return model


def make_batch(kind: str, seed: int = 0) -> dict[str, Any]:
    """Return random windows with ends of either kind in them, behaviour unlike the policy's, and noise."""
    rng = np.random.default_rng(seed)
    shape = N_SEQUENCES, N_STEPS
    ended = np.array([[False, True, False, False], [True, False, False, True]])
    terminated = np.array([[False, False, False, False], [True, False, False, True]])
    batch = {
        "observations": rng.uniform(-1, 1, (*shape, 2)),
        "rewards": rng.normal(size=shape),
        "dones": ended,
        "terminated": terminated,
        "next_index": np.array([[-1, 2, -1, 0], [-1, -1, -1, 1]]),
        "next_observations": rng.uniform(-1, 1, (4, 2)),
    }
    if kind == "discrete":
        batch["actions"] = rng.integers(0, 3, shape)
        batch["behaviour"] = rng.normal(0.0, 2.0, (*shape, 3))
    else:
        batch["actions"] = rng.normal(0.0, 1.0, (*shape, 2))
        batch["behaviour"] = np.concatenate(
            [rng.normal(0, 1, (*shape, 2)), rng.normal(-1, 0.5, (*shape, 2))], -1
        )
        batch["noise"] = rng.normal(size=(6, *shape, 2))
    return {name: torch.as_tensor(column) for name, column in batch.items()}


def gradient_of_update(model: ACER, batch: dict[str, Any]) -> Array:
    """Return the gradient that one gradient step goes down."""
    before = model.runner.state.snapshot("policy")
    rates = {"learning_rate": torch.tensor(1.0, dtype=torch.float64)}
    model._gradient_step(model.runner.state, rates, batch)
    return (before - model.runner.state["policy"]).numpy()


def expected_gradient(model: ACER, batch: dict[str, Any]) -> Array:
    """Return minus the slope of what the paper climbs, by central differences."""
    judge = _Discrete(model, batch) if isinstance(model.action_space, spaces.Discrete) else _Box(model, batch)
    vector = model.runner.state.snapshot("policy")
    gradient = np.zeros(len(vector))
    for index, start in enumerate(vector.tolist()):
        values = []
        for change in (1e-5, -1e-5):
            vector[index] = start + change
            values.append(judge.surrogate(vector))
        vector[index] = start
        gradient[index] = -(values[0] - values[1]) / 2e-5
    return gradient


def steps() -> Iterator[tuple[int, int]]:
    return ((i, t) for i in range(N_SEQUENCES) for t in range(N_STEPS))


def backwards(batch: dict[str, Any], gamma: float, values: Any, taken: Any, following: Any, c: Any) -> Array:
    """Return Q^ret, or with c = 1 Q^opc, (sequences, time)."""
    targets = np.zeros((N_SEQUENCES, N_STEPS))
    for i in range(N_SEQUENCES):
        carry = 0.0
        for t in reversed(range(N_STEPS)):
            if batch["terminated"][i, t]:
                carry = 0.0
            elif batch["next_index"][i, t] >= 0:
                carry = following[batch["next_index"][i, t]]
            targets[i, t] = float(batch["rewards"][i, t]) + gamma * carry
            carry = c[i, t] * (targets[i, t] - taken[i, t]) + values[i, t]
    return targets


def slope_within(config: Any, grad: Array, normal: Array) -> Array:
    """Return the slope of one step's statistics, projected."""
    if not config.trust_region:
        return grad
    return grad - max(0.0, (normal @ grad - config.delta) / (normal @ normal)) * normal


class _Discrete:
    def __init__(self, model: ACER, batch: dict[str, Any]) -> None:
        self.model, self.batch, config = model, batch, model.config
        f, q = self.evaluated(batch["observations"])
        next_f, next_q = self.evaluated(batch["next_observations"])
        average, _ = self.evaluated(batch["observations"], "average" if config.trust_region else "policy")
        mu = softmax(batch["behaviour"].numpy())
        actions = batch["actions"].numpy()
        values, following = (f * q).sum(-1), (next_f * next_q).sum(-1)
        taken, ratio = np.zeros((2, N_SEQUENCES, N_STEPS))
        for i, t in steps():
            a = actions[i, t]
            taken[i, t], ratio[i, t] = q[i, t, a], f[i, t, a] / (mu[i, t, a] + EPSILON)
        c = np.minimum(1.0, ratio)
        self.targets = backwards(batch, config.gamma, values, taken, following, c)
        self.grads = np.zeros_like(f)
        for i, t in steps():
            g = np.zeros(3)
            a = actions[i, t]
            weight = min(config.correction_term, ratio[i, t])
            g[a] += weight * (self.targets[i, t] - values[i, t]) / (f[i, t, a] + EPSILON)
            for b in range(3):
                rho = f[i, t, b] / (mu[i, t, b] + EPSILON)
                left_out = max(0.0, 1.0 - config.correction_term / (rho + EPSILON))
                g[b] += left_out * f[i, t, b] * (q[i, t, b] - values[i, t]) / (f[i, t, b] + EPSILON)
                entropy_slope = -np.log(f[i, t, b] + EPSILON) - f[i, t, b] / (f[i, t, b] + EPSILON)
                g[b] += config.ent_coef * entropy_slope
            k = -average[i, t] / (f[i, t] + EPSILON)
            self.grads[i, t] = slope_within(config, g, k)

    def surrogate(self, vector: Tensor) -> float:
        f, q = self.evaluated(self.batch["observations"], vector)
        total = 0.0
        for i, t in steps():
            error = self.targets[i, t] - q[i, t, self.batch["actions"][i, t]]
            total += self.grads[i, t] @ f[i, t] - self.model.config.q_coef * 0.5 * error**2
        return float(total / (N_SEQUENCES * N_STEPS))

    def evaluated(self, observations: Tensor, vector: Any = "policy") -> tuple[Array, Array]:
        vector = self.model.runner.state[vector] if isinstance(vector, str) else vector
        logits, values, _ = module_at(self.model, vector)({"observations": observations})
        return softmax(logits.numpy()), values.numpy()


class _Box:
    def __init__(self, model: ACER, batch: dict[str, Any]) -> None:
        self.model, self.batch, config = model, batch, model.config
        observations, behaviour = batch["observations"], batch["behaviour"].numpy()
        parameters, _ = self.evaluated(observations)
        average, _ = self.evaluated(observations, "average" if config.trust_region else "policy")
        drawn = parameters[..., :2] + np.exp(parameters[..., 2:]) * batch["noise"].numpy()
        self.actions = np.concatenate([batch["actions"].numpy()[None], drawn])
        values, taken, fresh = self.judged(model.runner.state["policy"])
        _, following = self.evaluated(batch["next_observations"])
        ratio, fresh_ratio = np.zeros((2, N_SEQUENCES, N_STEPS))
        for i, t in steps():
            for ratios, index in ((ratio, 0), (fresh_ratio, 1)):
                action = self.actions[index, i, t]
                ratios[i, t] = np.exp(
                    log_density(parameters[i, t], action) - log_density(behaviour[i, t], action)
                )
        c = np.minimum(1.0, np.sqrt(ratio))
        self.targets = backwards(batch, config.gamma, values, taken, following, c)
        uncorrected = backwards(batch, config.gamma, values, taken, following, np.ones_like(c))
        self.value_targets = np.minimum(1.0, ratio) * (self.targets - taken) + values
        self.grads = np.zeros_like(parameters)
        for i, t in steps():
            seen = min(config.correction_term, ratio[i, t]) * (uncorrected[i, t] - values[i, t])
            unseen = max(0.0, 1.0 - config.correction_term / fresh_ratio[i, t])
            unseen *= fresh[i, t] - values[i, t]
            g = seen * log_density_slope(parameters[i, t], self.actions[0, i, t])
            g = g + unseen * log_density_slope(parameters[i, t], self.actions[1, i, t])
            g = g + config.ent_coef * np.array([0.0, 0.0, 1.0, 1.0])
            moved = (parameters[i, t, :2] - average[i, t, :2]) / np.exp(2 * parameters[i, t, 2:])
            variance = np.exp(2 * average[i, t, 2:]) + (parameters[i, t, :2] - average[i, t, :2]) ** 2
            k = np.concatenate([moved, 1.0 - variance / np.exp(2 * parameters[i, t, 2:])])
            self.grads[i, t] = slope_within(config, g, k)

    def surrogate(self, vector: Tensor) -> float:
        parameters, _ = self.evaluated(self.batch["observations"], vector)
        values, taken, _ = self.judged(vector)
        total = 0.0
        for i, t in steps():
            errors = self.targets[i, t] - taken[i, t], self.value_targets[i, t] - values[i, t]
            critic_loss = 0.5 * (errors[0] ** 2 + errors[1] ** 2)
            total += self.grads[i, t] @ parameters[i, t] - self.model.config.q_coef * critic_loss
        return float(total / (N_SEQUENCES * N_STEPS))

    def evaluated(self, observations: Tensor, vector: Any = "policy") -> tuple[Array, Array]:
        vector = self.model.runner.state[vector] if isinstance(vector, str) else vector
        parameters, values, _ = module_at(self.model, vector)({"observations": observations})
        return parameters.numpy(), values.numpy()

    def judged(self, vector: Tensor) -> tuple[Array, Array, Array]:
        """Return V, and the values of the taken and of the fresh actions; all actions stay as they are."""
        module = module_at(self.model, vector)
        values = module.critic(self.batch["observations"]).squeeze(-1).numpy()
        advantages = [
            module.advantage(torch.cat([self.batch["observations"], torch.as_tensor(each)], -1)).squeeze(-1)
            for each in self.actions
        ]
        mean = sum(each.numpy() for each in advantages[2:]) / 5
        return values, values + advantages[0].numpy() - mean, values + advantages[1].numpy() - mean


def module_at(model: ACER, vector: Tensor) -> Callable[..., Any]:
    return model.updater.parameters.module_at(vector)


def softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def log_density(parameters: Array, action: Array) -> float:
    mean, log_std = parameters[:2], parameters[2:]
    return float((-0.5 * ((action - mean) / np.exp(log_std)) ** 2 - log_std - HALF_LOG_2PI).sum())


def log_density_slope(parameters: Array, action: Array) -> Array:
    mean, std = parameters[:2], np.exp(parameters[2:])
    return np.concatenate([(action - mean) / std**2, ((action - mean) / std) ** 2 - 1.0])
