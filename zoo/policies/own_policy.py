"""Making the networks of an algorithm, or those of a user's own policy class."""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

from gymnasium import spaces
from torch import nn

from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig

Policy = TypeVar("Policy", bound=nn.Module)


def make_policy(
    policy_class: type[Policy],
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    config: PolicyConfig,
    **options: Any,
) -> Policy:
    """Return ``policy_class``, or the subclass of it that ``policy._target_`` names, for these spaces."""
    if config._target_ is not None:
        policy_class = _own_class(config._target_, policy_class)
    elif config.kwargs:
        raise ZooError("`policy.kwargs` are for a policy of your own; name its class in `policy._target_`")
    return policy_class(observation_space, action_space, config, **options, **config.kwargs)


def _own_class(path: str, expected: type[Policy]) -> type[Policy]:
    module_name, _, class_name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ZooError(f"`policy._target_={path}` can't be imported: {error}") from None
    if not (isinstance(found, type) and issubclass(found, expected)):
        home = f"{expected.__module__}.{expected.__name__}"
        raise ZooError(f"`policy._target_={path}` must be a subclass of {home} for this algorithm")
    return found
