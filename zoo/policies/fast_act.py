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

from zoo.policies import distributions as heads
from zoo.policies.actor_critic import ActionValuePolicy, ActorCritic, StochasticDuelingPolicy
from zoo.policies.continuous import DeterministicActor, LinearPolicy, SquashedActor
from zoo.policies.distributions import Array
from zoo.policies.encoders import VectorEncoder
from zoo.policies.networks import Mlp
from zoo.policies.q_networks import QNetwork, QuantileNetwork

ArrayFunction = Callable[[Array], Array]

_ZERO = np.zeros((), np.float32)
"""0 as an array: NumPy would make one of a Python number at every call."""

_ACTOR_CRITICS = (ActorCritic, ActionValuePolicy, StochasticDuelingPolicy)
_ACTORS = (SquashedActor, DeterministicActor, LinearPolicy)
_LOGIT_HEADS = (heads.Categorical, heads.MultiCategorical, heads.Bernoulli)
_HEADS = (
    heads.Deterministic,
    heads.UnboundedDeterministic,
    heads.DiagonalGaussian,
    heads.SquashedGaussian,
    *_LOGIT_HEADS,
)
_PARTS = {VectorEncoder, Mlp, nn.Linear, nn.LayerNorm, nn.Tanh, nn.ReLU, *_HEADS}


def action_parameters_in_numpy(policy: nn.Module) -> ArrayFunction | None:
    """Return observations (n, …) to the parameters of the policy's head (n, …), before masks.

    Those of a dueling Q-network lack the state value, which all actions of a row share.
    """
    if isinstance(policy, ActorCritic) and type(policy) in _ACTOR_CRITICS and policy.core is None:
        return _chain(policy.encoder, policy.shared, policy.actor, policy.head)
    if isinstance(policy, _ACTORS) and type(policy) in _ACTORS:
        return _chain(policy.encoder, policy.trunk, policy.head)
    if not isinstance(policy, QNetwork) or type(policy) not in (QNetwork, QuantileNetwork):
        return None
    forward = _chain(policy.encoder, policy.advantages)
    if forward is None or not isinstance(policy, QuantileNetwork):
        return forward
    quantiles, n_quantiles = forward, policy.n_quantiles
    return lambda seen: quantiles(seen).reshape(len(seen), n_quantiles, -1).mean(1)


def values_in_numpy(policy: nn.Module) -> ArrayFunction | None:
    """Return observations (n, …) to the values (n,) of the policy's critic."""
    if type(policy) is not ActorCritic or policy.core is not None:
        return None
    values = _chain(policy.critic_encoder or policy.encoder, policy.shared, policy.critic)
    return None if values is None else lambda observations: values(observations)[:, 0]


def _chain(encoder: nn.Module, *networks: nn.Module) -> ArrayFunction | None:
    """Return what an encoder of vectors and networks behind it do, one after the other."""
    if not all(_is_known(module) for part in (encoder, *networks) for module in part.modules()):
        return None
    if not isinstance(encoder, VectorEncoder) or encoder.sizes or encoder.reads_image:
        return None
    features_dim = encoder.features_dim
    steps = [_step(layer) for each in networks for layer in (each if isinstance(each, Mlp) else [each])]

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
    """Return what a layer, or a head, does; activations overwrite what they are given."""
    if isinstance(layer, nn.Linear):
        return _linear(layer)
    if isinstance(layer, nn.Tanh):
        return lambda values: np.tanh(values, out=values)
    if isinstance(layer, nn.ReLU):
        return lambda values: np.maximum(values, _ZERO, out=values)
    if isinstance(layer, nn.LayerNorm):
        return _layer_norm(layer)
    if isinstance(layer, _LOGIT_HEADS):
        return _step(layer.logits)
    if isinstance(layer, heads.Deterministic):
        action = _linear(layer.action)
        return (
            action
            if isinstance(layer, heads.UnboundedDeterministic)
            else lambda features: np.tanh(action(features))
        )
    assert isinstance(layer, heads.DiagonalGaussian | heads.SquashedGaussian)
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
    bias: Tensor | None = dict(layer.named_parameters()).get("bias")
    if bias is None:
        return lambda values: values.dot(weight)
    row = bias.detach().numpy()[None]  # for (n, …) alone, but NumPy adds it sooner to one row

    def linear(values: Array) -> Array:
        result = values.dot(weight)
        result += row
        return result

    return linear


def _layer_norm(layer: nn.LayerNorm) -> ArrayFunction:
    weight, bias, eps = layer.weight.detach().numpy(), layer.bias.detach().numpy(), np.float32(layer.eps)

    def normalized(values: Array) -> Array:
        centred = values - values.mean(-1, keepdims=True)
        return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + eps) * weight + bias

    return normalized
