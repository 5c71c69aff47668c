"""What TensorBoard shows of runs, read by its own readers."""

from __future__ import annotations

import io
import json
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
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams.backend_context import Context
from tensorboard.plugins.hparams.list_session_groups import Handler
from torch.utils.tensorboard import SummaryWriter

from zoo.config.composing import compose
from zoo.envs.video import filming
from zoo.training.experiment import Result
from zoo.training.loggers import Ending, Report
from zoo.training.tensorboard_logger import TensorBoardLogger, flat
from zoo.training.train import train

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


def test_every_evaluation_is_a_point_at_its_own_step() -> None:
    run = trained("seed=1", "callbacks.eval.every=64", "logger.every=256", "n_timesteps=320").run
    with np.load(run.evaluations) as file:
        evaluations = list(zip(file["timesteps"].tolist(), file["results"].mean(axis=1), strict=True))
    found = events(run.tensorboard).Scalars("eval/mean_reward")
    assert [each.step for each in found] == [64, 128, 192, 256, 320]
    assert [(each.step, each.value) for each in found] == evaluations


def test_hparams_tab_compares_runs_by_their_settings_and_scores() -> None:
    results = [trained("seed=1"), trained("seed=2", "algo.learning_rate=0.01")]
    groups = sessions(Path("runs"))
    assert len(groups) == 2
    for result in results:
        (group,) = [each for each in groups if each.hparams["seed"].number_value == result.algorithm.seed]
        assert group.hparams["algo.learning_rate"].number_value == result.algorithm.config.learning_rate
        assert group.hparams["env.id"].string_value == "CartPole-v1"
        assert group.hparams["algo.normalize_advantage"].bool_value is True
        assert not [name for name in group.hparams if name.startswith("logger")]
        metrics = {each.name.tag: each.value for each in group.metric_values}
        assert result.evaluation is not None
        assert metrics["final/mean_return"] == pytest.approx(result.evaluation.mean)
        assert metrics["final/best_mean_return"] == pytest.approx(result.best_mean)
        assert group.sessions[0].status == api_pb2.STATUS_SUCCESS


def hparams(folder: Path, tag: str) -> Any:
    """Return what a run says of its hyperparameters under one of the plug-in's tags."""
    content = events(folder).SummaryMetadata(tag).plugin_data.content
    return plugin_data_pb2.HParamsPluginData.FromString(content)


def test_hyperparameters_and_scores_are_what_torch_writes(tmp_path: Path) -> None:
    result = trained("seed=1")
    run, settings = result.run, dict(flat(result.run.read_config()))
    settings = {name: json.dumps(each) if isinstance(each, list) else each for name, each in settings.items()}
    scores = {"final/mean_return": 7.0, "final/best_mean_return": 8.0}
    with SummaryWriter(str(tmp_path / "torch")) as writer:
        writer.add_hparams(settings, scores, run_name=".")
    ours = hparams(run.tensorboard, "_hparams_/session_start_info").session_start_info.hparams
    theirs = hparams(tmp_path / "torch", "_hparams_/session_start_info").session_start_info.hparams
    ours, theirs = (
        {name: getattr(value, value.WhichOneof("kind")) for name, value in each.items()}
        for each in (ours, theirs)
    )
    assert ours == theirs
    ours, theirs = (
        hparams(folder, "_hparams_/session_end_info").session_end_info.status
        for folder in (run.tensorboard, tmp_path / "torch")
    )
    assert ours == theirs
    found = events(run.tensorboard)
    assert result.evaluation is not None
    for tag, expected in zip(scores, (result.evaluation.mean, result.best_mean), strict=True):
        (score,) = found.Scalars(tag)
        assert (score.step, score.value) == (256, pytest.approx(expected))


def test_hparams_tab_has_the_settings_of_every_algorithm() -> None:
    """One file that listed settings and scores for all, as torch's do, would hide those of the others."""
    trained("seed=1")
    plain = [each for each in SHORT if not each.startswith(("algo=", "algo.batch_size"))]
    train(compose("train", [*plain, "algo=a2c", "seed=2"]))
    first, second = (set(group.hparams) for group in sessions(Path("runs")))
    assert {"algo.clip_range", "algo.use_rms_prop"} <= first | second
    assert "algo.clip_range" not in first & second


def test_config_is_shown_as_text_once() -> None:
    result = trained("seed=1")
    found = events(result.run.tensorboard)
    (text,) = found.Tensors("config")
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
    assert found.SummaryMetadata("config").plugin_data.plugin_name == "text"


def test_config_is_shown_again_only_where_a_run_goes_on_with_another() -> None:
    first = trained("seed=1")
    trained(f"resume={first.run.path}", "n_timesteps=512", alone=True)
    texts = events(first.run.tensorboard).Tensors("config")
    assert [text.step for text in texts] == [0, 257]
    assert [b"n_timesteps: 512" in text.tensor_proto.string_val[0] for text in texts] == [False, True]
    logger = TensorBoardLogger(Path("tb"), {"seed": 1, "resume": None})
    logger.write(Report(100, {"train/loss": 1.0}))
    state = logger.state()
    logger.close()
    resumed = TensorBoardLogger(Path("tb"), {"seed": 1, "resume": "run"})
    resumed.load_state(state)
    resumed.write(Report(200, {"train/loss": 1.0}))
    resumed.close()
    assert [text.step for text in events(Path("tb")).Tensors("config")] == [0]


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


def test_no_histogram_comes_unasked() -> None:
    assert events(trained("seed=1").run.tensorboard).Tags()["histograms"] == []


def test_resumed_run_has_each_step_once_and_in_order(tmp_path: Path) -> None:
    """What was filmed before the checkpoint stays, though the last report is older; what came after goes."""
    with filming(tmp_path / "film.mp4", 10) as film:
        for _ in range(3):
            film.add(np.zeros((32, 32, 3), np.uint8))
    logger = TensorBoardLogger(tmp_path / "tb", {"seed": 1})
    logger.write(Report(100, {"train/loss": 1.0}))
    logger.video("eval/video", tmp_path / "film.mp4", 150)
    logger.histograms({"weights": np.arange(5.0)}, 160)
    state = logger.state()
    logger.write(Report(200, {"train/loss": 9.0}))
    logger.video("eval/video", tmp_path / "film.mp4", 210)
    logger.close()
    resumed = TensorBoardLogger(tmp_path / "tb", {"seed": 1})
    resumed.load_state(state)
    for steps in (200, 300):
        resumed.write(Report(steps, {"train/loss": 2.0}))
    resumed.video("eval/video", tmp_path / "film.mp4", 310)
    resumed.conclude(Ending("finished", 320, {"mean_return": 7.0}, best_mean=8.0))
    resumed.close()
    found = events(tmp_path / "tb")
    assert [(each.step, each.value) for each in found.Scalars("train/loss")] == [(100, 1), (200, 2), (300, 2)]
    assert [each.step for each in found.Images("eval/video")] == [150, 310]
    assert [each.step for each in found.Histograms("policy/weights")] == [160]
    assert [(each.step, each.value) for each in found.Scalars("final/mean_return")] == [(320, 7.0)]


def test_run_that_may_be_resumed_has_no_final_score_yet(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, {"seed": 1})
    logger.write(Report(100, {"train/loss": 1.0}))
    logger.conclude(Ending("preempted", 100, {"mean_return": 7.0}))
    logger.close()
    assert "final/mean_return" not in events(tmp_path).Tags()["scalars"]


def test_settings_have_the_paths_of_the_command_line() -> None:
    config = {"seed": 1, "algo": {"gamma": 0.9, "target_kl": None}, "logger": {"csv": True}, "runs_dir": "x"}
    assert dict(flat(config)) == {"seed": 1, "algo.gamma": 0.9}
