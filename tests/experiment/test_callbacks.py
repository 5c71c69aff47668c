"""Callbacks: evaluation, early stopping, kept agents, videos, and how a config makes them."""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit

import zoo
from zoo.agents.agent_folder import read_agent
from zoo.agents.find import kept_agents
from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.callback import PREEMPTED, Callback
from zoo.algorithms.ppo import PPO2
from zoo.config.compose import compose
from zoo.envs.config import EnvConfig
from zoo.envs.make_env import make_vec_env
from zoo.errors import ZooError
from zoo.experiment.callbacks import (
    EvalCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
    VideoCallback,
    read_evaluations,
)
from zoo.experiment.checkpoint import CheckpointCallback
from zoo.experiment.evaluation import Evaluation, evaluate
from zoo.experiment.experiment import Experiment, Result, train
from zoo.experiment.factories import make_callbacks
from zoo.experiment.loggers import LoggingCallback
from zoo.experiment.progress_bar import ProgressBarCallback
from zoo.experiment.run_folder import RunFolder


class Preempt(Callback):
    """Acts like a signal after so many steps."""

    def __init__(self, at: int) -> None:
        self.every = at

    def on_steps(self, algorithm: Any) -> None:
        algorithm.request_stop(PREEMPTED)


def test_evaluations_file_uses_names_of_sb3(run: RunFolder, ppo2: Callable[..., PPO2]) -> None:
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

    model = ppo2()
    model.learn(128, EvalCallback(lambda: TimeLimit(Succeeding(), 10), every=64, n_eval_episodes=4, run=run))
    with np.load(run.evaluations) as file:
        assert file["successes"].shape == (2, 4)
        assert model.read_metrics()["eval/success_rate"] == file["successes"][-1].mean()


def test_best_agent_is_the_one_that_scored_best(run: RunFolder, ppo2: Callable[..., PPO2]) -> None:
    evaluation = EvalCallback("CartPole-v1", every=64, n_eval_episodes=3, seed=5, run=run)
    ppo2().learn(1280, evaluation)
    results = [each.mean for _, each in read_evaluations(run.evaluations)]
    card = json.loads((run.best_agent / "card.json").read_text())
    assert card["mean_return"] == max(results)
    assert (card["n_eval_episodes"], card["deterministic"]) == (3, True)
    # Of equal ones it is the latest.
    number = max(i for i, result in enumerate(results) if result == max(results))
    assert card["timesteps"] == 64 * (number + 1)
    best = PPO2.load(run.best_agent)
    again = evaluate(best, make_vec_env("CartPole-v1", 3), 3, seed=(5, number))
    assert again.mean == max(results)


@pytest.mark.parametrize("confirm", [0, 4])
def test_later_of_two_equal_agents_is_the_best(run: RunFolder, ppo2: Any, confirm: int) -> None:
    """Every episode returns 5: no pole falls that soon."""

    def make() -> Any:
        return TimeLimit(CartPoleEnv(), 5)

    ppo2().learn(192, EvalCallback(make, every=64, n_eval_episodes=2, confirm=confirm, run=run))
    assert [each.mean for _, each in read_evaluations(run.evaluations)] == [5.0] * 3
    assert json.loads((run.best_agent / "card.json").read_text())["timesteps"] == 192


def test_confirm_scores_best_agent_on_more_episodes(run: RunFolder, ppo2: Callable[..., PPO2]) -> None:
    evaluation = EvalCallback("CartPole-v1", every=64, n_eval_episodes=2, seed=1, confirm=20, run=run)
    confirmed: list[tuple[float, float]] = []

    class Judged(Callback):
        every = 64

        def on_steps(self, algorithm: Algorithm) -> None:
            short, long = (
                evaluate(algorithm, make_vec_env("CartPole-v1", 2), n, seed=(1, i)).mean
                for i, n in enumerate((2, 20))
            )
            best_short, best_long = confirmed[-1] if confirmed else (-np.inf, -np.inf)
            if short >= best_short and long >= best_long:
                confirmed.append((short, long))

    ppo2().learn(640, [Judged(), evaluation])
    card = json.loads((run.best_agent / "card.json").read_text())
    assert len(confirmed) > 1
    assert any(short < earlier for (short, _), (_, earlier) in zip(confirmed[1:], confirmed, strict=False))
    assert card["mean_return"] == confirmed[-1][1] == max(long for _, long in confirmed)
    assert card["n_eval_episodes"] == 20
    assert {each.n_episodes for _, each in read_evaluations(run.evaluations)} == {2}


def test_evaluation_that_a_signal_interrupts_is_none(run: RunFolder, ppo2: Callable[..., PPO2]) -> None:
    evaluation = EvalCallback("CartPole-v1", every=128, run=run)
    ppo2().learn(256, [Preempt(128), evaluation])
    assert evaluation.n_evaluations == 0
    assert not run.evaluations.exists()


def evaluation_of_two() -> EvalCallback:
    return EvalCallback("CartPole-v1", every=64, n_eval_episodes=2, seed=0)


def test_reaching_the_threshold_exactly_is_enough(ppo2: Callable[..., PPO2]) -> None:
    """Many environments have a best return that no agent can exceed."""
    evaluation = evaluation_of_two()
    ppo2().learn(64, evaluation)
    assert evaluation.last is not None
    reached = evaluation.last.mean
    for threshold, steps in ((reached, 64), (np.nextafter(reached, np.inf), 128)):
        again = evaluation_of_two()
        model = ppo2().learn(128, [again, StopTrainingOnRewardThreshold(again, float(threshold))])
        assert model.num_timesteps == steps


@pytest.mark.parametrize(("min_evals", "ends_at"), [(0, 3), (4, 6)])
def test_run_ends_after_evals_without_improvement(min_evals: int, ends_at: int, ppo2: Any) -> None:
    evaluation, model = evaluation_of_two(), ppo2()
    stop = StopTrainingOnNoModelImprovement(evaluation, max_no_improvement_evals=2, min_evals=min_evals)
    evaluation.history.append((0, Evaluation(np.array([500.0]), np.array([500]))))
    model.learn(6400, [evaluation, stop])
    assert evaluation.n_evaluations == ends_at
    assert model.stop_reason == "no better mean return than 500 in 3 evaluations"


def test_run_ends_with_the_last_episode_it_may_have(ppo2: Callable[..., PPO2]) -> None:
    model = ppo2()
    model.learn(6400, StopTrainingOnMaxEpisodes(5))
    assert model.stop_reason == "5 episodes are done"
    assert 5 <= model.n_episodes < 15
    assert model.num_timesteps < 6400


SHORT = [
    *("algo=ppo2", "env=CartPole-v1", "tuned=none", "n_timesteps=512", "n_envs=2", "algo.n_steps=32"),
    *("algo.batch_size=64", "algo.n_epochs=1", "compile=false", "threads=1", "logger=none", "verbose=0"),
    *("progress_bar=false", "callbacks.eval.every=128", "callbacks.eval.n_episodes=2", "seed=3"),
    *("callbacks.agents.every=100", "callbacks.checkpoint.every=192"),
]


def trained(*overrides: str) -> Result:
    return train(compose("train", [*SHORT, *overrides]))


def assert_same_agents(first: Path, second: Path) -> None:
    ours, theirs = kept_agents(first), kept_agents(second)
    assert list(ours) == list(theirs)
    for steps in ours:
        ones, others = (read_agent(found[steps]).tensors for found in (ours, theirs))
        assert all(np.array_equal(ones[name], others[name]) for name in ones)


def test_kept_agents_have_step_names_and_scores() -> None:
    result = trained()
    agents = kept_agents(result.run.path)
    assert list(agents) == [128, 256, 320, 448, 512]
    assert [path.name for path in agents.values()][:2] == ["step-000000128", "step-000000256"]
    cards = {steps: read_agent(path).card for steps, path in agents.items()}
    assert all(card["timesteps"] == steps for steps, card in cards.items())
    assert [steps for steps, card in cards.items() if card.get("mean_return") is not None] == [128, 256, 512]
    last = zoo.load(agents[512])
    own = result.algorithm.get_parameters()
    assert all(np.array_equal(values, own[name]) for name, values in last.get_parameters().items())
    first = zoo.load(agents[128]).get_parameters()
    assert not all(np.array_equal(values, own[name]) for name, values in first.items())


def test_resumed_run_keeps_same_agents() -> None:
    """What was kept after the checkpoint is kept once more; what a kill left half written goes."""
    whole = trained()
    with Experiment(compose("train", [*SHORT, "seed=3"])) as experiment:
        experiment.config["n_timesteps"] = 448  # as if it were killed there
        experiment.learn()
    run = experiment.run.path
    assert list(kept_agents(run)) == [128, 256, 320, 448]  # and the last checkpoint is of 384
    stale = run / "agents" / "step-000000433"
    (run / "agents" / "step-000000448").rename(stale)
    half = run / "agents" / ".step-000000512.0123abcd.partial"
    half.mkdir()
    (half / "config.yaml").write_text("format: 1")
    lost = run / "agents" / ".step-000000320.previous"
    (run / "agents" / "step-000000320").rename(lost)
    train(compose("train", [f"resume={run}", "verbose=0", "progress_bar=false"]))
    assert sorted(each.name for each in (run / "agents").iterdir()) == [
        each.name for each in kept_agents(whole.run.path).values()
    ]
    assert_same_agents(run, whole.run.path)


def test_callbacks_are_ordered_with_checkpoint_last(config: dict[str, Any], run: RunFolder) -> None:
    config["callbacks"] |= {
        "stop_on_reward": {"threshold": 475.0},
        "stop_on_no_improvement": {"max_evaluations": 5, "min_evaluations": 0},
        "stop_on_episodes": {"max_episodes": 100},
        "own": {"_target_": "zoo.experiment.callbacks.StopTrainingOnMaxEpisodes", "max_episodes": 7},
    }
    config["progress_bar"] = True
    callbacks = make_callbacks(config, run, ExitStack())
    assert [type(callback) for callback in callbacks] == [
        *(EvalCallback, StopTrainingOnRewardThreshold, StopTrainingOnNoModelImprovement),
        *(StopTrainingOnMaxEpisodes, StopTrainingOnMaxEpisodes),
        *(LoggingCallback, ProgressBarCallback, CheckpointCallback),
    ]
    checkpoint = callbacks[-1]
    assert isinstance(checkpoint, CheckpointCallback)
    assert list(checkpoint.callbacks) == callbacks[:-1]


def test_run_is_divided_where_no_interval_is_set(config: dict[str, Any], run: RunFolder) -> None:
    config["n_timesteps"] = 50_000
    config["callbacks"]["eval"]["every"] = config["callbacks"]["checkpoint"]["every"] = None
    config["logger"]["every"] = None
    callbacks = make_callbacks(config, run, ExitStack())
    assert {type(callback): callback.every for callback in callbacks} == {
        EvalCallback: 2_500,
        LoggingCallback: 500,
        CheckpointCallback: 5_000,
    }


def test_stop_on_reward_needs_evaluations(config: dict[str, Any], run: RunFolder) -> None:
    config["callbacks"] |= {"eval": None, "stop_on_reward": {"threshold": 475.0}}
    with pytest.raises(ZooError, match=r"`callbacks\.stop_on_reward` needs `callbacks\.eval`"):
        make_callbacks(config, run, ExitStack())


OWN_CALLBACKS = """
from zoo.algorithms.callback import Callback


class Plain(Callback):
    def on_steps(self, algorithm):
        pass


class WithArguments(Plain):
    def __init__(self, size=1):
        self.size = size


class WatchesEpisodes(Callback):
    def on_episode(self, algorithm, episode):
        pass
"""


@pytest.fixture
def own_callbacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_callbacks.py").write_text(OWN_CALLBACKS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_callbacks", None)


@pytest.mark.parametrize(("name", "arguments"), [("Plain", {}), ("WithArguments", {"size": 3})])
@pytest.mark.usefixtures("own_callbacks")
def test_callback_that_takes_no_interval_gets_one(
    config: dict[str, Any], run: RunFolder, name: str, arguments: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    config["callbacks"]["mine"] = {"_target_": f"own_callbacks.{name}", "every": 1e3, **arguments}
    (mine,) = [each for each in make_callbacks(config, run, ExitStack()) if type(each).__name__ == name]
    assert (mine.every, type(mine.every)) == (1000, int)
    assert {key: getattr(mine, key) for key in arguments} == arguments
    assert capsys.readouterr().err == ""
    for every in (0, 1.5):
        config["callbacks"]["mine"]["every"] = every
        with pytest.raises(ZooError, match="every"):
            make_callbacks(config, run, ExitStack())


@pytest.mark.usefixtures("own_callbacks")
@pytest.mark.parametrize(
    ("name", "every", "is_warned"),
    [("Plain", None, True), ("Plain", 64, False), ("WatchesEpisodes", None, False)],
)
def test_callback_without_interval_is_warned_of(
    config: dict[str, Any], run: RunFolder, name: str, every: int | None, is_warned: bool
) -> None:
    config["callbacks"]["mine"] = {"_target_": f"own_callbacks.{name}"} | ({"every": every} if every else {})
    (mine,) = [
        callback
        for callback in make_callbacks(config, run, ExitStack())
        if type(callback).__module__ == "own_callbacks"
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            PPO2("MlpPolicy", "CartPole-v1", n_steps=64).learn(64, mine, progress_bar=False)
    told = [str(warning.message) for warning in caught if "never called" in str(warning.message)]
    assert [line.partition(".")[0] for line in told] == [name] * 2 * is_warned


SHORT_VIDEOS = [
    *("algo=ppo2", "env=CartPole-v1", "tuned=none", "seed=3", "n_timesteps=512", "algo.n_steps=64"),
    *("algo.batch_size=64", "compile=false", "threads=1", "logger=csv", "progress_bar=false", "verbose=0"),
    *("callbacks.eval.every=128", "callbacks.eval.n_episodes=2", "callbacks.checkpoint.every=192"),
]
FILMING = ["callbacks.video.every=128", "callbacks.video.length=10", "callbacks.video.size=100"]


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return all(np.array_equal(first[name], second[name]) for name in first)


def frames(video: Path) -> Any:
    reader = imageio_ffmpeg.read_frames(str(video))
    next(reader)  # what kind of video it is
    return np.array([np.frombuffer(frame, np.uint8) for frame in reader], np.float32)


def difference(first: Any, second: Any) -> float:
    return float(np.abs(first - second).mean())


def test_videos_do_not_change_weights() -> None:
    plain = train(compose("train", [*SHORT_VIDEOS, "runs_dir=plain"]))
    filmed = train(compose("train", [*SHORT_VIDEOS, "runs_dir=filmed", *FILMING]))
    assert same(plain.algorithm.get_parameters(), filmed.algorithm.get_parameters())
    assert plain.run.evaluations.read_bytes() == filmed.run.evaluations.read_bytes()
    assert sorted(path.name for path in filmed.run.videos.iterdir()) == [
        f"step-{steps:09}.mp4" for steps in (128, 256, 384, 512)
    ]
    assert all(len(frames(path)) == 10 for path in filmed.run.videos.iterdir())
    assert not plain.run.videos.exists()


def test_resumed_run_is_exact_and_films_due_videos() -> None:
    whole = train(compose("train", [*SHORT_VIDEOS, "runs_dir=whole", *FILMING]))
    with Experiment(compose("train", [*SHORT_VIDEOS, "runs_dir=parts", *FILMING])) as experiment:
        experiment.callbacks.insert(1, Preempt(256))  # before the video that is due then
        first = experiment.run_through()
    assert [path.name for path in first.run.videos.iterdir()] == ["step-000000128.mp4"]
    resumed = train(compose("train", [f"resume={first.run.path}"]))
    assert same(whole.algorithm.get_parameters(), resumed.algorithm.get_parameters())
    names = sorted(path.name for path in whole.run.videos.iterdir())
    assert names == sorted(path.name for path in resumed.run.videos.iterdir())
    films = [[frames(run.run.videos / name) for name in names] for run in (whole, resumed)]
    # Not to the byte: a busy machine's encoder divides its work otherwise.
    assert all(difference(*pair) < 0.1 for pair in zip(*films, strict=True))
    assert difference(films[0][0], films[0][-1]) > 0.3, "another episode would be seen"


def test_signal_during_a_video_leaves_no_part_of_it(ppo2: Callable[..., PPO2], tmp_path: Path) -> None:
    model = ppo2()
    video = VideoCallback(EnvConfig("CartPole-v1"), tmp_path / "videos", every=64, length=100_000)

    predict, calls = model.predict, itertools.count(1)

    def preempted(*arguments: Any, **options: Any) -> Any:
        if next(calls) == 20:
            model.request_stop(PREEMPTED)
        return predict(*arguments, **options)

    model.predict = preempted  # type: ignore[method-assign]
    model.learn(640, [video])
    assert model.num_timesteps == 64
    assert model.state()["still_due"]["VideoCallback"] == 64
    assert not list((tmp_path / "videos").iterdir())


def test_unfilmable_run_is_refused_before_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZooError, match="can't film Zoo/Identity-v0"):
        train(compose("train", [*SHORT_VIDEOS, "env=Zoo/Identity-v0", *FILMING]))
    with pytest.raises(ZooError, match="`size=641"):
        train(compose("train", [*SHORT_VIDEOS, *FILMING, "callbacks.video.size=641"]))
    monkeypatch.setitem(sys.modules, "moviepy", None)
    with pytest.raises(ZooError, match="moviepy"):
        train(compose("train", [*SHORT_VIDEOS, *FILMING]))
    assert not list(Path("runs").glob("*/*/*"))


# -- Stable-Baselines3's arguments --------------------------------------------------------------------------
def test_sb3_frequencies_count_calls_of_step(
    ppo2: Callable[..., PPO2], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``ppo2`` has two environments with 32 steps a rollout."""
    model = ppo2()
    assert model.n_envs == 2
    evaluation = EvalCallback(
        "CartPole-v1",
        callback_after_eval=StopTrainingOnNoModelImprovement(max_no_improvement_evals=1, min_evals=9),
        callback_on_new_best=StopTrainingOnRewardThreshold(reward_threshold=1e6),
        eval_freq=64,
        best_model_save_path=tmp_path,
        log_path=tmp_path / "log",
        n_eval_episodes=2,
        verbose=1,
    )
    checkpoints = CheckpointCallback(save_freq=96, save_path=tmp_path, name_prefix="mine")
    model.learn(384, [evaluation, checkpoints])
    assert [steps for steps, _ in read_evaluations(tmp_path / "log" / "evaluations.npz")] == [128, 256, 384]
    kept = ["mine_192_steps", "mine_384_steps", "best_model"]
    steps = [zoo.load(tmp_path / name).num_timesteps for name in kept]
    assert steps[:2] == [192, 384]
    assert steps[2] in (128, 256, 384)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*(f"{name}.zip" for name in kept), "log"]
    )
    assert "zoo: step 256: mean return" in capsys.readouterr().err
    assert EvalCallback("CartPole-v1").every_calls == 10_000


@pytest.mark.parametrize(
    "make_callback",
    [
        lambda: EvalCallback(
            "CartPole-v1",
            eval_freq=32,
            n_eval_episodes=1,
            callback_on_new_best=StopTrainingOnRewardThreshold(1.0, verbose=1),
        ),
        lambda: EvalCallback(
            "CartPole-v1",
            every=64,
            n_eval_episodes=1,
            callback_after_eval=StopTrainingOnNoModelImprovement(max_no_improvement_evals=-1, verbose=1),
        ),
    ],
    ids=["on_new_best", "after_eval"],
)
def test_callback_of_an_evaluation_ends_the_run(
    make_callback: Callable[[], EvalCallback], ppo2: Callable[..., PPO2], capsys: pytest.CaptureFixture[str]
) -> None:
    model = ppo2().learn(640, make_callback())
    assert model.num_timesteps <= 128
    assert f"zoo: {model.stop_reason}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EvalCallback("CartPole-v1", every=1, eval_freq=1), "give one of them"),
        (lambda: EvalCallback("CartPole-v1", evalfreq=1), "`EvalCallback.eval_freq`"),
        (lambda: EvalCallback("CartPole-v1", render=True), "render_mode"),
        (lambda: EvalCallback(eval_env="CartPole-v1"), "`EvalCallback.env`"),
        (lambda: CheckpointCallback(1000, "x"), "save_freq"),  # type: ignore[arg-type]
        (lambda: StopTrainingOnRewardThreshold(), "StopTrainingOnRewardThreshold needs reward_threshold"),
        (lambda: StopTrainingOnNoModelImprovement(3), "EvalCallback"),  # type: ignore[arg-type]
        (lambda: LoggingCallback(), "LoggingCallback.*every"),  # type: ignore[call-arg]
        (lambda: zoo.ConsoleLogger(second=1), r"`ConsoleLogger\.seconds`"),
    ],
)
def test_callback_argument_that_is_wrong_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        call()


def test_stop_without_an_evaluation_is_told(ppo2: Callable[..., PPO2]) -> None:
    with pytest.raises(ZooError, match="callback_after_eval"):
        ppo2().learn(64, StopTrainingOnRewardThreshold(100))


@pytest.mark.usefixtures("own_callbacks")
def test_callback_arguments_instantiate_targets(config: dict[str, Any], run: RunFolder) -> None:
    half = {"_target_": "fractions.Fraction", "numerator": 1, "denominator": 2}
    mine = {"_target_": "own_callbacks.WithArguments", "every": 10}
    for size, made in (
        (half, Fraction(1, 2)),
        ([half, 3], [Fraction(1, 2), 3]),
        ({"a": half}, {"a": Fraction(1, 2)}),
    ):
        config["callbacks"]["mine"] = {**mine, "size": size}
        callbacks = make_callbacks(config, run, ExitStack())
        assert [each.size for each in callbacks if type(each).__name__ == "WithArguments"] == [made]
    config["callbacks"]["mine"] = {**mine, "size": {"_target_": "fractions.Fractoin"}}
    with pytest.raises(ZooError, match=r"`callbacks\.mine`: .*Fractoin"):
        make_callbacks(config, run, ExitStack())
