"""When an off-policy algorithm does what: by counts of steps written by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from zoo import DQN
from zoo.algorithms import off_policy
from zoo.algorithms.off_policy import mean_loss
from zoo.memory.config import MemoryConfig, PrioritizedConfig

SMALL = {"net_arch": [8]}


def dqn(**settings: Any) -> DQN:
    options = {"learning_starts": 10_000, "buffer_size": 1000, "batch_size": 4, **settings}
    return DQN(SMALL, "CartPole-v1", **{"n_envs": 1, "seed": 0, "compile": False, "threads": 1, **options})


@pytest.mark.filterwarnings("ignore:nothing will be learned")
@pytest.mark.parametrize("n_envs", [1, 2])
def test_what_was_collected_is_looked_at_every_64_steps(n_envs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []

    def look(model: Any) -> None:
        looked.append(model.num_timesteps)
        model.memory.n_unchecked = 0

    monkeypatch.setattr("zoo.algorithms.off_policy.check_collected", look)
    dqn(n_envs=n_envs, train_freq=n_envs).learn(200 * n_envs)
    assert looked == [64 * n_envs, 128 * n_envs, 192 * n_envs]


@pytest.mark.parametrize("learning_starts", [0, 1, 20])
def test_so_many_first_steps_are_random(learning_starts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, kinds = dqn(learning_starts=learning_starts), []
    for name in ("warm_up", "act"):
        act = getattr(model.exploration, name)

        def noted(*arguments: Any, name: str = name, act: Any = act) -> Any:
            kinds.append(name)
            return act(*arguments)

        monkeypatch.setattr(model.exploration, name, noted)
    model.learn(30)
    assert kinds == ["warm_up"] * learning_starts + ["act"] * (30 - learning_starts)


def test_a_loss_is_the_mean_of_weighted_ones() -> None:
    losses, weights = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 0.25, 0.5])
    assert mean_loss(losses, None).item() == 3.0
    assert mean_loss(losses, weights).item() == 1.5


@pytest.mark.parametrize(("beta", "is_paced"), [(0.4, True), (1.0, False)])
def test_growing_weights_of_priorities_follow_the_progress(beta: float, is_paced: bool) -> None:
    memory = MemoryConfig(prioritized=PrioritizedConfig(beta=beta, beta_fraction=0.75))
    paced = dqn(memory=memory).paced()
    assert paced.get("memory.prioritized.beta_fraction") == (0.75 if is_paced else None)
    assert "memory.prioritized.beta_fraction" not in dqn().paced()


@pytest.mark.parametrize(("initial", "is_paced"), [(1.0, True), (0.05, False)])
def test_falling_exploration_follows_the_progress(initial: float, is_paced: bool) -> None:
    settings = {"exploration_final_eps": 0.05, "exploration_fraction": 0.3, "learning_rate": 1e-3}
    paced = dqn(exploration_initial_eps=initial, **settings).paced()
    assert paced == ({"algo.exploration_fraction": 0.3} if is_paced else {})


@pytest.mark.parametrize(
    ("steps", "collected", "n_due"),
    [(10, 10, 1), (9, 9, 0), (19, 9, 0), (20, 1, 1), (25, 4, 0), (45, 30, 3)],
)
def test_target_follows_once_for_each_interval_that_has_passed(
    steps: int, collected: int, n_due: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10 steps. All at once: what is left of it is (1 − τ)ⁿ."""
    model = dqn(target_update_interval=10, tau=0.5)
    shares: list[float] = []
    parameters: Any = SimpleNamespace(follow=lambda state, name, tau: shares.append(tau))
    monkeypatch.setattr(model.descent, "parameters", parameters)
    model.num_timesteps, model._collected = steps, collected
    model.update()
    assert shares == ([1.0 - 0.5**n_due] if n_due else [])


@pytest.mark.parametrize(
    ("n_envs", "n_workers", "train_freq", "starts", "before", "n_steps", "learns"),
    [
        (1, 1, 4, 8, 0, 8, False),
        (1, 1, 4, 8, 0, 11, False),
        (1, 1, 4, 8, 0, 12, True),
        (3, 1, 4, 8, 0, 9, False),  # 9 steps, of which 6 are those of one collection
        (3, 1, 4, 8, 0, 12, True),
        (3, 2, 4, 8, 0, 7, True),  # 12 steps, 6 at once
        (3, 2, 4, 8, 0, 6, False),
        (1, 1, 4, 8, 8, 3, False),
        (1, 1, 4, 8, 8, 4, True),
        (1, 1, 5, 0, 100, 4, False),
    ],
)
def test_an_update_is_foreseen(
    n_envs: int,
    n_workers: int,
    train_freq: int,
    starts: int,
    before: int,
    n_steps: int,
    learns: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = dqn(n_envs=n_envs, train_freq=train_freq, learning_starts=starts)
    monkeypatch.setattr(model.team, "size", n_workers)
    assert model._learns_within(n_steps, before) == learns


@pytest.mark.parametrize("settings", [{"gradient_steps": -1}, {"train_freq": [1, "episode"]}], ids=str)
@pytest.mark.parametrize(("n_steps", "learns"), [(8, False), (9, True)])
def test_an_update_that_may_come_at_any_step_is_foreseen(
    settings: dict[str, Any], n_steps: int, learns: bool
) -> None:
    assert dqn(learning_starts=8, **settings)._learns_within(n_steps, 0) == learns


def test_episodes_of_one_step_are_counted_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a collection until two of them have ended takes two steps, and not one."""
    model = dqn(train_freq=[2, "episode"])
    ended = SimpleNamespace(finished=np.zeros(0, np.int64), episodes=["one"])

    def interact(act: Any, store: Any) -> Any:
        model.num_timesteps += 1
        return SimpleNamespace(outcome=ended)

    monkeypatch.setattr(model, "_interact", interact)
    monkeypatch.setattr(off_policy, "check_collected", lambda algorithm: None)
    model.total_timesteps = 100
    model.collect()
    assert (model.num_timesteps, model._collected, model._uncredited, model.cut_short) == (2, 2, 2, False)
    model.total_timesteps = 3
    model.collect()
    assert (model.num_timesteps, model._collected, model._uncredited, model.cut_short) == (3, 1, 3, True)
