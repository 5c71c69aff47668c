"""TQC's targets and losses against plain ones, and what is left of them with few quantiles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from zoo import TQC
from zoo.errors import ZooError


def make(**hyperparameters: Any) -> TQC:
    settings = {"buffer_size": 100, "batch_size": 8, "learning_starts": 0, **hyperparameters}
    return TQC({"net_arch": [8]}, "Pendulum-v1", seed=0, compile=False, threads=1, **settings)


def test_targets_are_discounted_from_the_next_state_and_end_with_the_episode() -> None:
    model = make(n_quantiles=4, gamma=0.5)
    batch = {
        "next_observations": torch.randn(8, 3),
        "rewards": torch.randn(8),
        "terminated": torch.tensor([0.0, 1.0] * 4),
    }
    noise, ent_coef = torch.randn(8, 1), torch.tensor(0.1)
    targets = model.targets(model.runner.state, batch, noise, ent_coef)
    assert targets.shape == (8, 4)
    policy = model.policy
    actions, log_prob = policy.actor.head.rsample(policy.actor(batch["next_observations"]), noise)
    quantiles = policy.critics(batch["next_observations"], actions)
    for row in range(8):
        pooled = quantiles[:, row].reshape(-1).sort().values[:4]
        following = (0.0 if row % 2 else 0.5) * (pooled - 0.1 * log_prob[row])
        torch.testing.assert_close(targets[row].sort().values, batch["rewards"][row] + following)


def test_one_quantile_and_none_dropped_is_the_huber_loss_of_the_means() -> None:
    model = make(n_critics=2, n_quantiles=1, top_quantiles_to_drop_per_net=0)
    values, next_values = 2 * torch.randn(2, 5, 1), 2 * torch.randn(2, 5, 1)
    targets = model._soft_values(next_values, torch.zeros(5))
    losses, errors = model._losses_and_errors(values, targets)
    assert losses.shape == errors.shape == (5,)
    for row in range(5):
        pairs = [(value[row], target) for value in values for target in targets[row]]
        huber = torch.stack([F.smooth_l1_loss(value.squeeze(), target) for value, target in pairs])
        torch.testing.assert_close(losses[row], 0.5 * huber.mean())
        means = [(value[row, 0] - targets[row].mean()).abs() for value in values]
        torch.testing.assert_close(errors[row], torch.stack(means).mean())


@pytest.mark.parametrize("dropped", [4, 5])
def test_dropping_all_quantiles_is_refused(dropped: int) -> None:
    message = rf"`algo\.top_quantiles_to_drop_per_net={dropped}` leaves nothing of `algo\.n_quantiles=4`"
    with pytest.raises(ZooError, match=f"{message}; expected at most 3"):
        make(n_quantiles=4, top_quantiles_to_drop_per_net=dropped)
