"""From a loss to the next state: gradient, clipping, optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from zoo.optim.optimizers import Optimizer
from zoo.optim.parameters import Parameters
from zoo.optim.state import LiveState, State
from zoo.optim.workers import averaged


class Differentiable(NamedTuple):
    """A module at a state's parameters, to be called as the module, and what its losses are derived by."""

    module: Callable[..., Any]
    leaves: list[Tensor]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


class Descent:
    """Moves ``parameters`` down the gradients of losses, by ``optimizer``.

    ``max_grad_norm`` bounds the global norm of the gradient; None leaves it as it is. ``average`` is where
    data-parallel workers meet: it maps a tensor of this worker's to the mean over all of them, by default
    over those of `zoo.optim.workers`. ``name`` goes before the optimizer's tensors in the state, and is the
    parameters' own unless there is a second descent.
    """

    def __init__(
        self,
        parameters: Parameters,
        optimizer: Optimizer,
        *,
        max_grad_norm: float | None = None,
        average: Callable[[Tensor], Tensor] = averaged,
        name: str | None = None,
    ) -> None:
        self.parameters = parameters
        self.optimizer = optimizer
        self.max_grad_norm = max_grad_norm
        self.average = average
        slots = optimizer.initial(parameters.flat)
        self._slot_names = {slot: f"{name or parameters.name}.{slot}" for slot in slots}

    def initial_state(self) -> State:
        """Return the live parameters, which share the module's memory, and the optimizer's tensors."""
        slots = self.optimizer.initial(self.parameters.flat)
        named = {name: slots[slot] for slot, name in self._slot_names.items()}
        return State({self.parameters.name: self.parameters.flat, **named})

    def module(self, state: State) -> Differentiable:
        """Return the module at the state's parameters, ready for `gradient`."""
        parameters = self.parameters
        if isinstance(state, LiveState):
            return Differentiable(parameters.module, list(parameters.leaves.values()))
        vector = state[parameters.name].detach().requires_grad_()
        return Differentiable(parameters.at(vector), [vector])

    def gradient(self, module: Differentiable, loss: Tensor) -> Tensor:
        """Return the flat gradient of ``loss``, averaged over workers, for the module that made the loss."""
        parts = torch.autograd.grad(loss, module.leaves, allow_unused=True, materialize_grads=True)
        flat = [part.reshape(-1) for part in parts]
        return self.averaged(flat[0] if len(flat) == 1 else torch.cat(flat))

    def step(
        self, state: State, gradient: Tensor, learning_rate: Tensor, unless: Tensor | None = None
    ) -> tuple[State, Tensor]:
        """Take one optimizer step; return the next state and the unclipped gradient's norm.

        Where the bool scalar ``unless`` is true, the next state is the old one.
        """
        norm = torch.linalg.vector_norm(gradient)
        if self.max_grad_norm is not None:
            gradient = gradient * (self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        vector = state[self.parameters.name]
        slots = {slot: state[name] for slot, name in self._slot_names.items()}
        if isinstance(state, LiveState):
            if unless is None or not unless:
                self.optimizer.step_(vector, gradient, slots, learning_rate)
            return state, norm
        vector, slots = self.optimizer.step(vector, gradient, slots, learning_rate)
        new = {self.parameters.name: vector, **{self._slot_names[slot]: slots[slot] for slot in slots}}
        if unless is not None:
            new = {name: torch.where(unless, state[name], tensor) for name, tensor in new.items()}
        return state.replaced(new), norm

    def descend(
        self,
        state: State,
        module: Differentiable,
        loss: Tensor,
        learning_rate: Tensor,
        unless: Tensor | None = None,
    ) -> tuple[State, Tensor]:
        """Take one step down the gradient of ``loss``; see `step`."""
        return self.step(state, self.gradient(module, loss), learning_rate, unless)

    def averaged(self, tensor: Tensor) -> Tensor:
        """Return the mean over workers of anything that decides what they do next, such as a KL."""
        return self.average(tensor)
