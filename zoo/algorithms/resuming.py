"""Plain values, generators and tensors of a run as parts of its state, which a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoo.agents.agent_folder import check_tensors


class Attributes:
    """Some attributes of an object that are numbers, or dictionaries of numbers."""

    def __init__(self, owner: Any, names: Sequence[str]) -> None:
        self.owner = owner
        self.names = names

    def state(self) -> dict[str, Any]:
        """Return them by name."""
        values = {name: getattr(self.owner, name) for name in self.names}
        return {name: dict(value) if isinstance(value, dict) else value for name, value in values.items()}

    def load_state(self, values: Mapping[str, Any]) -> None:
        """Set them; a dictionary stays the same object, which others may share."""
        for name in self.names:
            if isinstance(values[name], Mapping):
                getattr(self.owner, name).update(values[name])
            else:
                setattr(self.owner, name, values[name])


class Generators:
    """NumPy's generators, from which a run draws."""

    def __init__(self, *generators: np.random.Generator) -> None:
        self.generators = generators

    def state(self) -> dict[str, Any]:
        """Return where each of them is."""
        return {str(i): generator.bit_generator.state for i, generator in enumerate(self.generators)}

    def load_state(self, states: Mapping[str, Any]) -> None:
        """Go back to there."""
        for i, generator in enumerate(self.generators):
            generator.bit_generator.state = states[str(i)]


class Tensors:
    """The tensors of a run as a part of its state: those that updates replace, and the rest of the policy's.

    The rest are parameters that take no gradient, and buffers.
    """

    def __init__(self, replaced: Mapping[str, Tensor], policy: nn.Module) -> None:
        trained = {name for name, parameter in policy.named_parameters() if parameter.requires_grad}
        rest = {name: each for name, each in policy.state_dict().items() if name not in trained}
        self.tensors = {**{f"policy.{name}": each for name, each in rest.items()}, **replaced}

    def state(self) -> dict[str, Any]:
        """Return the tensors as arrays."""
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.tensors.items()}

    def load_state(self, arrays: Mapping[str, Any]) -> None:
        """Overwrite the tensors. Raises `ZooError` if there are others, or of other shapes."""
        check_tensors({name: tuple(tensor.shape) for name, tensor in self.tensors.items()}, arrays)
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                tensor.copy_(torch.from_numpy(np.array(arrays[name])))
