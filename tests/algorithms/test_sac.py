"""What SAC makes of its critics' values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import zoo
from zoo.errors import ZooError


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
            outcome = model._gradient_step(model.program.state, {"learning_rate": torch.tensor(1e-3)}, row)
        losses.append(float(outcome.metrics["ent_coef_loss"]))
    assert losses[0] != losses[1]
    assert losses[2] == pytest.approx(losses[0] + losses[1])


@pytest.mark.parametrize(
    ("algorithm", "setting"),
    [
        (zoo.SAC, {"ent_coef": np.inf}),
        (zoo.SAC, {"target_entropy": -np.inf}),
        (zoo.TD3, {"target_policy_noise": np.inf}),
        (zoo.DDPG, {"reward_scale": np.inf}),
        (zoo.DDPG, {"critic_l2_reg": np.inf}),
        (zoo.DDPG, {"parameter_noise": {"initial_std": np.inf}}),
    ],
)
def test_what_is_computed_with_is_finite(algorithm: type[zoo.SAC], setting: dict[str, object]) -> None:
    with pytest.raises(ZooError, match="is not a finite number"):
        algorithm({"net_arch": [4]}, "Pendulum-v1", **setting)
