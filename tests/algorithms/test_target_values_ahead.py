"""What DQN's target network estimates of many batches at once is what it estimates of each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from zoo import DQN, QRDQN
from zoo.algorithms import dqn as module
from zoo.envs.vec_env import make_vec_env

BATCH = 8


def model_of(algorithm: Any, env: str, **options: Any) -> Any:
    """Return a model that has learned a little, so that its target network lags behind."""
    hyperparameters = {"learning_starts": 20, "train_freq": 4, "gradient_steps": 2, **options}
    return algorithm(
        {"name": "MlpPolicy", "net_arch": [16]},
        make_vec_env(env, 2, 0),
        seed=0,
        compile=False,
        batch_size=BATCH,
        learning_rate=0.01,
        **hyperparameters,
    ).learn(60)


def batches_of(model: Any, n_steps: int) -> dict[str, torch.Tensor]:
    return model._tensors(model.buffer.sample(model.rng, (n_steps, BATCH)))


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_targets_are_the_same_with_them_and_without(algorithm: Any, double: bool) -> None:
    model = model_of(algorithm, "CartPole-v1", double=double)
    batches = batches_of(model, 3)
    ahead = model._ahead(batches, 2)
    for i in range(3):
        batch = {name: each[i] for name, each in batches.items()}
        with_them = model.targets(model.runner.state, {**batch, "of_target": ahead[i]})
        torch.testing.assert_close(with_them, model.targets(model.runner.state, batch))
        others = model.targets(model.runner.state, {**batch, "of_target": ahead[i] + 1})
        assert not torch.allclose(others, with_them)


@pytest.mark.parametrize(
    ("gradient_steps", "rows", "together"),
    [(1, 1024, set()), (2, 1024, {2}), (7, 1024, {4}), (7, 3 * BATCH, {2}), (7, 2 * BATCH - 1, set())],
)
def test_as_many_batches_are_estimated_at_once_as_there_is_room_for_and_one_alone_in_its_step(
    gradient_steps: int, rows: int, together: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS_AHEAD", rows)
    asked, ahead = set(), DQN._ahead

    def noted(model: Any, batches: Any, together: int) -> Any:
        asked.add(together)
        return ahead(model, batches, together)

    monkeypatch.setattr(DQN, "_ahead", noted)
    model_of(DQN, "CartPole-v1", gradient_steps=gradient_steps)
    assert asked == together
