"""Policies of a user's own: made from a class path."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from gymnasium import spaces
from torch import nn

from zoo.config.user_files import own_class, path_of_class
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
    """Return ``policy_class``, or the subclass of it that ``policy._target_`` names, for these spaces.

    Raises `ZooError` for a class that can't be found, or that can't be made with ``policy.kwargs``.
    """
    if config._target_ is not None:
        policy_class = own_class("policy", config._target_, policy_class)
    elif config.kwargs:
        raise ZooError("`policy.kwargs` are for a policy of your own; name its class in `policy._target_`")
    arguments = observation_space, action_space, config
    check_arguments("policy.kwargs", policy_class, arguments, config.kwargs, options)
    return policy_class(*arguments, **options, **config.kwargs)


def path_of_policy(policy_class: type[Any]) -> str:
    """Return the path by which configs and agents name a policy's class. Raises `ZooError` if it has none."""
    path = path_of_class(policy_class, "policy")
    if not issubclass(policy_class, nn.Module):
        raise ZooError(f"policy={path} is no policy; one is derived from a class in zoo.policies")
    return path


def check_arguments(
    where: str,
    module_class: type[nn.Module],
    arguments: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    """Raise `ZooError` if a class can't be made with the user's ``kwargs`` beside what it is given anyway."""
    try:
        inspect.signature(module_class).bind(*arguments, **options, **kwargs)
    except TypeError as error:
        name = f"{module_class.__module__}.{module_class.__qualname__}"
        raise ZooError(f"`{where}` don't fit {name}: {error}") from error
