"""Behaviour cloning (Pomerleau 1989): doing in each state what an expert did, learned as a supervised task.

The loss is that of the action distribution: cross-entropy for choices, the mean squared error of the
likeliest action for numbers. Validation episodes, which nothing is learned from, decide when to stop; the
result is the best parameters. `BC` does nothing else: it steps no environment but to evaluate,
and a step of the run is a step of the expert that was learned from. `Pretraining` lets any algorithm's policy
start so.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.arguments import Policy
from zoo.algorithms.on_policy import ANY_ACTIONS, batch_mean, with_n_valid
from zoo.algorithms.saving import Tensors
from zoo.config.fields import Schedule, hyperparameter
from zoo.errors import NotFiniteError, ZooError
from zoo.imitation.demonstrations import (
    Demonstrations,
    EpisodeChoice,
    chosen_episodes,
    expert_checksum,
    on,
    own_generator,
    refuse_other_expert,
    update_normalizer,
)
from zoo.imitation.expert_data import ExpertData
from zoo.optim.optimizers import Adam, Updater
from zoo.optim.parameters import Parameters
from zoo.optim.runtime import Runtime
from zoo.optim.state import State, Step, StepResult
from zoo.optim.update_runner import UpdateRunner
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.custom_policy import PolicyMode, make_policy
from zoo.policies.distributions import ActionDistribution

VALIDATED_AT_ONCE = 4096
"""Rows of one forward pass without gradients."""


@dataclass
class CloningTerms(EpisodeChoice):
    """Hyperparameters of all cloning, beside the learning rate and the number of epochs."""

    batch_size: int = hyperparameter(64, "steps in a gradient step", unit="steps", ge=1)
    ent_coef: float = hyperparameter(
        0.0, "weight of an entropy bonus, which keeps choices random; numbers (Box) have none", ge=0
    )
    l2_coef: float = hyperparameter(
        0.0, "weight of half the sum of squares of the parameters that the expert's actions teach", ge=0
    )
    max_grad_norm: float | None = hyperparameter(None, "bound of the gradient's norm; null: none", gt=0)
    validation_fraction: float = hyperparameter(
        0.2, "part of the episodes that is not learned from, at least one of several", ge=0, lt=1
    )
    patience: int | None = hyperparameter(
        10, "epochs without a better validation loss that end it; null: it never ends so", unit="epochs", ge=1
    )


class Imitation(nn.Module):
    """A policy as the function that is cloned: from its input to the action distribution's parameters."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, policy_input: dict[str, Any], state: Tensor | None = None) -> Tensor:
        parameters: Tensor = self.policy.action_parameters(policy_input, state)[0]  # type: ignore[operator]
        return parameters


TakeSteps = Callable[[Step, dict[str, Any], Tensor], Any]
"""Takes a step for each row of the last, (steps, …), on what all of them see."""


class Cloning:
    """Clones an expert with ``policy``. Raises `ZooError` for an entropy bonus that would have no effect."""

    def __init__(self, policy: nn.Module, terms: CloningTerms) -> None:
        self.terms, self.policy = terms, policy
        self.head: ActionDistribution = policy.head  # type: ignore[assignment]
        if terms.ent_coef and not self.head.imitation_depends_on_entropy:
            raise ZooError(
                f"`ent_coef={terms.ent_coef:g}`: these actions are numbers, cloned by the squared error,"
                " which says nothing of how random they are; an entropy bonus is for choices, so leave it out"
            )
        self.imitation = Imitation(policy)
        self.parameters = Parameters("policy", self.imitation)
        self.updater = Updater(self.parameters, Adam(), max_grad_norm=terms.max_grad_norm)
        self.policy_mode = PolicyMode(policy)
        self.patience = Patience(terms.patience)
        self._is_trained: Tensor | None = None

    def epoch(
        self,
        demonstrations: Demonstrations,
        rng: np.random.Generator,
        learning_rate: Tensor,
        take_steps: TakeSteps,
    ) -> float:
        """Learn from each row once, in a random order; return the validation loss, NaN where there is none.

        Raises `NotFiniteError` where parameters are no longer finite.
        """
        rows = torch.from_numpy(demonstrations.minibatches(rng, self.terms.batch_size))
        with self.policy_mode.training():
            shared = self.prepare(demonstrations, learning_rate)
            take_steps(self.step, shared, rows.to(self.parameters.flat.device))
        if not self.parameters.flat.isfinite().all():
            raise NotFiniteError(
                "cloning has made parameters of the policy NaN or infinite; a smaller learning_rate, or"
                " max_grad_norm, may help"
            )
        loss = self.validation_loss(demonstrations)
        self.patience.note(loss, self.parameters.flat)
        return loss

    def prepare(self, demonstrations: Demonstrations, learning_rate: Tensor) -> dict[str, Any]:
        """Update the recurrent states that the demonstrations hold; return what all steps share."""
        demonstrations.update_states(self.policy)
        if self._is_trained is None:
            self._is_trained = self._trained_mask(demonstrations)
        return {
            "rows": demonstrations.tensors,
            "is_trained": self._is_trained,
            "learning_rate": learning_rate,
        }

    def take_best(self) -> None:
        """Take the parameters with the best validation loss, if there is any; `go_on` undoes it."""
        if self.patience.best_vector is not None:
            self.patience.last_vector = self.parameters.flat.clone()
            self.parameters.flat.copy_(self.patience.best_vector)

    def go_on(self) -> None:
        """Go on from the parameters of the last epoch, unless others have been set since."""
        if self.patience.last_vector is not None and self._has_best():
            self.parameters.flat.copy_(self.patience.last_vector)
        self.patience.last_vector = None

    def begin_again(self) -> None:
        """Count epochs without a better loss from here on."""
        self.patience.begin_again(keep_best=self._has_best())

    def _has_best(self) -> bool:
        best = self.patience.best_vector
        flat = self.parameters.flat
        return best is not None and torch.equal(best.to(flat.device), flat)

    def step(self, state: State, shared: Any, rows: Tensor) -> StepResult:
        """Take one gradient step on these rows of the demonstrations."""
        terms, imitation = self.terms, self.updater.module(state)
        batch = with_n_valid(on(shared["rows"], rows))
        parameters = imitation(batch, batch.get("states"))
        imitation_loss = batch_mean(self.head.imitation_loss(parameters, batch["actions"]), batch)
        loss, metrics = imitation_loss, {"imitation_loss": imitation_loss.detach()}
        if terms.ent_coef:
            entropy = batch_mean(self.head.imitation_entropy(parameters), batch)
            loss = loss - terms.ent_coef * entropy
            metrics["entropy"] = entropy.detach()
        gradient = self.updater.gradient(imitation, loss)
        total = loss.detach()
        if terms.l2_coef:
            is_trained = shared["is_trained"] * state[self.parameters.name]
            gradient = gradient + terms.l2_coef * is_trained
            total = total + 0.5 * terms.l2_coef * is_trained.square().sum()
        state, grad_norm = self.updater.apply_gradient(state, gradient, shared["learning_rate"])
        return StepResult(state, {**metrics, "loss": total, "grad_norm": grad_norm})

    @torch.no_grad()
    def validation_loss(self, demonstrations: Demonstrations) -> float:
        """Return the mean imitation loss of the validation episodes; NaN where there are none."""
        if not len(demonstrations.validation):
            return math.nan
        demonstrations.update_states(self.policy)
        sums = torch.zeros(2, dtype=torch.float64)
        rows = torch.from_numpy(demonstrations.validation)
        for part in rows.split(VALIDATED_AT_ONCE):
            batch = on(demonstrations.tensors, part)
            losses = self.head.imitation_loss(self.imitation(batch, batch.get("states")), batch["actions"])
            weights = batch.get("weights", torch.ones_like(losses))
            sums += torch.stack([(weights * losses).sum(), weights.sum()]).double().cpu()
        return float(sums[0] / sums[1])

    def _trained_mask(self, demonstrations: Demonstrations) -> Tensor:
        """Return 1 for each parameter that the imitation loss moves, 0 for others, as those of a critic."""
        batch = on(demonstrations.tensors, torch.from_numpy(demonstrations.train[:VALIDATED_AT_ONCE]))
        leaves = list(self.parameters.leaves.values())
        with torch.enable_grad():
            parameters = self.imitation(batch, batch.get("states"))
            loss = self.head.imitation_loss(parameters, batch["actions"]).mean()
            gradients: Sequence[Tensor | None] = torch.autograd.grad(loss, leaves, allow_unused=True)
        is_trained = [
            torch.full_like(leaf.detach().reshape(-1), 0.0 if gradient is None else float(gradient.any()))
            for leaf, gradient in zip(leaves, gradients, strict=True)
        ]
        return torch.cat(is_trained)


class Epoch(NamedTuple):
    """One pass over what is learned from: mean losses; that of validation is NaN where there is none."""

    number: int
    loss: float
    imitation_loss: float
    validation_loss: float


class Patience:
    """Early stopping: counts epochs in a row without a better validation loss, and keeps the best parameters.

    ``last_vector`` are those of the last epoch where the best have taken their place.
    """

    def __init__(self, n_epochs: int | None) -> None:
        self.n_epochs = n_epochs
        self.best, self.n_worse = math.inf, 0
        self.best_vector: Tensor | None = None
        self.last_vector: Tensor | None = None

    @property
    def is_over(self) -> bool:
        """Whether there were too many epochs without a better loss."""
        return self.n_epochs is not None and self.n_worse >= self.n_epochs

    def note(self, validation_loss: float, vector: Tensor) -> None:
        """Add the validation loss of these parameters; NaN is ignored."""
        if math.isnan(validation_loss):
            return
        if validation_loss < self.best:
            self.best, self.n_worse, self.best_vector = validation_loss, 0, vector.clone()
        else:
            self.n_worse += 1

    def begin_again(self, *, keep_best: bool) -> None:
        """Count anew; without the best there is nothing to be better than."""
        if not keep_best:
            self.best, self.best_vector = math.inf, None
        self.n_worse, self.last_vector = 0, None

    def state(self) -> dict[str, Any]:
        """Return all of it, for `load_state`."""
        vectors = {"best_vector": self.best_vector, "last_vector": self.last_vector}
        arrays = {name: each.cpu().numpy() for name, each in vectors.items() if each is not None}
        return {"best": None if math.isinf(self.best) else self.best, "n_worse": self.n_worse, **arrays}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to there."""
        self.best = math.inf if state["best"] is None else state["best"]
        self.n_worse = state["n_worse"]
        self.best_vector, self.last_vector = (
            torch.from_numpy(np.array(state[name])) if name in state else None
            for name in ("best_vector", "last_vector")
        )


@dataclass
class BCConfig(CloningTerms):
    """Hyperparameters of behaviour cloning."""

    learning_rate: Schedule = hyperparameter(1e-3, "step size of Adam", ge=0)


class BC(Algorithm):
    """Behaviour cloning of ``dataset``: `ExpertData`, or the path of a file that `read_expert` reads."""

    name = "bc"
    config_class = BCConfig
    supported_actions = ANY_ACTIONS
    has_recurrence = True
    can_share = False
    learns_from_experts = True

    config: BCConfig

    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        *,
        dataset: ExpertData | str | Path | None = None,
        **options: Any,
    ) -> None:
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
        return self.cloning.updater.initial_state()

    def _make_buffer(self) -> None:
        self.buffer = self.collector  # nothing of the environments is kept

    def _reset_envs(self) -> None:
        if self._data is not None:
            update_normalizer(self, self._data)  # before a normaliser has seen what a reset shows
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


# -- cloning before reinforcement learning ----------------------------------------------------------------


@dataclass
class PretrainConfig(CloningTerms):
    """Behaviour cloning before reinforcement learning: the config section ``pretrain``."""

    dataset: str | None = hyperparameter(
        None, "expert data to start from: a .npz file, or minari:ID; null: start from nothing"
    )
    n_epochs: int = hyperparameter(50, "passes over the expert data at most", ge=1)
    learning_rate: float = hyperparameter(1e-3, "step size of Adam", ge=0)


class Pretraining:
    """Clones an expert with a copy of the acting part of an algorithm's policy; `apply` copies it back.

    Between two epochs `state` is its whole state. Raises `ZooError` for other spaces.
    """

    def __init__(
        self, algorithm: Algorithm, dataset: ExpertData | str | Path, config: PretrainConfig
    ) -> None:
        self.algorithm, self.config = algorithm, config
        self.epochs: list[Epoch] = []
        """The losses so far."""
        data = chosen_episodes(dataset, algorithm, config)
        self._checksum = expert_checksum(data)
        update_normalizer(algorithm, data)
        self._rng = own_generator(algorithm.seed)
        self._demonstrations = Demonstrations(data, algorithm, config.validation_fraction, self._rng)
        self._policy = copy.deepcopy(algorithm.acting.policy)
        self._cloning = Cloning(self._policy, config)
        self._runtime = Runtime(
            device=str(algorithm.device), compile=False, threads="auto", precision="float32"
        )
        n_rows = config.n_epochs * len(self._demonstrations.train)
        self._runtime.expect(n_rows, float(self._cloning.parameters.size * config.batch_size))
        self._runner = UpdateRunner(self._cloning.updater.initial_state(), self._runtime)
        self._means: dict[str, float] = {}

    @property
    def is_over(self) -> bool:
        """Whether no epoch is left, or none has been better for too long."""
        return len(self.epochs) >= self.config.n_epochs or self._cloning.patience.is_over

    def run(self, on_epoch: Callable[[Epoch], bool | None] | None = None) -> None:
        """Train for the epochs that are left, or until ``on_epoch`` returns True.

        Raises `NotFiniteError` where a loss or a parameter is NaN or infinite.
        """
        rate = torch.tensor(self.config.learning_rate, device=self.algorithm.device)
        with self._runtime.in_force(), self.algorithm.generators.torch_of_this_run():
            while not self.is_over:
                self._train_epoch(len(self.epochs) + 1, rate)
                if on_epoch is not None and on_epoch(self.epochs[-1]):
                    break

    def apply(self) -> None:
        """Let the algorithm go on with the best parameters, and record the losses.

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
            algorithm.collector.renormalize()

    def _train_epoch(self, number: int, learning_rate: torch.Tensor) -> None:
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
        result = self._runner.run(step, shared, rows)
        self._means = dict(zip(result.names, result.metrics.tolist(), strict=True))

    # -- exact resume -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return it as arrays and values, for `load_state`."""
        return {
            "tensors": Tensors(self._runner.state, self._policy).state(),
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
        Tensors(self._runner.state, self._policy).load_state(state["tensors"])
        self._cloning.patience.load_state(state["patience"])
        self._runtime.load_state(state["runtime"])
        self._rng.bit_generator.state = state["rng"]
        self.algorithm.generators.load_state(state["generators"])
        self.epochs = [Epoch(int(number), *losses) for number, *losses in state["epochs"].tolist()]
