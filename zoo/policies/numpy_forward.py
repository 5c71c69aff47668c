"""The forward passes of small policies on float32 arrays, for acting.

On a small batch they are an order of magnitude faster than modules. The weights are views of the modules'
own parameters, so what updates write in place is seen; make the functions once the parameters lie where they
stay.

Only modules of exactly the classes named here are known: a subclass may do anything. For all else the
functions return None, and modules do the work.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor, nn

from zoo.policies.actor_critic import ActorCritic
from zoo.policies.encoders import VectorEncoder
from zoo.policies.gaussian_heads import LOG_STD_RANGE, DiagonalGaussian, SquashedGaussian
from zoo.policies.heads import Array, Categorical
from zoo.policies.multi_heads import Bernoulli, MultiCategorical
from zoo.policies.networks import Mlp
from zoo.policies.q_network import QNetwork
from zoo.policies.squashed_actor import SquashedActor

ArrayFunction = Callable[[Array], Array]


def action_parameters_in_numpy(policy: nn.Module) -> ArrayFunction | None:
    """Return observations (n, …) to the parameters of the policy's head (n, …), before masks.

    Those of a dueling Q-network lack the state value, which all actions of a row share.
    """
    if not all(_is_plain(module) for module in policy.modules()):
        return None
    if any(parameter.device.type != "cpu" for parameter in policy.parameters()):
        return None
    if type(policy) is ActorCritic and policy.core is None:
        return _chain(policy.encoder, policy.shared, policy.actor, policy.head)
    if type(policy) is QNetwork:
        return _chain(policy.encoder, policy.advantages)
    if type(policy) is SquashedActor:
        return _chain(policy.encoder, policy.trunk, policy.head)
    return None


def _is_plain(module: nn.Module) -> bool:
    """Whether nothing hooks into the module's forward pass, or stands in front of it."""
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _chain(encoder: nn.Module, *networks: nn.Module) -> ArrayFunction | None:
    encode = encoder_in_numpy(encoder)
    steps = [step for network in networks for step in _steps(network)]
    known = [step for step in steps if step is not None]
    if encode is None or len(known) < len(steps):
        return None

    def forward(observations: Array) -> Array:
        values = encode(observations)
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


def _steps(network: nn.Module) -> list[ArrayFunction | None]:
    """Return the functions of a row of layers, or of a head; None for each that is not known."""
    if type(network) in (Mlp, nn.Sequential):
        return [_layer(layer) for layer in network.children()]
    return [_head(network)]


def _layer(layer: nn.Module) -> ArrayFunction | None:
    if type(layer) is nn.Linear and layer.bias is not None:
        return _linear(layer)
    if type(layer) is nn.Tanh:
        return np.tanh
    if type(layer) is nn.ReLU:
        return lambda values: np.maximum(values, 0.0)
    if type(layer) is nn.LayerNorm and layer.elementwise_affine and layer.bias is not None:
        weight, bias, eps = _view(layer.weight), _view(layer.bias), np.float32(layer.eps)
        return lambda values: _normalised(values, eps) * weight + bias
    return None


def _head(head: nn.Module) -> ArrayFunction | None:
    if type(head) in (Categorical, MultiCategorical, Bernoulli):
        return _layer(head.logits)  # type: ignore[arg-type]
    if type(head) is DiagonalGaussian and type(head.mean) is nn.Linear:
        mean, log_std = _linear(head.mean), _view(head.log_std)

        def constant_deviation(features: Array) -> Array:
            means = mean(features)
            return np.concatenate([means, np.broadcast_to(log_std, means.shape)], axis=-1)

        return constant_deviation
    if type(head) is SquashedGaussian and type(head.mean) is type(head.log_std) is nn.Linear:
        mean, log_std_of = _linear(head.mean), _linear(head.log_std)
        low, high = LOG_STD_RANGE
        return lambda features: np.concatenate(
            [mean(features), np.minimum(np.maximum(log_std_of(features), low), high)], axis=-1
        )
    return None


def _linear(layer: nn.Linear) -> ArrayFunction:
    weight, bias = _view(layer.weight).T, _view(layer.bias)
    return lambda values: values @ weight + bias


def _view(parameter: Tensor) -> Array:
    return parameter.detach().numpy()


def _normalised(values: Array, eps: np.float32) -> Array:
    centred = values - values.mean(-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + eps)
