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
    return model._tensors(model.memory.sample(model.rng, (n_steps, BATCH)))


def one_by_one(model: Any, batches: dict[str, torch.Tensor]) -> torch.Tensor:
    rows = [{name: each[i] for name, each in batches.items()} for i in range(len(batches["rewards"]))]
    return torch.stack([model._of_target(model.program.state, row) for row in rows])


@pytest.mark.parametrize(("algorithm", "double"), [(DQN, True), (QRDQN, False)])
@pytest.mark.parametrize("n_steps", [2, 7])
def test_pieces_of_a_power_of_two_make_up_the_whole(
    algorithm: Any, double: bool, n_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = 2 if n_steps < 4 else 4
    model = model_of(algorithm, "CartPole-v1", double=double)
    batches, seen = batches_of(model, n_steps), []
    call = model.program.call

    def noted(function: Any, rows: Any) -> Any:
        seen.append(len(rows["next_observations"]) // BATCH)
        return call(function, rows)

    monkeypatch.setattr(model.program, "call", noted)
    ahead = model._ahead(batches, together)
    torch.testing.assert_close(ahead, one_by_one(model, batches))
    assert ahead.shape[:2] == (n_steps, BATCH)
    assert ahead.nbytes * 2 == model._bytes_ahead() * n_steps * BATCH
    assert set(seen) == {together}
    assert sum(seen) < n_steps + max(seen)


@pytest.mark.parametrize("double", [True, False])
def test_masks_of_the_next_states_come_along(double: bool) -> None:
    model = model_of(DQN, "Zoo/Masked-v0", double=double)
    batches = batches_of(model, 6)
    masks = batches["next_action_masks"]
    assert not masks.all()
    torch.testing.assert_close(model._ahead(batches, 2), one_by_one(model, batches))
    allowed = {name: each for name, each in batches.items() if name != "next_action_masks"}
    changed = (model._ahead(allowed, 2) != model._ahead(batches, 2)).any()
    assert bool(changed) == (not double)  # doubly, the online network chooses, and later


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_targets_are_the_same_with_them_and_without(algorithm: Any, double: bool) -> None:
    model = model_of(algorithm, "CartPole-v1", double=double)
    batches = batches_of(model, 3)
    ahead = model._ahead(batches, 2)
    for i in range(3):
        batch = {name: each[i] for name, each in batches.items()}
        with_them = model.targets(model.program.state, {**batch, "of_target": ahead[i]})
        torch.testing.assert_close(with_them, model.targets(model.program.state, batch))
        others = model.targets(model.program.state, {**batch, "of_target": ahead[i] + 1})
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
