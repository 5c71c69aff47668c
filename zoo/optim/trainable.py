"""A module whose parameters lie in one flat tensor, and the optimizer that moves them.

An update is a function of a state, which is a dictionary of tensors. A `Trainable` puts its part into that
dictionary (the flat parameters and the optimizer's own tensors), lends the module with the parameters of a
given state, and returns the state after a gradient step. The module's own parameters are views of the same
flat tensor, so whoever uses the module directly sees each finished update.

While an update is traced, all this is pure. Run eagerly on the live state (the tensors that `initial_state`
returned), steps overwrite it, and modules are called with parameters that are views of it: the same numbers
in far fewer operations. Either way an update goes on with the state that a step returns, never with an
older one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from zoo.optim.optimizers import Optimizer

State = dict[str, Tensor]
"""All tensors that an update reads and replaces, by name."""


class Lent:
    """A module with the parameters of one state: call it as the module."""

    def __init__(self, call: Callable[..., Any], parameters: Mapping[str, Tensor]) -> None:
        self.call = call
        self.parameters = parameters

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)


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
        self._parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self._shapes = [parameter.shape for parameter in self._parameters.values()]
        self._sizes = [parameter.numel() for parameter in self._parameters.values()]
        self.flat = torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters.values()])
        self._slots = {f"{name}.{slot}": slot for slot in optimizer.initial(self.flat)}
        self._copies: dict[str, tuple[Tensor, Lent]] = {}
        for parameter, view in zip(self._parameters.values(), self._views(self.flat), strict=True):
            parameter.data = view

    def initial_state(self) -> State:
        """Return the flat parameters, which share the module's memory, and the optimizer's tensors."""
        initial = self.optimizer.initial(self.flat)
        return {self.name: self.flat, **{name: initial[slot] for name, slot in self._slots.items()}}

    def variables(self, state: State) -> Lent:
        """Lend the module with parameters that gradients can be taken of; see `descend`."""
        if self._is_live(state):
            return Lent(self.module, self._parameters)
        return self._lent([view.detach().requires_grad_() for view in self._views(state[self.name])])

    def constants(self, state: State, name: str | None = None) -> Lent:
        """Lend the module with constant parameters, of this trainable or of its copy ``name`` (a target)."""
        flat = state[name or self.name]
        if not self._is_live(state):
            return self._lent(self._views(flat.detach()))
        of, lent = self._copies.get(name or self.name, (None, None))
        if lent is None or of is not flat:
            lent = self._copy(flat)
            self._copies[name or self.name] = flat, lent
        return lent

    def descend(
        self,
        state: State,
        variables: Lent,
        loss: Tensor,
        learning_rate: Tensor,
        unless: Tensor | None = None,
    ) -> tuple[State, Tensor]:
        """Take one gradient step on ``loss``; return the next state and the unclipped gradient's norm.

        Where the bool scalar ``unless`` is true, the next state is the old one.
        """
        leaves = list(variables.parameters.values())
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        gradient = torch.cat([part.reshape(-1) for part in gradients])
        norm = torch.linalg.vector_norm(gradient)
        if self.max_grad_norm is not None:
            gradient = gradient * (self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        slots = {slot: state[name] for name, slot in self._slots.items()}
        if self._is_live(state):
            if unless is None or not unless:
                self.optimizer.step_(self.flat, gradient, slots, learning_rate)
            return state, norm
        parameters, slots = self.optimizer.step(state[self.name], gradient, slots, learning_rate)
        new = {self.name: parameters, **{name: slots[slot] for name, slot in self._slots.items()}}
        if unless is not None:
            new = {name: torch.where(unless, state[name], value) for name, value in new.items()}
        return {**state, **new}, norm

    def follow(self, state: State, target: str, tau: Tensor | float) -> State:
        """Return the state with its copy ``target`` moved towards the parameters by the fraction ``tau``."""
        if self._is_live(state):
            state[target].lerp_(self.flat, tau)
            return state
        return {**state, target: torch.lerp(state[target], state[self.name], tau)}

    def _is_live(self, state: State) -> bool:
        return state[self.name] is self.flat and get_proxy_mode() is None

    def _views(self, flat: Tensor) -> list[Tensor]:
        return [part.view(shape) for part, shape in zip(flat.split(self._sizes), self._shapes, strict=True)]

    def _lent(self, values: list[Tensor]) -> Lent:
        parameters = dict(zip(self._parameters, values, strict=True))
        return Lent(lambda *args: functional_call(self.module, parameters, args), parameters)

    def _copy(self, flat: Tensor) -> Lent:
        """Return a copy of the module whose parameters are views of ``flat``; all else is shared."""
        trained = {id(parameter) for parameter in self._parameters.values()}
        tensors = [*self.module.parameters(), *self.module.buffers()]
        module = copy.deepcopy(self.module, {id(each): each for each in tensors if id(each) not in trained})
        parameters = dict(module.named_parameters())
        for name, view in zip(self._parameters, self._views(flat.detach()), strict=True):
            parameters[name].requires_grad_(False).data = view
        return Lent(module, {name: parameters[name] for name in self._parameters})
