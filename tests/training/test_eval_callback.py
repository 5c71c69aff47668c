"""Evaluation while training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.callback import PREEMPTED, Callback
from zoo.algorithms.ppo import PPO2
from zoo.envs.config import EnvConfig
from zoo.envs.normalize import is_training
from zoo.envs.stepper import EnvStepper
from zoo.envs.vec_env import make_vec_env
from zoo.training.eval_callback import EvalCallback, read_evaluations, write_evaluations
from zoo.training.evaluation import Evaluation, evaluate
from zoo.training.run_folder import RunFolder


class Spy(Callback):
    """Keeps what was logged at each evaluation."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.metrics: list[dict[str, float]] = []

    def on_steps(self, algorithm: Algorithm[Any]) -> None:
        self.metrics.append(algorithm.read_metrics())


def test_evaluations_are_written_under_the_names_of_stable_baselines(
    run: RunFolder, ppo2: Callable[..., PPO2]
) -> None:
    ppo2().learn(384, EvalCallback("CartPole-v1", every=128, n_eval_episodes=3, run=run))
    with np.load(run.evaluations) as file:
        assert sorted(file.files) == ["ep_lengths", "results", "timesteps"]
        assert file["timesteps"].tolist() == [128, 256, 384]
        assert file["results"].shape == file["ep_lengths"].shape == (3, 3)


def test_successes_are_written_where_there_are_any(run: RunFolder, ppo2: Callable[..., PPO2]) -> None:
    class Succeeding(CartPoleEnv):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, reward, terminated, truncated, {**info, "is_success": not terminated}

    def env() -> TimeLimit[Any, Any, Any]:
        return TimeLimit(Succeeding(), 10)

    spy = Spy(128)
    ppo2().learn(256, [EvalCallback(env, every=128, n_eval_episodes=4, run=run), spy])
    with np.load(run.evaluations) as file:
        assert file["successes"].shape == (2, 4)
        assert spy.metrics[0]["eval/success_rate"] == file["successes"][0].mean()


def test_scalars_are_logged(ppo2: Callable[..., PPO2]) -> None:
    evaluation, spy = EvalCallback("CartPole-v1", every=128), Spy(128)
    ppo2().learn(128, [evaluation, spy])
    assert evaluation.last is not None
    assert spy.metrics[0]["eval/mean_reward"] == evaluation.last.mean
    assert spy.metrics[0]["eval/mean_ep_length"] == evaluation.last.mean_length


def test_best_agent_is_the_one_that_scored_best(run: RunFolder, ppo2: Callable[..., PPO2]) -> None:
    evaluation = EvalCallback("CartPole-v1", every=64, n_eval_episodes=3, seed=5, run=run)
    ppo2().learn(1280, evaluation)
    results = [each.mean for _, each in read_evaluations(run.evaluations)]
    card = json.loads((run.best_agent / "card.json").read_text())
    assert card["mean_return"] == max(results)
    assert card["n_eval_episodes"] == 3
    # Of equal ones it is the latest.
    number = max(i for i, result in enumerate(results) if result == max(results))
    assert card["timesteps"] == 64 * (number + 1)
    best = PPO2.load(run.best_agent)
    again = evaluate(best, make_vec_env("CartPole-v1", 3), 3, seed=(5, number))
    assert again.mean == max(results)


def test_evaluation_does_not_change_what_is_learned(ppo2: Callable[..., PPO2]) -> None:
    with_it = ppo2(normalize=True).learn(256, EvalCallback("CartPole-v1", every=64))
    without = ppo2(normalize=True).learn(256)
    for name, array in with_it.get_parameters().items():
        np.testing.assert_array_equal(array, without.get_parameters()[name])


def test_time_it_takes_is_counted_as_evaluation(ppo2: Callable[..., PPO2]) -> None:
    model = ppo2().learn(128, EvalCallback("CartPole-v1", every=128))
    assert model.timings["evaluation"] > 0


def test_score_is_in_the_record_of_the_run(run: RunFolder, ppo2: Callable[..., PPO2]) -> None:
    model = ppo2()
    evaluation = EvalCallback("CartPole-v1", every=128, run=run)
    with run.tracked(model):
        model.learn(192, evaluation)
    record = run.read_record()
    assert evaluation.last is not None
    assert record["evaluation"]["mean_return"] == evaluation.last.mean
    assert record["evaluation"]["timesteps"] == 128
    assert record["status"] == "finished"


def test_evaluation_that_a_signal_interrupts_counts_for_nothing(
    run: RunFolder, ppo2: Callable[..., PPO2]
) -> None:
    class Signal(Callback):
        every = 128

        def on_steps(self, algorithm: Algorithm[Any]) -> None:
            algorithm.request_stop(PREEMPTED)

    evaluation = EvalCallback("CartPole-v1", every=128, run=run)
    ppo2().learn(256, [Signal(), evaluation])
    assert evaluation.n_evaluations == 0
    assert not run.evaluations.exists()


def test_full_disk_is_told_and_the_run_goes_on(
    run: RunFolder,
    ppo2: Callable[..., PPO2],
    no_larger_files: Callable[[int], Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with no_larger_files(10):
        model = ppo2().learn(128, EvalCallback("CartPole-v1", every=128, run=run))
    assert model.num_timesteps == 128
    told = capsys.readouterr().err
    assert "evaluations.npz: File too large; the run goes on" in told
    assert "best_agent: File too large; the run goes on" in told
    assert not list(Path(run.path).glob(".*partial"))


def test_best_mean_is_that_of_the_best_agent_after_a_disk_was_full(
    run: RunFolder, ppo2: Callable[..., PPO2], no_larger_files: Callable[[int], Any]
) -> None:
    model, evaluation = ppo2(), EvalCallback("CartPole-v1", every=128, run=run)
    evaluation.best_mean = -1.0
    with no_larger_files(10):
        model.learn(128, evaluation)
    assert evaluation.best_mean == -1.0
    evaluation.on_steps(model)
    card = json.loads((run.best_agent / "card.json").read_text())
    assert evaluation.best_mean == card["mean_return"] > 0


LAST = {"returns": [20.0], "lengths": [20], "successes": None}


def test_damaged_evaluations_are_kept_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "evaluations.npz").write_bytes(b"PK\x03\x04 and no more")
    callback = EvalCallback("CartPole-v1", every=128, run=tmp_path)
    callback.load_state({"n_evaluations": 3, "best_mean": 20.0, "rows": 3, "evaluated_at": 30, "last": LAST})
    assert callback.n_evaluations == 3
    assert (tmp_path / "evaluations.npz.damaged").read_bytes() == b"PK\x03\x04 and no more"
    told = capsys.readouterr().err
    assert "evaluations.npz is damaged" in told
    assert "evaluations.npz.damaged" in told


def test_evaluations_of_which_none_is_lost_are_taken_over_without_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = [(steps, Evaluation(np.array([steps / 10]), np.array([steps]))) for steps in (10, 20, 30)]
    write_evaluations(tmp_path / "evaluations.npz", history)
    for rows in (3, 2):
        callback = EvalCallback("CartPole-v1", every=10, n_eval_episodes=1, run=tmp_path)
        callback.load_state(
            {"n_evaluations": rows, "best_mean": 2.0, "rows": rows, "evaluated_at": 10 * rows, "last": LAST}
        )
        found = read_evaluations(tmp_path / "evaluations.npz", 1)
        assert [(steps, each.mean) for steps, each in found] == [(10, 1.0), (20, 2.0), (30, 3.0)][:rows]
    assert not capsys.readouterr().err


def test_lost_evaluations_are_told_in_one_line(
    run: RunFolder, ppo2: Callable[..., PPO2], capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = EvalCallback("CartPole-v1", every=128, n_eval_episodes=2, run=run)
    ppo2().learn(256, evaluation)
    state = evaluation.state() | {"rows": 3}
    capsys.readouterr()
    again = EvalCallback("CartPole-v1", every=128, n_eval_episodes=2, run=run)
    again.load_state(state)
    (line,) = capsys.readouterr().err.splitlines()
    assert "holds 2 of the 3 evaluations" in line
    run.evaluations.unlink()
    again.load_state(state)
    (line,) = capsys.readouterr().err.splitlines()
    assert "holds 0 of the 3 evaluations" in line


def test_no_flipped_bit_of_the_evaluations_is_a_traceback_or_another_result(
    run: RunFolder, ppo2: Callable[..., PPO2]
) -> None:
    ppo2().learn(128, EvalCallback("CartPole-v1", every=128, n_eval_episodes=2, run=run))
    whole, expected = (
        run.evaluations.read_bytes(),
        [vars(each) for _, each in read_evaluations(run.evaluations)],
    )
    n_damaged = 0
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        run.evaluations.write_bytes(damaged)
        found = [vars(each) for _, each in read_evaluations(run.evaluations)]
        assert not found or str(found) == str(expected)
        n_damaged += not found
    assert n_damaged > 100


def test_no_damage_is_too_much_for_reading(tmp_path: Path) -> None:
    for content in (b"", b"\x93NUMPY", b"not a zip", bytes(1000)):
        (tmp_path / "evaluations.npz").write_bytes(content)
        assert read_evaluations(tmp_path / "evaluations.npz") == []
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "array.npy").rename(tmp_path / "evaluations.npz")
    assert read_evaluations(tmp_path / "evaluations.npz") == []
    assert len(list(tmp_path.glob("evaluations.npz.damaged*"))) == 5


def test_environments_that_evaluate_have_statistics_that_stand_still() -> None:
    envs = EvalCallback(EnvConfig(id="CartPole-v1", normalize=True), every=64, n_eval_episodes=1)._envs()
    assert isinstance(envs, EnvStepper)
    assert not is_training(envs.given_env)


def test_of_agents_that_score_the_same_the_latest_is_the_best(
    run: RunFolder, ppo2: Callable[..., PPO2]
) -> None:
    env = TimeLimit(CartPoleEnv(), 3)  # no pole falls so soon
    ppo2().learn(192, EvalCallback(env, every=64, n_eval_episodes=1, run=run))
    assert json.loads((run.best_agent / "card.json").read_text())["timesteps"] == 192


class Touching:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_nothing_in_a_file_of_evaluations_is_run(tmp_path: Path) -> None:
    harmful = np.array([Touching(tmp_path / "touched")], dtype=object)
    numbers = np.ones((1, 1))
    np.savez(tmp_path / "evaluations.npz", timesteps=harmful, results=numbers, ep_lengths=numbers)
    assert read_evaluations(tmp_path / "evaluations.npz") == []
    assert not (tmp_path / "touched").exists()


def test_evaluations_that_are_written_nowhere_go_on_after_a_checkpoint() -> None:
    callback = EvalCallback("CartPole-v1", every=128)
    callback.load_state({"n_evaluations": 3, "best_mean": 20.0, "rows": 3, "evaluated_at": 30, "last": LAST})
    assert (callback.n_evaluations, callback.best_mean, callback.evaluated_at) == (3, 20.0, 30)


@pytest.mark.parametrize(("n_envs", "made"), [(1, 1), (2, 2), (5, 3)])
def test_no_more_environments_are_made_than_episodes_are_played(n_envs: int, made: int) -> None:
    callback = EvalCallback("CartPole-v1", every=64, n_eval_episodes=3, n_envs=n_envs, seed=0)
    assert callback._envs().num_envs == made  # type: ignore[union-attr]
