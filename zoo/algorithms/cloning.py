"""Behaviour cloning (Pomerleau 1989): doing in each state what an expert did, learned as a supervised task.

The loss is a head's own: cross-entropy for choices, the mean squared error of the likeliest action for
numbers. Validation episodes, which nothing is learned from, tell when to stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from zoo.algorithms.batch_means import batch_mean, counted
from zoo.algorithms.demonstrations import Demonstrations, on
from zoo.algorithms.expert_episodes import EpisodeChoice
from zoo.config.fields import hyperparameter
from zoo.errors import NotFiniteError, ZooError
from zoo.optim.optimizers import Adam, Descent
from zoo.optim.parameters import Parameters
from zoo.optim.state import Outcome, State, Step
from zoo.policies.heads import Head
from zoo.policies.modes import Modes

Array = np.ndarray

VALIDATED_AT_ONCE = 4096
"""Rows of one forward pass without gradients."""


@dataclass
class CloningTerms(EpisodeChoice):
    """What all cloning has to be told, beside a learning rate and when to end."""

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
    """A policy as the function that is cloned: from what is seen to the parameters of its actions."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, seen: dict[str, Any], state: Tensor | None = None) -> Tensor:
        parameters: Tensor = self.policy.action_parameters(seen, state)[0]  # type: ignore[operator]
        return parameters


TakeSteps = Callable[[Step, dict[str, Any], Tensor], Any]
"""Takes a step for each row of the last, (steps, …), on what all of them see."""


class Cloning:
    """Moves ``policy`` towards an expert. Raises `ZooError` for an entropy bonus that nothing holds."""

    def __init__(self, policy: nn.Module, terms: CloningTerms) -> None:
        self.terms, self.policy = terms, policy
        self.head: Head = policy.head  # type: ignore[assignment]
        if terms.ent_coef and not self.head.cloning_settles_entropy:
            raise ZooError(
                f"`ent_coef={terms.ent_coef:g}`: these actions are numbers, cloned by the squared error,"
                " which says nothing of how random they are; an entropy bonus is for choices, so leave it out"
            )
        self.imitation = Imitation(policy)
        self.parameters = Parameters("policy", self.imitation)
        self.descent = Descent(self.parameters, Adam(), max_grad_norm=terms.max_grad_norm)
        self.modes = Modes(policy)
        self.patience = Patience(terms.patience)
        self._taught: Tensor | None = None

    def epoch(
        self,
        demonstrations: Demonstrations,
        rng: np.random.Generator,
        learning_rate: Tensor,
        take_steps: TakeSteps,
    ) -> float:
        """Learn from each row once, in a random order; return the validation loss, NaN where there is none.

        Patience takes note of it. Raises `NotFiniteError` where that has left no numbers.
        """
        rows = torch.from_numpy(demonstrations.minibatches(rng, self.terms.batch_size))
        with self.modes.training():
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
        """Bring what the demonstrations hold of the policy's memory up to date; return what all steps see."""
        demonstrations.remember(self.policy)
        if self._taught is None:
            self._taught = self._find_taught(demonstrations)
        return {"rows": demonstrations.tensors, "taught": self._taught, "learning_rate": learning_rate}

    def take_best(self) -> None:
        """Take the parameters with the best validation loss, if there is any; `go_on` undoes it."""
        if self.patience.best_vector is not None:
            self.patience.last_vector = self.parameters.flat.clone()
            self.parameters.flat.copy_(self.patience.best_vector)

    def go_on(self) -> None:
        """Go on from the parameters of the last epoch, unless somebody has set others since."""
        if self.patience.last_vector is not None and self._has_best():
            self.parameters.flat.copy_(self.patience.last_vector)
        self.patience.last_vector = None

    def begin_again(self) -> None:
        """Go on from the parameters of now, with all of one's patience."""
        self.patience.begin_again(keep_best=self._has_best())

    def _has_best(self) -> bool:
        best = self.patience.best_vector
        flat = self.parameters.flat
        return best is not None and torch.equal(best.to(flat.device), flat)

    def step(self, state: State, shared: Any, rows: Tensor) -> Outcome:
        """Take one gradient step on these rows of the demonstrations."""
        terms, imitation = self.terms, self.descent.module(state)
        batch = counted(on(shared["rows"], rows))
        parameters = imitation(batch, batch.get("states"))
        imitation_loss = batch_mean(self.head.imitation_loss(parameters, batch["actions"]), batch)
        loss, metrics = imitation_loss, {"imitation_loss": imitation_loss.detach()}
        if terms.ent_coef:
            entropy = batch_mean(self.head.imitation_entropy(parameters), batch)
            loss = loss - terms.ent_coef * entropy
            metrics["entropy"] = entropy.detach()
        gradient = self.descent.gradient(imitation, loss)
        total = loss.detach()
        if terms.l2_coef:
            taught = shared["taught"] * state[self.parameters.name]
            gradient = gradient + terms.l2_coef * taught
            total = total + 0.5 * terms.l2_coef * taught.square().sum()
        state, grad_norm = self.descent.step(state, gradient, shared["learning_rate"])
        return Outcome(state, {**metrics, "loss": total, "grad_norm": grad_norm})

    @torch.no_grad()
    def validation_loss(self, demonstrations: Demonstrations) -> float:
        """Return the mean imitation loss of the validation episodes; NaN where there are none."""
        if not len(demonstrations.validation):
            return math.nan
        demonstrations.remember(self.policy)
        sums = torch.zeros(2, dtype=torch.float64)
        rows = torch.from_numpy(demonstrations.validation)
        for part in rows.split(VALIDATED_AT_ONCE):
            batch = on(demonstrations.tensors, part)
            losses = self.head.imitation_loss(self.imitation(batch, batch.get("states")), batch["actions"])
            weights = batch.get("weights", torch.ones_like(losses))
            sums += torch.stack([(weights * losses).sum(), weights.sum()]).double().cpu()
        return float(sums[0] / sums[1])

    def _find_taught(self, demonstrations: Demonstrations) -> Tensor:
        """Return 1 for each parameter that the imitation loss moves, 0 for others, as those of a critic."""
        batch = on(demonstrations.tensors, torch.from_numpy(demonstrations.train[:VALIDATED_AT_ONCE]))
        leaves = list(self.parameters.leaves.values())
        with torch.enable_grad():
            parameters = self.imitation(batch, batch.get("states"))
            loss = self.head.imitation_loss(parameters, batch["actions"]).mean()
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        taught = [
            torch.full_like(leaf.detach().reshape(-1), _is_moving(gradient))
            for leaf, gradient in zip(leaves, gradients, strict=True)
        ]
        return torch.cat(taught)


def _is_moving(gradient: Tensor | None) -> float:
    return 0.0 if gradient is None else float(gradient.any())


class Epoch(NamedTuple):
    """One pass over what is learned from: mean losses; that of validation is NaN where there is none."""

    number: int
    loss: float
    imitation_loss: float
    validation_loss: float


class Patience:
    """How often in a row a validation loss got no better, and the parameters with the best of them.

    ``last_vector`` are those of the last epoch where the best have taken their place.
    """

    def __init__(self, n_epochs: int | None) -> None:
        self.n_epochs = n_epochs
        self.best, self.n_worse = math.inf, 0
        self.best_vector: Tensor | None = None
        self.last_vector: Tensor | None = None

    @property
    def is_over(self) -> bool:
        """Whether there was one epoch too many without anything better."""
        return self.n_epochs is not None and self.n_worse >= self.n_epochs

    def note(self, validation_loss: float, vector: Tensor) -> None:
        """Take note of the validation loss of these parameters; NaN says nothing."""
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
