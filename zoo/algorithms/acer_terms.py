"""What ACER makes of trajectories, for actions of either kind (Wang et al. 2017).

*Statistics* are what the policy's distribution is made of, and what the trust region bounds the movement of:
probabilities (appendix A's algorithm 2), or means and log standard deviations (algorithm 3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.algorithms.retrace import retrace
from zoo.optim.optimizers import Differentiable
from zoo.policies.action_value_policies import StochasticDuelingPolicy
from zoo.policies.choosing import pick

EPSILON = 1e-6
"""Added to probabilities before they are divided by, or their logarithms taken."""

Batch = dict[str, Any]
Function = Callable[[Tensor], Tensor]
"""Of statistics (…, k) to a number for each step (…)."""


class Terms(NamedTuple):
    """``objective`` is what a step's distribution shall climb, ``divergence`` how far it is from the average.

    ``statistics`` (…, k) are those of the policy, with gradients; ``critic_loss`` is a scalar.
    """

    statistics: Tensor
    objective: Function
    entropy: Function
    divergence: Function
    critic_loss: Tensor


class Kind(Protocol):
    """How trajectories of one kind of actions are judged."""

    def state_values(self, parameters: Tensor, values: Tensor) -> Tensor:
        """Return V(s) (…) of what a policy's forward pass gives."""
        ...

    def terms(
        self, policy: Differentiable, average: Tensor | None, next_values: Tensor, batch: Batch
    ) -> Terms:
        """Return the terms of an update on a batch (sequences, time, …).

        ``average`` are the average policy's parameters there, for the divergence from it, and
        ``next_values`` (places,) the values of what followed where the batch does not show it.
        """
        ...


class Returns:
    """Makes targets of action values along trajectories (sequences, time)."""

    def __init__(
        self, gamma: float, values: Tensor, next_values: Tensor, taken: Tensor, batch: Batch
    ) -> None:
        followed_by = batch["followed_by"]
        terminated, ended = batch["terminated"], batch["ended"]
        apart = next_values[followed_by.clamp(min=0)]
        following = torch.where(followed_by >= 0, apart, _next(values))
        targets = batch["rewards"] + gamma * torch.where(terminated, 0.0, following)
        self._taken = taken
        self._td_errors = targets - taken
        self._discounts = gamma * (~ended).to(taken.dtype)

    def corrected(self, coefficients: Tensor | None = None) -> Tensor:
        """Return Q^ret (…) with these truncated importances of the actions (equation 5); all 1: Q^opc."""
        weights = self._discounts if coefficients is None else self._discounts * _next(coefficients)
        return self._taken + retrace(self._td_errors, weights)


def _next(column: Tensor) -> Tensor:
    """Return what stands one step later; 0 at the last one."""
    return F.pad(column[..., 1:], (0, 1))


class DiscreteActions:
    """Trajectories of Discrete actions: all action values are known, and all probabilities."""

    def __init__(self, gamma: float, truncation: float) -> None:
        self.gamma, self.truncation = gamma, truncation

    def state_values(self, parameters: Tensor, values: Tensor) -> Tensor:
        """Return the mean action value."""
        return (torch.softmax(parameters, -1) * values).sum(-1)

    def terms(
        self, policy: Differentiable, average: Tensor | None, next_values: Tensor, batch: Batch
    ) -> Terms:
        logits, action_values, _ = policy(batch, batch.get("states"))
        actions, statistics = batch["actions"], torch.softmax(logits, -1)
        probabilities, judged = statistics.detach(), action_values.detach()
        ratios = probabilities / (torch.softmax(batch["behaviour"], -1) + EPSILON)
        ratio, taken = pick(ratios, actions), pick(action_values, actions)
        values = (probabilities * judged).sum(-1)
        returns = Returns(self.gamma, values, next_values, taken.detach(), batch)
        targets = returns.corrected(ratio.clamp(max=1.0))
        # Equation 9: what truncation leaves out of the first part is in the second, over all actions.
        seen_weight = ratio.clamp(max=self.truncation) * (targets - values)
        unseen_weights = torch.relu(1.0 - self.truncation / (ratios + EPSILON)) * probabilities
        unseen_weights = unseen_weights * (judged - values.unsqueeze(-1))
        # A mask leaves an action probability 0, and no slope: nothing of it may count in the projection.
        possible = probabilities > 0

        def log(statistics: Tensor) -> Tensor:
            return torch.where(possible, (statistics + EPSILON).log(), 0.0)

        def objective(statistics: Tensor) -> Tensor:
            logs = log(statistics)
            return seen_weight * pick(logs, actions) + (unseen_weights * logs).sum(-1)

        def entropy(statistics: Tensor) -> Tensor:
            return -(statistics * log(statistics)).sum(-1)

        def divergence(statistics: Tensor) -> Tensor:
            assert average is not None
            average_probabilities = torch.softmax(average, -1)
            return (average_probabilities * (log(average_probabilities) - log(statistics))).sum(-1)

        critic_loss = 0.5 * (targets - taken).square().mean()
        return Terms(statistics, objective, entropy, divergence, critic_loss)


class ContinuousActions:
    """Trajectories of actions that are numbers: action values come from a stochastic dueling network."""

    def __init__(self, policy: StochasticDuelingPolicy, gamma: float, truncation: float) -> None:
        self.gamma, self.truncation = gamma, truncation
        self.policy = policy
        self.head = policy.head

    def state_values(self, parameters: Tensor, values: Tensor) -> Tensor:
        """Return V(s), which the network gives."""
        return values

    def terms(
        self, policy: Differentiable, average: Tensor | None, next_values: Tensor, batch: Batch
    ) -> Terms:
        actions, behaviour, noise, head = batch["actions"], batch["behaviour"], batch["noise"], self.head
        statistics, judged, _ = policy(batch, batch.get("states"), actions, noise)
        values, taken, _ = judged
        state_values, taken_values, fresh_values = judged.detach()
        fresh = self.policy.drawn(statistics, noise[0])

        def ratio_of(actions: Tensor) -> Tensor:
            log_ratio = head.log_prob(statistics.detach(), actions) - head.log_prob(behaviour, actions)
            return log_ratio.exp()

        ratio = ratio_of(actions)
        returns = Returns(self.gamma, state_values, next_values, taken_values, batch)
        targets = returns.corrected(ratio.pow(1.0 / actions.shape[-1]).clamp(max=1.0))
        seen_weight = ratio.clamp(max=self.truncation) * (returns.corrected() - state_values)
        unseen_weight = torch.relu(1.0 - self.truncation / ratio_of(fresh)) * (fresh_values - state_values)

        def objective(statistics: Tensor) -> Tensor:
            seen = seen_weight * head.log_prob(statistics, actions)
            return seen + unseen_weight * head.log_prob(statistics, fresh)

        def divergence(statistics: Tensor) -> Tensor:
            assert average is not None
            return head.kl(average, statistics)

        errors = targets - taken_values
        value_targets = state_values + ratio.clamp(max=1.0) * errors
        losses = (targets - taken).square() + (value_targets - values).square()
        return Terms(statistics, objective, head.entropy, divergence, 0.5 * losses.mean())
