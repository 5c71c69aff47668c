"""What an agent, and an algorithm, begin with, and what a training foresees: numbers written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from zoo import A2C, ACER, PPO2, make_vec_env
from zoo.agents.agent_folder import read_agent
from zoo.algorithms.bc import BC
from zoo.envs.monitor import EpisodeRecord
from zoo.errors import ZooError

SMALL = {"net_arch": [8]}
SPACES: dict[str, Any] = {
    "observation_space": spaces.Box(-1.0, 1.0, (2,), np.float32),
    "action_space": spaces.Discrete(2),
}


def a2c(**options: Any) -> A2C:
    return A2C(SMALL, "CartPole-v1", seed=0, compile=False, threads=1, n_steps=5, **options)


def test_one_environment_is_made_unless_more_are_asked_for() -> None:
    assert a2c().n_envs == a2c().envs.num_envs == 1  # type: ignore[union-attr]
    assert a2c(n_envs=3).n_envs == 3


@pytest.mark.parametrize("algorithm", [A2C, BC])
def test_an_agent_without_environments_is_made_for_one(algorithm: Any) -> None:
    assert algorithm(SMALL, **SPACES).n_envs == 1


def test_time_and_what_is_counted_begin_at_zero() -> None:
    model = a2c()
    assert model.timings == {"env": 0.0, "policy": 0.0, "update": 0.0, "evaluation": 0.0}
    assert model.num_timesteps == model.n_updates == model.n_episodes == 0
    assert model.progress == 0.0


def test_initial_weights_are_drawn_on_one_thread() -> None:
    """With more of them the factors of an orthogonal matrix may be rounded otherwise."""
    counts = []

    class Noting(A2C):
        def _make_policy(self) -> Any:
            counts.append(torch.get_num_threads())
            return super()._make_policy()

    Noting(SMALL, compile=False, threads=2, **SPACES)
    assert counts[-1] == 1


def test_an_agent_whose_files_say_no_steps_has_taken_none(tmp_path: Any) -> None:
    files = read_agent(PPO2(SMALL, compile=False, **SPACES).save(tmp_path / "agent"))
    del files.card["timesteps"]
    assert PPO2.from_files(files).num_timesteps == 0


def test_observations_and_infos_of_a_reset_are_told_from_observations() -> None:
    model = PPO2(SMALL, make_vec_env("CartPole-v1", 2), compile=False)
    observations = np.zeros((2, 4), np.float32)
    with pytest.raises(ZooError, match="these are observations and infos, as reset"):
        model.predict((observations, {}))
    actions, _ = model.predict(tuple(observations), deterministic=True)
    assert actions.shape == (2,)


def test_no_masks_at_all_are_none_of_the_masks_that_are_expected() -> None:
    model = PPO2(SMALL, compile=False, **SPACES)
    with pytest.raises(ZooError, match=r"`action_masks` of shape \(0, 0\) don't fit: expected 3 × 2"):
        model.predict(np.zeros((3, 2), np.float32), action_masks=[])


def test_one_worker_is_what_every_algorithm_can_be() -> None:
    ACER.check_workers(None, 1)
    with pytest.raises(ZooError, match="workers=2: acer can't learn as several processes"):
        ACER.check_workers(None, 2)


@pytest.mark.parametrize(("n_workers", "n_steps"), [(1, 8), (2, 4)])
def test_foreseen_work_is_that_of_this_workers_steps(
    n_workers: int, n_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 80 steps, 10 of each worker in an update; CartPole has 4 numbers, 2 actions, and a value."""
    model = a2c(n_envs=2)
    foreseen: list[tuple[float, float]] = []
    monkeypatch.setattr(model.runtime, "expect", lambda *numbers: foreseen.append(numbers))
    monkeypatch.setattr(model.team, "size", n_workers)
    model.learn(80)
    actor, critic = 4 * 8 + 8 + 8 * 2 + 2, 4 * 8 + 8 + 8 * 1 + 1
    assert foreseen == [(n_steps, (actor + critic) * 10)]


def test_the_last_hundred_episodes_are_remembered() -> None:
    model = a2c()
    for number in range(103):
        model.take_note_of(EpisodeRecord(0, float(number), 1, 0.0))
    assert [each.episode_return for each in model.recent_episodes] == list(range(3, 103))
    assert model.n_episodes == 103
