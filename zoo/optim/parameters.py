"""The trainable parameters of a module as one flat vector."""

from __future__ import annotations

import copy
from collections.abc import Callable, MutableMapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.weak import WeakTensorKeyDictionary

from zoo.optim.update_runner import LiveState, State, is_concrete


class Parameters:
    """The parameters of ``module`` that take gradients, in one vector, which is ``name`` in the state.

    The module's own parameters become views of ``flat``: whoever uses the module sees each finished update.
    Frozen parameters (``requires_grad=False``) and buffers stay with the module, and out of the vector.
    ``slices`` says where in the vector each parameter lies.
    """

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name = name
        self.module = module
        self.leaves = {key: value for key, value in module.named_parameters() if value.requires_grad}
        self.flat = torch.cat([parameter.detach().reshape(-1) for parameter in self.leaves.values()])
        self.size = len(self.flat)
        self._shapes = {key: parameter.shape for key, parameter in self.leaves.items()}
        self._sizes = [parameter.numel() for parameter in self.leaves.values()]
        ends = [sum(self._sizes[: i + 1]) for i in range(len(self._sizes))]
        self.slices = {
            key: slice(end - size, end) for key, end, size in zip(self.leaves, ends, self._sizes, strict=True)
        }
        self._copies: MutableMapping[Tensor, dict[bool, nn.Module]] = WeakTensorKeyDictionary()
        for key, view in self.named(self.flat).items():
            self.leaves[key].data = view

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Return views of the vector in the shapes of the parameters."""
        parts = zip(self._shapes.items(), vector.split(self._sizes), strict=True)
        return {key: part.view(shape) for (key, shape), part in parts}

    def functional(self, vector: Tensor) -> Callable[..., Any]:
        """Return the module with the parameters in ``vector``: call it as the module.

        Gradients flow to a vector that requires them; any other is a constant (a target, an average).
        """
        if is_concrete(vector) and not vector.requires_grad:
            return self.module_at(vector)
        parameters = self.named(vector)
        return lambda *args, **kwargs: functional_call(self.module, parameters, args, kwargs)

    def module_at(self, vector: Tensor) -> nn.Module:
        """Return a copy of the module whose parameters are views of ``vector``; all else is shared.

        For eager use. The copy is kept as long as the vector is there, and follows what is written into it;
        there is one for training mode and one for evaluation mode.
        """
        by_mode = self._copies.setdefault(vector, {})
        if self.module.training not in by_mode:
            by_mode[self.module.training] = self._copy(vector)
        return by_mode[self.module.training]

    def polyak_update(self, state: State, target_name: str, tau: Tensor | float) -> State:
        """Return the state with its vector ``target_name`` moved towards the parameters by ``tau``."""
        if isinstance(state, LiveState):
            state[target_name].lerp_(state[self.name], tau)
            return state
        return state.replaced({target_name: torch.lerp(state[target_name], state[self.name], tau)})

    def _copy(self, vector: Tensor) -> nn.Module:
        trained = {id(parameter) for parameter in self.leaves.values()}
        tensors = [*self.module.parameters(), *self.module.buffers()]
        module = copy.deepcopy(self.module, {id(each): each for each in tensors if id(each) not in trained})
        parameters = dict(module.named_parameters())
        for key, view in self.named(vector.detach()).items():
            parameters[key].requires_grad_(False).data = view
        return module
