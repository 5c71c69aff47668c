"""Behaviour cloning (Pomerleau 1989): a supervised task of predicting an expert's action in each state.

The action distribution gives the loss: cross-entropy for discrete actions, the mean squared error of the most
likely action for continuous ones. Validation episodes are held out and decide when to stop; the result is the
best parameters. `BC` only clones: it steps environments for evaluation alone, and a step of its run is a step
of the expert that it learned from. `clone_expert` pretrains any algorithm's policy in this way.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.arguments import Policy
from zoo.algorithms.on_policy import ANY_ACTIONS
from zoo.algorithms.search_space import ranges, searched
from zoo.buffers.arrays import transform
from zoo.config.fields import ScheduleValue, build, hyperparameter
from zoo.errors import NotFiniteError
from zoo.imitation.demonstrations import (
    Demonstrations,
    EpisodeChoice,
    chosen_episodes,
    own_generator,
    update_normalizer,
    without_dataset,
)
from zoo.imitation.expert_data import Dataset, ExpertData
from zoo.optim.optimizers import Adam, Parameters, Updater
from zoo.optim.runtime import Runtime
from zoo.optim.update_runner import State, Step, StepResult, UpdateRunner, average
from zoo.policies.acting import PolicyMode
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.distributions import ActionDistribution

VALIDATED_AT_ONCE = 4096  # rows of one forward pass without gradients


@dataclass
class CloningTerms(EpisodeChoice):
    """Hyperparameters of cloning, without the learning rate and the number of epochs."""

    batch_size: int = hyperparameter(64, "steps in a gradient step", unit="steps", ge=1)
    max_grad_norm: float | None = hyperparameter(None, "maximum norm of the gradient; null: none", gt=0)
    validation_fraction: float = hyperparameter(
        0.2, "share of the episodes to hold out for validation, at least one of several", ge=0, lt=1
    )
    patience: int | None = hyperparameter(
        10,
        "epochs without a better validation loss before it stops; null: no early stopping",
        unit="epochs",
        ge=1,
    )


class Imitation(nn.Module):
    """Maps a policy's input to its action distribution's parameters, the function that is cloned."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, policy_input: dict[str, Any], state: Tensor | None = None) -> Tensor:
        return self.policy.action_parameters(policy_input, state)[0]  # type: ignore[operator]


class Cloning:
    """Trains ``policy`` to clone an expert, epoch by epoch, and stores the best parameters."""

    def __init__(self, policy: nn.Module, terms: CloningTerms) -> None:
        self.terms, self.policy = terms, policy
        self.head: ActionDistribution = policy.head  # type: ignore[assignment]
        self.imitation = Imitation(policy)
        self.parameters = Parameters("policy", self.imitation)
        self.updater = Updater(self.parameters, Adam(), max_grad_norm=terms.max_grad_norm)
        self.policy_mode = PolicyMode(policy)
        self.begin_again()

    def begin_again(self) -> None:
        self.best_loss, self.n_worse = math.inf, 0
        self.best_vector: Tensor | None = None

    @property
    def is_over(self) -> bool:
        """Whether ``patience`` epochs in a row have not improved the validation loss."""
        return self.terms.patience is not None and self.n_worse >= self.terms.patience

    def epoch(
        self,
        demonstrations: Demonstrations,
        rng: np.random.Generator,
        learning_rate: Tensor,
        take_steps: Callable[[Step, dict[str, Any], Tensor], Any],
    ) -> float:
        """Learn from each row once, in random order; return the validation loss, or NaN without validation.

        ``take_steps`` takes a step for each row of its last argument, (steps, …), with its second argument
        shared by all of them. Raises `NotFiniteError` if parameters are no longer finite.
        """
        rows = torch.from_numpy(demonstrations.minibatches(rng, self.terms.batch_size))
        with self.policy_mode.training():
            demonstrations.update_states(self.policy)
            shared = {"rows": demonstrations.tensors, "learning_rate": learning_rate}
            take_steps(self.step, shared, rows.to(self.parameters.flat.device))
        if not self.parameters.flat.isfinite().all():
            raise NotFiniteError(
                "cloning made parameters of the policy NaN or infinite; a smaller learning_rate or"
                " max_grad_norm, may help"
            )
        loss = self.validation_loss(demonstrations)
        self.note(loss)
        return loss

    def note(self, validation_loss: float) -> None:
        """Record the validation loss of the current parameters; NaN is ignored."""
        if validation_loss < self.best_loss:
            self.best_loss, self.n_worse, self.best_vector = validation_loss, 0, self.parameters.flat.clone()
        elif not math.isnan(validation_loss):
            self.n_worse += 1

    def step(self, state: State, shared: Any, rows: Tensor) -> StepResult:
        imitation = self.updater.module(state)
        batch = transform(itemgetter(rows), shared["rows"])
        losses = self.head.imitation_loss(imitation(batch, batch.get("states")), batch["actions"])
        mask = batch.get("weights", torch.ones_like(losses))  # 0 after an episode's end
        loss = (mask * losses).sum() / average(mask.sum())
        state, grad_norm = self.updater.step(state, imitation, loss, shared["learning_rate"])
        loss = loss.detach()
        return StepResult(state, {"imitation_loss": loss, "loss": loss, "grad_norm": grad_norm})

    @torch.no_grad()
    def validation_loss(self, demonstrations: Demonstrations) -> float:
        """Return the mean imitation loss of the validation episodes; NaN without any."""
        if not len(demonstrations.validation):
            return math.nan
        demonstrations.update_states(self.policy)
        sums = torch.zeros(2, dtype=torch.float64)
        rows = torch.from_numpy(demonstrations.validation)
        for chunk in rows.split(VALIDATED_AT_ONCE):
            batch = transform(itemgetter(chunk), demonstrations.tensors)
            losses = self.head.imitation_loss(self.imitation(batch, batch.get("states")), batch["actions"])
            mask = batch.get("weights", torch.ones_like(losses))
            sums += torch.stack([(mask * losses).sum(), mask.sum()]).double().cpu()
        return float(sums[0] / sums[1])

    def take_best(self) -> None:
        if self.best_vector is not None:
            self.parameters.flat.copy_(self.best_vector)

    def state(self) -> dict[str, Any]:
        """Return the early-stopping counter, and the best loss and parameters."""
        if self.best_vector is None:
            return {"n_worse": self.n_worse}
        vector = self.best_vector.cpu().numpy()
        return {"n_worse": self.n_worse, "best": self.best_loss, "best_vector": vector}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.n_worse, self.best_loss, self.best_vector = state["n_worse"], state.get("best", math.inf), None
        if "best_vector" in state:
            self.best_vector = torch.from_numpy(np.array(state["best_vector"]))


class Epoch(NamedTuple):
    """One pass over the training data: mean losses; the validation loss is NaN without validation."""

    number: int
    loss: float
    validation_loss: float


@dataclass
class BCConfig(CloningTerms):
    """Hyperparameters of behaviour cloning."""

    learning_rate: ScheduleValue = hyperparameter(1e-3, "step size of Adam", ge=0)


class BC(Algorithm):
    """Behaviour cloning of the expert in ``dataset``: `ExpertData` or the path of its file."""

    name = "bc"
    config_class = BCConfig
    search_space = searched(
        Algorithm.search_space,
        ranges("log falling", learning_rate=(1e-5, 1e-2)) | ranges("powers", batch_size=(16, 512)),
    )
    supported_actions = ANY_ACTIONS
    policy_class = ActorCritic
    has_recurrence = True
    can_share = False
    learns_from_experts = True

    config: BCConfig

    def __init__(
        self, policy: Policy = "MlpPolicy", env: Any = None, *, dataset: Dataset | None = None, **options: Any
    ) -> None:
        self._data: ExpertData | None = None
        self._demonstrations: Demonstrations | None = None
        super().__init__(policy, env, **options)
        if dataset is not None:
            self._data = chosen_episodes(dataset, self, self.config)

    def _make_state(self) -> State:
        self.cloning = Cloning(self.policy, self.config)
        return self.cloning.updater.initial_state()

    def _reset_envs(self) -> None:
        update_normalizer(self, self._data)  # before a normaliser sees the observations of a reset
        super()._reset_envs()
        self._demonstrations = None  # a normaliser's statistics change with the reset

    def collect(self) -> None:
        """Count the steps of the next epoch."""
        self._progress_before = self.progress
        if self._demonstrations is None:
            if self._data is None:
                raise without_dataset(self)
            self._demonstrations = Demonstrations(
                self._data, self, self.config.validation_fraction, own_generator(self.seed)
            )
        if self.num_timesteps == 0 or self.cloning.is_over:
            self.cloning.begin_again()
        self.num_timesteps += self._demonstrations.n_train

    def update(self) -> None:
        """Learn from each expert step once; at the end of the run take the best parameters."""
        demonstrations = self._demonstrations
        assert demonstrations is not None
        learning_rate = self.rates(self._progress_before)["learning_rate"]
        loss = self.cloning.epoch(demonstrations, self.rng, learning_rate, self.take_steps)
        if not math.isnan(loss):
            self.record("train/validation_loss", loss)
        if self.cloning.is_over:
            self.request_stop(f"no better validation loss than {self.cloning.best_loss:.4g}")
        if self.cloning.is_over or self.num_timesteps >= self.total_timesteps:
            self.cloning.take_best()

    def gradient_steps_in(self, total_timesteps: int) -> float:
        return total_timesteps / self.config.batch_size

    def _batch_size(self) -> int:
        return self.config.batch_size

    def _parts(self) -> dict[str, Any]:
        return {**super()._parts(), "patience": self.cloning}


# -- cloning before reinforcement learning ----------------------------------------------------------------


@dataclass
class PretrainConfig(CloningTerms):
    """Behaviour cloning before reinforcement learning: the config section ``pretrain``."""

    dataset: str | None = hyperparameter(None, "expert data to clone first, a .npz file; null: none")
    n_epochs: int = hyperparameter(50, "maximum number of passes over the expert data", ge=1)
    learning_rate: float = hyperparameter(1e-3, "step size of Adam", ge=0)


def clone_expert(
    algorithm: Algorithm,
    dataset: Dataset,
    config: PretrainConfig | Mapping[str, Any],
    on_epoch: Callable[[Epoch], bool | None] | None = None,
) -> list[Epoch]:
    """Train the acting part of an algorithm's policy to clone an expert; return the losses of all epochs.

    The policy gets the parameters with the best validation loss. Cloning stops early after an epoch for which
    ``on_epoch`` returns True. Critics, their targets and optimizers do not change. Neither does a standard
    deviation that is independent of the state, which an expert does not teach.

    Raises `ZooError` for other spaces, and `NotFiniteError` if a parameter is NaN or infinite.
    """
    config = config if isinstance(config, PretrainConfig) else build(PretrainConfig, config, "pretrain")
    data, rng = chosen_episodes(dataset, algorithm, config), own_generator(algorithm.seed)
    update_normalizer(algorithm, data)
    demonstrations = Demonstrations(data, algorithm, config.validation_fraction, rng)
    policy = copy.deepcopy(algorithm.acting.policy)  # its parameters are in a separate vector
    cloning = Cloning(policy, config)
    runtime = Runtime(device=str(algorithm.device), compile=False, threads="auto")
    n_rows = config.n_epochs * len(demonstrations.train)
    runtime.expect(n_rows, float(cloning.parameters.size * config.batch_size))
    runner = UpdateRunner(cloning.updater.initial_state(), runtime)
    rate = torch.tensor(config.learning_rate, device=algorithm.device)
    losses: list[float] = []
    epochs: list[Epoch] = []

    def take_steps(step: Step, shared: Any, rows: Tensor) -> None:
        result = runner.run(step, shared, rows)
        losses.append(float(result.metrics[result.names.index("loss")]))

    with runtime.in_force(), algorithm.generators.torch_of_this_run():
        while len(epochs) < config.n_epochs and not cloning.is_over:
            validation_loss = cloning.epoch(demonstrations, rng, rate, take_steps)
            epochs.append(Epoch(len(losses), losses[-1], validation_loss))
            algorithm.record("pretrain/loss", losses[-1])
            if not math.isnan(validation_loss):
                algorithm.record("pretrain/validation_loss", validation_loss)
            if on_epoch is not None and on_epoch(epochs[-1]):
                break
    cloning.take_best()
    algorithm.acting.policy.load_state_dict(policy.state_dict())
    algorithm.copy_to_targets()
    if algorithm.envs is not None:
        algorithm.collector.renormalize()
    return epochs
