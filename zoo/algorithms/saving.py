"""What of an algorithm is on disk: an agent, which can act, and the parts of a checkpoint, which goes on.

An agent is config, parameters, statistics and card, from which an algorithm is made again. The parts of a
checkpoint have `state()` and `load_state()`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.agents.agent_folder import FORMAT, AgentFiles, check_tensors
from zoo.buffers.config import ReplayConfig
from zoo.config.aliases import unknown_key
from zoo.config.environment_values import resolved_values
from zoo.config.fields import build, variant_of
from zoo.config.schema import ALGO_LABELS
from zoo.envs.config import EnvConfig
from zoo.envs.normalize import Normalizer
from zoo.envs.spaces import space_from_dict, space_to_dict
from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm

# -- agents -----------------------------------------------------------------------------------------------


def agent_config(
    name: str,
    config: Any,
    policy: PolicyConfig,
    env: EnvConfig | None,
    n_envs: int,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    replay: ReplayConfig | None = None,
    preset: str | None = None,
    *,
    masks_actions: bool = False,
) -> dict[str, Any]:
    """Return what rebuilds an agent's policy and environment, as plain values.

    ``masks_actions`` says that it has learned to choose among valid actions only.
    """
    return {
        "format": FORMAT,
        "algo": {
            "name": name,
            **({} if preset is None else {"preset": preset}),
            **dataclasses.asdict(config),
        },
        "policy": dataclasses.asdict(policy),
        **({} if replay is None else {"replay": dataclasses.asdict(replay)}),
        "env": None if env is None else dataclasses.asdict(env),
        "n_envs": n_envs,
        "observation_space": space_to_dict(observation_space),
        "action_space": space_to_dict(action_space),
        **({"masks_actions": True} if masks_actions else {}),
    }


RETIRED = {"bc": ("ent_coef", "l2_coef"), "gail": ("absorbing_states", "d_normalize", "d_reward")}
"""Hyperparameters of earlier versions, by algorithm: agents that have them act the same without."""

CHOICES = ("seed", "device", "compile", "threads")
"""Arguments that are not saved with an agent, but chosen when it is loaded."""


def agent_files(algorithm: Algorithm, card: Mapping[str, Any]) -> AgentFiles:
    """Return an algorithm as an agent; ``card`` is added to its card."""
    config = agent_config(
        *(algorithm.name, algorithm.config, algorithm.policy_config, algorithm.env_config, algorithm.n_envs),
        *(algorithm.observation_space, algorithm.action_space, algorithm.replay_config, algorithm.preset),
        masks_actions=algorithm.masks_actions,
    )
    full_card = {
        "algo": algorithm.preset or algorithm.name,
        "env": None if algorithm.env_config is None else algorithm.env_config.id,
        "seed": algorithm.seed,
        "timesteps": algorithm.num_timesteps,
        **card,
    }
    statistics = None if algorithm.normalizer is None else algorithm.normalizer.state()
    normalization = None if statistics is None else (statistics["arrays"], statistics["values"])
    return AgentFiles(config, algorithm.get_parameters(), normalization, full_card)


def constructor_arguments(
    files: AgentFiles, algorithm: type[Algorithm], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what an algorithm is built with to be this agent, without an environment.

    ``options`` are hyperparameters with other values than the agent's, `CHOICES`, and another ``replay``
    where it learns from one. Raises `ZooError` if it is the agent of another algorithm, or values don't fit.
    """
    values = section_of(files, "algo")
    found, _ = (values.pop(label, None) for label in ALGO_LABELS)
    if found != algorithm.name:
        raise ZooError(
            f"this is an agent of {found}, not of {algorithm.name}; zoo.load() finds the class itself"
        )
    for retired in RETIRED.get(algorithm.name, ()):
        values.pop(retired, None)
    config_class = variant_of(algorithm.config_class, values, "algo")
    names = [field.name for field in dataclasses.fields(config_class)]
    arguments: dict[str, Any] = {}
    if algorithm.has_replay:
        arguments["replay"] = section_of(files, "replay") or None
    for option, value in options.items():
        if option in names:
            values[option] = value
        elif option in (*CHOICES, *arguments):
            arguments[option] = value
        else:
            raise unknown_key(option, [*names, *CHOICES, *arguments, "n_envs"], "")
    return {
        **arguments,
        "policy": build(PolicyConfig, section_of(files, "policy"), "policy"),
        "config": build(algorithm.config_class, values, "algo"),
        "observation_space": space_from_dict(files.config["observation_space"]),
        "action_space": space_from_dict(files.config["action_space"]),
    }


def restore(algorithm: Algorithm, files: AgentFiles) -> None:
    """Give an algorithm, made for an agent, the agent's parameters, statistics and origin."""
    config, env = files.config, section_of(files, "env")
    algorithm.set_parameters(files.tensors)
    algorithm.n_envs = config.get("n_envs", 1)
    algorithm.num_timesteps = int(files.card.get("timesteps") or 0)
    algorithm.preset = config["algo"].get("preset")
    algorithm.env_config = build(EnvConfig, env, "env") if env else None
    algorithm.masks_actions = config.get("masks_actions") is True
    if files.normalization is not None:
        arrays, values = files.normalization
        algorithm.normalizer = Normalizer.from_state({"arrays": arrays, "values": values})


def section_of(files: AgentFiles, name: str) -> dict[str, Any]:
    """Return a section of an agent's config; one that the user trusts may take values from variables."""
    values: dict[str, Any] = files.config.get(name) or {}
    return resolved_values(values, below=(name,)) if files.is_trusted else dict(values)


def unpickled(algorithm: type[Algorithm], files: AgentFiles, options: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm that `Algorithm.__reduce__` has pickled."""
    return algorithm.from_files(files, **options)


# -- the parts of a checkpoint ------------------------------------------------------------------------------


class Attributes:
    """Some attributes of an object that are numbers, or dictionaries of numbers."""

    def __init__(self, owner: Any, names: Sequence[str]) -> None:
        self.owner = owner
        self.names = names

    def state(self) -> dict[str, Any]:
        values = {name: getattr(self.owner, name) for name in self.names}
        return {name: dict(value) if isinstance(value, dict) else value for name, value in values.items()}

    def load_state(self, values: Mapping[str, Any]) -> None:
        """Set them; a dictionary stays the same object, which others may share."""
        for name in self.names:
            value, before = values[name], getattr(self.owner, name)
            if isinstance(before, dict):
                before.update(value)
            else:
                setattr(self.owner, name, value)


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
    """Return all tensors of a run by name: those that updates replace, and the rest of the policy's."""
    trained = {name for name, parameter in policy.named_parameters() if parameter.requires_grad}
    rest = {name: each for name, each in policy.state_dict().items() if name not in trained}
    return {**{f"policy.{name}": each for name, each in rest.items()}, **replaced}


class RecurrentState:
    """The state of a recurrent policy in each environment, (n_envs, state_size); None if it is not recurrent.

    It lasts from rollout to rollout, and is a part of checkpoints.
    """

    def __init__(self, array: np.ndarray | None) -> None:
        self.array = array

    def state(self) -> dict[str, Any]:
        return {} if self.array is None else {"array": self.array.copy()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        if self.array is not None:
            self.array = np.array(state["array"])


class ScalarMeans:
    """Sums of recorded values by name. Tensors stay tensors until they are read, so recording never waits.

    Rows are values of one step, which have no mean with those of others: an evaluation's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sums: dict[tuple[str, ...], tuple[Any, int]] = {}
        self._rows: dict[int, dict[str, float]] = {}

    def record(self, names: Sequence[str], values: Any) -> None:
        """Add one value to each name; with several names, a vector of them."""
        key = tuple(names)
        total, count = self._sums.get(key, (0.0, 0))
        self._sums[key] = (total + values, count + 1)

    def record_row(self, timesteps: int, scalars: Mapping[str, float]) -> None:
        """Keep the values of one step."""
        self._rows.setdefault(timesteps, {}).update(scalars)

    def read_rows(self, before: int) -> dict[int, dict[str, float]]:
        """Return the rows of steps below ``before`` since the last call, by their steps."""
        return {step: self._rows.pop(step) for step in sorted(self._rows) if step < before}

    def read(self) -> dict[str, float]:
        """Return the means since the last call, and of the rows that were not read the latest values."""
        totals, counts = Counter[str](), Counter[str]()
        for names, (total, count) in self._sums.items():
            values = total.reshape(-1).tolist() if isinstance(total, Tensor) else [float(total)]
            totals.update(dict(zip(names, values, strict=True)))
            counts.update(dict.fromkeys(names, count))
        means = {name: total / counts[name] for name, total in totals.items()}
        for _, row in sorted(self._rows.items()):
            means.update(row)
        self._sums, self._rows = {}, {}
        return means

    def state(self) -> dict[str, Any]:
        """Return the sums as numbers for JSON."""
        return {
            "names": [list(names) for names in self._sums],
            "totals": [
                total.tolist() if isinstance(total, Tensor) else float(total)
                for total, _ in self._sums.values()
            ],
            "counts": [count for _, count in self._sums.values()],
            "rows": [[step, row] for step, row in self._rows.items()],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._rows = {int(step): dict(row) for step, row in state.get("rows", ())}
        self._sums = {
            tuple(names): (
                torch.tensor(total, device=self._device) if isinstance(total, list) else total,
                count,
            )
            for names, total, count in zip(state["names"], state["totals"], state["counts"], strict=True)
        }
