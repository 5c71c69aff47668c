"""Acting with a policy: no gradients, arrays in and arrays out, in NumPy or in torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import nn

from zoo.buffers.arrays import Arrays, transform
from zoo.optim.parameters import Parameters
from zoo.policies.distributions import ActionDistribution, Array
from zoo.policies.fast_act import action_parameters_in_numpy, values_in_numpy


class ActingPolicy:
    """Acts with the parameters of ``policy`` as they are at each call: its own, or those of a copy.

    ``policy`` has a ``head`` and ``action_parameters(seen, state)``. This is the one place that decides
    between NumPy and torch: NumPy where the arithmetic of every part is known (`zoo.policies.fast_act`).
    It looks at where the parameters lie, so it is made after `zoo.optim.parameters` has moved them.
    """

    head: ActionDistribution

    def __init__(self, policy: nn.Module, device: torch.device | str = "cpu") -> None:
        self.policy = policy
        self.device = torch.device(device)
        self.head = policy.head  # type: ignore[assignment]
        self.state_size = int(getattr(policy, "state_size", 0))
        self._in_numpy = action_parameters_in_numpy(policy)
        self._values_in_numpy = values_in_numpy(policy)

    @property
    def uses_numpy(self) -> bool:
        """Whether acting goes past torch."""
        return self._in_numpy is not None

    def initial_state(self, n: int) -> Array | None:
        """Return the state of ``n`` rows before anything was seen; None where the policy has no memory."""
        if not hasattr(self.policy, "initial_state"):
            return None
        with torch.inference_mode():
            state = self.policy.initial_state(n)  # type: ignore[operator]
        return None if state is None else state.cpu().numpy()

    def parameters(
        self, seen: Mapping[str, Arrays], state: Array | None = None
    ) -> tuple[Array, Array | None]:
        """Return the masked parameters of the head (n, ``parameter_size``), and the next state.

        Raises `ZooError` where a mask leaves no action.
        """
        masks = seen.get("action_masks")
        if self._in_numpy is not None:
            parameters = self._in_numpy(seen["observations"])
            return (parameters if masks is None else self.head.masked(parameters, masks)), None
        if masks is not None:
            self.head.check_masks(masks)
        with self._evaluation():
            tensors = {name: self._tensors(column) for name, column in seen.items()}
            last = None if state is None else self._tensors(state)
            result, next_state = self.policy.action_parameters(tensors, last)  # type: ignore[operator]
        return result.cpu().numpy(), None if next_state is None else next_state.cpu().numpy()

    def act(
        self, seen: Mapping[str, Arrays], noise: Array | None, state: Array | None = None
    ) -> tuple[Arrays, Array | None]:
        """Return actions (n, …) drawn with ``noise``, or the likeliest ones, and the next state."""
        parameters, next_state = self.parameters(seen, state)
        if noise is None:
            return self.head.mode(parameters), next_state
        return self.head.sample(parameters, noise), next_state

    def values(self, seen: Mapping[str, Arrays], state: Array | None = None) -> Array:
        """Return the values (n,) that the policy's critic gives to what is seen, from a state."""
        if self._values_in_numpy is not None:
            return self._values_in_numpy(seen["observations"])
        with self._evaluation():
            tensors = {name: self._tensors(column) for name, column in seen.items()}
            arguments = (tensors,) if state is None else (tensors, self._tensors(state))
            return self.policy.values(*arguments).cpu().numpy()  # type: ignore[operator]

    @contextmanager
    def _evaluation(self) -> Iterator[None]:
        """Within the block there are no gradients, and the policy is in evaluation mode, as it stays."""
        if self.policy.training:
            self.policy.eval()
        with torch.inference_mode():
            yield

    def _tensors(self, column: Arrays) -> Any:
        return transform(lambda array: torch.from_numpy(np.asarray(array)).to(self.device), column)


class BatchedPolicy:
    """Acts in each of ``n`` environments with parameters of its own: in the i-th by the i-th of ``vectors``.

    Whoever writes into ``vectors`` changes what is done. What comes of a row never depends on the others.
    """

    def __init__(self, parameters: Parameters, n: int, device: torch.device | str = "cpu") -> None:
        self.vectors = [parameters.flat.detach().clone() for _ in range(n)]
        self._acting = [ActingPolicy(parameters.module_at(vector), device) for vector in self.vectors]

    def parameters(self, seen: Mapping[str, Arrays]) -> Array:
        """Return the masked parameters of the head (n, …)."""
        if len(self._acting) == 1:
            return self._acting[0].parameters(seen)[0]
        rows = []
        for i, acting in enumerate(self._acting):
            row = itemgetter(slice(i, i + 1))
            rows.append(acting.parameters({name: transform(row, column) for name, column in seen.items()})[0])
        return np.concatenate(rows)

    def act(self, seen: Mapping[str, Arrays]) -> Arrays:
        """Return the likeliest actions (n, …)."""
        return self._acting[0].head.mode(self.parameters(seen))
