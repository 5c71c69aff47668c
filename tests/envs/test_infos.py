"""What environments put into their infos changes no return and ends no run, however they are stepped."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scripted import Counting

from zoo import PPO2
from zoo.envs import VecEnvAdapter, make_vec_env
from zoo.envs.monitor import EpisodeMonitor
from zoo.experiment.evaluation import evaluate

KINDS: dict[str, dict[Any, Any]] = {
    "counter": {"episode": 3},
    "text": {"episode": "third"},
    "number_under_r": {"episode": {"r": 1e6, "l": 1}},
    "half_a_record": {"episode": {"r": 5.0}},
    "no_numbers": {"episode": {"r": "high", "l": None}},
    "continues": {"episode_continues": True, "is_life": True, "games": 1},
    "two_successes": {"is_success": np.array([True, False]), "success": None},
    "no_success": {"is_success": None},
    "number_as_key": {3: 4},
    "of_its_own": {"r": 7.0, "l": 8, "t": 9, "TimeLimit.truncated": "no", "monitor": 1},
}


class Saying(Counting):
    """Episodes of 2, 3 and 4 steps with returns of 3, 6 and 10; ``said`` is in each info."""

    def __init__(self, said: dict[Any, Any]) -> None:
        super().__init__()
        self._said = said

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], dict(self._said)

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return *rest, dict(self._said)


class Clipping(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return min(float(reward), 0.5)


WAYS: dict[str, Any] = {
    "in_process": lambda make: make_vec_env(make, 2, check=False),
    "checked": lambda make: make_vec_env(make, 2),
    "nan_check": lambda make: make_vec_env(make, 2, check=False, nan_check=True),
    "workers": lambda make: make_vec_env(
        make, 2, check=False, vectorization="workers", n_workers=2, start_method="fork"
    ),
    **{
        mode.name.lower(): partial(lambda mode, make: SyncVectorEnv([make] * 2, autoreset_mode=mode), mode)
        for mode in AutoresetMode
    },
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_returns_are_zoos_own(kind: str, way: str, tmp_path: Path) -> None:
    if kind == "number_as_key" and way in ("same_step", "next_step", "disabled"):
        pytest.skip("Gymnasium's own vector environments take no such key")
    with closing(WAYS[way](lambda: Saying(KINDS[kind]))) as env:
        stepper = VecEnvAdapter(env, EpisodeMonitor(tmp_path, 2))
        stepper.reset([0, 1])
        episodes = [each for _ in range(13) for each in stepper.step(np.zeros(2, np.int64)).episodes]
    own = [(each.episode_return, each.length, each.info) for each in episodes if each.env_index == 1]
    assert own[:3] == [(3.0, 2, {}), (6.0, 3, {}), (10.0, 4, {})]
    rows = (tmp_path / "1.monitor.csv").read_text().splitlines()[2:5]
    assert [row.rsplit(",", 1)[0] for row in rows] == ["3.0,2", "6.0,3", "10.0,4"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_in_an_info_ends_a_training_or_an_evaluation(kind: str) -> None:
    make = partial(Saying, KINDS[kind])
    model = PPO2("MlpPolicy", make, n_envs=2, n_steps=16, n_minibatches=1, n_epochs=1, compile=False)
    model.learn(64)
    assert {each.episode_return for each in model.recent_episodes} == {3.0, 6.0, 10.0}
    evaluation = evaluate(model, make, 3, n_envs=1)
    assert evaluation.returns.tolist() == [3.0, 6.0, 10.0]
    assert evaluation.success_rate is None


@pytest.mark.parametrize("said", [True, np.True_, 1, 1.0, np.array([True]), np.array(1.0)])
@pytest.mark.parametrize("name", ["is_success", "success"])
def test_successes_are_told_by_anything_that_is_0_or_1(name: str, said: Any) -> None:
    stepper = VecEnvAdapter(make_vec_env(lambda: Saying({name: said}), 1, check=False))
    stepper.reset([0])
    episodes = [each for _ in range(2) for each in stepper.step(np.zeros(1)).episodes]
    assert [each.info for each in episodes] == [{"is_success": True}]


def test_infos_whose_values_change_their_types_are_as_they_were_given() -> None:
    values = [1, "one", None, {"x": 1}, 1.5, [1, 2], True]

    class Changing(Counting):
        n_steps = 0

        def step(self, action: Any) -> Any:
            *rest, _ = super().step(action)
            self.n_steps += 1
            return *rest, {"it": values[self.n_steps * self.np_random_seed % 7]}

    stepper = VecEnvAdapter(make_vec_env(lambda: Changing((99,)), 3, check=False, nan_check=True))
    stepper.reset([1, 2, 3])
    for n in range(1, 15):
        infos = stepper.step(np.zeros(3, np.int64)).step_infos()
        assert infos == [{"it": values[n * (i + 1) % 7]} for i in range(3)]


def test_records_of_gymnasiums_wrapper_below_changed_rewards_are_raw() -> None:
    def make() -> Any:
        return Clipping(gym.wrappers.RecordEpisodeStatistics(Counting()))

    stepper = VecEnvAdapter(make_vec_env(make, 1, check=False))
    stepper.reset([0])
    episodes = [each for _ in range(5) for each in stepper.step(np.zeros(1)).episodes]
    assert [(each.episode_return, each.length) for each in episodes] == [(3.0, 2), (6.0, 3)]
