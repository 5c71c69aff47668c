"""The same gradient steps taken by Zoo and by a peer: same weights, same batches, same noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import BaseModel
from torch import Tensor, nn

BATCH = 16
N_OBSERVED, N_ACTIONS = 3, 2
RATE = 2.0**-7
"""Numbers like this one are the same in single and double precision."""

SETTINGS = {"gamma": 0.875, "tau": 0.125, "learning_rate": RATE, "batch_size": BATCH}


class Nowhere(gym.Env[Any, Any]):
    """Only says which observations and actions there are."""

    observation_space = spaces.Box(-np.inf, np.inf, (N_OBSERVED,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (N_ACTIONS,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(N_OBSERVED, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(N_OBSERVED, np.float32), 0.0, False, False, {}


def batches(n_steps: int, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return a random batch for each step (n_steps, BATCH, …)."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*size: int) -> Tensor:
        return torch.randn(n_steps, BATCH, *size, generator=generator, dtype=dtype)

    return {
        "observations": drawn(N_OBSERVED),
        "actions": drawn(N_ACTIONS).tanh(),
        "rewards": drawn(),
        "terminated": (drawn() > 1).to(dtype),
        "next_observations": drawn(N_OBSERVED),
    }


def peer_of(peer: Any, dtype: torch.dtype) -> Any:
    """Let the peer learn from given batches in this precision, and keep its log to itself."""
    peer.set_logger(Logger(None, []))
    peer.policy.to(dtype)
    for module in peer.policy.modules():
        if isinstance(module, BaseModel):  # they would make all observations single
            module.extract_features = lambda observations, extractor: extractor(observations)
    return peer


def give(peer: Any, rows: dict[str, Tensor]) -> None:
    """Let the peer sample these rows, one after the other."""
    waiting = [{name: column[i] for name, column in rows.items()} for i in range(len(rows["rewards"]))]

    def sample(batch_size: int, env: Any = None) -> Any:
        row = waiting.pop(0)
        return SimpleNamespace(
            observations=row["observations"],
            actions=row["actions"],
            rewards=row["rewards"].unsqueeze(-1),
            dones=row["terminated"].unsqueeze(-1),
            next_observations=row["next_observations"],
            discounts=None,
        )

    peer.replay_buffer = SimpleNamespace(sample=sample)


class Prepared:
    """A generator that gives noise drawn beforehand."""

    def __init__(self, noise: Tensor) -> None:
        self.noise = noise.numpy()

    def standard_normal(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        assert self.noise.shape == shape
        return self.noise


def in_precision(policy: Any, dtype: torch.dtype) -> Any:
    """Let a policy of Zoo's compute in this precision; its encoders would make all observations single."""
    for module in policy.modules():
        if hasattr(module, "encoder"):
            module.encoder = nn.Identity()
    return policy.to(dtype)


def copy_weights(source: nn.Module, destination: nn.Module) -> None:
    """Give the layers of one network, in order, to another of the same form."""
    pairs = zip(source.parameters(), destination.parameters(), strict=True)
    with torch.no_grad():
        for ours, theirs in pairs:
            assert ours.shape == theirs.shape
            theirs.copy_(ours)


def flat(parameters: Iterable[Tensor]) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in parameters])


def distance(ours: Tensor, theirs: nn.Module, start: Tensor, *, moves: bool = True) -> float:
    """Return the largest difference of two networks as a share of the way that the peer's has gone."""
    reached = flat(theirs.parameters())
    way = (reached - start).abs().max() if moves else 1.0
    assert way > 1e-3
    return ((ours - reached).abs().max() / way).item()


def ours(algorithm: type[Any], dtype: torch.dtype, env: Any = None, **settings: Any) -> Any:
    """Return an algorithm of Zoo's with small networks in this precision, to learn from given batches."""

    class InPrecision(algorithm):  # type: ignore[misc]
        def _make_policy(self) -> nn.Module:
            return in_precision(super()._make_policy(), dtype)

    model = InPrecision({"net_arch": [8, 8]}, env or Nowhere(), seed=0, compile=False, **settings)
    model._progress_before = 0.0
    return model


def largest_distance_after(
    calls: Sequence[int],
    model: Any,
    peer: Any,
    parts: Mapping[str, tuple[nn.Module, nn.Module]],
    dtype: torch.dtype,
    noise: Callable[[Tensor, int], Tensor],
    still: str = "none",
) -> float:
    """Take so many gradient steps in each call with both; return the largest `distance` of any network.

    ``parts`` are, by their names in our state, our networks with the weights to start from and the peer's.
    ``noise`` draws for the actions of a batch, and so many steps, what the peer draws from torch's generator.
    Networks with ``still`` in their names do not move.
    """
    for source, destination in parts.values():
        copy_weights(source, destination)
    state = model.runner.state
    start = {name: state[name].clone() for name in parts}
    for call, n_steps in enumerate(calls):
        rows = batches(n_steps, call, dtype)
        give(peer, rows)
        torch.manual_seed(call)
        peer.train(n_steps, BATCH)
        torch.manual_seed(call)
        model.rng = Prepared(noise(rows["actions"][0], n_steps))
        model._learn_from(rows, n_steps)
    return max(
        distance(state[name], network, start[name], moves=still not in name)
        for name, (_, network) in parts.items()
    )
