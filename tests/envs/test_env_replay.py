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

from zoo.envs import EnvStepper, action_log, make_vec_env
from zoo.envs.action_log import INITIAL_CAPACITY, ActionLog
from zoo.envs.atari import LifeLoss
from zoo.envs.wrappers import EpisodeStatistics
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
    pytest.param("HopperBulletEnv-v0", 100, {"reseed_every": 20}, marks=needs("pybullet_envs_gymnasium")),
    pytest.param(
        "ALE/Pong-v5",
        130,
        {"reseed_every": 50, "max_episode_steps": 50, "frame_stack": 2},
        marks=ATARI,
    ),
    pytest.param("ALE/Breakout-v5", 200, {"reseed_every": 120}, marks=ATARI),
]


def stepper(env: Any, n_envs: int, **options: Any) -> EnvStepper:
    return EnvStepper(make_vec_env(env, n_envs, check=False, **options))


def random_actions(envs: EnvStepper, n: int) -> Actions:
    envs.env.action_space.seed(3)
    return [envs.env.action_space.sample() for _ in range(n)]


def walked(envs: EnvStepper, actions: Actions) -> list[Any]:
    """Step with each of the actions and return all that came of it."""
    seen = []
    for action in actions:
        step = envs.step(action)
        records = [(record.env_index, record.episode_return, record.length) for record in step.episodes]
        seen.append(
            (
                *(step.observations, step.rewards, step.terminated, step.truncated, step.finished),
                *(step.final_observations, records, step.action_masks, step.final_action_masks),
                envs.longest_unfinished_episode(),
            )
        )
    return seen


def assert_goes_on_as_it_would_have(
    env: Any, n: int, options: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> None:
    original = stepper(env, 3, **options, **before)
    original.reset([11, 12, 2**40])
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
def test_same_seed_gives_the_same_steps_in_workers_and_in_used_envs(env: Any) -> None:
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


def test_first_episode_end_after_enough_steps_is_followed_by_the_next_seed() -> None:
    envs = stepper(Seeded, 1, reseed_every=7)
    envs.reset([5])
    for _ in range(20):
        envs.step([0])
    seeds = envs.env.get_attr("seeds")[0]
    assert [seed is None for seed in seeds] == [False, True, True, False, True, True, False]
    assert seeds[0] == 5
    assert len({seeds[0], seeds[3], seeds[6]}) == 3
    assert envs.state()["envs"]["n_actions"] == [2]


def test_seed_of_a_reset_begins_a_new_sequence() -> None:
    runs = []
    for _ in range(2):
        envs = stepper(Seeded, 1, reseed_every=1)
        envs.reset([9])
        envs.step([0])
        envs.reset([5])
        walked(envs, [[0]] * 6)
        runs.append(envs.env.get_attr("seeds")[0][1:])
    assert runs[0] == runs[1]
    assert runs[0][0] == 5


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


@pytest.mark.parametrize(("renew", "made"), [(True, 4), (False, 1)])
def test_renewed_env_is_made_anew_with_each_seed_but_the_first(renew: bool, made: int) -> None:
    class Renewed(Seeded):
        made = 0

    envs = stepper(Renewed, 1, reseed_every=3, renew=renew)
    envs.reset([5])
    for _ in range(9):
        envs.step([0])
    assert Renewed.made == made


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
def test_env_that_ignores_its_seed_is_named_and_its_episode_cut(where: dict[str, Any]) -> None:
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


def test_episode_that_was_cut_below_a_wrapper_counts_from_nothing() -> None:
    options = {"nan_check": True}
    envs = stepper(Careless, 2, **options)
    envs.reset([0, 1])
    walked(envs, [[1] * 2] * 3)
    state = envs.state()
    again = stepper(Careless, 2, **options)
    with pytest.warns(UserWarning, match="env 1 came out different"):
        again.load_state(state)
    assert again.longest_unfinished_episode() == 3
    records = [record for step in range(5) for record in again.step([1] * 2).episodes]
    found = [(record.env_index, record.episode_return, record.length) for record in records]
    assert found == [(0, 5.0, 5), (1, 5.0, 5)]


def test_returns_of_an_episode_that_was_cut_are_not_those_that_rewards_are_divided_by() -> None:
    envs = stepper(Careless, 3, normalize=True)
    envs.reset([0, 1, 2])
    walked(envs, [[1] * 3] * 3)
    state = envs.state()
    assert envs.normalizer is not None
    envs.normalizer.returns[:] = 5.0
    with pytest.warns(UserWarning, match="env 1 came out different"):
        envs.load_state(state)
    assert envs.normalizer.returns.tolist() == [5.0, 0.0, 5.0]


def test_env_that_refuses_an_action_of_the_replay_is_cut() -> None:
    class Refusing(Careless):
        refuses = False

        def step(self, action: Any) -> Any:
            if self.refuses and self.np_random_seed == 0:
                raise ValueError("not now")
            return super().step(action)

    envs = stepper(Refusing, 2)
    envs.reset([0, 2])
    envs.step([1, 1])
    state = envs.state()
    Refusing.refuses = True
    with pytest.warns(UserWarning, match="env 0 came out different"):
        assert stepper(Refusing, 2).load_state(state) == [0]


def test_nan_in_observations_and_rewards_is_equal_to_itself() -> None:
    class Broken(Careless):
        def step(self, action: Any) -> Any:
            super().step(action)
            return np.array([np.nan, 1.0]), np.nan, False, False, {}

    envs = stepper(Broken, 1)
    envs.reset([0])
    envs.step([1])
    assert stepper(Broken, 1).load_state(envs.state()) == []


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
    with pytest.raises(ZooError, match="that of 2 environments; there are 3 now"):
        stepper("CartPole-v1", 3).load_state(envs.state())
    with pytest.raises(ZooError, match="state is that of other environments: actions"):
        stepper("Pendulum-v1", 2).load_state(envs.state())
    with pytest.raises(ZooError, match="state is that of other environments: observations of shape"):
        stepper("Acrobot-v1", 2).load_state(stepper_of_three_actions().state())
    with pytest.raises(ZooError, match=r"and type float32; here they have \(4,\) and float64"):
        stepper(lambda: DtypeObservation(gym.make("CartPole-v1"), np.float64), 2).load_state(envs.state())
    state = envs.state()
    del state["envs"]["actions"]
    with pytest.raises(ZooError, match="damaged state of environments"):
        stepper("CartPole-v1", 2).load_state(state)


def stepper_of_three_actions() -> EnvStepper:
    """Return environments with as many actions as Acrobot has, and other observations."""
    envs = stepper("MountainCar-v0", 2)
    envs.reset([0, 1])
    return envs


def test_state_before_the_first_reset_can_be_loaded() -> None:
    state = stepper("CartPole-v1", 2, seed=3).state()
    assert state["envs"]["returns"].tolist() == [0.0, 0.0]
    envs = stepper("CartPole-v1", 2)
    assert envs.load_state(state) == []
    envs.reset([0, 1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_vec_env("CartPole-v1", 2, vectorization="native"),
        lambda: gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2),
        lambda: gym.wrappers.vector.RecordEpisodeStatistics(make_vec_env("CartPole-v1", 2)),
    ],
)
def test_vector_env_that_resets_out_of_reach_says_so(make: Any) -> None:
    envs = EnvStepper(make())
    envs.reset([0, 1])
    assert not envs.is_replayable
    with pytest.raises(ZooError, match="resets its environments out of reach"):
        envs.state()
    with pytest.raises(ZooError, match="resets its environments out of reach"):
        envs.load_state({})


def test_log_of_actions_grows_for_long_episodes_and_forgets_what_nobody_needs() -> None:
    log = ActionLog(2, spaces.Discrete(5000))
    for n in range(3 * INITIAL_CAPACITY):
        log.add(np.array([n, -n]))
        if n % 1000 == 999:
            log.start(1)
    assert log.since_start(0).tolist() == list(range(3 * INITIAL_CAPACITY))
    assert log.since_start(1).tolist() == [-n for n in range(3000, 3 * INITIAL_CAPACITY)]
    log.start(0)
    for n in range(3 * INITIAL_CAPACITY):
        log.add(np.array([n, n]))
        log.start(1)
    assert log.since_start(0).tolist() == list(range(3 * INITIAL_CAPACITY))
    again = ActionLog(2, spaces.Discrete(5000))
    again.restore([log.since_start(0), log.since_start(1)])
    again.add(np.array([7, 8]))
    assert again.since_start(0)[-2:].tolist() == [3 * INITIAL_CAPACITY - 1, 7]
    assert again.since_start(1).tolist() == [8]
    for n in range(2 * INITIAL_CAPACITY):
        again.add(np.array([n, n]))
    assert again.since_start(0).tolist() == [*range(3 * INITIAL_CAPACITY), 7, *range(2 * INITIAL_CAPACITY)]


def test_log_of_actions_grows_where_it_began_late_too() -> None:
    log = ActionLog(1, spaces.Discrete(5000))
    for n in range(3 * INITIAL_CAPACITY):
        log.add(np.array([n]))
        if n == INITIAL_CAPACITY // 2 - 1:
            log.start(0)
    begun = INITIAL_CAPACITY // 2
    assert log.steps_since_start(0) == 3 * INITIAL_CAPACITY - begun
    assert log.since_start(0).tolist() == list(range(begun, 3 * INITIAL_CAPACITY))


@pytest.mark.parametrize("n_steps", [4095, 4096, 20_000])
def test_episode_that_never_ends_is_told_once_as_its_actions_are_kept(
    n_steps: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(action_log, "MANY_STEPS", 4096)
    log = action_log.ActionLog(3, spaces.Discrete(2), first_index=4)
    for n in range(n_steps + 1):
        if n == 100:
            log.start(0)
            log.start(2)
        log.add(np.zeros(3, np.int64))
    assert len(caplog.messages) == (n_steps >= 4096)
    if caplog.messages:
        assert caplog.messages[0].startswith("env 5 keeps the 4,096 actions")
        assert "env.max_episode_steps" in caplog.messages[0]


def test_actions_of_long_episodes_are_told_in_a_run() -> None:
    assert 2**19 < action_log.MANY_STEPS < 2**21
