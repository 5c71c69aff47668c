"""The state of environments: a seed and the actions since, from which everything goes on as it would have."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import DtypeObservation
from scripted import Counting, Noisy, assert_same

from zoo.algorithms.collector import Collector
from zoo.envs.adapter import VecEnvAdapter, make_adapter
from zoo.envs.make_env import make_vec_env
from zoo.envs.vec_env import SyncVecEnv
from zoo.envs.wrappers import EpisodeStatistics, LifeLoss
from zoo.errors import ZooError

Actions = list[Any]

IN_PROCESS: dict[str, Any] = {}
WORKERS: dict[str, Any] = {"vectorization": "workers", "n_workers": 2, "start_method": "fork"}


def needs(module: str) -> Any:
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


BOX2D = needs("Box2D")
ATARI = [needs("ale_py"), pytest.mark.slow]


class FlatBlackjack(gym.ObservationWrapper[Any, Any, Any]):
    """Blackjack with its three numbers in one vector."""

    def __init__(self) -> None:
        super().__init__(gym.make("Blackjack-v1"))
        self.observation_space = spaces.MultiDiscrete([32, 11, 2])

    def observation(self, observation: Any) -> Any:
        return np.array(observation)


class Sampling(gym.Env[Any, Any]):
    """Observes what it draws from its own spaces."""

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(1000)
        self.action_space = spaces.Discrete(1000)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), float(self.action_space.sample()), False, False, {}


QUICK: list[Any] = [
    ("CartPole-v1", 300, {"reseed_every": 50}),
    ("CartPole-v1", 300, {"reseed_every": 50, "history": 3, "time_feature": True}),
    ("CartPole-v1", 200, {"reseed_every": 50, "nan_check": True, "normalize": True}),
    ("CartPole-v1", 200, {"reseed_every": 50, "wrappers": ["RecordEpisodeStatistics"]}),
    ("Pendulum-v1", 500, {"reseed_every": 150, "frame_stack": 3, "action_repeat": 2}),
    ("FrozenLake-v1", 150, {"reseed_every": 10}),
    (FlatBlackjack, 100, {"reseed_every": 10}),
    (Noisy, 100, {"reseed_every": 10}),
    (Sampling, 50, {"reseed_every": 10, "max_episode_steps": 4}),
    ("Taxi-v4", 150, {"reseed_every": 10, "max_episode_steps": 20}),
    ("Zoo/Masked-v0", 100, {"reseed_every": 20}),
    ("Zoo/MaskedComposite-v0", 60, {"reseed_every": 10}),
    ("Zoo/IdentityDict-v0", 100, {"reseed_every": 30}),
]
SIMULATED: list[Any] = [
    pytest.param("LunarLander-v3", 300, {"reseed_every": 50}, marks=BOX2D),
    pytest.param("BipedalWalker-v3", 250, {"reseed_every": 50, "max_episode_steps": 60}, marks=BOX2D),
    pytest.param("Hopper-v5", 250, {"reseed_every": 50}, marks=needs("mujoco")),
    pytest.param("MinAtar/Breakout-v1", 150, {"reseed_every": 30}, marks=needs("minatar")),
    pytest.param(
        "MiniGrid-Fetch-5x5-N2-v0", 60, {"reseed_every": 20, "max_episode_steps": 15}, marks=needs("minigrid")
    ),
    pytest.param("HopperBulletEnv-v0", 100, {"reseed_every": 20}, marks=needs("pybullet_envs_gymnasium")),
    pytest.param(
        "ALE/Pong-v5", 130, {"reseed_every": 50, "max_episode_steps": 50, "frame_stack": 2}, marks=ATARI
    ),
    pytest.param("ALE/Breakout-v5", 400, {"reseed_every": 120}, marks=ATARI),
]


def stepper(env: Any, n_envs: int, **options: Any) -> VecEnvAdapter:
    return make_adapter(make_vec_env(env, n_envs, check=False, **options))


def random_actions(envs: VecEnvAdapter, n: int) -> Actions:
    envs.env.action_space.seed(3)
    return [envs.env.action_space.sample() for _ in range(n)]


def walked(envs: VecEnvAdapter, actions: Actions) -> list[Any]:
    """Step with each of the actions and return all that came of it."""
    seen = []
    for action in actions:
        step = envs.step(action)
        records = [(record.env_index, record.episode_return, record.length) for record in step.episodes]
        seen.append(
            (
                *(step.new_observations, step.rewards, step.terminated, step.truncated, step.finished),
                *(step.final_observations, records, step.new_action_masks, step.final_action_masks),
                envs.longest_unfinished_episode(),
            )
        )
    return seen


def assert_goes_on_as_it_would_have(
    env: Any, n: int, options: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> None:
    original = stepper(env, 3, **options, **before)
    large = 2**31 if str(env).startswith("MinAtar") else 2**40  # the old random numbers of NumPy have 32 bits
    original.reset([11, 12, large])
    actions = random_actions(original, n + 80)
    walked(original, actions[:n])
    state = original.state()
    shown, masks = original.observations, original.action_masks()
    expected = walked(original, actions[n:])
    original.close()
    assert min(state["envs"]["n_reseeded"]) >= 1

    resumed = stepper(env, 3, **options, **after)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert resumed.load_state(state) == []
    assert_same(resumed.observations, shown)
    assert_same(resumed.action_masks(), masks)
    assert_same(walked(resumed, actions[n:]), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert resumed.load_state(state) == []  # into environments that were used
    assert_same(walked(resumed, actions[n:]), expected)
    resumed.close()


@pytest.mark.parametrize(("env", "n", "options"), [*QUICK, *SIMULATED])
def test_loaded_state_goes_on_as_it_would_have(env: Any, n: int, options: dict[str, Any]) -> None:
    assert_goes_on_as_it_would_have(env, n, options, IN_PROCESS, IN_PROCESS)


@pytest.mark.parametrize(
    ("before", "after"), [(WORKERS, WORKERS), (WORKERS, IN_PROCESS), (IN_PROCESS, WORKERS)]
)
@pytest.mark.parametrize(("env", "n", "options"), [QUICK[1], QUICK[7], QUICK[11], SIMULATED[1]])
def test_state_is_the_same_in_workers(
    env: Any, n: int, options: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert_goes_on_as_it_would_have(env, n, options, before, after)


@pytest.mark.parametrize(
    "env", ["CartPole-v1", "Zoo/Masked-v0", pytest.param("BipedalWalker-v3", marks=BOX2D)]
)
def test_same_seed_gives_same_steps_in_any_env(env: Any) -> None:
    ours = stepper(env, 3, reseed_every=20, max_episode_steps=30)
    ours.reset([1, 2, 3])
    actions = random_actions(ours, 80)
    expected = walked(ours, actions)
    ours.reset([1, 2, 3])
    assert_same(walked(ours, actions), expected)
    workers = stepper(env, 3, reseed_every=20, max_episode_steps=30, **WORKERS)
    workers.reset([1, 2, 3])
    assert_same(walked(workers, actions), expected)
    workers.close()


class Seeded(Counting):
    """Remembers the seeds of its resets, None among them; episodes of 3 steps."""

    made = 0

    def __init__(self, lengths: tuple[int, ...] = (3,)) -> None:
        super().__init__(lengths)
        self.seeds: list[int | None] = []
        type(self).made += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        return super().reset(seed=seed)


def test_env_is_reseeded_at_first_episode_end_after_n() -> None:
    envs = stepper(Seeded, 1, reseed_every=7)
    envs.reset([5])
    for _ in range(20):
        envs.step([0])
    seeds = envs.env.get_attr("seeds")[0]
    assert [seed is None for seed in seeds] == [False, True, True, False, True, True, False]
    assert seeds[0] == 5
    assert len({seeds[0], seeds[3], seeds[6]}) == 3
    assert envs.state()["envs"]["n_actions"] == [2]


def test_life_lost_is_not_followed_by_a_seed() -> None:
    class Lives(Seeded):
        """A game of two lives, of three steps each."""

        @property
        def ale(self) -> Any:
            return self

        def lives(self) -> int:
            return 0 if self._observation[1] == 6 else 2 - int(self._observation[1] >= 3)

    envs = stepper(lambda: LifeLoss(EpisodeStatistics(Lives((6,)))), 1, reseed_every=1)
    envs.reset([5])
    records = [record for step in range(12) for record in envs.step([0]).episodes]
    assert [seed is None for seed in envs.env.get_attr("seeds")[0]] == [False, False, False]
    assert [(record.episode_return, record.length) for record in records] == [(21.0, 6), (21.0, 6)]


def test_envs_known_to_keep_the_past_are_renewed() -> None:
    from zoo.envs.config import env_config, is_renewed

    renewed = ["BipedalWalker-v3", "BipedalWalkerHardcore-v3", "HopperBulletEnv-v0", "module:AntBulletEnv-v0"]
    assert all(is_renewed(env_config(env_id)) for env_id in renewed)
    assert not any(
        is_renewed(env_config(env_id)) for env_id in ("CartPole-v1", "LunarLander-v3", "Hopper-v5")
    )
    assert not is_renewed(env_config("BipedalWalker-v3", renew=False))
    with pytest.raises(ZooError, match=r"env\.renew: one given environment can't be made anew"):
        make_vec_env(gym.make("CartPole-v1"), renew=True)


class Careless(gym.Env[Any, Any]):
    """Env ``unseeded`` draws from numbers that no seed decides; episodes of 5 steps."""

    observation_space: Any = spaces.Box(-10.0, 10.0, (2,), np.float64)
    action_space: Any = spaces.Discrete(2)

    def __init__(self) -> None:
        self._n_steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.is_careless = seed % 2 == 1
        self._n_steps = 0
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:
        self._n_steps += 1
        source = np.random.default_rng() if self.is_careless else self.np_random
        return source.normal(size=2), float(action), self._n_steps == 5, False, {}


@pytest.mark.parametrize("where", [IN_PROCESS, WORKERS], ids=["in_process", "workers"])
def test_failed_replay_names_env_and_truncates_episode(where: dict[str, Any]) -> None:
    envs = stepper(Careless, 4, **where)
    envs.reset([0, 1, 2, 4])
    walked(envs, [[1] * 4] * 8)
    state = envs.state()
    envs.close()
    again = stepper(Careless, 4, **where)
    with pytest.warns(UserWarning, match="env 1 came out different") as told:
        assert again.load_state(state) == [1]
    assert len(told) == 1
    assert again.observations[1].tolist() == [0.0, 0.0]
    assert again.observations[0].tolist() != [0.0, 0.0]
    records = [record for step in range(5) for record in again.step([1] * 4).episodes]
    assert [(record.env_index, record.length) for record in records] == [(0, 5), (2, 5), (3, 5), (1, 5)]
    assert again.state()["envs"]["n_reseeded"] == [0, 1, 0, 0]
    again.close()


def test_failed_replay_resets_the_running_return() -> None:
    envs = stepper(Careless, 3, normalize=True)
    envs.reset([0, 1, 2])
    walked(envs, [[1] * 3] * 3)
    state = envs.state()
    assert envs.normalizer is not None
    envs.normalizer.returns[:] = 5.0
    collector = Collector(envs, normalizer=envs.normalizer)
    with pytest.warns(UserWarning, match="env 1 came out different"):
        collector.load_state({"envs": state, "episode_starts": np.zeros(3, np.bool_)})
    assert envs.normalizer.returns.tolist() == [5.0, 0.0, 5.0]


def test_no_episode_is_written_twice(tmp_path: Path) -> None:
    envs = stepper("CartPole-v1", 2, reseed_every=30, monitor_dir=tmp_path)
    envs.reset([0, 1])
    walked(envs, random_actions(envs, 200))
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    envs.load_state(envs.state())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_state_of_other_envs_is_refused() -> None:
    envs = stepper("CartPole-v1", 2)
    envs.reset([0, 1])
    with pytest.raises(ZooError, match="saved with 2 environments; there are 3 now"):
        stepper("CartPole-v1", 3).load_state(envs.state())
    with pytest.raises(ZooError, match="state was saved with other environments: actions"):
        stepper("Pendulum-v1", 2).load_state(envs.state())
    with pytest.raises(ZooError, match="state was saved with other environments: observations of shape"):
        stepper("Acrobot-v1", 2).load_state(stepper_of_three_actions().state())
    with pytest.raises(ZooError, match=r"and type float32; here they have \(4,\) and float64"):
        stepper(lambda: DtypeObservation(gym.make("CartPole-v1"), np.float64), 2).load_state(envs.state())


def stepper_of_three_actions() -> VecEnvAdapter:
    """Return environments with as many actions as Acrobot has, and other observations."""
    envs = stepper("MountainCar-v0", 2)
    envs.reset([0, 1])
    return envs


class Told(Counting):
    """Shows what it is told, and the episode's steps."""

    told = 0.0

    def __init__(self) -> None:
        super().__init__(lengths=(9,))
        plain = self.observation_space
        self.observation_space: Any = spaces.Dict({"steps": plain, "told": spaces.Box(-9.0, 9.0, (1,))})

    def _shown(self) -> Any:
        return {"steps": super()._shown() * [0, 1], "told": np.full(1, self.told, np.float32)}


@pytest.mark.parametrize("told", [0.0, np.nan, 1.0])
def test_replay_compares_every_part_of_an_observation(told: float) -> None:
    """A NaN is equal to itself."""
    env = SyncVecEnv([Told])
    Told.told = told if np.isnan(told) else 0.0
    env.reset(seed=7)
    env.step([0])
    state = env.state()
    Told.told = told
    with warnings.catch_warnings(record=True):
        assert env.load_state(state) == ([0] if told == 1.0 else [])
    Told.told = 0.0
