"""Training and evaluation mode, by which dropout and batch normalisation go, in policies of a user's own.

A policy is in evaluation mode, but for its gradient steps; see `Modes`. None of Zoo's own modules knows the
difference, and switching costs as much as acting, so it is left out where all modules are such.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import nn

from zoo.policies.config import ACTIVATIONS
from zoo.policies.networks import activation_class

_SAME_IN_BOTH = {
    *(nn.Linear, nn.Conv2d, nn.LayerNorm, nn.Flatten, nn.Identity, nn.Sequential, nn.ModuleList),
    *map(activation_class, ACTIVATIONS),
}

AS_IT_IS: AbstractContextManager[None] = nullcontext()


class Modes:
    """Switches ``policy``, which is put into evaluation mode, to another mode for a while.

    A policy keeps a part in one mode for good by its own method ``train``.
    """

    def __init__(self, policy: nn.Module) -> None:
        self.policy = policy.eval()
        self.matter = any(_may_differ(module) for module in policy.modules())

    def training(self) -> AbstractContextManager[None]:
        """Within the block the policy is in training mode: gradient steps are taken."""
        return self._in_mode(True) if self.matter else AS_IT_IS

    def evaluation(self) -> AbstractContextManager[None]:
        """Within the block the policy is in evaluation mode: steps look for what they shall learn."""
        return self._in_mode(False) if self.matter else AS_IT_IS

    @contextmanager
    def _in_mode(self, training: bool) -> Iterator[None]:
        before = self.policy.training
        self.policy.train(training)
        try:
            yield
        finally:
            self.policy.train(before)


def _may_differ(module: nn.Module) -> bool:
    """Whether a module may do something else in training mode: one that is not known not to."""
    return type(module) not in _SAME_IN_BOTH and not type(module).__module__.startswith("zoo.")
