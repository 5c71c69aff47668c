"""What a constructor takes as its policy: a name, fields, or a class of the user's own."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from torch import nn

from zoo.config.fields import build
from zoo.config.own_modules import named_class
from zoo.errors import ZooError, ZooWarning
from zoo.policies.config import POLICIES, PolicyConfig, policy_preset, reading_dictionaries
from zoo.policies.encoders import suits_cnn
from zoo.policies.own_policy import path_of

Policy = str | PolicyConfig | Mapping[str, Any] | type[nn.Module]
"""A name, fields, all of them, or a class of the user's own."""


def policy_config(policy: Policy, observation_space: spaces.Space[Any]) -> PolicyConfig:
    """Return all its fields. Raises `ZooError` for what is none."""
    if isinstance(policy, PolicyConfig):
        config = policy
    elif isinstance(policy, str):
        config = policy_preset(policy)
    elif isinstance(policy, type):
        config = PolicyConfig(name=policy.__name__, _target_=path_of(policy))
    elif not isinstance(policy, Mapping):
        raise ZooError(
            f"policy is a {type(policy).__name__}; expected a name such as 'MlpPolicy', a dictionary of"
            " fields, a PolicyConfig or a class of your own"
        )
    else:
        named = policy.get("name") in POLICIES
        preset = dataclasses.asdict(POLICIES[policy["name"]]) if named else {}
        values, encoder = {**preset, **policy}, policy.get("encoder")
        if encoder is not None:
            encoder = {"_target_": encoder} if isinstance(encoder, type) else encoder
            values["encoder"] = named_class(encoder, "policy.encoder")
        config = build(PolicyConfig, values, "policy")
    config = reading_dictionaries(config) if isinstance(observation_space, spaces.Dict) else config
    _check_features_dim(config, observation_space)
    return config


def _check_features_dim(config: PolicyConfig, observation_space: spaces.Space[Any]) -> None:
    """Raise `ZooError` for the width of an encoder that there is not."""
    usual = {preset.features_dim for preset in POLICIES.values()}
    if config._target_ is not None or config.encoder == "cnn" or config.features_dim in usual:
        return
    is_dictionary = isinstance(observation_space, spaces.Dict)
    parts = observation_space.spaces.values() if is_dictionary else ()  # type: ignore[attr-defined]
    if isinstance(config.encoder, Mapping) or not any(suits_cnn(part) for part in parts):
        raise ZooError(
            f"`policy.features_dim={config.features_dim}` is the width of what reads images, and"
            f" {config.name} reads none here; leave it out"
        )


def tell_of_unread_images(observation_space: spaces.Space[Any], config: PolicyConfig) -> None:
    """Warn of a policy that takes the pixels of images for numbers without any order."""
    if suits_cnn(observation_space) and config.encoder == "mlp":
        warnings.warn(
            f"{config.name} reads each pixel of these images by itself; policy=CnnPolicy sees what stands"
            " beside what",
            ZooWarning,
            stacklevel=4,
        )
