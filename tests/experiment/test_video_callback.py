"""Videos while an agent learns: they are there, and the training never notices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest

from zoo.algorithms.callback import PREEMPTED, Callback
from zoo.algorithms.ppo import PPO2
from zoo.config.compose import compose
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError
from zoo.experiment.callbacks import VideoCallback
from zoo.experiment.experiment import Experiment, train

CARTPOLE = EnvConfig(id="CartPole-v1")

SHORT = [
    *("algo=ppo2", "env=CartPole-v1", "tuned=none", "seed=3", "n_timesteps=512", "algo.n_steps=64"),
    *("algo.batch_size=64", "compile=false", "threads=1", "logger=csv", "progress_bar=false", "verbose=0"),
    *("callbacks.eval.every=128", "callbacks.eval.n_episodes=2", "callbacks.checkpoint.every=192"),
]
FILMING = ["callbacks.video.every=128", "callbacks.video.length=10", "callbacks.video.size=100"]


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return all(np.array_equal(first[name], second[name]) for name in first)


def n_frames(video: Path) -> int:
    count: int = imageio_ffmpeg.count_frames_and_secs(str(video))[0]
    return count


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_run_with_videos_ends_with_the_same_weights_bit_for_bit() -> None:
    plain = train(compose("train", [*SHORT, "runs_dir=plain"]))
    filmed = train(compose("train", [*SHORT, "runs_dir=filmed", *FILMING]))
    assert same(plain.algorithm.get_parameters(), filmed.algorithm.get_parameters())
    assert plain.run.evaluations.read_bytes() == filmed.run.evaluations.read_bytes()
    assert sorted(path.name for path in filmed.run.videos.iterdir()) == [
        f"step-{steps:09}.mp4" for steps in (128, 256, 384, 512)
    ]
    assert all(n_frames(path) == 10 for path in filmed.run.videos.iterdir())
    assert not plain.run.videos.exists()


class Preempt(Callback):
    """Acts like a signal after so many steps."""

    def __init__(self, at: int) -> None:
        self.every = at

    def on_steps(self, algorithm: Any) -> None:
        algorithm.request_stop(PREEMPTED)


def test_interrupted_run_is_resumed_exactly_and_films_what_was_due() -> None:
    whole = train(compose("train", [*SHORT, "runs_dir=whole", *FILMING]))
    with Experiment(compose("train", [*SHORT, "runs_dir=parts", *FILMING])) as experiment:
        experiment.callbacks.insert(1, Preempt(256))  # before the video that is due then
        first = experiment.run_through()
    assert [path.name for path in first.run.videos.iterdir()] == ["step-000000128.mp4"]
    resumed = train(compose("train", [f"resume={first.run.path}"]))
    assert same(whole.algorithm.get_parameters(), resumed.algorithm.get_parameters())
    videos = {path.name: path.read_bytes() for path in whole.run.videos.iterdir()}
    assert videos == {path.name: path.read_bytes() for path in resumed.run.videos.iterdir()}


def test_signal_during_a_video_leaves_no_part_of_it(ppo2: Callable[..., PPO2], tmp_path: Path) -> None:
    model = ppo2()
    video = VideoCallback(CARTPOLE, tmp_path / "videos", every=64, length=100_000)

    predict = model.predict
    calls = 0

    def preempted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 20:
            model.request_stop(PREEMPTED)
        return predict(*arguments, **options)

    model.predict = preempted  # type: ignore[method-assign]
    model.learn(640, [video])
    assert model.num_timesteps == 64
    assert model.state()["still_due"]["VideoCallback"] == 64
    assert not list((tmp_path / "videos").iterdir())


def test_what_cannot_be_filmed_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZooError, match="can't film Zoo/Identity-v0"):
        train(compose("train", [*SHORT, "env=Zoo/Identity-v0", *FILMING]))
    with pytest.raises(ZooError, match="`size=641"):
        train(compose("train", [*SHORT, *FILMING, "callbacks.video.size=641"]))
    monkeypatch.setitem(__import__("sys").modules, "moviepy", None)
    with pytest.raises(ZooError, match="moviepy"):
        train(compose("train", [*SHORT, *FILMING]))
    assert not list(Path("runs").glob("*/*/*"))
