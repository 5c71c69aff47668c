"""Memories in training: what updates get from them, what they learn of updates, and how they are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zoo
from zoo import DQN, PPO2, SAC
from zoo.errors import ZooError
from zoo.memory.config import MemoryConfig, PrioritizedConfig
from zoo.memory.sampling import Drawn

SMALL = {"net_arch": [8]}
PRIORITIZED = {"prioritized": {"alpha": 0.5, "epsilon": 0.01}}


def dqn(**options: Any) -> DQN:
    settings = {"learning_starts": 40, "batch_size": 16, "train_freq": 4, "gamma": 0.9, **options}
    return DQN(SMALL, "CartPole-v1", n_envs=2, seed=0, compile=False, threads=1, **settings)


def test_priorities_are_the_errors_that_the_last_update_found() -> None:
    model = dqn(memory=PRIORITIZED, train_freq=100, gradient_steps=1, learning_rate=0.0)
    model.learn(100)
    before = model.memory.sampler.tree.numbers.copy()  # type: ignore[attr-defined]
    model.learn(100, reset_num_timesteps=False)
    drawn = model.memory.sampler._drawn  # type: ignore[attr-defined]
    numbers = model.memory.sampler.tree.numbers  # type: ignore[attr-defined]
    model.memory.sampler.draw = lambda *_: draws  # type: ignore[method-assign]
    draws = Drawn(*np.divmod(drawn, 2))
    batch = model._tensors(model.memory.sample(model.rng, drawn.shape))
    with torch.no_grad():
        values = model.policy(batch["observations"])
        chosen = values[torch.arange(len(drawn)), batch["actions"]]
        errors = (chosen - model.targets(model.program.state, batch)).abs().numpy()
    np.testing.assert_allclose(numbers[drawn], (errors + 0.01) ** 0.5, rtol=1e-4)
    others = np.setdiff1d(np.flatnonzero(before), drawn)
    assert (numbers[others] == before[others]).all()
    assert len(np.unique(numbers[drawn])) > 3


@pytest.mark.parametrize("n_step", [1, 3])
def test_targets_discount_the_next_value_by_the_steps_that_were_summed_up(n_step: int) -> None:
    model = dqn(memory={"n_step": n_step}, double=False).learn(200)
    batch = model._tensors(model.memory.sample(model.rng, (300,)))
    with torch.no_grad():
        targets = model.targets(model.program.state, batch)
        best = model.descent.parameters.at(model.program.state["target"])(batch["next_observations"]).amax(-1)
    # Each step of CartPole pays 1, so a sum of rewards tells of how many steps it is.
    n = torch.log(1 - batch["rewards"] * (1 - 0.9)) / np.log(0.9)
    assert set(n.round().int().tolist()) <= set(range(1, n_step + 1))
    torch.testing.assert_close(targets, batch["rewards"] + 0.9**n * (1 - batch["terminated"]) * best)


@pytest.mark.parametrize("algorithm", [DQN, SAC])
def test_importance_weights_reach_the_losses(algorithm: Any) -> None:
    env = "CartPole-v1" if algorithm is DQN else "Pendulum-v1"
    settings = {"learning_starts": 20, "batch_size": 8, "train_freq": 4, "learning_rate": 0.01}

    def after(beta: float) -> dict[str, np.ndarray]:
        memory = {"prioritized": {"alpha": 1.0, "beta": beta}}
        model = algorithm(SMALL, env, seed=0, compile=False, threads=1, memory=memory, **settings)
        return model.learn(80).get_parameters()

    plain, weighted = after(0.0), after(1.0)
    assert any((plain[name] != weighted[name]).any() for name in plain)


def test_progress_of_training_reaches_the_sampler() -> None:
    model = dqn(memory=PRIORITIZED)
    seen: list[float] = []
    beta = model.memory.sampler.beta  # type: ignore[attr-defined]

    def watched(progress: float) -> float:
        seen.append(beta(progress))
        return seen[-1]

    model.memory.sampler.beta = watched  # type: ignore[attr-defined]
    model.learn(400)
    assert seen == sorted(seen)
    assert seen[0] == pytest.approx(0.4 + 0.6 * 40 / 400, abs=0.02)
    assert seen[-1] == pytest.approx(1.0, abs=0.02)


def test_an_agent_keeps_its_memorys_config(tmp_path: Path) -> None:
    model = dqn(memory={"n_step": 2, **PRIORITIZED}).learn(60)
    loaded = zoo.load(model.save(tmp_path / "agent"), env="CartPole-v1")
    expected = MemoryConfig(n_step=2, prioritized=PrioritizedConfig(alpha=0.5, epsilon=0.01))
    assert loaded.memory_config == expected
    assert "alpha: 0.5" in (tmp_path / "agent" / "README.md").read_text()
    loaded.learn(60)
    other = zoo.load(tmp_path / "agent", env="CartPole-v1", memory={"n_step": 4})
    assert other.memory_config == MemoryConfig(n_step=4)
    assert other.memory.n_step == 4


def test_an_agent_from_before_there_were_memories_to_choose_has_the_usual_one(tmp_path: Path) -> None:
    config = dqn().save(tmp_path / "agent") / "config.yaml"
    text = config.read_text()
    start = text.index("memory:")
    config.write_text(text[:start] + text[text.index("env:", start) :])
    assert zoo.load(tmp_path / "agent").memory_config == MemoryConfig()


def test_damaged_memory_in_an_agent_is_told(tmp_path: Path) -> None:
    config = dqn().save(tmp_path / "agent") / "config.yaml"
    text = config.read_text()
    start = text.index("memory:")
    config.write_text(text[:start] + "memory: 3\n" + text[text.index("env:", start) :])
    with pytest.raises(ZooError, match=r"is damaged: config\.yaml: `memory` is not a mapping"):
        zoo.load(tmp_path / "agent")


def test_memories_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ZooError, match=r"`memory\.n_step=9` is longer than the memory.* keeps 8 steps"):
        dqn(memory={"n_step": 9}, buffer_size=16)
    with pytest.raises(ZooError, match=r"unknown key `memory\.alpha`"):
        dqn(memory={"alpha": 1.0})
    with pytest.raises(ZooError, match="memory"):
        PPO2(SMALL, "CartPole-v1", memory={"n_step": 2})
