"""Whole updates of ACKTR against the same written out plainly, with explicit Kronecker products."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from logged_envs import Logged
from test_on_policy_updates import ACTIONS, distribution_of
from torch import Tensor, nn

from zoo import ACKTR, make_vec_env
from zoo.optim import kfac as kfac_module
from zoo.optim.kfac import COUNT, KFac
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.distributions import DiagonalGaussian
from zoo.policies.recurrent import unrolled

N_STEPS, N_ENVS = 8, 2
N_ROWS = N_STEPS * N_ENVS
POLICY = {"net_arch": {"shared": [5], "pi": [4], "vf": [3]}, "activation": "tanh"}
SETTINGS = {"n_steps": N_STEPS, "cold_updates": 2, "kfac_update": 1, "kfac_decay": 0.8}
SETTINGS |= {"kfac_damping": 0.05, "momentum": 0.7}


class Plain:
    """ACKTR as one would write it for a network of a few weights: blocks of all pairs of weights."""

    def __init__(self, policy: ActorCritic, config: Any) -> None:
        self.policy, self.config = copy.deepcopy(policy).double(), config
        self.policy.encoder.register_forward_hook(lambda _, given, features: features.double())
        self.named = dict(self.policy.named_parameters())
        self.count = 0
        self.averages: dict[str, tuple[Tensor, Tensor]] = {}
        self.cold = {name: torch.zeros_like(each) for name, each in self.named.items()}
        self.velocity = {name: torch.zeros_like(each) for name, each in self.named.items()}

    def log_prob_entropy_and_values(self, seen: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parameters, values, _ = self.policy({"observations": seen})
        parts = distribution_of(self.policy, parameters)
        actions = actions if actions.dtype.is_floating_point else actions.to(torch.float64)
        each = actions.unbind(-1) if len(parts) > 1 else [actions]
        log_prob = sum(part.log_prob(action) for part, action in zip(parts, each, strict=True))
        return log_prob, sum(part.entropy() for part in parts), values  # type: ignore[return-value]

    def update(self, rollout: dict[str, Tensor], noise: Tensor, learning_rate: float) -> None:
        config = self.config
        inverses = self.blocks() if self.count >= config.cold_updates else {}
        rows = rollout["observations"], rollout["actions"]
        log_prob, entropy, values = self.log_prob_entropy_and_values(*rows)
        advantages = rollout["advantages"].double()
        if self.policy.head.__class__ is DiagonalGaussian:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        loss = (
            -(advantages * log_prob).mean()
            - config.ent_coef * entropy.mean()
            + config.vf_coef * ((values - rollout["returns"]) ** 2).mean()
        )
        grads = torch.autograd.grad(loss, list(self.named.values()))
        gradient = dict(zip(self.named, grads, strict=True))
        self.take_in(self.statistics(rollout, noise))
        if not inverses:
            norm = torch.sqrt(sum(grad.square().sum() for grad in grads))  # type: ignore[arg-type]
            clip = min(1.0, config.max_grad_norm / float(norm))
            for name, grad in gradient.items():
                self.cold[name] = config.momentum * self.cold[name] + clip * grad
                self.named[name].data -= learning_rate * self.cold[name]
            return
        natural = self.solved(inverses, gradient)
        length = sum(float((natural[name] * gradient[name]).sum()) for name in gradient)
        # As in the published code, ν = min(1, √(clip / (η² Δ·g))).
        nu = min(1.0, (config.kfac_clip / (learning_rate**2 * length)) ** 0.5)
        for name, each in natural.items():
            self.velocity[name] = config.momentum * self.velocity[name] + learning_rate * nu * each
            self.named[name].data -= (1 - config.momentum) * self.velocity[name]

    def statistics(self, rollout: dict[str, Tensor], noise: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Return A and G of each layer, from the gradients of one sample after the other."""
        sums: dict[str, tuple[Any, Any]] = {}
        modules = {name: each for name, each in self.policy.named_modules() if isinstance(each, nn.Linear)}
        for row in range(N_ROWS):
            seen: dict[str, tuple[Tensor, Tensor]] = {}
            hooks = [
                each.register_forward_hook(
                    lambda _, given, out, name=name, seen=seen: seen.update({name: (given[0][0], out)})
                )
                for name, each in modules.items()
            ]
            log_prob, _, value = self.log_prob_entropy_and_values(
                rollout["observations"][row : row + 1], rollout["actions"][row : row + 1]
            )
            for hook in hooks:
                hook.remove()
            drawn = (value + noise[row]).detach()
            loss = (self.config.vf_fisher_coef * (value - drawn) ** 2 - log_prob).sum()
            outputs = [out for _, out in seen.values()]
            own = [self.policy.head.log_std] if isinstance(self.policy.head, DiagonalGaussian) else []
            grads = torch.autograd.grad(loss, [*outputs, *own])
            for name, grad in zip(seen, grads, strict=False):
                a = torch.cat([seen[name][0].detach(), torch.ones(1, dtype=torch.float64)])
                old = sums.get(name, (0.0, 0.0))
                pair = torch.outer(a, a), torch.outer(grad[0], grad[0])
                sums[name] = tuple(x + y / N_ROWS for x, y in zip(old, pair, strict=True))  # type: ignore[assignment]
            if own:
                old = sums.get("head.log_std", (0.0, 0.0))
                one = torch.ones(1, 1, dtype=torch.float64)
                sums["head.log_std"] = one, old[1] + torch.outer(grads[-1], grads[-1]) / N_ROWS
        return sums

    def take_in(self, batch: dict[str, tuple[Tensor, Tensor]]) -> None:
        self.count += 1
        share = 1 / self.count if self.count <= self.config.cold_updates else 1 - self.config.kfac_decay
        for name, factors in batch.items():
            pairs = zip(self.averages.get(name, (0.0, 0.0)), factors, strict=True)
            self.averages[name] = tuple(old + share * (new - old) for old, new in pairs)  # type: ignore[assignment]

    def blocks(self) -> dict[str, Tensor]:
        """Return A ⊗ G + damping · I of each layer."""
        products = {name: torch.kron(a, g) for name, (a, g) in self.averages.items()}
        for each in products.values():
            each.diagonal().add_(self.config.kfac_damping)
        return products

    def solved(self, blocks: dict[str, Tensor], gradient: dict[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for name, block in blocks.items():
            if name == "head.log_std":
                found[name] = torch.linalg.solve(block, gradient[name])
                continue
            weight, bias = gradient[f"{name}.weight"], gradient[f"{name}.bias"]
            columns = torch.cat([weight, bias[:, None]], dim=1).T.reshape(-1)
            matrix = torch.linalg.solve(block, columns).reshape(-1, len(bias)).T
            found[f"{name}.weight"], found[f"{name}.bias"] = matrix[:, :-1], matrix[:, -1]
        return found


class WatchedACKTR(ACKTR):
    """Does every update a second time, plainly, on a copy of its policy."""

    def update(self) -> None:
        if self.n_updates == 0:
            self.start = copy.deepcopy(self.policy)
            self.plain = Plain(self.policy, self.config)
        noise = torch.from_numpy(copy.deepcopy(self.rng).standard_normal(N_ROWS, dtype=np.float32)).double()
        rollout = {name: column.clone() for name, column in self.finished_rollout().items()}
        rate = self.schedules["learning_rate"](self._progress_before)
        super().update()
        self.plain.update(rollout, noise, rate)

    def error(self) -> float:
        """Return the largest difference of a parameter, as a share of how far its like have gone."""
        start, errors = dict(self.start.named_parameters()), []
        for name, parameter in self.policy.named_parameters():
            expected = self.plain.named[name]
            moved = (expected - start[name]).abs().max()
            assert moved > 1e-5, name
            errors.append(float((parameter - expected).abs().max() / moved))
        return max(errors)


def watched(actions: Any = ACTIONS[0], n_updates: int = 5, **hyperparameters: Any) -> WatchedACKTR:
    env = make_vec_env(lambda: Logged(actions=actions), N_ENVS, check=False)
    settings = {**SETTINGS, "learning_rate": 0.1, "kfac_clip": 1e-2, **hyperparameters}
    model = WatchedACKTR(POLICY, env, seed=1, compile=False, **settings)
    assert model.gradient_steps_in(n_updates * N_ROWS) == n_updates
    return model.learn(n_updates * N_ROWS)


@pytest.mark.parametrize(
    ("actions", "hyperparameters"),
    [
        *((space, {}) for space in ACTIONS),
        (ACTIONS[3], {"kfac_clip": 1e3, "learning_rate": "lin_0.02"}),
        (ACTIONS[1], {"ent_coef": 0.3, "vf_coef": 1.0, "vf_fisher_coef": 0.5, "gae_lambda": 0.8}),
    ],
    ids=str,
)
def test_acktr_updates_as_written_out(actions: spaces.Space[Any], hyperparameters: dict[str, Any]) -> None:
    model = watched(actions, **hyperparameters)
    assert model.n_updates == 5 == model.runner.state[COUNT]
    assert model.error() < 5e-3


def _smaller(factors: dict[str, Tensor], ending: str) -> dict[str, Tensor]:
    return {name: 0.95 * each if name.endswith(ending) else each for name, each in factors.items()}


def _late_average(original: Any, self: KFac, *arguments: Any) -> Any:
    self.n_plain += 1
    state = original(self, *arguments)
    self.n_plain -= 1
    return state


def _scaled_eigenvalues(original: Any, matrix: Tensor) -> Any:
    values, vectors = original(matrix)
    return 1.1 * values, vectors


PLANTED: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "G a little small": (KFac, "factors", lambda original, *given: _smaller(original(*given), "outputs")),
    "A a little small": (KFac, "factors", lambda original, *given: _smaller(original(*given), "inputs")),
    "one more plain mean": (KFac, "update_averages", _late_average),
    "the policy's part of the Fisher loss": (
        *(ACKTR, "fisher_losses"),
        lambda original, self, log_prob, values, noise: original(self, log_prob * 1.2, values, noise),
    ),
    "the critic's part of the Fisher loss": (
        *(ACKTR, "fisher_losses"),
        lambda original, self, log_prob, values, noise: original(self, log_prob, values, 0.9 * noise),
    ),
    "length of the step": (ACKTR, "step_size", lambda original, *given: 1.02 * original(*given)),
    "eigenvalues": (kfac_module, "_eigen", _scaled_eigenvalues),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_the_comparison_sees_a_planted_error(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, wrong = PLANTED[planted]
    original = getattr(place, name)
    monkeypatch.setattr(place, name, lambda *given: wrong(original, *given))
    assert watched().error() > 1e-2


@pytest.mark.parametrize("key", ["kfac_damping", "kfac_decay", "momentum", "vf_fisher_coef", "kfac_clip"])
def test_the_comparison_sees_another_hyperparameter(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Plain.__init__

    def other(self: Plain, policy: ActorCritic, config: Any) -> None:
        changed = copy.copy(config)
        setattr(changed, key, 0.95 * getattr(config, key))
        made(self, policy, changed)

    monkeypatch.setattr(Plain, "__init__", other)
    assert watched().error() > 1e-2


POLICIES: dict[str, tuple[dict[str, Any], Any]] = {
    "images": ({"encoder": "cnn", "features_dim": 8, "layer_norm": True}, "Zoo/IdentityImage-v0"),
    "dictionaries": ({"encoder": "multi", "features_dim": 8, "net_arch": [8]}, "Zoo/IdentityDict-v0"),
    "two encoders": ({"encoder": "cnn", "features_dim": 8, "share_encoder": False}, "Zoo/IdentityImage-v0"),
    "layer normalisation": ({"net_arch": [8], "layer_norm": True}, "CartPole-v1"),
    "lstm": ({"net_arch": [8], "recurrent": "lstm", "lstm_hidden_size": 4}, "Pendulum-v1"),
    "normalised lstm": (
        {"net_arch": [8], "recurrent": "lstm", "lstm_hidden_size": 4, "lstm_layer_norm": True},
        "CartPole-v1",
    ),
    "gru": ({"net_arch": [8], "recurrent": "gru", "lstm_hidden_size": 4, "n_lstm_layers": 2}, "CartPole-v1"),
}


@pytest.mark.parametrize("name", POLICIES)
def test_recorded_layer_uses_add_up_to_its_gradient(name: str) -> None:
    """The gradient of a product's weights is Σ g·aᵀ over all its uses; of others it is their sum."""
    policy, env = POLICIES[name]
    model = ACKTR(policy, env, n_envs=2, seed=0, compile=False, n_steps=6).learn(12)
    rollout, module = model.finished_rollout(), model.updater.module(model.runner.state)
    with model.kfac.recording() as watch, unrolled():
        parameters, values, _ = module(rollout, rollout.get("states"))
    loss = (parameters.cos().sum(-1) + values.square()).mean()
    found = {}
    for layer in model.kfac.layers:
        uses = watch.calls_of(layer)
        grads = torch.autograd.grad(loss, [use.outputs for use in uses], retain_graph=True)
        rows = torch.cat([use.output_rows(grad) for use, grad in zip(uses, grads, strict=True)])
        inputs = [torch.ones(len(rows), 1) if layer.is_exact else use.input_rows for use in uses]
        found[layer.name] = rows.T @ (inputs[0] if layer.is_exact else torch.cat(inputs))
    gradient = model.updater.parameters.named(model.updater.gradient(module, loss))
    for layer in model.kfac.layers:
        torch.testing.assert_close(found[layer.name], layer.matrix(gradient), rtol=1e-3, atol=1e-5)


def test_bfloat16_encoder_has_positive_curvature() -> None:
    """Products of rows in bfloat16 would have eigenvalues below zero, larger than the damping."""
    policy = {"encoder": "cnn", "precision": "bfloat16"}
    model = ACKTR(policy, "Zoo/IdentityImage-v0", n_envs=4, seed=0, compile=False, n_steps=16).learn(128)
    inputs = {name: each for name, each in model.runner.state.items() if name.endswith(".inputs")}
    smallest = {name: torch.linalg.eigvalsh(each.double())[0].item() for name, each in inputs.items()}
    assert len(smallest) >= 4
    assert min(smallest.values()) > -1e-4
