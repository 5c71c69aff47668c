"""Masked PPO2 against SB3-Contrib's MaskablePPO: the same gradient steps from the same weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from peer_updates import RATE, flat
from torch import Tensor, nn

from zoo import PPO2
from zoo.envs import make_vec_env
from zoo.envs.spaces import choice_sizes
from zoo.policies import distributions
from zoo.policies.config import PolicyConfig
from zoo.policies.distributions import make_distribution

pytest.importorskip("sb3_contrib")
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.distributions import make_masked_proba_distribution
from stable_baselines3.common.logger import Logger

N_OBSERVED, N_ROWS, N_BATCHES = 3, 24, 4
ACTIONS = [spaces.Discrete(5), spaces.MultiDiscrete([3, 4])]
CLIP, ENT_COEF = 0.25, 0.0625
KIND = pytest.mark.parametrize("space", ACTIONS, ids=str)


class Masking(gym.Env[Any, Any]):
    """Only says which observations, actions and masks there are."""

    observation_space: Any = spaces.Box(-np.inf, np.inf, (N_OBSERVED,), np.float32)

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(N_OBSERVED, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(N_OBSERVED, np.float32), 0.0, False, False, {}

    def action_masks(self) -> Any:
        return np.ones(sum(choice_sizes(self.action_space)), np.bool_)


def rollout(space: Any, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return random rows whose actions are valid, as a policy near to the one that learns judged them."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*size: int) -> Tensor:
        return torch.randn(N_ROWS, *size, generator=generator, dtype=dtype)

    masks, actions = [], []
    for size in choice_sizes(space):
        action = torch.randint(size, (N_ROWS, 1), generator=generator)
        masks.append((torch.rand(N_ROWS, size, generator=generator) < 0.5).scatter(1, action, True))
        actions.append(action)
    return {
        "observations": drawn(N_OBSERVED),
        "actions": torch.cat(actions, 1) if len(actions) > 1 else actions[0][:, 0],
        "action_masks": torch.cat(masks, 1),
        "log_prob": 0.1 * drawn() - 1,
        "advantages": drawn(),
        "returns": drawn(),
        "values": drawn(),
    }


def ours(space: Any, dtype: torch.dtype) -> Any:
    class InPrecision(PPO2):
        def _make_policy(self) -> nn.Module:
            policy: Any = super()._make_policy()
            policy.encoder = nn.Identity()
            return policy.to(dtype)

    return InPrecision(
        {"net_arch": [8, 8]},
        make_vec_env(lambda: Masking(space), 1, check=False),
        seed=0,
        compile=False,
        learning_rate=RATE,
        clip_range=CLIP,
        clip_range_vf=None,
        ent_coef=ENT_COEF,
        vf_coef=0.5,
    )


def theirs(space: Any, policy: Any, dtype: torch.dtype) -> Any:
    """Return their agent with the weights of our policy."""
    peer = MaskablePPO(
        "MlpPolicy",
        Masking(space),
        learning_rate=RATE,
        clip_range=CLIP,
        ent_coef=ENT_COEF,
        vf_coef=0.5,
        batch_size=N_ROWS // N_BATCHES,
        n_epochs=1,
        n_steps=N_ROWS,
        policy_kwargs={"net_arch": [8, 8]},
        device="cpu",
    )
    peer.set_logger(Logger(None, []))
    peer.policy.to(dtype)
    peer.policy.extract_features = lambda observations, extractor=None: observations
    with torch.no_grad():
        for mine, others in zip(parts_of(policy), their_parts(peer), strict=True):
            for source, destination in zip(mine.parameters(), others.parameters(), strict=True):
                destination.copy_(source)
    return peer


def parts_of(policy: Any) -> list[nn.Module]:
    *hidden, output = [layer for layer in policy.critic.children() if isinstance(layer, nn.Linear)]
    return [policy.actor, policy.head, nn.Sequential(*hidden), output]


def their_parts(peer: Any) -> list[nn.Module]:
    policy = peer.policy
    networks = policy.mlp_extractor
    return [networks.policy_net, policy.action_net, networks.value_net, policy.value_net]


def all_of(parts: list[nn.Module]) -> Tensor:
    return flat(parameter for part in parts for parameter in part.parameters())


def give(peer: Any, rows: dict[str, Tensor], batches: Tensor) -> None:
    """Let the peer learn from these batches of the rows."""

    def samples(batch_size: int) -> Any:
        for batch in batches:
            row = {name: column[batch] for name, column in rows.items()}
            yield SimpleNamespace(old_log_prob=row["log_prob"], old_values=row["values"], **row)

    buffer = SimpleNamespace(get=samples, values=rows["values"].numpy(), returns=rows["returns"].numpy())
    peer.rollout_buffer = buffer


def distance(space: Any, dtype: torch.dtype, changed: dict[str, Tensor] | None = None) -> float:
    """Take the same steps with both; return the largest difference as a share of the way of the peer."""
    rows, model = rollout(space, dtype), ours(space, dtype)
    peer = theirs(space, model.policy, dtype)
    start = all_of(their_parts(peer)).clone()
    batches = torch.randperm(N_ROWS, generator=torch.Generator().manual_seed(1)).reshape(N_BATCHES, -1)
    give(peer, rows, batches)
    peer.train()
    learned_from = {**rows, **(changed or {})}
    learned_from = {name: column for name, column in learned_from.items() if column is not None}
    model._take_steps(model._gradient_step, {"rollout": learned_from, **model.rates(0.0)}, batches)
    reached = all_of(their_parts(peer))
    way = (reached - start).abs().max()
    assert way > 1e-3
    return ((all_of(parts_of(model.policy)) - reached).abs().max() / way).item()


@KIND
def test_updates_are_the_peers(space: Any) -> None:
    assert distance(space, torch.float64) < 1e-6
    assert distance(space, torch.float32) < 1e-3


@KIND
def test_planted_errors_are_seen(space: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = rollout(space, torch.float64)["action_masks"]
    everything: Any = {"action_masks": None}
    assert distance(space, torch.float64, everything) > 0.01
    assert distance(space, torch.float64, {"action_masks": masks.roll(1, 0)}) > 0.01
    monkeypatch.setattr(distributions, "INVALID", -3.0)
    assert distance(space, torch.float64) > 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("space", [*ACTIONS, spaces.MultiBinary(4), spaces.Discrete(3000)], ids=str)
def test_log_probabilities_and_entropies_are_the_peers(space: Any, dtype: torch.dtype) -> None:
    """Theirs have two logits for each bit, of zero and of one; only their difference counts."""
    torch.manual_seed(0)
    ours = make_distribution(space, 3, PolicyConfig()).to(dtype)
    logits = 3 * torch.randn(50, ours.parameter_size, dtype=dtype)
    is_bits, sizes = isinstance(space, spaces.MultiBinary), choice_sizes(space)
    actions = torch.stack([torch.randint(size, (50,)) for size in sizes], 1)
    masks = torch.cat(
        [
            (torch.rand(50, size) < 0.5).scatter(1, action[:, None], True)
            for size, action in zip(sizes, actions.T, strict=True)
        ],
        1,
    )
    peer = make_masked_proba_distribution(space)
    their_logits = torch.stack([torch.zeros_like(logits), logits], -1).flatten(1) if is_bits else logits
    peer.proba_distribution(their_logits)
    peer.apply_masking(masks.numpy())
    if len(sizes) == 1:
        actions = actions[:, 0]
    log_prob, entropy = ours.log_prob_and_entropy(ours.masked(logits, masks), actions)
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype is torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(log_prob, peer.log_prob(actions), **tolerance)
    torch.testing.assert_close(entropy, peer.entropy(), **tolerance)
