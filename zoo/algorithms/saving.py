"""The parts of a checkpoint, from which a run goes on: each has `state()` and `load_state()`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from zoo.core.printing import one_line
from zoo.errors import ZooError


class Attributes:
    """Some attributes of an object that are numbers, arrays, or dictionaries of numbers."""

    def __init__(self, owner: Any, names: Sequence[str]) -> None:
        self.owner = owner
        self.names = names

    def state(self) -> dict[str, Any]:
        return {name: copy(getattr(self.owner, name)) for name in self.names}

    def load_state(self, values: Mapping[str, Any]) -> None:
        """Set them; a dictionary stays the same object, which others may share."""
        for name in self.names:
            before = getattr(self.owner, name)
            if isinstance(before, dict):
                before.update(values[name])
            else:
                setattr(self.owner, name, copy(values.get(name, before)))


class Generators:
    """The random generators of a run: ``rng`` for learning, ``predict_rng`` for `predict`.

    What a policy draws by itself (initial weights, dropout) comes from torch's own generator, which is put
    in the place of the user's for as long as that takes.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.predict_rng = np.random.default_rng((seed, 1))
        seeded = torch.Generator().manual_seed(int(self.rng.integers(2**31)))
        self._torch: Tensor | None = seeded.get_state()
        self._predict_torch = seeded.manual_seed(int(self.predict_rng.integers(2**31))).get_state()

    @contextmanager
    def torch_of_this_run(self) -> Iterator[None]:
        """Within the block, torch draws from this run's generator."""
        assert self._torch is not None, "this run is drawing already"
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._torch)
            self._torch = None
            try:
                yield
            finally:
                self._torch = torch.get_rng_state()

    @contextmanager
    def torch_for_predicting(self) -> Iterator[None]:
        """Within the block, torch draws from the generator of `predict`."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._predict_torch)
            yield
            self._predict_torch = torch.get_rng_state()

    @contextmanager
    def predicting_from(self, seed: int | Sequence[int] | None) -> Iterator[None]:
        """Within the block, `predict` draws from ``seed``, and nothing is used up."""
        before = self.predict_rng.bit_generator.state, self._predict_torch
        fresh = np.random.default_rng(seed)
        self.predict_rng.bit_generator.state = fresh.bit_generator.state
        self._predict_torch = torch.Generator().manual_seed(int(fresh.integers(2**31))).get_state()
        try:
            yield
        finally:
            self.predict_rng.bit_generator.state, self._predict_torch = before

    def state(self) -> dict[str, Any]:
        now = torch.get_rng_state() if self._torch is None else self._torch
        states = {"rng": self.rng.bit_generator.state, "predict_rng": self.predict_rng.bit_generator.state}
        return {**states, "torch": now.numpy(), "predict_torch": self._predict_torch.numpy()}

    def load_state(self, states: Mapping[str, Any]) -> None:
        self.rng.bit_generator.state = states["rng"]
        self.predict_rng.bit_generator.state = states["predict_rng"]
        self._torch = torch.from_numpy(np.array(states["torch"]))
        self._predict_torch = torch.from_numpy(np.array(states["predict_torch"]))


class Tensors:
    """The tensors of a run as a part of its state: those that updates replace, and the rest of the policy's.

    The rest are parameters that take no gradient, and buffers.
    """

    def __init__(self, replaced: Mapping[str, Tensor], policy: nn.Module) -> None:
        self.tensors = run_tensors(replaced, policy)

    def state(self) -> dict[str, Any]:
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.tensors.items()}

    def load_state(self, arrays: Mapping[str, Any]) -> None:
        """Overwrite the tensors. Raises `ZooError` if there are others, or of other shapes."""
        check_tensors({name: tuple(tensor.shape) for name, tensor in self.tensors.items()}, arrays)
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                tensor.copy_(torch.from_numpy(np.array(arrays[name])))


def run_tensors(replaced: Mapping[str, Tensor], policy: nn.Module) -> dict[str, Tensor]:
    """Return all tensors of a run by name: those that updates replace, and the rest of the policy's.

    The policy's running statistics, which are both, have their names in the policy.
    """
    trained = {name for name, parameter in policy.named_parameters() if parameter.requires_grad}
    rest = {f"policy.{name}": value for name, value in policy.state_dict().items() if name not in trained}
    places = {tensor.data_ptr() for tensor in rest.values()}
    return {**rest, **{name: value for name, value in replaced.items() if value.data_ptr() not in places}}


def named_parameters(parameters: Mapping[str, Any] | str | Path) -> Mapping[str, Any]:
    """Return parameters by name; a path is read as a saved agent. Raises `ZooError` for anything else."""
    if isinstance(parameters, str | Path):
        from zoo.agents.agent_folder import read_as_data

        return read_as_data(parameters).tensors
    if isinstance(parameters, Mapping):
        return parameters
    raise ZooError(
        f"parameters are a {type(parameters).__name__}; expected arrays by name, or an agent's path"
    )


def check_policy_parameters(
    policy: nn.Module, parameters: Mapping[str, Any] | str | Path, *, exact_match: bool
) -> Mapping[str, Any]:
    """Return parameters by name.

    Raises `ZooError` for some that don't fit a policy, or if with ``exact_match`` one is missing.
    """
    arrays, tensors = named_parameters(parameters), policy.state_dict().items()
    check_tensors(
        {name: tuple(tensor.shape) for name, tensor in tensors if exact_match or name in arrays}, arrays
    )
    return arrays


Choose = Callable[[dict[str, Any], "np.ndarray | None"], tuple[Any, "np.ndarray | None"]]
"""Returns actions for policy inputs and a state, and the next state."""


class RecurrentState:
    """The state of a recurrent policy in each environment, (n_envs, state_size); None if it is not recurrent.

    It lasts from rollout to rollout, and is a part of checkpoints.
    """

    def __init__(self, array: np.ndarray | None) -> None:
        self.array = array

    def act(self, collector: Any, policy_input: dict[str, Any], choose: Choose) -> dict[str, Any]:
        """Return actions; for a recurrent policy also the state before them and the episode starts."""
        before = self.array
        if before is None:
            return {"actions": choose(policy_input, None)[0]}
        starts = collector.episode_starts  # where the policy forgets its state
        actions, self.array = choose({**policy_input, "episode_starts": starts}, before)
        return {"actions": actions, "states": before, "episode_starts": starts}

    def parts(self) -> dict[str, Any]:
        """Return it as a part of an algorithm's state, where there is any."""
        return {} if self.array is None else {"recurrent": Attributes(self, ("array",))}


def check_tensors(expected: Mapping[str, tuple[int, ...]], tensors: Mapping[str, NDArray[Any]]) -> None:
    """Raise `ZooError` if tensors are not those that a policy expects, by name and shape."""
    problems = [
        f"{name} has shape {list(tensors[name].shape)}, expected {list(shape)}"
        if name in tensors
        else f"{name} is missing"
        for name, shape in expected.items()
        if name not in tensors or tuple(tensors[name].shape) != tuple(shape)
    ]
    problems += [f"{one_line(name)} is not part of the policy" for name in tensors if name not in expected]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise ZooError(f"the parameters don't fit the policy: {'; '.join(problems[:3])}{more}")
