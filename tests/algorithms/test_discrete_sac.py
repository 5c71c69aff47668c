"""SAC of discrete actions: worked numbers, and updates beside the same written out by enumeration."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from peer_updates import BATCH, N_OBSERVED, RATE, SETTINGS, Nowhere, distance, flat, ours
from torch import Tensor, nn

import zoo
from zoo import SAC, TQC, CrossQ, ZooError
from zoo.envs.spaces import choice_sizes
from zoo.policies.distributions import JointCategorical


class Choosing(Nowhere):
    """Has other actions."""

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.action_space = action_space


# -- Numbers by hand ----------------------------------------------------------------------------------------


def constant(output: nn.Module, values: list[float]) -> None:
    """Let a linear layer give these values for every observation."""
    assert isinstance(output, nn.Linear)
    nn.init.zeros_(output.weight)
    with torch.no_grad():
        output.bias.copy_(torch.tensor(values))


def test_values_entropy_and_losses_by_hand() -> None:
    """π is (¼, ¾), the critics say (1, 2) and (1.5, 1), α is 0.2: V = Σ π·(min Q − α·log π)."""
    settings: dict[str, Any] = {"seed": 0, "compile": False, "gamma": 1.0, "ent_coef": "auto_0.2"}
    model = SAC({"net_arch": []}, Choosing(spaces.Discrete(2)), target_entropy=0.5, **settings)
    constant(model.policy.actor.head.logits, [math.log(0.25), math.log(0.75)])
    for critic, values in zip(model.policy.critics.critics, ([1.0, 2.0], [1.5, 1.0]), strict=True):
        constant(critic[0], values)
    model.set_parameters(model.get_parameters())  # so that targets follow
    batch: Any = {
        "observations": torch.ones(1, N_OBSERVED),
        "actions": torch.tensor([1]),
        "rewards": torch.zeros(1),
        "terminated": torch.zeros(1),
        "next_observations": torch.ones(1, N_OBSERVED),
        "tau": torch.zeros(()),
    }
    target = model.targets(model.runner.state, batch)
    assert target.item() == pytest.approx(1.112467, abs=1e-6)
    rates = {"learning_rate": torch.tensor(0.0)}
    result = model._round(model.runner.state, rates, {name: column[None] for name, column in batch.items()})
    metrics = {name: float(value) for name, value in result.metrics.items()}
    assert metrics["actor_loss"] == pytest.approx(-1.112467, abs=1e-6)
    assert metrics["critic_loss"] == pytest.approx(
        0.5 * ((2 - 1.112467) ** 2 + (1 - 1.112467) ** 2), abs=1e-6
    )
    shortfall = 0.5 - 0.562335
    assert metrics["ent_coef_loss"] == pytest.approx(-math.log(0.2) * shortfall, abs=1e-5)


@pytest.mark.parametrize(("n", "expected"), [(2, 0.6793), (4, 1.3586), (6, 1.7559), (18, 2.8326)])
def test_target_entropy_is_a_share_of_the_logarithm(n: int, expected: float) -> None:
    env = Choosing(spaces.Discrete(n))
    assert SAC("MlpPolicy", env, target_entropy="auto_0.98").target_entropy == pytest.approx(
        expected, abs=5e-5
    )
    assert SAC("MlpPolicy", env).target_entropy == pytest.approx(0.5 * math.log(n))


def test_combinations_are_one_choice() -> None:
    space = spaces.MultiDiscrete([2, 3])
    head, rng = JointCategorical(space, None), np.random.default_rng(0)
    logits = rng.standard_normal((50, 6)).astype(np.float32)
    masks = rng.random((50, 5)) < 0.7
    masks[:, [0, 2]] = True
    pairs = [(a, b) for a in range(2) for b in range(3)]
    allowed = np.array([[row[a] and row[2 + b] for a, b in pairs] for row in masks])
    masked = head.masked(logits, masks)
    assert ((masked == logits) == allowed).all()
    assert (head.masked(torch.from_numpy(logits), torch.from_numpy(masks)).numpy() == masked).all()
    best = head.mode(masked)
    assert best.tolist() == [list(pairs[index]) for index in np.where(allowed, logits, -9).argmax(-1)]
    index = head.index(torch.from_numpy(best))
    assert index.tolist() == np.where(allowed, logits, -9).argmax(-1).tolist()
    probabilities = np.exp(masked) / np.exp(masked).sum(-1, keepdims=True)
    first, second = head.describe(masked)
    np.testing.assert_allclose(first[:, 1], probabilities[:, 3:].sum(-1), rtol=1e-5)
    np.testing.assert_allclose(second[:, 2], probabilities[:, [2, 5]].sum(-1), rtol=1e-5)


# -- Updates beside the same written out --------------------------------------------------------------------

CALLS = (1, 2, 5, 12)
"""Gradient steps of each call, 20 in all."""

ACTIONS = [spaces.Discrete(4), spaces.MultiDiscrete([2, 3])]


def batches(space: spaces.Space[Any], n_steps: int, seed: int, *, masked: bool) -> dict[str, Tensor]:
    """Return a random batch for each step, with discounts and importance weights of each sample."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*size: int) -> Tensor:
        return torch.randn(n_steps, BATCH, *size, generator=generator, dtype=torch.float64)

    choices = [torch.randint(n, (n_steps, BATCH, 1), generator=generator) for n in choice_sizes(space)]
    rows = {
        "observations": drawn(N_OBSERVED),
        "actions": torch.cat(choices, -1) if len(choices) > 1 else choices[0][..., 0],
        "rewards": drawn(),
        "terminated": (drawn() > 1).double(),
        "next_observations": drawn(N_OBSERVED),
        "discounts": 0.5 + 0.25 * drawn().sigmoid(),
        "weights": 0.5 + drawn().sigmoid(),
    }
    if masked:
        for name, taken in (("action_masks", choices), ("next_action_masks", [0 * part for part in choices])):
            pairs = zip(taken, choice_sizes(space), strict=True)
            rows[name] = torch.cat(
                [(drawn(n) > 0.5).scatter(-1, action, True) for action, n in pairs], dim=-1
            )
    return rows


class WrittenOut:
    """Takes the same steps on copies of a model's networks, by loops over states and actions."""

    def __init__(self, model: Any) -> None:
        self.actor, self.critics = copy.deepcopy(model.policy.actor), copy.deepcopy(model.policy.critics)
        self.target = copy.deepcopy(self.critics)
        self.log_alpha = torch.zeros((), dtype=torch.float64, requires_grad=True)
        self.sizes = choice_sizes(model.action_space)
        self.delay, self.n_steps = model.config.policy_delay, 0
        parts = (self.actor.parameters(), self.critics.parameters(), [self.log_alpha])
        self.optimizers = [torch.optim.Adam(part, lr=RATE) for part in parts]

    def allowed(self, mask: Tensor | None) -> list[int]:
        """Return the numbers of the actions, or combinations, that a mask allows."""
        is_allowed = [True] * sum(self.sizes) if mask is None else mask.tolist()
        ends = np.cumsum(self.sizes).tolist()
        parts = [is_allowed[end - size : end] for size, end in zip(self.sizes, ends, strict=True)]
        return [k for k, combination in enumerate(itertools.product(*parts)) if all(combination)]

    def policy(self, observation: Tensor, mask: Tensor | None) -> dict[int, Tensor]:
        """Return the probabilities of the allowed actions."""
        logits, allowed = self.actor(observation), self.allowed(mask)
        total = torch.stack([logits[a].exp() for a in allowed]).sum()
        return {a: logits[a].exp() / total for a in allowed}

    def step(self, batch: dict[str, Tensor]) -> None:
        alpha = self.log_alpha.exp().item()
        critic_losses, actor_losses, alpha_losses = [], [], []
        for k in range(BATCH):
            row = {name: column[k] for name, column in batch.items()}
            with torch.no_grad():
                policy = self.policy(row["next_observations"], row.get("next_action_masks"))
                values = self.target(row["next_observations"])
                soft = sum(p * (values[:, a].min() - alpha * p.log()) for a, p in policy.items())
                target = row["rewards"] + row["discounts"] * (1 - row["terminated"]) * soft
            taken = row["actions"].tolist()
            taken = taken if len(self.sizes) == 1 else taken[0] * self.sizes[1] + taken[1]
            ours = self.critics(row["observations"])[:, taken]
            critic_losses.append(row["weights"] * 0.5 * ((ours - target) ** 2).sum())
        self._descend(1, critic_losses)
        with torch.no_grad():
            for target, online in zip(self.target.parameters(), self.critics.parameters(), strict=True):
                target += SETTINGS["tau"] * (online - target)
        self.n_steps += 1
        if self.n_steps % self.delay:
            return
        for k in range(BATCH):
            row = {name: column[k] for name, column in batch.items()}
            policy = self.policy(row["observations"], row.get("action_masks"))
            values = self.critics(row["observations"]).detach()
            losses = [p * (alpha * p.log() - values[:, a].min()) for a, p in policy.items()]
            actor_losses.append(row["weights"] * torch.stack(losses).sum())
            aim = 0.5 * math.log(len(policy))
            entropy = -sum((p * p.log()).item() for p in policy.values())
            alpha_losses.append(row["weights"] * self.log_alpha * (entropy - aim))
        self._descend(2, alpha_losses)
        self._descend(0, actor_losses)

    def _descend(self, index: int, losses: list[Tensor]) -> None:
        self.optimizers[index].zero_grad()
        torch.stack(losses).mean().backward()
        self.optimizers[index].step()


def largest_distance(
    space: spaces.Space[Any], algorithm: type[SAC] = SAC, *, masked: bool = False, **options: Any
) -> float:
    """Take 20 steps with both; return the largest difference of any network, as a share of its way."""
    model = ours(algorithm, torch.float64, Choosing(space), **SETTINGS, **options)
    reference = WrittenOut(model)
    networks = [
        (model.policy.actor, reference.actor, flat(reference.actor.parameters())),
        (model.policy.critics, reference.critics, flat(reference.critics.parameters())),
    ]
    for call, n_steps in enumerate(CALLS):
        rows = batches(space, n_steps, call, masked=masked)
        model._learn_from(rows, n_steps)
        for index in range(n_steps):
            reference.step({name: column[index] for name, column in rows.items()})
    temperature = abs(model.policy.temperature.log.item() / reference.log_alpha.item() - 1.0)
    return max(temperature, *(distance(flat(mine.parameters()), *other) for mine, *other in networks))


@pytest.mark.parametrize("space", ACTIONS, ids=str)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("policy_delay", [1, 3])
def test_updates_as_written_out(space: spaces.Space[Any], masked: bool, policy_delay: int) -> None:
    assert largest_distance(space, masked=masked, policy_delay=policy_delay) < 1e-9


# What the comparison has to see


class NoEntropyInTargets(SAC):
    def _soft_values(self, next_values: Tensor, weighted_log_prob: Tensor) -> Tensor:
        return super()._soft_values(next_values, 0.0 * weighted_log_prob)


class LargestCritic(SAC):
    def _soft_values(self, next_values: Tensor, weighted_log_prob: Tensor) -> Tensor:
        return next_values.amax(0) - weighted_log_prob


class BlindToNextMasks(SAC):
    def _policy_actions(self, parameters: Tensor, batch: Any, when: int) -> Any:
        without = {name: column for name, column in batch.items() if name != "next_action_masks"}
        return super()._policy_actions(parameters, without, when)


class BlindToMasks(SAC):
    def _policy_actions(self, parameters: Tensor, batch: Any, when: int) -> Any:
        without = {name: column for name, column in batch.items() if name != "action_masks"}
        return super()._policy_actions(parameters, without, when)


class OneTargetForAllStates(SAC):
    def _entropy_target(self, batch: Any, log_prob: Tensor) -> Any:
        return self.target_entropy


class EqualActions(SAC):
    """Takes the mean over actions, not the policy's."""

    def _policy_actions(self, parameters: Tensor, batch: Any, when: int) -> Any:
        _, log_prob, probabilities = super()._policy_actions(parameters, batch, when)
        return None, log_prob, torch.full_like(probabilities, 1 / probabilities.shape[-1])


@pytest.mark.parametrize(
    "algorithm",
    [NoEntropyInTargets, LargestCritic, BlindToNextMasks, BlindToMasks, OneTargetForAllStates, EqualActions],
)
def test_errors_are_seen(algorithm: type[SAC]) -> None:
    assert largest_distance(ACTIONS[0], algorithm, masked=True) > 1e-3


# -- What a user gets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"use_sde": True}, r"algo\.use_sde"),
        ({"action_noise": {"std": 0.1}}, r"algo\.action_noise"),
        ({"critic_loss": "categorical"}, r"algo\.critic_loss"),
        ({"target_entropy": -2.0}, r"algo\.target_entropy=-2\.0"),
        ({"target_entropy": 0.7}, r"algo\.target_entropy=0\.7"),
        ({"target_entropy": "auto_1"}, r"algo\.target_entropy=auto_1"),
    ],
)
def test_option_of_box_actions_is_refused(options: dict[str, Any], key: str) -> None:
    with pytest.raises(ZooError, match=key):
        SAC("MlpPolicy", "CartPole-v1", **options)


@pytest.mark.parametrize("algorithm", [TQC, CrossQ])
def test_others_refuse_discrete_actions(algorithm: Any) -> None:
    with pytest.raises(ZooError, match="Box"):
        algorithm("MlpPolicy", "CartPole-v1")


def test_too_many_combinations_are_refused() -> None:
    with pytest.raises(ZooError, match="combinations"):
        SAC("MlpPolicy", Choosing(spaces.MultiDiscrete([101, 100])))


QUIET: dict[str, Any] = {"seed": 0, "compile": False, "threads": 1, "learning_starts": 20, "batch_size": 8}


@pytest.mark.parametrize("name", ["DroQ", "REDQ", "SimBa"])
def test_presets_learn_discrete_actions(name: str) -> None:
    env = zoo.EnvConfig("CartPole-v1", normalize={"rewards": False, "clip_obs": math.inf})
    model = getattr(zoo, name)(env=env, **QUIET).learn(24)
    assert model.n_updates > 1
    assert np.isfinite(model.get_parameters()["temperature.log"]).all()


def test_random_exploration_chooses_for_each_env() -> None:
    model = SAC({"net_arch": [8]}, "CartPole-v1", n_envs=3, random_exploration=0.5, **QUIET).learn(60)
    constant(model.policy.actor.head.logits, [9.0, -9.0])
    inputs = {"observations": np.zeros((1000, 4), np.float32)}
    actions, _ = model.exploration.act(inputs, np.random.default_rng(0), 0.0)
    assert actions.shape == (1000,)
    assert 0.2 < actions.mean() < 0.3
