"""A module whose parameters lie in one flat tensor, and the optimizer that moves them.

An update is a pure function of a state, which is a dictionary of tensors. A `Trainable` puts its part into
that dictionary (the flat parameters and the optimizer's own tensors), lends the module with the parameters
of a given state, and returns the state after a gradient step. The module's own parameters are views of the
same flat tensor, so whoever uses the module directly sees each finished update.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from zoo.optim.optimizers import Optimizer

State = dict[str, Tensor]
"""All tensors that an update reads and replaces, by name."""


class Lent:
    """A module with the parameters of one state in place of its own: call it as the module."""

    def __init__(self, module: nn.Module, parameters: dict[str, Tensor]) -> None:
        self.module = module
        self.parameters = parameters

    def __call__(self, *args: Any) -> Any:
        return functional_call(self.module, self.parameters, args)


class Trainable:
    """Flat parameters of ``module`` under ``name`` in the state, moved by ``optimizer``.

    ``max_grad_norm`` bounds the global norm of the gradient; None leaves it as it is. Parameters that take no
    gradient (``requires_grad=False``: a pre-trained encoder) stay as they are, and out of the state.
    """

    def __init__(
        self, name: str, module: nn.Module, optimizer: Optimizer, max_grad_norm: float | None = None
    ) -> None:
        self.name = name
        self.module = module
        self.optimizer = optimizer
        self.max_grad_norm = max_grad_norm
        parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self._names = list(parameters)
        self._shapes = [parameter.shape for parameter in parameters.values()]
        self._sizes = [parameter.numel() for parameter in parameters.values()]
        self.flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters.values()])
        for parameter, view in zip(parameters.values(), self._views(self.flat), strict=True):
            parameter.data = view

    def initial_state(self) -> State:
        """Return the flat parameters, which share the module's memory, and the optimizer's tensors."""
        own = {f"{self.name}.{key}": value for key, value in self.optimizer.initial(self.flat).items()}
        return {self.name: self.flat, **own}

    def variables(self, state: State) -> Lent:
        """Lend the module with parameters that gradients can be taken of; see `descend`."""
        views = [view.detach().requires_grad_() for view in self._views(state[self.name])]
        return Lent(self.module, dict(zip(self._names, views, strict=True)))

    def constants(self, state: State, name: str | None = None) -> Lent:
        """Lend the module with constant parameters, of this trainable or of its copy ``name`` (a target)."""
        views = self._views(state[name or self.name].detach())
        return Lent(self.module, dict(zip(self._names, views, strict=True)))

    def descend(
        self, state: State, variables: Lent, loss: Tensor, learning_rate: Tensor
    ) -> tuple[State, Tensor]:
        """Take one gradient step on ``loss``; return the next state and the unclipped gradient's norm."""
        leaves = list(variables.parameters.values())
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        gradient = torch.cat([part.reshape(-1) for part in gradients])
        norm = torch.linalg.vector_norm(gradient)
        if self.max_grad_norm is not None:
            gradient = gradient * (self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        prefix = f"{self.name}."
        own = {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
        parameters, own = self.optimizer.step(state[self.name], gradient, own, learning_rate)
        return {**state, self.name: parameters, **{prefix + key: value for key, value in own.items()}}, norm

    def _views(self, flat: Tensor) -> Iterable[Tensor]:
        return [part.view(shape) for part, shape in zip(flat.split(self._sizes), self._shapes, strict=True)]


def polyak(target: Tensor, online: Tensor, tau: Tensor | float) -> Tensor:
    """Return ``target`` moved towards ``online`` by the fraction ``tau`` (1: a copy)."""
    return torch.lerp(target, online, tau)
