"""Behaviour cloning (Pomerleau 1989): doing in each state what an expert did, learned as a supervised task.

The loss is a head's own: cross-entropy for choices, the mean squared error of the likeliest action for
numbers. Validation episodes, which nothing is learned from, tell when to stop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from zoo.algorithms.batch_means import batch_mean, counted
from zoo.algorithms.demonstrations import Demonstrations, on
from zoo.algorithms.expert_episodes import EpisodeChoice
from zoo.config.fields import hyperparameter
from zoo.errors import ZooError
from zoo.optim.descent import Descent
from zoo.optim.optimizers import Adam
from zoo.optim.parameters import Parameters
from zoo.optim.program import Outcome
from zoo.optim.state import State
from zoo.policies.deterministic_actor import Deterministic
from zoo.policies.heads import Head

Array = np.ndarray

VALIDATED_AT_ONCE = 4096
"""Rows of one forward pass without gradients."""


@dataclass
class CloningTerms(EpisodeChoice):
    """What all cloning has to be told, beside a learning rate and when to end."""

    batch_size: int = hyperparameter(64, "steps in a gradient step", unit="steps", ge=1)
    ent_coef: float = hyperparameter(0.0, "weight of an entropy bonus, which keeps the policy random", ge=0)
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


class Cloning:
    """Moves ``policy`` towards an expert. Raises `ZooError` for an entropy bonus without entropy."""

    def __init__(self, policy: nn.Module, terms: CloningTerms) -> None:
        self.terms, self.policy = terms, policy
        self.head: Head = policy.head  # type: ignore[assignment]
        if terms.ent_coef and isinstance(self.head, Deterministic):
            raise ZooError(f"`ent_coef={terms.ent_coef:g}`: this policy's actions are not random")
        self.imitation = Imitation(policy)
        self.parameters = Parameters("policy", self.imitation)
        self.descent = Descent(self.parameters, Adam(), max_grad_norm=terms.max_grad_norm)
        self._taught: Tensor | None = None

    def shared(self, demonstrations: Demonstrations, learning_rate: Tensor) -> dict[str, Any]:
        """Return what all steps of an epoch see."""
        demonstrations.remember(self.policy)
        if self._taught is None:
            self._taught = self._find_taught(demonstrations)
        return {"rows": demonstrations.tensors, "taught": self._taught, "learning_rate": learning_rate}

    def step(self, state: State, shared: Any, rows: Tensor) -> Outcome:
        """Take one gradient step on these rows of the demonstrations."""
        terms, imitation = self.terms, self.descent.module(state)
        batch = counted(on(shared["rows"], rows))
        parameters = imitation(batch, batch.get("states"))
        imitation_loss = batch_mean(self.head.imitation_loss(parameters, batch["actions"]), batch)
        loss, metrics = imitation_loss, {"imitation_loss": imitation_loss.detach()}
        if terms.ent_coef:
            entropy = batch_mean(self.head.entropy(parameters), batch)
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
    """Whether validation losses still get better, and the parameters with the best of them."""

    def __init__(self, n_epochs: int | None) -> None:
        self.n_epochs = n_epochs
        self.best, self.n_worse = math.inf, 0
        self.vector: Tensor | None = None

    def is_over(self, validation_loss: float, vector: Tensor) -> bool:
        """Take note of an epoch; return whether it was one too many without anything better."""
        if math.isnan(validation_loss):
            return False
        if validation_loss < self.best:
            self.best, self.n_worse, self.vector = validation_loss, 0, vector.clone()
            return False
        self.n_worse += 1
        return self.n_epochs is not None and self.n_worse >= self.n_epochs

    def state(self) -> dict[str, Any]:
        """Return all of it, for `load_state`."""
        vector = {} if self.vector is None else {"vector": self.vector.cpu().numpy()}
        return {"best": None if math.isinf(self.best) else self.best, "n_worse": self.n_worse, **vector}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to there."""
        self.best = math.inf if state["best"] is None else state["best"]
        self.n_worse = state["n_worse"]
        self.vector = torch.from_numpy(np.array(state["vector"])) if "vector" in state else None
