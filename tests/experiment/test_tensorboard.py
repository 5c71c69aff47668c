"""What TensorBoard shows of runs, read by its own readers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from tensorboard.backend.event_processing import data_provider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.backend_context import Context
from tensorboard.plugins.hparams.list_session_groups import Handler

from zoo.config.compose import compose
from zoo.envs.video import filming
from zoo.experiment.experiment import Result, train
from zoo.experiment.loggers import LogEntry, RunSummary
from zoo.experiment.trackers import TensorBoardLogger

SHORT = [
    *("algo=ppo2", "env=CartPole-v1", "tuned=none", "n_timesteps=256", "algo.n_steps=64"),
    *("algo.batch_size=64", "compile=false", "threads=1", "logger=tensorboard", "progress_bar=false"),
    *("verbose=0", "callbacks.eval.every=128", "callbacks.eval.n_episodes=2"),
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trained(*overrides: str, alone: bool = False) -> Result:
    quiet = ["verbose=0", "progress_bar=false"]
    return train(compose("train", [*(quiet if alone else SHORT), *overrides]))


def events(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"images": 0, "histograms": 0, "scalars": 0})
    found.Reload()
    return found


def sessions(folder: Path) -> list[Any]:
    """Return what the tab HParams lists of the runs below a folder."""
    runs = EventMultiplexer()
    runs.AddRunsFromDirectory(str(folder))
    runs.Reload()
    context = Context(TBContext(data_provider=data_provider.MultiplexerDataProvider(runs, str(folder))))
    statuses = [api_pb2.STATUS_SUCCESS, api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_RUNNING]
    metrics = [
        api_pb2.ColParams(metric=api_pb2.MetricName(tag=tag))
        for tag in ("final/mean_return", "final/best_mean_return")
    ]
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=100, allowed_statuses=statuses, col_params=metrics
    )
    return list(Handler(RequestContext(), context, "", request).run().session_groups)


def test_hparams_tab_compares_runs_by_their_settings_and_scores() -> None:
    results = [trained("seed=1"), trained("seed=2", "algo.learning_rate=0.01")]
    groups = sessions(Path("runs"))
    assert len(groups) == 2
    for result in results:
        (group,) = [each for each in groups if each.hparams["seed"].number_value == result.algorithm.seed]
        assert group.hparams["algo.learning_rate"].number_value == result.algorithm.config.learning_rate
        assert group.hparams["env.id"].string_value == "CartPole-v1"
        assert group.hparams["algo.normalize_advantage"].string_value == "true"
        assert not [name for name in group.hparams if name.startswith("logger")]
        metrics = {each.name.tag: each.value for each in group.metric_values}
        assert result.evaluation is not None
        assert metrics["final/mean_return"] == pytest.approx(result.evaluation.mean)
        assert metrics["final/best_mean_return"] == pytest.approx(result.best_mean)
        assert group.sessions[0].status == api_pb2.STATUS_SUCCESS


def test_config_is_shown_as_text_once() -> None:
    result = trained("seed=1")
    found = events(result.run.tensorboard)
    (text,) = found.Tensors("config/text_summary")
    assert text.step == 0
    shown = text.tensor_proto.string_val[0].decode()
    assert shown.startswith("```yaml\n")
    assert shown.endswith("\n```")
    expected = result.run.read_config()
    assert yaml.safe_load(shown[len("```yaml\n") : -3]) == {
        key: value
        for key, value in expected.items()
        if key not in ("resume", "job", "verbose", "progress_bar")
    }
    assert found.SummaryMetadata("config/text_summary").plugin_data.plugin_name == "text"


def test_videos_are_shown_as_moving_images() -> None:
    result = trained("seed=1", "callbacks.video.every=128", "callbacks.video.length=9")
    images = events(result.run.tensorboard).Images("eval/video")
    assert [image.step for image in images] == [128, 256]
    with Image.open(io.BytesIO(images[0].encoded_image_string)) as gif:
        assert gif.format == "GIF"
        assert gif.n_frames >= 2
        assert gif.size == (images[0].width, images[0].height) == (320, 213)


def test_policy_histograms_come_on_request_every_so_many_steps() -> None:
    result = trained(
        "seed=1", "logger.tensorboard.histograms=true", "logger.tensorboard.histograms_every=128"
    )
    found = events(result.run.tensorboard)
    parameters = result.algorithm.get_parameters()
    assert sorted(found.Tags()["histograms"]) == sorted(f"policy/{name}" for name in parameters)
    for name, values in parameters.items():
        first, last = found.Histograms(f"policy/{name}")
        assert (first.step, last.step) == (128, 256)
        assert last.histogram_value.num == values.size
        assert last.histogram_value.sum == pytest.approx(values.astype(np.float64).sum(), abs=1e-6)
        assert sum(last.histogram_value.bucket) == values.size


def test_resumed_run_has_each_step_once_and_in_order(tmp_path: Path) -> None:
    """What was filmed before the checkpoint stays, though the last report is older; what came after goes."""
    with filming(tmp_path / "film.mp4", 10) as film:
        for _ in range(3):
            film.add(np.zeros((32, 32, 3), np.uint8))
    logger = TensorBoardLogger(tmp_path / "tb", {"seed": 1})
    logger.write(LogEntry(100, {"train/loss": 1.0}))
    logger.video("eval/video", tmp_path / "film.mp4", 150)
    logger.histograms({"weights": np.arange(5.0)}, 160)
    state = logger.state()
    logger.write(LogEntry(200, {"train/loss": 9.0}))
    logger.video("eval/video", tmp_path / "film.mp4", 210)
    logger.close()
    resumed = TensorBoardLogger(tmp_path / "tb", {"seed": 1})
    resumed.load_state(state)
    for steps in (200, 300):
        resumed.write(LogEntry(steps, {"train/loss": 2.0}))
    resumed.video("eval/video", tmp_path / "film.mp4", 310)
    resumed.conclude(RunSummary("finished", 320, {"mean_return": 7.0}, best_mean=8.0))
    resumed.close()
    found = events(tmp_path / "tb")
    assert [(each.step, each.value) for each in found.Scalars("train/loss")] == [(100, 1), (200, 2), (300, 2)]
    assert [each.step for each in found.Images("eval/video")] == [150, 310]
    assert [each.step for each in found.Histograms("policy/weights")] == [160]
    assert [(each.step, each.value) for each in found.Scalars("final/mean_return")] == [(320, 7.0)]
