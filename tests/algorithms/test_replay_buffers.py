"""Memories in training: what updates get from them, what they learn of updates, and how they are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from zoo import DQN, PPO2
from zoo.errors import ZooError

SMALL = {"net_arch": [8]}
PRIORITIZED = {"prioritized": {"alpha": 0.5, "epsilon": 0.01}}


def dqn(**options: Any) -> DQN:
    settings = {"learning_starts": 40, "batch_size": 16, "train_freq": 4, "gamma": 0.9, **options}
    return DQN(SMALL, "CartPole-v1", n_envs=2, seed=0, compile=False, threads=1, **settings)


def test_priorities_are_the_errors_that_the_last_update_found() -> None:
    model = dqn(replay=PRIORITIZED, train_freq=100, gradient_steps=1, learning_rate=0.0)
    model.learn(100)
    before = model.buffer.sampler.tree.numbers.copy()  # type: ignore[attr-defined]
    model.learn(100, reset_num_timesteps=False)
    drawn = model.buffer.sampler._drawn  # type: ignore[attr-defined]
    numbers = model.buffer.sampler.tree.numbers  # type: ignore[attr-defined]
    model.buffer.sampler.sample = lambda *_: (*np.divmod(drawn, 2), None)  # type: ignore[method-assign]
    batch = model._tensors(model.buffer.sample(model.rng, drawn.shape))
    with torch.no_grad():
        values = model.policy(batch["observations"])
        chosen = values[torch.arange(len(drawn)), batch["actions"]]
        errors = (chosen - model.targets(model.runner.state, batch)).abs().numpy()
    np.testing.assert_allclose(numbers[drawn], (errors + 0.01) ** 0.5, rtol=1e-4)
    others = np.setdiff1d(np.flatnonzero(before), drawn)
    assert (numbers[others] == before[others]).all()
    assert len(np.unique(numbers[drawn])) > 3


@pytest.mark.parametrize("n_step", [1, 3])
def test_targets_discount_the_next_value_by_the_steps_that_were_summed_up(n_step: int) -> None:
    model = dqn(replay={"n_step": n_step}, double=False).learn(200)
    batch = model._tensors(model.buffer.sample(model.rng, (300,)))
    with torch.no_grad():
        targets = model.targets(model.runner.state, batch)
        best = model.updater.parameters.functional(model.runner.state["target"])(
            batch["next_observations"]
        ).amax(-1)
    # Each step of CartPole pays 1, so a sum of rewards tells of how many steps it is.
    n = torch.log(1 - batch["rewards"] * (1 - 0.9)) / np.log(0.9)
    assert set(n.round().int().tolist()) <= set(range(1, n_step + 1))
    torch.testing.assert_close(targets, batch["rewards"] + 0.9**n * (1 - batch["terminated"]) * best)


def test_progress_of_training_reaches_the_sampler() -> None:
    model = dqn(replay=PRIORITIZED)
    seen: list[float] = []
    beta = model.buffer.sampler.beta  # type: ignore[attr-defined]

    def watched(progress: float) -> float:
        seen.append(beta(progress))
        return seen[-1]

    model.buffer.sampler.beta = watched  # type: ignore[attr-defined]
    model.learn(400)
    assert seen == sorted(seen)
    assert seen[0] == pytest.approx(0.4 + 0.6 * 40 / 400, abs=0.02)
    assert seen[-1] == pytest.approx(1.0, abs=0.02)


def test_memories_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ZooError, match=r"`replay\.n_step=9` is longer than the buffer.* keeps 8 steps"):
        dqn(replay={"n_step": 9}, buffer_size=16)
    with pytest.raises(ZooError, match=r"unknown key `replay\.alpha`"):
        dqn(replay={"alpha": 1.0})
    with pytest.raises(ZooError, match="replay"):
        PPO2(SMALL, "CartPole-v1", replay={"n_step": 2})
