"""An agent's deterministic policy as one module: raw observations in, actions as the environment takes them.

What acting does in NumPy, normalisation before the networks, the likeliest action and its units behind them,
is here done by tensors, so that it can be traced and written to a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.agent import Agent
from zoo.envs.normalize import SINGLE
from zoo.errors import ZooError
from zoo.policies.actions import (
    BoxCodec,
    Codec,
    CompositeCodec,
    DiscreteCodec,
    MultiBinaryCodec,
    MultiDiscreteCodec,
    ScaledBoxCodec,
    scale_of,
)
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.distributions import (
    Bernoulli,
    Categorical,
    CompositeHead,
    Deterministic,
    Gaussian,
    Head,
    MultiCategorical,
    Squashed,
)


@dataclass(frozen=True)
class TensorFacts:
    """Name, shape (without the batch) and type of an input or an output."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class DeterministicPolicy(nn.Module):
    """Takes a tensor for each of ``inputs``, (n, *shape), and returns one for each of ``outputs``.

    A policy that remembers takes its state and where episodes start too, and returns the next state last:
    ``memory_size`` numbers. The last input is the masks of valid actions, if the agent has learned with
    masks. Raises `ZooError` for a policy whose head is of a user's own.
    """

    def __init__(self, agent: Agent[Any]) -> None:
        super().__init__()
        acting, space = agent.acting, agent.observation_space
        self.policy: nn.Module = acting.policy
        self.is_dictionary = isinstance(space, spaces.Dict)
        parts = space.spaces if isinstance(space, spaces.Dict) else {"observation": space}
        self.inputs = [_facts(name, part) for name, part in parts.items()]
        whole, policy = acting.initial_state(1), self.policy
        self.state_size: int = 0 if whole is None else whole.shape[1]
        # What the critic remembers is no part of acting; what a class of a user's own does is not known.
        self.is_actor_alone = type(policy) is ActorCritic and policy.core is not None
        self.memory_size: int = self.state_size
        if isinstance(policy, ActorCritic) and policy.core is not None and self.is_actor_alone:
            self.memory_size = policy.core.state_size
        if self.memory_size:
            names = ("policy_state", "episode_start") if "state" in parts else ("state", "episode_start")
            self.inputs += [TensorFacts(names[0], (self.memory_size,), "float32")]
            self.inputs += [TensorFacts(names[1], (), "bool")]
        self.masks_actions = agent.masks_actions
        if agent.masks_actions:
            self.inputs.append(TensorFacts("action_masks", (acting.head.mask_size or 0,), "bool"))
        moments = {} if agent.normalizer is None else agent.normalizer.moments
        self.normalizers = nn.ModuleList(
            _Normalize(agent, key) if key in moments else nn.Identity()
            for key in (parts if self.is_dictionary else [SINGLE])
        )
        self.heads = _parts_of(acting.head)
        self.codecs = [_Action(codec) for codec in _codecs(agent.codec)]
        self.actions = nn.ModuleList(self.codecs)
        paths = list(agent.codec.parts) if isinstance(agent.codec, CompositeCodec) else ["action"]
        self.outputs = [
            TensorFacts(path, action.shape, action.dtype)
            for path, action in zip(paths, self.codecs, strict=True)
        ]
        if self.memory_size:
            self.outputs.append(TensorFacts("next_state", (self.memory_size,), "float32"))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the actions, one tensor (n, …) for each of ``outputs``."""
        n_parts = len(self.normalizers)
        observations, rest = inputs[:n_parts], list(inputs[n_parts:])
        parts = [norm(part) for norm, part in zip(self.normalizers, observations, strict=True)]
        shown: Any = parts[0]
        if self.is_dictionary:
            shown = {facts.name: part for facts, part in zip(self.inputs[:n_parts], parts, strict=True)}
        seen = {"observations": shown}
        if self.masks_actions:
            seen["action_masks"] = rest.pop()
        state = None
        if self.memory_size:
            state, seen["episode_starts"] = rest
        policy: Any = self.policy
        judge = policy.actor_parameters if self.is_actor_alone else policy.action_parameters
        parameters, after = judge(seen, state)
        sizes = [head.parameter_size for head in self.heads]
        each = parameters.split(sizes, dim=-1) if len(sizes) > 1 else (parameters,)
        actions = tuple(
            action(_mode(head, part))
            for head, part, action in zip(self.heads, each, self.codecs, strict=True)
        )
        return (*actions, after) if self.memory_size else actions

    def random_memory(self, n: int, seed: int = 0) -> list[np.ndarray]:
        """Return states and episode starts of ``n`` rows, to try it with; nothing without a memory."""
        if not self.memory_size:
            return []
        rng = np.random.default_rng(seed)
        return [rng.uniform(-1, 1, (n, self.memory_size)).astype(np.float32), rng.random(n) < 0.5]

    def state_of_agent(self, state: np.ndarray) -> np.ndarray:
        """Return the agent's state for states of this module."""
        return np.pad(state, ((0, 0), (0, self.state_size - self.memory_size)))


def _facts(name: str, space: spaces.Space[Any]) -> TensorFacts:
    return TensorFacts(name, tuple(space.shape or ()), str(space.dtype))


class _Normalize(nn.Module):
    """(o − mean) / sqrt(var + ε), clipped, in the precision of the statistics, as `Normalizer` does."""

    def __init__(self, agent: Agent[Any], key: str) -> None:
        super().__init__()
        normalizer = agent.normalizer
        assert normalizer is not None
        moments = normalizer.moments[key]
        self.register_buffer("mean", torch.from_numpy(np.array(moments.mean, np.float64)))
        scale = 1.0 / np.sqrt(moments.var + normalizer.epsilon)
        self.register_buffer("scale", torch.from_numpy(np.array(scale, np.float64)))
        self.clip_obs = float(normalizer.clip_obs)

    def forward(self, observations: Tensor) -> Tensor:
        mean, scale = self.get_buffer("mean"), self.get_buffer("scale")
        normalized = (observations.double() - mean) * scale
        return normalized.clamp(-self.clip_obs, self.clip_obs).float()


def _parts_of(head: Head) -> list[Head]:
    """Return the heads side by side, nested ones too, in their order."""
    if isinstance(head, CompositeHead):
        return [part for each in head.heads.values() for part in _parts_of(each)]
    return [head]


def _mode(head: Head, parameters: Tensor) -> Tensor:
    """Return what `Head.mode` does for arrays."""
    if isinstance(head, MultiCategorical):
        return torch.stack([part.argmax(-1) for part in parameters.split(head.sizes, dim=-1)], dim=-1)
    if isinstance(head, Bernoulli):
        return (parameters > 0).to(torch.int8)
    if isinstance(head, Categorical):
        return parameters.argmax(-1)
    if isinstance(head, Squashed):
        return torch.tanh(parameters[..., : head.n_actions])
    if isinstance(head, Gaussian):
        return parameters[..., : head.n_actions]
    if isinstance(head, Deterministic):
        return parameters
    raise ZooError(f"its actions come from a {type(head).__name__}, which can't be exported")


def _codecs(codec: Codec) -> list[Codec]:
    return list(codec.parts.values()) if isinstance(codec, CompositeCodec) else [codec]


class _Action(nn.Module):
    """From stored actions to the environment's, as `Codec.to_env` does for arrays."""

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self.kind = type(codec)
        self.shape: tuple[int, ...] = ()
        if isinstance(codec, DiscreteCodec):
            self.dtype = str(np.dtype(codec.dtype))
            self.register_buffer("start", torch.tensor(codec.start))
        elif isinstance(codec, MultiDiscreteCodec):
            self.shape, self.dtype = codec.space.nvec.shape, str(codec.space.dtype)
            self.register_buffer("start", torch.from_numpy(np.array(codec.space.start, np.int64)))
        elif isinstance(codec, MultiBinaryCodec):
            self.shape, self.dtype = tuple(codec.shape), "int8"
        elif isinstance(codec, BoxCodec | ScaledBoxCodec):
            self.shape, self.dtype = codec.space.shape, str(codec.space.dtype)
            self.is_whole = codec.is_whole
            bounds = [np.array(codec.space.low), np.array(codec.space.high)]
            bounds = [each.astype(np.float64) if codec.is_whole else each for each in bounds]
            scale = scale_of(codec.space) if isinstance(codec, ScaledBoxCodec) else ()
            for name, array in zip(("low", "high", "start", "width"), (*bounds, *scale), strict=False):
                self.register_buffer(name, torch.from_numpy(np.array(array)))
        else:
            raise ZooError(f"its actions are of a {type(codec).__name__}, which can't be exported")

    def forward(self, actions: Tensor) -> Tensor:
        shaped = actions.reshape(-1, *self.shape)
        if self.kind in (DiscreteCodec, MultiDiscreteCodec):
            shaped = shaped + self.get_buffer("start")
        elif self.kind is not MultiBinaryCodec:
            low, high = self.get_buffer("low"), self.get_buffer("high")
            if self.kind is ScaledBoxCodec:
                shaped = self.get_buffer("start") + 0.5 * (shaped + 1.0) * self.get_buffer("width")
            if self.is_whole:
                shaped = shaped.floor() if self.kind is ScaledBoxCodec else shaped.round()
            shaped = torch.minimum(torch.maximum(shaped, low), high)
        return shaped.to(getattr(torch, self.dtype))
