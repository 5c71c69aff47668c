"""Letting any algorithm's policy start as the clone of an expert."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zoo.algorithms.cloning import Cloning, CloningTerms, Epoch
from zoo.algorithms.demonstrations import Demonstrations, own_generator, take_in_statistics
from zoo.algorithms.expert_episodes import chosen_episodes, expert_checksum, refuse_other_expert
from zoo.algorithms.in_envs import AgentInEnvs
from zoo.algorithms.resuming import Tensors
from zoo.config.fields import hyperparameter
from zoo.errors import NotFiniteError
from zoo.memory.expert_data import ExpertData
from zoo.optim.runtime import Runtime
from zoo.optim.state import Step
from zoo.optim.update_runner import Program


@dataclass
class PretrainConfig(CloningTerms):
    """Behaviour cloning before reinforcement learning: the config section ``pretrain``."""

    dataset: str | None = hyperparameter(
        None, "expert data to start from: a .npz file, or minari:ID; null: start from nothing"
    )
    n_epochs: int = hyperparameter(50, "passes over the expert data at most", ge=1)
    learning_rate: float = hyperparameter(1e-3, "step size of Adam", ge=0)


class Pretraining:
    """Clones an expert with a copy of the part of an algorithm's policy that acts; `take_over` hands it on.

    Between two epochs `state` is all that the rest of it depends on. Raises `ZooError` for other spaces.
    """

    def __init__(
        self, algorithm: AgentInEnvs[Any], dataset: ExpertData | str | Path, config: PretrainConfig
    ) -> None:
        self.algorithm, self.config = algorithm, config
        self.epochs: list[Epoch] = []
        """How the losses went."""
        data = chosen_episodes(dataset, algorithm, config)
        self._checksum = expert_checksum(data)
        take_in_statistics(algorithm, data)
        self._rng = own_generator(algorithm.seed)
        self._demonstrations = Demonstrations(data, algorithm, config.validation_fraction, self._rng)
        self._policy = copy.deepcopy(algorithm.acting.policy)
        self._cloning = Cloning(self._policy, config)
        self._runtime = Runtime(
            device=str(algorithm.device), compile=False, threads="auto", precision="float32"
        )
        n_rows = config.n_epochs * len(self._demonstrations.train)
        self._runtime.expect(n_rows, float(self._cloning.parameters.size * config.batch_size))
        self._program = Program(self._cloning.descent.initial_state(), self._runtime)
        self._means: dict[str, float] = {}

    @property
    def is_over(self) -> bool:
        """Whether no epoch is left, or none has been better for too long."""
        return len(self.epochs) >= self.config.n_epochs or self._cloning.patience.is_over

    def run(self, on_epoch: Callable[[Epoch], bool | None] | None = None) -> None:
        """Go through the epochs that are left, or end after one for which ``on_epoch`` returns True.

        Raises `NotFiniteError` where a loss or a parameter is NaN or infinite.
        """
        rate = torch.tensor(self.config.learning_rate, device=self.algorithm.device)
        with self._runtime.in_force(), self.algorithm.generators.torch_of_this_run():
            while not self.is_over:
                self._go_through_epoch(len(self.epochs) + 1, rate)
                if on_epoch is not None and on_epoch(self.epochs[-1]):
                    break

    def take_over(self) -> None:
        """Let the algorithm go on with the best parameters, and record how the losses went.

        Critics, targets' other parts and optimizers stay as they are, and so does what the expert does not
        teach: a standard deviation that is no function of the state.
        """
        self._cloning.take_best()
        algorithm = self.algorithm
        own = algorithm.acting.policy.state_dict()
        with torch.no_grad():
            for name, tensor in self._policy.state_dict().items():
                own[name].copy_(tensor)
        algorithm.copy_to_targets()
        for epoch in self.epochs:
            algorithm.record("pretrain/loss", epoch.loss)
            if not math.isnan(epoch.validation_loss):
                algorithm.record("pretrain/validation_loss", epoch.validation_loss)
        if algorithm.envs is not None:
            algorithm.interaction.show_again()

    def _go_through_epoch(self, number: int, learning_rate: torch.Tensor) -> None:
        try:
            loss = self._cloning.epoch(self._demonstrations, self._rng, learning_rate, self._take_steps)
        except NotFiniteError as error:
            raise NotFiniteError(f"pretraining, epoch {number}: {error}") from error
        epoch = Epoch(number, self._means["loss"], self._means["imitation_loss"], loss)
        if not math.isfinite(epoch.loss):
            raise NotFiniteError(
                f"pretraining's loss is not finite in epoch {number}; a smaller learning_rate may help"
            )
        self.epochs.append(epoch)

    def _take_steps(self, step: Step, shared: Any, rows: torch.Tensor) -> None:
        ran = self._program.run(step, shared, rows)
        self._means = dict(zip(ran.names, ran.metrics.tolist(), strict=True))

    # -- exact resume -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return it as arrays and values, for `load_state`."""
        return {
            "tensors": Tensors(self._program.state, self._policy).state(),
            "patience": self._cloning.patience.state(),
            "runtime": self._runtime.state(),
            "rng": self._rng.bit_generator.state,
            "generators": self.algorithm.generators.state(),
            "epochs": np.array(self.epochs, np.float64).reshape(-1, len(Epoch._fields)),
            "expert": self._checksum,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to there. Raises `ZooError` if it was of another expert, or of other networks."""
        refuse_other_expert(self._checksum, state["expert"])
        Tensors(self._program.state, self._policy).load_state(state["tensors"])
        self._cloning.patience.load_state(state["patience"])
        self._runtime.load_state(state["runtime"])
        self._rng.bit_generator.state = state["rng"]
        self.algorithm.generators.load_state(state["generators"])
        self.epochs = [Epoch(int(number), *losses) for number, *losses in state["epochs"].tolist()]
