"""Behaviour cloning alone (Pomerleau 1989): an expert's actions, learned from what it recorded.

No environment is stepped but to evaluate: a step of the run is a step of the expert that was learned from.
After each epoch the validation episodes tell whether it gets better; where it does no more, the run ends. At
its end, early or not, stand the best parameters. The networks are those of the on-policy algorithms, which
can go on from there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from zoo.algorithms.base import Algorithm
from zoo.algorithms.cloning import Cloning, CloningTerms
from zoo.algorithms.demonstrations import Demonstrations, own_generator, take_in_statistics
from zoo.algorithms.expert_episodes import chosen_episodes, expert_checksum, refuse_other_expert
from zoo.algorithms.on_policy import ANY_ACTIONS
from zoo.algorithms.policy_choice import Policy
from zoo.config.fields import Schedule, hyperparameter
from zoo.errors import ZooError
from zoo.memory.columns import NotFinite
from zoo.memory.expert_data import ExpertData
from zoo.optim.state import State
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.own_policy import make_policy


@dataclass
class BCConfig(CloningTerms):
    """Hyperparameters of behaviour cloning."""

    learning_rate: Schedule = hyperparameter(1e-3, "step size of Adam", ge=0)


class BC(Algorithm[BCConfig]):
    """Behaviour cloning of ``dataset``: `ExpertData`, or the path of a file that `read_expert` reads."""

    name = "bc"
    config_class = BCConfig
    supported_actions = ANY_ACTIONS
    has_recurrence = True
    can_share = False
    learns_from_experts = True

    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        *,
        dataset: ExpertData | str | Path | None = None,
        **options: Any,
    ) -> None:
        self.memory = NothingCollected()
        self._data: ExpertData | None = None
        self._demonstrations: Demonstrations | None = None
        super().__init__(policy, env, **options)
        if dataset is not None:
            self._data = chosen_episodes(dataset, self, self.config)
        self._checksum = None if self._data is None else expert_checksum(self._data)

    def _make_policy(self) -> nn.Module:
        return make_policy(ActorCritic, self.observation_space, self.action_space, self.policy_config)

    def _make_state(self) -> State:
        self.cloning = Cloning(self.policy, self.config)
        return self.cloning.descent.initial_state()

    def _make_memory(self) -> None:
        """Nothing of the environments is kept."""

    def _reset_envs(self) -> None:
        if self._data is not None:
            take_in_statistics(self, self._data)  # before a normaliser has seen what a reset shows
        super()._reset_envs()
        self._demonstrations = None  # a normaliser has seen more

    def collect(self) -> None:
        """Count the steps of the next epoch."""
        self._progress_before = self.progress
        if self._demonstrations is None:
            self._demonstrations = self._make_demonstrations()
        if self.num_timesteps == 0 or self.cloning.patience.is_over:
            self.cloning.begin_again()
        else:
            self.cloning.go_on()
        self.num_timesteps += self._demonstrations.n_train

    def update(self) -> None:
        """Learn from each step of the expert once; at the end of the run take the best parameters.

        A run that goes on afterwards goes on from the last ones, as if it had been longer from its beginning.
        """
        demonstrations = self._demonstrations
        assert demonstrations is not None
        learning_rate = self.rates(self._progress_before)["learning_rate"]
        cloning = self.cloning
        loss = cloning.epoch(demonstrations, self.rng, learning_rate, self._take_steps)
        if not math.isnan(loss):
            self.record("train/validation_loss", loss)
        if cloning.patience.is_over:
            self.request_stop(f"no better validation loss than {cloning.patience.best:.4g}")
        if cloning.patience.is_over or self.num_timesteps >= self.total_timesteps:
            cloning.take_best()

    def _make_demonstrations(self) -> Demonstrations:
        if self._data is None:
            raise ZooError("bc learns from expert data: dataset=PATH (zoo expert records what an agent does)")
        return Demonstrations(self._data, self, self.config.validation_fraction, own_generator(self.seed))

    def gradient_steps_in(self, total_timesteps: int) -> float:
        return total_timesteps / self.config.batch_size

    def _batch_size(self) -> int:
        return self.config.batch_size

    def state(self) -> dict[str, Any]:
        return {**super().state(), "expert": self._checksum}

    def load_state(self, state: Mapping[str, Any]) -> None:
        refuse_other_expert(self._checksum, state.get("expert"))
        super().load_state(state)

    def _parts(self) -> dict[str, Any]:
        return {**super()._parts(), "patience": self.cloning.patience}


class NothingCollected:
    """The memory of what never steps an environment to learn."""

    def first_not_finite(self) -> NotFinite | None:
        """Return None."""
        return None
