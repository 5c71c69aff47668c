"""Making the networks of an algorithm, or those of a user's own policy class."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from gymnasium import spaces
from torch import nn

from zoo.config.own_modules import import_own
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
        policy_class = _own_class(config._target_, policy_class)
    elif config.kwargs:
        raise ZooError("`policy.kwargs` are for a policy of your own; name its class in `policy._target_`")
    arguments = observation_space, action_space, config
    try:
        inspect.signature(policy_class).bind(*arguments, **options, **config.kwargs)
    except TypeError as error:
        name = config._target_ or policy_class.__name__
        problem = _unknown_argument(policy_class, config.kwargs) or error
        raise ZooError(f"`policy.kwargs` don't fit {name}: {problem}") from error
    return policy_class(*arguments, **options, **config.kwargs)


def _unknown_argument(policy_class: type[nn.Module], kwargs: dict[str, Any]) -> str | None:
    parameters = inspect.signature(policy_class).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return None
    unknown = (name for name in kwargs if name not in parameters)
    return next((f"it takes no `{name}`{nearest(name, parameters)}" for name in unknown), None)


def _own_class(path: str, expected: type[Policy]) -> type[Policy]:
    module_name, _, class_name = path.rpartition(".")
    try:
        found = getattr(import_own(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ZooError(f"`policy._target_={path}` can't be imported: {error}") from None
    if not (isinstance(found, type) and issubclass(found, expected)):
        home = f"{expected.__module__}.{expected.__name__}"
        raise ZooError(f"`policy._target_={path}` must be a subclass of {home} for this algorithm")
    return found
