"""Whether an agent's networks fit the weights in its files, before any memory is taken for them.

A config of a few lines may ask for networks of terabytes. So these are built without numbers first (on
PyTorch's device `meta`), and have to be those that the files hold weights of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from zoo.agents.agent_folder import MisfitError, check_tensors
from zoo.files.printing import one_line
from zoo.policies.config import PolicyConfig

Weights = Mapping[str, NDArray[Any]]

_weights: ContextVar[Weights | None] = ContextVar("weights", default=None)
_left: ContextVar[int | None] = ContextVar("left", default=None)


@contextmanager
def having(weights: Weights) -> Iterator[None]:
    """Within the block, networks are made only if these are their weights, by name and shape."""
    token = _weights.set(weights)
    try:
        yield
    finally:
        _weights.reset(token)


def check_foreseen(make_policy: Callable[[], nn.Module], config: PolicyConfig) -> None:
    """Raise `MisfitError` if ``make_policy`` makes other networks than those that there are weights for.

    A policy class, or encoder, of a user's own is trusted to be built, and may need numbers for it.
    """
    weights = _weights.get()
    is_own = isinstance(config.encoder, Mapping) or not (config._target_ or "zoo.").startswith("zoo.")
    if weights is None or is_own:
        return
    try:
        with torch.device("meta"), _at_most(len(weights)):
            expected = {name: tuple(value.shape) for name, value in make_policy().state_dict().items()}
    except (RuntimeError, OverflowError, TypeError) as error:
        problem = one_line(error)
        raise MisfitError(f"the parameters don't fit the policy: it can't be built ({problem})") from error
    # What else there is, such as moments of returns, costs the policy nothing: `set_parameters` looks at it.
    check_tensors(expected, {name: weights[name] for name in expected if name in weights})


@contextmanager
def _at_most(n: int) -> Iterator[None]:
    """Let modules have together not many more parameters than ``n`` tensors, within the block."""
    token = _left.set(2 * n + 100)  # a part may be made anew while a policy is built
    hook = register_module_parameter_registration_hook(_count)
    try:
        yield
    finally:
        hook.remove()
        _left.reset(token)


def _count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
    left = _left.get()
    if left is None:
        return  # the module of another thread
    if left == 0:
        raise MisfitError("the parameters don't fit the policy: it has many more than there are in the files")
    _left.set(left - 1)
