"""Acting with a policy, and conversion of its actions for the environment: arrays, no gradients.

Plain MLP policies act in NumPy, ten times as fast on a small batch as modules do, on views of the modules'
own parameters. Only modules of exactly the classes named here are known; all others act through torch.

Actions as policies draw and buffers store them (n, …) are flat and count from zero. Those of a Tuple or Dict
space are a dictionary by the paths of its parts: ``"arm/0"`` is the first part of the part ``"arm"``. An
`ActionAdapter` makes what the environment takes.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from zoo.buffers.arrays import Array, Arrays, ArraySpec, split_rows, transform
from zoo.envs.spaces import Space, leaf_spaces, leaves, nested
from zoo.errors import ZooError
from zoo.optim.gpu import GraphedFunction, tensors_on
from zoo.optim.optimizers import Parameters
from zoo.optim.update_runner import tree_signature
from zoo.policies import distributions as heads
from zoo.policies.actor_critic import ActionValuePolicy, ActorCritic, PolicyInput, StochasticDuelingPolicy
from zoo.policies.continuous import DeterministicActor, DiscreteActor, LinearPolicy, SquashedActor
from zoo.policies.distributions import ActionDistribution
from zoo.policies.encoders import VectorEncoder
from zoo.policies.networks import (
    ACTIVATION_CLASSES,
    NORM_EPS,
    BatchRenorm,
    Mlp,
    NoisyLinear,
    NoisyMlp,
    ResidualBlock,
    ResidualMlp,
)
from zoo.policies.q_networks import CategoricalNetwork, NormalizedQNetwork, QNetwork, QuantileNetwork

CALLS_BEFORE_A_GRAPH = 10
MOST_GRAPHS = 4
"""Calls with inputs of one shape, on a GPU, until a graph of them is made, and for how many shapes."""

MOST_MIRRORED, MOST_MULTIPLIED = 300_000, 4_000_000
"""A policy on a GPU acts in NumPy up to these numbers of weights, and of weights times environments.

SAC's with two layers of 256 has 70,000 weights. In the time of one GPU call NumPy multiplies as
many as the second."""


class ActingPolicy:
    """Acts with the parameters of ``policy`` as they are at each call; with a ``mirror``, at each `refresh`.

    ``policy`` has a ``head`` and ``action_parameters(inputs, state)``. Make it after `zoo.optim.optimizers`
    has moved the parameters, as it looks at where they lie.
    """

    head: ActionDistribution

    def __init__(
        self, policy: nn.Module, device: torch.device | str = "cpu", *, mirror: Mirror | None = None
    ) -> None:
        self.policy = policy
        self.device = torch.device(device)
        self._tensors = partial(to_tensors, device=self.device)
        self.head = policy.head  # type: ignore[assignment]
        self.state_size = int(getattr(policy, "state_size", 0))
        self._mirror = mirror
        in_memory = policy if mirror is None else mirror.copy
        self._in_numpy = action_parameters_in_numpy(in_memory)
        self.uses_numpy = self._in_numpy is not None
        self._values_in_numpy = values_in_numpy(in_memory)
        self._calls: Counter[Hashable] = Counter()
        self._graphs: dict[Hashable, GraphedFunction] = {}
        self._may_be_graphed = self.device.type == "cuda" and not has_foreign_modules(policy)

    def refresh(self) -> None:
        """Act with the parameters as they are now, where acting has a copy of them."""
        if self._mirror is not None:
            self._mirror.refresh()

    def initial_state(self, n: int) -> Array | None:
        """Return the state of ``n`` rows at the start of an episode; None for a policy without recurrence."""
        if not self.state_size:
            return None
        with torch.inference_mode():
            return self.policy.initial_state(n).cpu().numpy()  # type: ignore[operator]

    def parameters(self, inputs: PolicyInput, state: Array | None = None) -> tuple[Array, Array | None]:
        """Return the masked parameters of the head (n, ``parameter_size``), and the next state."""
        if self._in_numpy is not None and "noise" not in inputs:
            parameters = self._in_numpy(inputs["observations"])
            return self.head.masked(parameters, inputs.get("action_masks")), None
        with _evaluating(self.policy):
            if not self.state_size:
                return self._head_parameters(inputs).cpu().numpy(), None
            last = None if state is None else self._tensors(state)
            result, next_state = self.policy.action_parameters(self._tensors(inputs), last)  # type: ignore[operator]
        return result.cpu().numpy(), next_state.cpu().numpy()

    def act(
        self, inputs: PolicyInput, noise: Array | None, state: Array | None = None
    ) -> tuple[Arrays, Array | None]:
        """Return actions (n, …) drawn with ``noise``, or without any the likeliest, and the next state."""
        parameters, next_state = self.parameters(inputs, state)
        if noise is None:
            return self.head.mode(parameters), next_state
        return self.head.sample(parameters, noise), next_state

    def act_and_evaluate(self, inputs: PolicyInput, noise: Array) -> dict[str, Arrays]:
        """Return ``actions`` (n, …) drawn with ``noise``, ``log_prob`` and ``values`` of an `ActorCritic`."""
        with _evaluating(self.policy):
            parameters, values, _ = self.policy(self._tensors(inputs))
            actions = self.head.sample(parameters.cpu().numpy(), noise)
            log_prob = self.head.log_prob(parameters, self._tensors(actions))
            return {"actions": actions, "log_prob": log_prob.cpu().numpy(), "values": values.cpu().numpy()}

    def values(self, inputs: PolicyInput, state: Array | None = None) -> Array:
        """Return the critic's values (n,) from a state."""
        if self._values_in_numpy is not None:
            return self._values_in_numpy(inputs["observations"])
        with _evaluating(self.policy):
            tensors = self._tensors(inputs)
            arguments = (tensors,) if state is None else (tensors, self._tensors(state))
            return self.policy.values(*arguments).cpu().numpy()  # type: ignore[operator]

    def _head_parameters(self, inputs: PolicyInput) -> Tensor:
        """Return the policy's outputs; on a GPU by a CUDA graph, once such inputs were seen often."""
        tensors = self._tensors(inputs)
        if self._may_be_graphed:
            key = tree_signature(tensors)
            self._calls[key] += 1
            if self._calls[key] == CALLS_BEFORE_A_GRAPH and len(self._graphs) < MOST_GRAPHS:
                self._graphs[key] = GraphedFunction(self._parameters_of, [tensors])
            if key in self._graphs:
                return self._graphs[key](tensors)
        return self._parameters_of(tensors)

    def _parameters_of(self, tensors: dict[str, Any]) -> Tensor:
        return self.policy.action_parameters(tensors, None)[0]  # type: ignore[operator]


def to_tensors(column: Arrays, device: torch.device) -> Any:
    """Return arrays as tensors on the device, without a copy on a CPU."""
    if device.type == "cpu":
        return transform(lambda array: torch.from_numpy(np.asarray(array)), column)
    arrays: list[Array] = []
    transform(arrays.append, column)
    tensors = iter(tensors_on(device, arrays))
    return transform(lambda _: next(tensors), column)


class Mirror:
    """A copy in memory of a policy on a GPU, for acting in NumPy: as the policy was at the last `refresh`."""

    def __init__(self, policy: nn.Module) -> None:
        self.policy, self.copy = policy, copy.deepcopy(policy).cpu()
        self._flat = parameters_to_vector(self.copy.parameters()).detach()
        vector_to_parameters(self._flat, self.copy.parameters())

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the policy's parameters, in one copy, and its running statistics."""
        self._flat.copy_(parameters_to_vector(self.policy.parameters()))
        for copied, buffer in zip(self.copy.buffers(), self.policy.buffers(), strict=True):
            copied.copy_(buffer)


def make_mirror(policy: nn.Module, device: torch.device, n_envs: int) -> Mirror | None:
    """Return the mirror of a small policy on a GPU that can act in NumPy, in few environments, else None."""
    n_weights = sum(parameter.numel() for parameter in policy.parameters())
    is_small = n_weights <= min(MOST_MIRRORED, MOST_MULTIPLIED // n_envs)
    if device.type == "cpu" or has_foreign_modules(policy) or not is_small:
        return None
    mirror = Mirror(policy)
    return None if action_parameters_in_numpy(mirror.copy) is None else mirror


@contextmanager
def _evaluating(policy: nn.Module) -> Iterator[None]:
    """Within the block there are no gradients, and the policy is in evaluation mode, as it stays."""
    if policy.training:
        policy.eval()
    with torch.inference_mode():
        yield


class BatchedPolicy:
    """Acts in the i-th of ``n`` environments by the i-th of ``vectors``, which may be written into."""

    def __init__(self, parameters: Parameters, n: int, device: torch.device | str = "cpu") -> None:
        self.vectors = [parameters.flat.detach().clone() for _ in range(n)]
        self._policies = [ActingPolicy(parameters.module_at(vector), device) for vector in self.vectors]

    def parameters(self, inputs: PolicyInput, state: Array | None = None) -> tuple[Array, Array | None]:
        """Return the masked parameters of the head (n, …), and the next state."""
        if len(self._policies) == 1:
            return self._policies[0].parameters(inputs, state)
        states = [None] * len(self._policies) if state is None else state[:, None]
        rows = zip(self._policies, split_rows(inputs, 1), states, strict=True)
        parameters, after = zip(*(policy.parameters(row, part) for policy, row, part in rows), strict=True)
        return np.concatenate(parameters), None if state is None else np.concatenate(after)

    def act(self, inputs: PolicyInput) -> Arrays:
        """Return the likeliest actions (n, …)."""
        return self._policies[0].head.mode(self.parameters(inputs)[0])


# -- forward passes in NumPy -----------------------------------------------------------------------------

ArrayFunction = Callable[[Array], Array]

_ZERO = np.zeros((), np.float32)
"""0 as an array: NumPy would make one of a Python number at every call."""

_ACTOR_CRITICS = (ActorCritic, ActionValuePolicy, StochasticDuelingPolicy)
_ACTORS = (SquashedActor, DiscreteActor, DeterministicActor, LinearPolicy)
_LOGIT_HEADS = (heads.Categorical, heads.JointCategorical, heads.MultiCategorical, heads.Bernoulli)
_KNOWN = {
    *(VectorEncoder, Mlp, ResidualMlp, ResidualBlock, nn.Linear, nn.LayerNorm, BatchRenorm, nn.Identity),
    *(nn.Tanh, nn.ReLU, NoisyLinear, NoisyMlp, *_LOGIT_HEADS),
    *(heads.Deterministic, heads.UnboundedDeterministic, heads.DiagonalGaussian, heads.SquashedGaussian),
}


def action_parameters_in_numpy(policy: Any) -> ArrayFunction | None:
    """Return the function from observations to parameters of the head (n, …), before masks, or None.

    Those of a dueling Q-network lack the state value, which all actions of a row share.
    """
    if type(policy) in _ACTOR_CRITICS and policy.core is None:
        return _chain(policy.encoder, policy.shared, policy.actor, policy.head)
    if type(policy) in _ACTORS or (type(policy) is NormalizedQNetwork and policy.core is None):
        return _chain(policy.encoder, policy.trunk, policy.head)
    if type(policy) not in (QNetwork, QuantileNetwork, CategoricalNetwork):
        return None
    outputs = _chain(policy.encoder, policy.advantages)
    if type(policy) is QNetwork or outputs is None:
        return outputs
    n_quantiles = policy.n_quantiles
    if type(policy) is CategoricalNetwork:
        return _expected_returns(policy, outputs)
    return lambda inputs: outputs(inputs).reshape(len(inputs), n_quantiles, -1).mean(1)


def _expected_returns(policy: CategoricalNetwork, outputs: ArrayFunction) -> ArrayFunction:
    """Return the function to the expected returns (n, actions), for which the state values matter."""
    of_state = None if policy.state_value is None else _chain(policy.encoder, policy.state_value)
    returns = policy.returns().numpy()

    def expected(inputs: Array) -> Array:
        logits = outputs(inputs).reshape(len(inputs), len(returns), -1)
        if of_state is not None:
            logits = logits - logits.mean(-1, keepdims=True) + of_state(inputs)[..., None]
        return heads.softmax(logits.swapaxes(1, 2)) @ returns

    return expected


def values_in_numpy(policy: nn.Module) -> ArrayFunction | None:
    """Return the function from observations (n, …) to the values (n,) of the policy's critic."""
    if type(policy) is not ActorCritic or policy.core is not None:
        return None
    values = _chain(policy.critic_encoder or policy.encoder, policy.shared, policy.critic)
    return None if values is None else lambda observations: values(observations)[:, 0]


def _chain(encoder: nn.Module, *networks: nn.Module) -> ArrayFunction | None:
    """Return the forward pass of an encoder of vectors and the networks behind it, where all are known."""
    if not all(_is_known(module) for part in (encoder, *networks) for module in part.modules()):
        return None
    if not isinstance(encoder, VectorEncoder) or encoder.sizes or encoder.reads_image:
        return None
    features_dim = encoder.features_dim
    layers = [_layer(layer) for net in networks for layer in (net if isinstance(net, Mlp) else [net])]

    def forward(observations: Array) -> Array:
        values = observations.reshape(-1, features_dim)
        if values.dtype != np.float32:
            values = values.astype(np.float32)
        for layer in layers:
            values = layer(values)
        return values

    return forward


def _is_known(module: nn.Module) -> bool:
    """Whether a module is of a known class, on the CPU and without hooks."""
    on_cpu = all(parameter.device.type == "cpu" for parameter in module.parameters(recurse=False))
    is_hooked = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    return type(module) in _KNOWN and on_cpu and not is_hooked


def _layer(layer: Any) -> ArrayFunction:
    """Return the forward pass of a layer or a head; activations overwrite their input."""
    if isinstance(layer, nn.Linear):
        return _linear(layer)
    if isinstance(layer, nn.Tanh):
        return lambda values: np.tanh(values, out=values)
    if isinstance(layer, nn.ReLU):
        return lambda values: np.maximum(values, _ZERO, out=values)
    if isinstance(layer, nn.LayerNorm):
        return _layer_norm(layer)
    if isinstance(layer, BatchRenorm):
        return _batch_renorm(layer)
    if isinstance(layer, nn.Identity):
        return lambda values: values
    if isinstance(layer, ResidualBlock):
        return _residual([_layer(part) for part in layer.children()])
    if isinstance(layer, _LOGIT_HEADS):
        return _layer(layer.logits)
    if isinstance(layer, heads.Deterministic):
        action = _linear(layer.action)
        unbounded = isinstance(layer, heads.UnboundedDeterministic)
        return action if unbounded else lambda features: np.tanh(action(features))
    mean, (low, high) = _linear(layer.mean), heads.LOG_STD_RANGE
    if isinstance(layer, heads.SquashedGaussian):
        log_std = _linear(layer.log_std)
        return lambda features: np.concatenate([mean(features), log_std(features).clip(low, high)], axis=-1)
    constant, n_actions = layer.log_std.detach().numpy(), layer.n_actions
    return lambda features: np.concatenate(
        [mean(features), np.broadcast_to(constant, (len(features), n_actions))], axis=-1
    )


def _linear(layer: nn.Linear) -> ArrayFunction:
    weight = layer.weight.detach().numpy().T
    bias: Tensor | None = layer.bias  # which the policies of ARS have none of
    if bias is None:
        return lambda values: values.dot(weight)
    row = bias.detach().numpy()[None]  # for (n, …) alone, but NumPy adds it sooner to one row

    def linear(values: Array) -> Array:
        result = values.dot(weight)
        result += row
        return result

    return linear


def _residual(parts: list[ArrayFunction]) -> ArrayFunction:
    def residual(values: Array) -> Array:
        change = values
        for part in parts:
            change = part(change)
        change += values
        return change

    return residual


def _layer_norm(layer: nn.LayerNorm) -> ArrayFunction:
    weight, bias, eps = layer.weight.detach().numpy(), layer.bias.detach().numpy(), np.float32(layer.eps)

    def normalized(values: Array) -> Array:
        centred = values - values.mean(-1, keepdims=True)
        return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + eps) * weight + bias

    return normalized


def _batch_renorm(layer: BatchRenorm) -> ArrayFunction:
    mean, var = layer.running_mean.numpy(), layer.running_var.numpy()
    weight, bias, eps = layer.weight.detach().numpy(), layer.bias.detach().numpy(), np.float32(NORM_EPS)
    return lambda values: (values - mean) / np.sqrt(var + eps) * weight + bias


_SAME_IN_BOTH_MODES = {
    *(nn.Linear, nn.Conv2d, nn.LayerNorm, nn.Flatten, nn.Identity, nn.Sequential, nn.ModuleList),
    *ACTIVATION_CLASSES.values(),
}


def has_foreign_modules(policy: nn.Module) -> bool:
    """Whether the policy has modules that are neither Zoo's nor some of PyTorch's that do the same always."""
    return any(
        type(module) not in _SAME_IN_BOTH_MODES and not type(module).__module__.startswith("zoo.")
        for module in policy.modules()
    )


class PolicyMode:
    """Switches ``policy``, which acts in evaluation mode, to training mode for gradient steps, and back."""

    def __init__(self, policy: nn.Module) -> None:
        self.policy = policy.eval()
        self._is_relevant = has_foreign_modules(policy) or any(True for _ in policy.buffers())

    @contextmanager
    def training(self, training: bool = True) -> Iterator[None]:
        """Within the block the policy is in training mode: for gradient steps."""
        before = self.policy.training
        if self._is_relevant:
            self.policy.train(training)
        try:
            yield
        finally:
            if self._is_relevant:
                self.policy.train(before)

    def evaluation(self) -> AbstractContextManager[None]:
        """Within the block the policy is in evaluation mode: for targets."""
        return self.training(False)


# -- actions as environments take them --------------------------------------------------------------------


class ActionAdapter(ABC):
    """Translates the actions of one space; ``spec`` says how they are stored."""

    spec: Any

    @abstractmethod
    def to_env(self, actions: Arrays) -> Any:
        """Return stored actions as a vector environment takes them."""

    @abstractmethod
    def from_env(self, actions: Any) -> Arrays:
        """Return an environment's actions as they are stored: the inverse of `to_env`."""


class CountedAdapter(ActionAdapter):
    """One number, several in a row, or bits: each counted from its start."""

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary) -> None:
        self.shape, self.dtype = space.shape or (), space.dtype
        self.start = np.asarray(getattr(space, "start", 0), np.int64)
        self.is_shifted = bool(self.start.any())
        is_bits = isinstance(space, spaces.MultiBinary)
        flat = () if isinstance(space, spaces.Discrete) else (math.prod(self.shape),)
        self.spec = ArraySpec(flat, np.int8 if is_bits else np.int64)

    def to_env(self, actions: Array) -> Array:
        shaped = actions.reshape(len(actions), *self.shape)
        return (shaped + self.start if self.is_shifted else shaped).astype(self.dtype, copy=False)

    def from_env(self, actions: Any) -> Array:
        counted = np.asarray(actions).astype(self.spec.dtype) - self.start
        return counted.astype(self.spec.dtype, copy=False).reshape(len(counted), *self.spec.shape)


class BoxAdapter(ActionAdapter):
    """Numbers in the environment's units, which gets them clipped to its bounds, whole ones rounded."""

    def __init__(self, space: spaces.Box) -> None:
        self.space = space
        self.spec = ArraySpec((math.prod(space.shape),), np.float32)
        self.is_whole = space.dtype.kind in "iub"

    def to_env(self, actions: Array) -> Array:
        shaped = actions.reshape(len(actions), *self.space.shape)
        return self._within_bounds(np.rint(shaped) if self.is_whole else shaped)

    def from_env(self, actions: Any) -> Array:
        return np.asarray(actions, np.float32).reshape(len(actions), -1)

    def _within_bounds(self, actions: Array) -> Array:
        bounded = np.minimum(np.maximum(actions, self.space.low), self.space.high)
        return bounded.astype(self.space.dtype, copy=False)


class ScaledBoxAdapter(BoxAdapter):
    """Numbers in [−1, 1], scaled to the environment's bounds; each whole number is an equal part of them."""

    def __init__(self, space: spaces.Box) -> None:
        if not space.is_bounded():
            raise ZooError(f"actions need finite bounds, but the action space is {space}")
        super().__init__(space)
        low = space.low.astype(np.float64)
        width = space.high.astype(np.float64) - low + float(self.is_whole)
        # In 64 bits, but for floats whose width 32 bits can hold: Stable-Baselines3 scales those in 32 bits.
        in_32_bits = space.dtype == np.float32 and (width < np.finfo(np.float32).max / 2).all()
        dtype: Any = np.float32 if in_32_bits else np.float64
        self.low, self.width = low.astype(dtype), width.astype(dtype)

    def to_env(self, actions: Array) -> Array:
        shaped = actions.reshape(len(actions), *self.space.shape)
        scaled = self.low + 0.5 * (shaped + 1.0) * self.width
        whole_or_exact = np.floor(scaled) if self.is_whole else scaled.astype(self.space.dtype, copy=False)
        return self._within_bounds(whole_or_exact)  # rounding may have gone a little too far

    def from_env(self, actions: Any) -> Array:
        """Undo `to_env`; a whole number gives the middle of its part, a dimension without width 0."""
        low, high = self.space.low.astype(np.float64), self.space.high.astype(np.float64)
        unit = float(self.is_whole)
        width = np.where(high > low, high - low + unit, np.inf)
        share = np.where(high > low, (np.asarray(actions, np.float64) - low + 0.5 * unit) / width, 0.5)
        return (2.0 * share - 1.0).astype(np.float32).reshape(len(actions), -1)


class CompositeAdapter(ActionAdapter):
    """Tuples and dictionaries of actions, nested at will."""

    def __init__(self, space: spaces.Tuple[Any] | spaces.Dict, *, scaled: bool) -> None:
        self.space = space
        self.parts = {path: make_action_adapter(leaf, scaled=scaled) for path, leaf in leaf_spaces(space)}
        self.spec = {path: adapter.spec for path, adapter in self.parts.items()}

    def to_env(self, actions: Arrays) -> Any:
        return nested(self.space, {path: part.to_env(actions[path]) for path, part in self.parts.items()})

    def from_env(self, actions: Any) -> Arrays:
        return {path: self.parts[path].from_env(part) for path, part in leaves(self.space, actions)}


def make_action_adapter(space: Space, *, scaled: bool) -> ActionAdapter:
    """Return the adapter of an action space; ``scaled`` keeps Box actions in [−1, 1], not in env units."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return CountedAdapter(space)
    if isinstance(space, spaces.Box):
        return ScaledBoxAdapter(space) if scaled else BoxAdapter(space)
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return CompositeAdapter(space, scaled=scaled)
    raise ZooError(f"actions of {space} are not supported; wrap the env to flatten them")
