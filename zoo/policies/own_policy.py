"""Making the networks of an algorithm, or those of a user's own policy class."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from gymnasium import spaces
from torch import nn

from zoo.config.own_modules import own_class, path_of_class
from zoo.errors import ZooError, nearest
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


def path_of(own: type[Any]) -> str:
    """Return the path by which configs and agents name a policy's class. Raises `ZooError` if it has none."""
    path = path_of_class(own, "policy")
    if not issubclass(own, nn.Module):
        raise ZooError(f"policy={path} is no policy; one is derived from a class in zoo.policies")
    return path


def check_arguments(
    where: str,
    own: type[nn.Module],
    arguments: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    """Raise `ZooError` if a class can't be made with the user's ``kwargs`` beside what it is given anyway."""
    try:
        inspect.signature(own).bind(*arguments, **options, **kwargs)
    except TypeError as error:
        problem = _unknown_argument(own, kwargs) or error
        raise ZooError(f"`{where}` don't fit {own.__module__}.{own.__qualname__}: {problem}") from error


def _unknown_argument(policy_class: type[nn.Module], kwargs: Mapping[str, Any]) -> str | None:
    parameters = inspect.signature(policy_class).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return None
    unknown = (name for name in kwargs if name not in parameters)
    return next((f"it takes no `{name}`{nearest(name, parameters)}" for name in unknown), None)
