"""Running normalisation against an independent computation."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scripted import Counting, Noisy

import zoo
from zoo.algorithms.ars import RowMoments
from zoo.envs.adapter import make_adapter
from zoo.envs.config import NormalizeConfig
from zoo.envs.make_env import make_vec_env
from zoo.envs.monitor import EpisodeMonitor
from zoo.envs.normalize import Normalizer, VecNormalize
from zoo.envs.transition import EpisodeRecord
from zoo.errors import ZooError

VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
finite = st.floats(-1e4, 1e4, width=32, allow_subnormal=False)  # the engine flushes them to zero
batches = st.lists(
    st.integers(1, 5).flatmap(lambda n: arrays(np.float32, (n, 3), elements=finite)), min_size=1, max_size=6
)


@given(batches)
def test_observation_statistics_cover_all_batches(seen: list[np.ndarray]) -> None:
    normalizer = Normalizer(VECTOR)
    for batch in seen:
        normalizer.update_observations(batch)
    everything = np.concatenate(seen).astype(np.float64)
    mean, var = everything.mean(axis=0), everything.var(axis=0)
    moments = normalizer.moments[""]
    scale = np.abs(everything).max() + 1.0
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-9, atol=1e-9 * scale)
    np.testing.assert_allclose(moments.var, var, rtol=1e-7, atol=1e-9 * scale**2)
    expected = np.clip((seen[0] - mean) / np.sqrt(var + 1e-8), -10.0, 10.0)
    normalized = normalizer.normalize_observations(seen[0])
    assert normalized.dtype == np.float32
    is_measurable = np.sqrt(var) > 1e-7 * scale  # where there is but one value, rounding decides
    np.testing.assert_allclose(normalized[:, is_measurable], expected[:, is_measurable], rtol=1e-3, atol=1e-3)


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(
            arrays(np.float32, (n, 2), elements=st.floats(-100, 100, width=32, allow_subnormal=False)),
            arrays(np.bool_, (n, 2)),
        )
    ),
    st.floats(0.0, 1.0, allow_subnormal=False),
)
def test_rewards_are_divided_by_std_of_running_return(
    steps: tuple[np.ndarray, np.ndarray], gamma: float
) -> None:
    rewards, dones = steps
    normalizer = Normalizer(VECTOR, num_envs=2, gamma=gamma)
    running, returns = np.zeros(2), []
    for reward, done in zip(rewards, dones, strict=True):
        normalizer.update(np.zeros((2, 3)), reward, done)
        running = running * gamma + reward
        returns.extend(running)
        running = np.where(done, 0.0, running)
        np.testing.assert_allclose(normalizer.returns, running, rtol=1e-6, atol=1e-6)
    expected = np.clip(rewards[-1] / np.sqrt(np.var(returns) + 1e-8), -10.0, 10.0)
    np.testing.assert_allclose(normalizer.normalize_rewards(rewards[-1]), expected, rtol=1e-3, atol=1e-3)


FAR = {"pressures": (101_325.0, 20.0), "unix_times": (1.7e9, 3600.0), "far": (1e8, 1.0), "near": (0.0, 1.0)}


@pytest.mark.parametrize("n_envs", [1, 8])
@pytest.mark.parametrize("kind", FAR)
def test_statistics_are_exact_far_from_zero(kind: str, n_envs: int) -> None:
    mean, std = FAR[kind]
    samples = mean + std * np.random.default_rng(0).normal(size=(1000, 3))
    normalizer = Normalizer(spaces.Box(-np.inf, np.inf, (3,), np.float64))
    for batch in np.split(samples, 1000 // n_envs):
        normalizer.update_observations(batch)
    np.testing.assert_allclose(normalizer.moments[""].var, samples.var(axis=0), rtol=1e-6)
    normalized = normalizer.normalize_observations(samples)
    np.testing.assert_allclose(normalized.mean(axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(normalized.std(axis=0), 1.0, rtol=1e-4)


def test_before_anything_is_seen_nothing_is_changed() -> None:
    normalizer = Normalizer(VECTOR)
    assert normalizer.normalize_observations(np.array([1.0, -2.0, 0.0])).tolist() == [1.0, -2.0, 0.0]
    assert normalizer.normalize_rewards(np.array([3.0])).tolist() == [3.0]


def test_reset_only_rows_leave_return_statistics_alone() -> None:
    rewards = np.array([[1.0, 2.0], [0.0, 3.0], [4.0, 5.0]])
    dones = np.array([[True, False], [False, False], [False, True]])
    rows = np.array([[True, True], [False, True], [True, True]])
    normalizer = Normalizer(VECTOR, num_envs=2, gamma=0.5)
    for reward, done, row in zip(rewards, dones, rows, strict=True):
        normalizer.update(np.zeros((2, 3)), reward, done, row)
    returns = np.array([1.0, 2.0, 4.0, 4.0, 7.0])
    assert normalizer.return_moments.mean == pytest.approx(returns.mean())
    assert normalizer.return_moments.var == pytest.approx(returns.var())


def test_wrapper_matches_sb3_vec_normalize_sans_prior() -> None:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")

    theirs = vec_env.VecNormalize(vec_env.DummyVecEnv([lambda: gym.make("Pendulum-v1")] * 3), gamma=0.9)
    theirs.seed(7)
    theirs.obs_rms.count = theirs.ret_rms.count = 0.0  # its prior stays in the statistics
    ours = make_vec_env("Pendulum-v1", 3, seed=7, normalize=True, gamma=0.9)
    np.testing.assert_allclose(ours.reset()[0], theirs.reset(), rtol=1e-5, atol=1e-6)
    actions = np.random.default_rng(0).uniform(-2, 2, (30, 3, 1)).astype(np.float32)
    for action in actions:
        observations, rewards, *_ = ours.step(action)
        their_observations, their_rewards, *_ = theirs.step(action)
        np.testing.assert_allclose(observations, their_observations, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rewards, their_rewards, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("space", "is_normalized"),
    [
        (spaces.Box(0, 1, (3, 3), np.uint8), True),
        (spaces.Box(0, 2, (4, 4, 2), np.uint8), True),
        (spaces.Box(0, 255, (4, 4), np.uint8), False),
        (spaces.Box(0, 255, (4, 4, 2), np.uint8), False),
    ],
    ids=str,
)
def test_a_board_is_normalised_and_a_picture_is_not(space: spaces.Box, is_normalized: bool) -> None:
    class Board(gym.Env[Any, Any]):
        observation_space, action_space = space, spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.np_random.integers(0, 2, space.shape, dtype=np.uint8), {}

        def step(self, action: Any) -> Any:
            return self.np_random.integers(0, 2, space.shape, dtype=np.uint8), 0.0, False, False, {}

    env = make_vec_env(Board, 8, seed=0, normalize=True)
    env.reset()
    shown = np.concatenate([env.step(np.zeros(8, np.int64))[0] for _ in range(50)])
    assert shown.dtype == (np.float32 if is_normalized else np.uint8)
    assert abs(shown[-200:].mean() - (0.0 if is_normalized else 0.5)) < 0.1


def test_images_and_discrete_parts_are_left_alone() -> None:
    env = make_vec_env(Noisy, 2, seed=0, normalize=True, check=False)
    observations, _ = env.reset()
    raw, _ = make_vec_env(Noisy, 2, seed=0, check=False).reset()
    assert list(env.normalizer.moments) == ["state"]
    assert np.array_equal(observations["image"], raw["image"])
    assert observations["token"].dtype == np.int64
    assert observations["state"].dtype == np.float32
    assert env.single_observation_space["state"].high.tolist() == [10.0] * 3
    assert env.observation_space.contains(observations)


def test_autoreset_modes_have_equal_return_statistics() -> None:
    def make() -> Counting:
        return Counting(lengths=(3,))

    same = make_vec_env(make, 2, normalize=True, check=False)
    after = VecNormalize(SyncVectorEnv([make] * 2))
    for env, n_steps in ((same, 6), (after, 7)):
        env.reset(seed=0)
        for _ in range(n_steps):
            env.step(np.zeros(2, dtype=np.int64))
    assert same.normalizer.return_moments.count == after.normalizer.return_moments.count
    assert same.normalizer.return_moments.var == pytest.approx(after.normalizer.return_moments.var)


def test_evaluation_leaves_running_returns_alone() -> None:
    training = make_vec_env("Pendulum-v1", 2, normalize=True)
    training.normalizer.update(np.zeros((2, 3)), np.array([1.0, 2.0]), np.array([False, False]))
    evaluation = VecNormalize(make_vec_env("Pendulum-v1", 2), training=False, normalizer=training.normalizer)
    evaluation.reset()
    make_adapter(evaluation).reset([0, 1])
    assert training.normalizer.returns.tolist() == [1.0, 2.0]


DICT = spaces.Dict({"a": VECTOR, "b": spaces.Box(-np.inf, np.inf, (2, 2), np.float64)})


def seen_by(worker: int, step: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return what one of several workers sees in a step: observations of three environments, and rewards."""
    generator = np.random.default_rng((worker, step))
    observations = {"a": generator.normal(worker, 2.0, (3, 3)), "b": generator.normal(5.0, 1.0, (3, 2, 2))}
    return observations, generator.normal(worker - 1.0, 1.0, 3)


def see(normalizer: Normalizer, observations: dict[str, np.ndarray], rewards: np.ndarray) -> None:
    normalizer.update(observations, rewards, np.zeros(len(rewards), np.bool_))


def assert_same_statistics(one: Normalizer, other: Normalizer) -> None:
    ours, theirs = (each.state()["arrays"] for each in (one, other))
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - {"returns"}:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-9, atol=1e-12)


def test_ranks_share_statistics_of_all_observations() -> None:
    """The third of them sees nothing until the second exchange."""
    alone, workers = Normalizer(DICT, gamma=0.0), [Normalizer(DICT, gamma=0.0) for _ in range(3)]
    for worker in workers:
        worker.share()
    for exchange in range(3):
        for number, worker in enumerate(workers[: 2 + (exchange > 0)]):
            for step in range(1 + number):
                seen = seen_by(number, 10 * exchange + step)
                see(worker, *seen)
                see(alone, *seen)
        exchanged = np.stack([worker.local_statistics() for worker in workers])
        for worker in workers:
            worker.merge_shared(exchanged)
            assert_same_statistics(worker, alone)


def test_state_survives_json_and_goes_on_identically() -> None:
    generator = np.random.default_rng(1)
    normalizer = Normalizer(VECTOR, NormalizeConfig(clip_reward=3.0), num_envs=2, gamma=0.8)

    def see(one: Normalizer, observations: np.ndarray, rewards: np.ndarray) -> Any:
        one.update(observations, rewards, rewards > 1.0)
        return one.normalize_observations(observations), one.normalize_rewards(rewards)

    for _ in range(5):
        see(normalizer, generator.normal(size=(2, 3)), generator.normal(size=2))
    state = normalizer.state()
    again = Normalizer.from_state({**state, "values": json.loads(json.dumps(state["values"]))})
    observations, rewards = generator.normal(size=(2, 3)), generator.normal(size=2)
    for one, other in zip(
        see(normalizer, observations, rewards), see(again, observations, rewards), strict=True
    ):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("keys", "message"),
    [(["stat"], "did you mean 'state'"), (["token"], "it must be a Box"), (["image"], "no image")],
)
def test_wrong_keys_are_refused(keys: list[str], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        make_vec_env(Noisy, normalize={"keys": keys}, check=False)


PARTS = spaces.Dict({"a": spaces.Box(-9.0, 9.0, (2,)), "b": spaces.Box(-9.0, 9.0, (1, 3))})


def test_row_moments_include_only_counted_steps() -> None:
    """The third shows something, but nothing of it counts."""
    rows = RowMoments(Normalizer(PARTS), 3)
    generator = np.random.default_rng(0)
    shown: list[list[Any]] = [[], [], []]
    for step in range(5):
        seen = {"a": generator.normal(3.0, 2.0, (3, 2)), "b": generator.normal(-1.0, 1.0, (3, 1, 3))}
        counted = np.array([True, step % 2 == 0, False])
        rows.update(seen, counted)
        for row in np.flatnonzero(counted):
            shown[row].append((seen["a"][row], seen["b"][row].reshape(3)))
    for row, n in ((0, 5), (1, 3)):
        expected: list[float] = []
        for values in (np.array([part[k] for part in shown[row]]) for k in range(2)):
            mean = values.mean(axis=0)
            expected += [n, *mean, *((values - mean) ** 2).sum(axis=0)]
        np.testing.assert_allclose(rows.row_statistics(row), [*expected, 0.0, 0.0, 0.0], rtol=1e-12)
    assert not rows.row_statistics(2).any()


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8") as file:
        assert file.readline().startswith("#")
        return list(csv.DictReader(file))


def test_file_is_a_json_header_and_one_row_an_episode(tmp_path: Path) -> None:
    env = make_vec_env(Counting, 2, check=False, monitor_dir=tmp_path, info_keywords=["score"])
    stepper = make_adapter(env)
    stepper.reset([0, 1])
    for _ in range(9):
        stepper.step([0, 0])
    header = (tmp_path / "1.monitor.csv").read_text().splitlines()[0]
    assert json.loads(header[1:]).keys() == {"t_start", "env_id"}
    found = rows(tmp_path / "0.monitor.csv")
    assert [(row["r"], row["l"], row["score"]) for row in found] == [
        ("3.0", "2", "20.0"),
        ("6.0", "3", "30.0"),
        ("10.0", "4", "40.0"),
    ]
    assert all(0.0 <= float(row["t"]) < 60.0 for row in found)


def test_stable_baselines_reads_the_files(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    monitoring = pytest.importorskip("stable_baselines3.common.monitor")
    stepper = make_adapter(make_vec_env("CartPole-v1", 2, monitor_dir=tmp_path))
    stepper.reset([0, 1])
    for _ in range(60):
        stepper.step(np.ones(2, dtype=np.int64))
    results = monitoring.load_results(str(tmp_path))
    assert len(results) >= 8
    assert set(results.columns) >= {"r", "l", "t"}


def test_rows_after_a_checkpoint_are_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    monitor = EpisodeMonitor(tmp_path, 2, env_id="X-v0")
    monitor.write(EpisodeRecord(0, 1.0, 10, 0.1))
    saved = monitor.offsets()
    before = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    monitor.write(EpisodeRecord(0, 2.0, 20, 0.2))
    monitor.write(EpisodeRecord(1, 3.0, 30, 0.3))
    monitor.close()
    with (tmp_path / "1.monitor.csv").open("a") as file:
        file.write("4.0,4")

    again = EpisodeMonitor(tmp_path, 2, env_id="X-v0")
    again.truncate(saved)
    assert not caplog.messages
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == before
    again.write(EpisodeRecord(1, 5.0, 50, 0.5))
    assert [row["l"] for row in rows(tmp_path / "1.monitor.csv")] == ["50"]
    assert again.start == monitor.start


@pytest.mark.parametrize("total", [2.5e-7, -3e-12, 0.5, 1e9, 0.0])
def test_monitor_keeps_returns_of_any_size(tmp_path: Path, total: float) -> None:
    monitor = EpisodeMonitor(tmp_path, 1)
    monitor.write(EpisodeRecord(0, total, 10, 0.1))
    monitor.close()
    assert float(rows(tmp_path / "0.monitor.csv")[0]["r"]) == total


@pytest.mark.parametrize("damage", [b"garbage\n", b'#{"t_start": 1.0}\nr,l', b"\xff\n"])
def test_damaged_monitor_is_named_and_stays_as_it_is(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "0.monitor.csv").write_bytes(damage)
    with pytest.raises(ZooError, match=r"0\.monitor\.csv is damaged"):
        EpisodeMonitor(tmp_path, 1)
    assert (tmp_path / "0.monitor.csv").read_bytes() == damage


def test_run_goes_on_after_rows_were_lost(tmp_path: Path) -> None:
    monitor = EpisodeMonitor(tmp_path, 3)
    for index in range(3):
        monitor.write(EpisodeRecord(index, 1.0, 10, 0.1))
    before = (tmp_path / "0.monitor.csv").read_bytes()
    for index in range(3):
        monitor.write(EpisodeRecord(index, 2.0, 20, 0.2))
    saved = monitor.offsets()
    monitor.close()
    # A power cut took half of the last row, and all of another file.
    os.truncate(tmp_path / "0.monitor.csv", len(before) + 4)
    os.truncate(tmp_path / "1.monitor.csv", 0)

    again = EpisodeMonitor(tmp_path, 3)
    again.truncate(saved)
    again.write(EpisodeRecord(0, 3.0, 30, 0.3))
    again.write(EpisodeRecord(1, 3.0, 30, 0.3))
    assert (tmp_path / "0.monitor.csv").read_bytes() == before + b"3.0,30,0.3\n"
    assert [row["l"] for row in rows(tmp_path / "1.monitor.csv")] == ["30"]
    assert [row["l"] for row in rows(tmp_path / "2.monitor.csv")] == ["10", "20"]


def test_monitor_warns_once_on_full_disk_then_recovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, no_larger_files: Any
) -> None:
    monitor = EpisodeMonitor(tmp_path, 2)
    size = (tmp_path / "0.monitor.csv").stat().st_size
    with no_larger_files(size + 5):
        for length in (10, 20):
            for index in range(2):
                monitor.write(EpisodeRecord(index, 1.0, length, 0.1))
    assert (tmp_path / "0.monitor.csv").stat().st_size == size
    monitor.write(EpisodeRecord(0, 1.0, 30, 0.1))
    assert [row["l"] for row in rows(tmp_path / "0.monitor.csv")] == ["30"]
    (line,) = caplog.messages
    assert "can't write" in line
    assert "the run goes on" in line


@pytest.mark.parametrize("other", [{"normalizer": None}, {"config": None}])
def test_options_with_config_or_normalizer_are_refused(other: dict[str, Any]) -> None:
    env = make_vec_env("Pendulum-v1", 2)
    values = {"normalizer": VecNormalize(env).normalizer, "config": NormalizeConfig(clip_obs=5)}
    with pytest.raises(ZooError, match="norm_reward"):
        VecNormalize(env, norm_reward=False, **{name: values[name] for name in other})


def test_normalizer_under_another_wrapper_is_refused() -> None:
    normalized = VecNormalize(make_vec_env("CartPole-v1", 2))
    with pytest.raises(ZooError, match="outermost"):
        VecNormalize(normalized)
    with pytest.raises(ZooError, match="outermost"):
        zoo.PPO2("MlpPolicy", gym.wrappers.vector.RecordEpisodeStatistics(normalized))


def test_loading_as_the_peer_does_is_answered() -> None:
    with pytest.raises(ZooError, match=r"zoo\.load\(agent, env\)"):
        VecNormalize.load("statistics.pkl", None)
