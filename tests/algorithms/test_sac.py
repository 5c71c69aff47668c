"""What SAC makes of its critics' values."""

from __future__ import annotations

import pytest
import torch

import zoo


def test_losses_are_summed_over_the_critics_and_errors_averaged() -> None:
    model = zoo.SAC({"net_arch": [4]}, "Pendulum-v1", seed=0, compile=False, threads=1)
    values = torch.tensor([[1.0, -2.0, 0.0], [4.0, 0.0, 1.0]])
    losses, errors = model._losses_and_errors(values, torch.tensor([2.0, 0.0, 0.5]))
    assert losses.tolist() == [0.5 * (1 + 4), 0.5 * 4, 0.5 * (0.25 + 0.25)]
    assert errors.tolist() == [1.5, 1.0, 0.5]


def test_the_temperature_learns_from_weighted_samples() -> None:
    """As the critics and the actor do: the entropy is that of their distribution."""
    batch = {
        "observations": torch.randn(4, 3),
        "next_observations": torch.randn(4, 3),
        "actions": torch.rand(4, 1),
        "rewards": torch.zeros(4),
        "terminated": torch.zeros(4),
    }
    losses = []
    for weights in ([1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]):
        settings = {"seed": 0, "compile": False, "threads": 1, "ent_coef": "auto_0.1"}
        model = zoo.SAC({"net_arch": [4]}, "Pendulum-v1", **settings)
        noise = torch.linspace(-1, 1, 8).reshape(2, 4, 1)
        row = {**batch, "noise": noise, "tau": torch.zeros(()), "weights": torch.tensor(weights)}
        with model.runtime.in_force():
            outcome = model._gradient_step(model.runner.state, {"learning_rate": torch.tensor(1e-3)}, row)
        losses.append(float(outcome.metrics["ent_coef_loss"]))
    assert losses[0] != losses[1]
    assert losses[2] == pytest.approx(losses[0] + losses[1])
