"""The forward passes of small policies on float32 arrays, for acting.

On a small batch they are an order of magnitude faster than modules. The weights are views of the modules'
own parameters, so what updates write in place is seen; make the functions once the parameters lie where they
stay.

Only modules of exactly the classes named here are known: a subclass may do anything. For all else the
functions return None, and modules do the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import numpy as np
from torch import Tensor, nn

from zoo.policies.action_value_policies import ActionValuePolicy, StochasticDuelingPolicy
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.composite_head import CompositeHead
from zoo.policies.deterministic_actor import Deterministic, DeterministicActor, Direct
from zoo.policies.encoders import VectorEncoder
from zoo.policies.gaussian_heads import LOG_STD_RANGE, DiagonalGaussian, SquashedGaussian
from zoo.policies.heads import Array, Categorical
from zoo.policies.multi_heads import Bernoulli, MultiCategorical
from zoo.policies.networks import Mlp
from zoo.policies.numpy_cores import core_in_numpy
from zoo.policies.q_network import QNetwork
from zoo.policies.quantile_network import QuantileNetwork
from zoo.policies.searched_policy import SearchedPolicy
from zoo.policies.squashed_actor import SquashedActor
from zoo.policies.state_dependent_heads import (
    LEAST_VARIANCE,
    SquashedStateDependentGaussian,
    StateDependentGaussian,
)

ArrayFunction = Callable[[Array], Array]

RecurrentFunction = Callable[[Array, Array | None, Array | None], tuple[Array, Array]]
"""Observations (n, …), state (n, s) and where episodes start (n) to parameters (n, …) and the next state."""

_ZERO = np.zeros((), np.float32)
"""0 as an array: NumPy would make one of a Python number at every call."""

_ACTORS = (ActorCritic, ActionValuePolicy, StochasticDuelingPolicy)
_ACTORS_ALONE = (SquashedActor, DeterministicActor, SearchedPolicy)


def action_parameters_in_numpy(policy: nn.Module) -> ArrayFunction | None:
    """Return observations (n, …) to the parameters of the policy's head (n, …), before masks.

    Those of a dueling Q-network lack the state value, which all actions of a row share.
    """
    if not _is_within_reach(policy):
        return None
    if isinstance(policy, ActorCritic) and type(policy) in _ACTORS and policy.core is None:
        return _chain(policy.encoder, policy.shared, policy.actor, policy.head)
    if type(policy) is QNetwork:
        return _chain(policy.encoder, policy.advantages)
    if type(policy) is QuantileNetwork:
        return _means_of_quantiles(_chain(policy.encoder, policy.advantages), policy.n_quantiles)
    if isinstance(policy, _ACTORS_ALONE) and type(policy) in _ACTORS_ALONE:
        return _chain(policy.encoder, policy.trunk, policy.head)
    return None


def remembering_in_numpy(policy: nn.Module) -> RecurrentFunction | None:
    """Return the same for a policy with a core, and the next state: see `RecurrentFunction`."""
    if not isinstance(policy, ActorCritic) or type(policy) not in _ACTORS or not _is_within_reach(policy):
        return None
    core, critic_core = core_in_numpy(policy.core), core_in_numpy(policy.critic_core)
    read, act = _chain(policy.encoder, policy.shared), _layer_chain(policy.actor, policy.head)
    read_for_critic = None
    if policy.critic_encoder is not None and policy.critic_core is not None:
        read_for_critic = _chain(policy.critic_encoder, policy.shared)
    if core is None or read is None or act is None or (critic_core is None) != (policy.critic_core is None):
        return None
    actor_size = policy.core.state_size  # type: ignore[union-attr]

    def parameters(observations: Array, state: Array | None, starts: Array | None) -> tuple[Array, Array]:
        features = read(observations)
        if state is None:
            state = np.zeros((len(features), policy.state_size), np.float32)
        keep = np.ones((len(features), 1), np.float32)
        if starts is not None:
            keep[starts] = 0.0
        remembered, after = core(features, state[:, :actor_size], keep)
        if critic_core is not None:
            own = features if read_for_critic is None else read_for_critic(observations)
            after = np.concatenate([after, critic_core(own, state[:, actor_size:], keep)[1]], axis=-1)
        return act(remembered), after

    return parameters


def values_in_numpy(policy: nn.Module) -> ArrayFunction | None:
    """Return observations (n, …) to the values (n,) of the policy's critic."""
    if type(policy) is not ActorCritic or policy.core is not None or not _is_within_reach(policy):
        return None
    values = _chain(policy.critic_encoder or policy.encoder, policy.shared, policy.critic)
    return None if values is None else lambda observations: values(observations)[:, 0]


def _means_of_quantiles(quantiles: ArrayFunction | None, n_quantiles: int) -> ArrayFunction | None:
    if quantiles is None:
        return None

    def means(observations: Array) -> Array:
        values = quantiles(observations)
        averaged: Array = values.reshape(len(values), n_quantiles, -1).mean(1)
        return averaged

    return means


def _is_within_reach(policy: nn.Module) -> bool:
    on_cpu = all(parameter.device.type == "cpu" for parameter in policy.parameters())
    return on_cpu and all(_is_plain(module) for module in policy.modules())


def _is_plain(module: nn.Module) -> bool:
    """Whether nothing hooks into the module's forward pass, or stands in front of it."""
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _chain(encoder: nn.Module, *networks: nn.Module) -> ArrayFunction | None:
    encode, forward = encoder_in_numpy(encoder), _layer_chain(*networks)
    if encode is None or forward is None:
        return None
    return lambda observations: forward(encode(observations))


def _layer_chain(*networks: nn.Module) -> ArrayFunction | None:
    """Return what networks do one after the other, on an array that stays as it is."""
    layers = [layer for network in networks for layer in _layers(network)]
    known = [step for step in map(_step, layers) if step is not None]
    if len(known) < len(layers) or (layers and type(layers[0]) in _WORKING_IN_PLACE):
        return None

    def forward(values: Array) -> Array:
        for step in known:
            values = step(values)
        return values

    return forward


def encoder_in_numpy(encoder: nn.Module) -> ArrayFunction | None:
    """Return an encoder of vectors on arrays; its result may be the array that it is given."""
    if type(encoder) is not VectorEncoder or encoder.sizes or encoder.reads_image:
        return None
    features_dim = encoder.features_dim

    def flattened(observations: Array) -> Array:
        flat = observations.reshape(-1, features_dim)
        return flat if flat.dtype == np.float32 else flat.astype(np.float32)

    return flattened


_WORKING_IN_PLACE = (nn.Tanh, nn.ReLU)
"""Layers that overwrite what they are given; in front of them always stands one that made it."""


def _layers(network: nn.Module) -> list[nn.Module]:
    if type(network) is Mlp:
        return list(network.children())
    return [network.logits] if type(network) in _LOGIT_HEADS else [network]  # type: ignore[list-item]


_LOGIT_HEADS = (Categorical, MultiCategorical, Bernoulli)


def _step(layer: nn.Module) -> ArrayFunction | None:
    """Return what a layer, or a head of numbers, does; None if it is not known."""
    if _is_linear(layer):
        return _linear(layer)
    if type(layer) is nn.Tanh:
        return lambda values: np.tanh(values, out=values)
    if type(layer) is nn.ReLU:
        return lambda values: np.maximum(values, _ZERO, out=values)
    if type(layer) is nn.LayerNorm and layer.elementwise_affine and layer.bias is not None:
        weight, bias, eps = _view(layer.weight), _view(layer.bias), np.float32(layer.eps)
        return lambda values: _normalised(values, eps) * weight + bias
    if type(layer) is Deterministic and _is_linear(layer.action):
        action = _linear(layer.action)
        return lambda features: np.tanh(action(features))
    if type(layer) is Direct and _is_linear(layer.action):
        return _linear(layer.action)
    if type(layer) is DiagonalGaussian and _is_linear(layer.mean):
        return _constant_deviation(layer.mean, layer.log_std)
    if type(layer) is SquashedGaussian and _is_linear(layer.mean) and _is_linear(layer.log_std):
        mean, log_std, (low, high) = _linear(layer.mean), _linear(layer.log_std), LOG_STD_RANGE
        return lambda features: np.concatenate(
            [mean(features), np.minimum(np.maximum(log_std(features), low), high)], axis=-1
        )
    if type(layer) is CompositeHead:
        return _side_by_side(layer)
    if type(layer) in _STATE_DEPENDENT and _is_linear(layer.mean):  # type: ignore[arg-type]
        return _deviation_by_features(layer)  # type: ignore[arg-type]
    return None


def _side_by_side(head: CompositeHead) -> ArrayFunction | None:
    """Return what the heads of a composite give, one behind the other; None if one is not known."""
    parts = [_step(_layers(part)[0]) for part in head.heads.values()]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return lambda features: np.concatenate([part(features) for part in known], axis=-1)


_STATE_DEPENDENT = (StateDependentGaussian, SquashedStateDependentGaussian)


def _deviation_by_features(head: StateDependentGaussian) -> ArrayFunction:
    n, means, log_std, bound = head.n_actions, _linear(head.mean), _view(head.log_std), head.clip_mean

    def parameters(features: Array) -> Array:
        result = np.empty((len(features), head.parameter_size), np.float32)
        result[:, :n] = means(features)
        if bound > 0:
            np.clip(result[:, :n], -bound, bound, out=result[:, :n])
        deviations = _expln(log_std) if head.use_expln else np.exp(log_std)
        variance = np.square(features) @ np.square(deviations)
        result[:, n : 2 * n] = 0.5 * np.log(variance + np.float32(LEAST_VARIANCE))
        result[:, 2 * n :] = features
        return result

    return parameters


def _expln(values: Array) -> Array:
    return np.where(values > 0, np.log1p(np.abs(values)) + 1, np.exp(-np.abs(values)))


def _constant_deviation(mean: nn.Linear, log_std: Tensor) -> ArrayFunction:
    n, means, deviations = mean.out_features, _linear(mean), _view(log_std)

    def parameters(features: Array) -> Array:
        result = np.empty((len(features), 2 * n), np.float32)
        result[:, :n] = means(features)
        result[:, n:] = deviations
        return result

    return parameters


def _is_linear(layer: nn.Module) -> TypeGuard[nn.Linear]:
    return type(layer) is nn.Linear


def _linear(layer: nn.Linear) -> ArrayFunction:
    weight = _view(layer.weight).T
    if "bias" not in dict(layer.named_parameters()):
        return lambda values: values.dot(weight)
    bias = _view(layer.bias)[None]  # for (n, …) alone, but NumPy adds it sooner to one row

    def linear(values: Array) -> Array:
        result = values.dot(weight)
        result += bias
        return result

    return linear


def _view(parameter: Tensor) -> Array:
    return parameter.detach().numpy()


def _normalised(values: Array, eps: np.float32) -> Array:
    centred = values - values.mean(-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + eps)
