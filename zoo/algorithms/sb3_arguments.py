"""Stable-Baselines3's ``policy_kwargs`` as fields of a policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gymnasium import spaces

from zoo.algorithms.arguments import Policy, policy_config
from zoo.config.aliases import NAMES, UnknownKeyError
from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig
from zoo.policies.networks import ACTIVATION_CLASSES

if TYPE_CHECKING:
    from zoo.algorithms.agent import Agent


def with_policy_kwargs(
    algorithm: type[Agent], policy: Policy, policy_kwargs: Mapping[str, Any]
) -> tuple[PolicyConfig, dict[str, Any]]:
    """Return the policy with the fields that ``policy_kwargs`` mean, and the hyperparameters among them.

    Raises `ZooError` for what can't be chosen here.
    """
    where = f"{algorithm.__name__}.policy_kwargs"
    if not isinstance(policy_kwargs, Mapping):
        raise ZooError(f"{where} is a {type(policy_kwargs).__name__}; expected a dictionary")
    values = dict(policy_kwargs)
    fields = {field.name for field in dataclasses.fields(algorithm.config_class)}
    among = {name: values.pop(name) for name in {"n_critics", "n_quantiles"} & fields & values.keys()}
    extractor = values.pop("features_extractor_class", None)
    arguments = values.pop("features_extractor_kwargs", None) or {}
    values |= arguments if extractor is None else {"encoder": {"_target_": extractor, **arguments}}
    if values.get("share_features_extractor") and algorithm.has_replay:
        raise ZooError(f"{where}.share_features_extractor: actor and critics have an encoder each")
    for key in [key for key in values if NAMES.get(key, "").startswith("policy.")]:
        field, _, within = NAMES[key].removeprefix("policy.").partition(".")
        value = values.pop(key)
        values[field] = {**(values.get(field) or {}), within: value} if within else value
    if (activation := values.get("activation")) is not None:  # a class, nn.ReLU, or its name
        name = getattr(activation, "__name__", str(activation)).rpartition(".")[2]
        values["activation"] = {kind.__name__: key for key, kind in ACTIVATION_CLASSES.items()}.get(
            name, name
        )
    match values.get("net_arch"):
        case [*shared, Mapping() as by_network]:  # as before Stable-Baselines3 1.8
            values["net_arch"] = {**({"shared": shared} if shared else {}), **by_network}
    config = dataclasses.asdict(policy_config(policy, spaces.Discrete(1)))
    for key in values.keys() - config.keys():
        raise UnknownKeyError(key, [*config], where)
    return policy_config({**config, **values}, spaces.Discrete(1)), among
