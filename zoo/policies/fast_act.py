"""The forward passes of plain MLP policies on float32 arrays, for acting.

On a small batch they are an order of magnitude faster than modules. The weights are views of the modules'
own parameters, so what updates write in place is seen; make the functions once the parameters lie where they
stay. Only modules of exactly the classes named here are known: a subclass may do anything. For all else the
functions return None, and modules do the work.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor, nn

from zoo.policies.actor_critic import ActionValuePolicy, ActorCritic, StochasticDuelingPolicy
from zoo.policies.continuous import DeterministicActor, SearchedPolicy, SquashedActor
from zoo.policies.distributions import (
    LOG_STD_RANGE,
    Array,
    Bernoulli,
    Categorical,
    Deterministic,
    DiagonalGaussian,
    Direct,
    MultiCategorical,
    SquashedGaussian,
)
from zoo.policies.encoders import VectorEncoder
from zoo.policies.networks import Mlp
from zoo.policies.q_networks import QNetwork, QuantileNetwork

ArrayFunction = Callable[[Array], Array]

_ZERO = np.zeros((), np.float32)
"""0 as an array: NumPy would make one of a Python number at every call."""

_ACTOR_CRITICS = (ActorCritic, ActionValuePolicy, StochasticDuelingPolicy)
_ACTORS = (SquashedActor, DeterministicActor, SearchedPolicy)
_LOGIT_HEADS = (Categorical, MultiCategorical, Bernoulli)
_HEADS = (*_LOGIT_HEADS, Deterministic, Direct, DiagonalGaussian, SquashedGaussian)
_PARTS = {VectorEncoder, Mlp, nn.Linear, nn.LayerNorm, nn.Tanh, nn.ReLU, *_HEADS}


def action_parameters_in_numpy(policy: nn.Module) -> ArrayFunction | None:
    """Return observations (n, …) to the parameters of the policy's head (n, …), before masks.

    Those of a dueling Q-network lack the state value, which all actions of a row share.
    """
    parts: tuple[nn.Module, ...] = ()
    if isinstance(policy, ActorCritic) and type(policy) in _ACTOR_CRITICS and policy.core is None:
        parts = policy.encoder, policy.shared, policy.actor, policy.head
    elif isinstance(policy, QNetwork) and type(policy) in (QNetwork, QuantileNetwork):
        parts = policy.encoder, policy.advantages
    elif isinstance(policy, _ACTORS) and type(policy) in _ACTORS:
        parts = policy.encoder, policy.trunk, policy.head
    forward = _chain(*parts)
    if forward is None or not isinstance(policy, QuantileNetwork):
        return forward
    quantiles, n_quantiles = forward, policy.n_quantiles

    def means(observations: Array) -> Array:
        values = quantiles(observations)
        averaged: Array = values.reshape(len(values), n_quantiles, -1).mean(1)
        return averaged

    return means


def values_in_numpy(policy: nn.Module) -> ArrayFunction | None:
    """Return observations (n, …) to the values (n,) of the policy's critic."""
    if type(policy) is not ActorCritic or policy.core is not None:
        return None
    values = _chain(policy.critic_encoder or policy.encoder, policy.shared, policy.critic)
    return None if values is None else lambda observations: values(observations)[:, 0]


def _chain(*parts: nn.Module) -> ArrayFunction | None:
    """Return what an encoder of vectors and networks behind it do, one after the other."""
    if not parts or not all(_is_known(module) for part in parts for module in part.modules()):
        return None
    encoder, *networks = parts
    if not isinstance(encoder, VectorEncoder) or encoder.sizes or encoder.reads_image:
        return None
    features_dim = encoder.features_dim
    layers = (layer for each in networks for layer in (each if isinstance(each, Mlp) else [each]))
    steps = [_step(layer) for layer in layers]

    def forward(observations: Array) -> Array:
        values = observations.reshape(-1, features_dim)
        if values.dtype != np.float32:
            values = values.astype(np.float32)
        for step in steps:
            values = step(values)
        return values

    return forward


def _is_known(module: nn.Module) -> bool:
    """Whether a module is of a known class, lies in the processor's memory, and nothing hooks into it."""
    on_cpu = all(parameter.device.type == "cpu" for parameter in module.parameters(recurse=False))
    is_hooked = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    return type(module) in _PARTS and on_cpu and not is_hooked


def _step(layer: nn.Module) -> ArrayFunction:
    """Return what a layer, or a head, does.

    Activations overwrite what they are given, which the layer in front of them has made.
    """
    if isinstance(layer, nn.Linear):
        return _linear(layer)
    if isinstance(layer, nn.Tanh):
        return lambda values: np.tanh(values, out=values)
    if isinstance(layer, nn.ReLU):
        return lambda values: np.maximum(values, _ZERO, out=values)
    if isinstance(layer, nn.LayerNorm):
        weight, bias, eps = _view(layer.weight), _view(layer.bias), np.float32(layer.eps)
        return lambda values: _normalized(values, eps) * weight + bias
    if isinstance(layer, _LOGIT_HEADS):
        return _step(layer.logits)
    if isinstance(layer, Direct):
        return _linear(layer.action)
    if isinstance(layer, Deterministic):
        action = _linear(layer.action)
        return lambda features: np.tanh(action(features))
    assert isinstance(layer, DiagonalGaussian | SquashedGaussian)
    mean, log_std = _linear(layer.mean), _log_std(layer)
    return lambda features: np.concatenate([mean(features), log_std(features)], axis=-1)


def _log_std(head: DiagonalGaussian | SquashedGaussian) -> ArrayFunction:
    if isinstance(head, DiagonalGaussian):
        n_actions, constant = head.n_actions, _view(head.log_std)
        return lambda features: np.broadcast_to(constant, (len(features), n_actions))
    log_std, (low, high) = _linear(head.log_std), LOG_STD_RANGE
    return lambda features: np.minimum(np.maximum(log_std(features), low), high)


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


def _normalized(values: Array, eps: np.float32) -> Array:
    centred = values - values.mean(-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + eps)
