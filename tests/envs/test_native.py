"""Environments that are vectorised by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, VectorEnv
from scripted import assert_same

from zoo.cli import status_of
from zoo.envs.adapter import make_adapter
from zoo.envs.config import AtariConfig
from zoo.envs.make_env import make_vec_env
from zoo.envs.native import AleGames
from zoo.errors import ZooError


def native(env_id: Any, n: int = 3, **options: Any) -> Any:
    return make_vec_env(env_id, n, vectorization="native", **options)


def run(env: Any, seeds: list[int], n_steps: int, n_actions: int) -> tuple[list[Any], list[Any]]:
    stepper = make_adapter(env)
    seen: list[Any] = [np.array(stepper.reset(seeds))]
    episodes = []
    generator = np.random.default_rng(0)
    for _ in range(n_steps):
        step = stepper.step(generator.integers(0, n_actions, env.num_envs))
        final = None if step.final_observations is None else np.array(step.final_observations)
        flags = step.terminated, step.truncated, np.isin(range(env.num_envs), step.envs)
        rows = (np.array(step.new_observations), step.rewards, *flags, final)
        seen.append(rows)
        episodes.extend(
            (episode.env_index, episode.episode_return, episode.length) for episode in step.episodes
        )
    return seen, episodes


def test_cart_pole_is_gymnasiums_own_vector_env() -> None:
    env = native("CartPole-v1", 5, max_episode_steps=7)
    assert isinstance(env.unwrapped, CartPoleVectorEnv)
    seen, episodes = run(env, [1, 2, 3, 4, 5], 60, 2)
    assert len(episodes) >= 30
    assert all(episode_return == length <= 7 for _, episode_return, length in episodes)
    invalid = sum(int((~row[4]).sum()) for row in seen[1:] if row[4] is not None)
    assert sum(length for _, _, length in episodes) + invalid <= 300


def test_same_seeds_give_the_same_steps() -> None:
    assert_same(run(native("CartPole-v1"), [1, 2, 3], 50, 2), run(native("CartPole-v1"), [1, 2, 3], 50, 2))


def test_env_without_a_vector_form_is_refused() -> None:
    with pytest.raises(ZooError, match=r"Pendulum-v1 has no vector form of its own; use sync or workers"):
        native("Pendulum-v1")


@pytest.mark.parametrize(
    "options",
    [
        {"history": 2},
        {"wrappers": ["ClipReward"]},
        {"action_repeat": 2},
        {"mask_velocities": True},
        {"atari": {"noop_max": 5}},
        {"reseed_every": 5_000},
        {"renew": True},
    ],
)
def test_what_is_of_single_envs_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ZooError, match=f"env.{next(iter(options))} works on single environments"):
        native("CartPole-v1", **options)


def test_frames_are_stacked_around_no_vector_form() -> None:
    assert native("CartPole-v1", frame_stack=1).reset()[0].shape == (3, 4)
    with pytest.raises(ZooError, match=r"env.frame_stack works on single environments only"):
        native("CartPole-v1", frame_stack=2)


def test_after_a_lost_life_games_that_wait_are_begun() -> None:
    for fires in (False, True):
        games = ScriptedGames()
        envs = AleGames(games, AtariConfig(), fires=fires)
        envs.reset()
        for _ in ScriptedGames.script:
            envs.step(np.full(2, 3))
        assert games.pressed == [[3, 3], [3, 3], [1 if fires else 3, 3], [3, 3], [3, 1 if fires else 3]]


class TestAle:
    """`ale_py`'s AtariVectorEnv."""

    @pytest.fixture(autouse=True)
    def _needs_ale(self) -> None:
        pytest.importorskip("ale_py")

    @pytest.mark.parametrize("env_id", ["ALE/Breakout-v5", "BreakoutNoFrameskip-v4"])
    def test_games_are_stepped_with_same_step_autoreset(self, env_id: str) -> None:
        stepper = make_adapter(native(env_id, 2))
        assert not stepper.next_step_autoreset
        assert stepper.reset([0, 1]).shape == (2, 4, 84, 84)

    def test_breakout_goes_on_after_each_life(self) -> None:
        env = native("ALE/Breakout-v5", 1)
        env.reset(seed=0)
        ends = [bool(env.step(np.zeros(1, np.int64))[2][0]) for _ in range(150)]
        assert sum(ends) >= 4, "the ball is lost every 25 steps or so"

    def test_without_its_preprocessing_it_is_refused(self) -> None:
        with pytest.raises(ZooError, match=r"env\.atari=false.*use sync or workers"):
            native("ALE/Pong-v5", atari=False)

    def test_infos_at_the_end_of_games_are_not_there(self) -> None:
        with pytest.raises(ZooError, match=r"env\.info_keywords .*use sync or workers"):
            native("ALE/Pong-v5", info_keywords=["lives"])

    def test_same_seeds_give_the_same_games(self) -> None:
        first, second = (run(native("ALE/Pong-v5", 2), [7, 8], 40, 6) for _ in range(2))
        assert_same(first, second)

    def test_time_limit_counts_steps(self) -> None:
        seen, episodes = run(native("ALE/Pong-v5", 1, max_episode_steps=20), [0], 45, 6)
        assert episodes[0][2] == 20, "no-ops are not counted"
        assert any(row[3].any() for row in seen[1:])


@pytest.mark.slow  # `make test-slow` installs it
class TestEnvPool:
    """Environments of EnvPool."""

    @pytest.fixture(autouse=True)
    def _needs_envpool(self) -> None:
        pytest.importorskip("envpool")

    @pytest.mark.parametrize("name", ["CartPole-v1", "HalfCheetah-v5", "Pong-v5"])
    def test_seeds_give_the_episodes_again(self, name: str) -> None:
        env = make_adapter(make_vec_env(f"envpool:{name}", 2))
        assert env.next_step_autoreset
        first, other, again = (np.array(env.reset(seeds)) for seeds in ([3, 4], [5, 6], [3, 4]))
        actions = [env.env.action_space.sample() for _ in range(5)]
        after = [[np.array(env.step(each).new_observations) for each in actions]]
        env.reset([3, 4])
        after.append([np.array(env.step(each).new_observations) for each in actions])
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(*after)
        assert name == "Pong-v5" or not np.array_equal(first, other)
        env.close()

    def test_without_a_seed_each_begins_elsewhere(self) -> None:
        first, second = (make_vec_env("envpool:phys2d/CartPole-v1", 2).reset()[0] for _ in range(2))
        assert not np.array_equal(first, second)

    def test_unsupported_time_limit_raises(self) -> None:
        env = make_vec_env("envpool:CliffWalking-v0", 2, max_episode_steps=3)
        env.reset()
        for _ in range(3):
            env.step(np.zeros(2, np.int64))
        with pytest.raises(ZooError, match="has no time limit of its own"):
            env.step(np.zeros(2, np.int64))

    def test_lost_life_ends_episode_but_not_recorded_game(self) -> None:
        env = make_adapter(make_vec_env("envpool:Breakout-v5", 4))
        env.reset([1, 2, 3, 4])
        generator, ends, games, rewards = np.random.default_rng(0), 0, [], np.zeros(4)
        while len(games) < 8:
            step = env.step(generator.integers(0, 4, 4))
            rewards += step.rewards  # a brick of the lowest rows, which random play hits, gives 1
            ends += len(step.finished)
            for game in step.episodes:
                assert game.episode_return == rewards[game.env_index]
                rewards[game.env_index] = 0.0
                games.append(game)
        assert ends >= 5 * len(games) - 4
        assert sum(game.episode_return for game in games) > 0
        env.close()

    def test_it_trains_with_the_tuned_file_of_atari_games(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert status_of(["train", "algo=ppo2", "env=envpool:Pong-v5", "n_timesteps=1024", "verbose=0"]) == 0
        (config,) = Path("runs/ppo2").glob("*/*/config.yaml")
        assert "CnnPolicy" in config.read_text()
        assert status_of(["evaluate", "algo=ppo2", "env=envpool:Pong-v5", "n_episodes=1"]) == 0

    @pytest.mark.parametrize(
        ("env_id", "options", "message"),
        [
            ("Pog-v5", {}, "did you mean 'envpool:Pong-v5'"),
            ("CartPole-v1", {"vectorization": "workers"}, "has a vector form only"),
            ("CartPole-v1", {"render_mode": "rgb_array"}, "can't be drawn"),
            ("CartPole-v1", {"kwargs": {"gravity": 1}}, "unexpected keyword argument 'gravity'"),
            (
                "CartPole-v1",
                {"mask_velocities": True},
                "works on single environments only$",
            ),
            ("CartPole-v1", {"step_timeout": 5.0}, "step_timeout works on single environments only"),
            ("Pong-v5", {"atari": {"noop_max": 0}}, "needs at least 1"),
            ("Pong-v5", {"kwargs": {"reward_clip": False}}, "other settings of the run decide that"),
        ],
    )
    def test_what_it_cannot_do_is_refused(self, env_id: str, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ZooError, match=message):
            make_vec_env(f"envpool:{env_id}", 2, **options)


class ScriptedGames(VectorEnv[Any, Any, Any]):
    """Two games that are written down: for each step the rewards, the lives left, and which are over."""

    num_envs = 2
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    single_observation_space, single_action_space = spaces.Box(0, 255, (1,), np.uint8), spaces.Discrete(4)
    script = (
        ([2, 0], [3, 2], [False, False]),
        ([0, 5], [2, 2], [False, False]),
        ([-3, 1], [2, 2], [False, True]),  # the next game has two lives again
        ([1, 1], [0, 1], [False, False]),  # nothing is lost before the game ends with its last life
        ([0, 0], [3, 1], [True, False]),
    )

    def __init__(self) -> None:
        self._steps = iter(self.script)
        self.pressed: list[list[int]] = []
        self._n = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._shown(0), {"lives": np.array([3, 2])}

    def step(self, actions: Any) -> Any:
        self.pressed.append(actions.tolist())
        rewards, lives, over = map(np.array, next(self._steps))
        self._n += 1
        infos = {"lives": lives, **({"final_obs": self._shown(100 + self._n)} if over.any() else {})}
        return self._shown(self._n), rewards, over, np.zeros(2, np.bool_), infos

    def _shown(self, number: int) -> Any:
        return np.full((2, 1), number, np.uint8)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("clips", [False, True])
def test_lives_and_games_are_told_apart_step_by_step(ends: bool, clips: bool) -> None:
    games = AleGames(ScriptedGames(), AtariConfig(terminal_on_life_loss=ends, clip_reward=clips))
    games.reset()
    seen = [games.step(np.zeros(2)) for _ in ScriptedGames.script]
    rewards = (
        [[1, 0], [0, 1], [-1, 1], [1, 1], [0, 0]] if clips else [each[0] for each in ScriptedGames.script]
    )
    assert [step[1].tolist() for step in seen] == rewards
    lost = [[False, False], [ends, False], [False, True], [False, ends], [True, False]]
    assert [step[2].tolist() for step in seen] == lost
    stepper = make_adapter(
        AleGames(ScriptedGames(), AtariConfig(terminal_on_life_loss=ends, clip_reward=clips))
    )
    stepper.reset()
    episodes = [each for _ in ScriptedGames.script for each in stepper.step(np.zeros(2)).episodes]
    records = [(each.env_index, each.episode_return, each.length) for each in episodes]
    assert records == [(1, 6.0, 3), (0, 0.0, 5)], "of whole games, before their rewards are clipped"
    if ends:
        assert seen[1][4]["final_obs"][0] == seen[1][0][0], "the game goes on from the episode's last picture"
        assert seen[2][4]["final_obs"][1] == 103
