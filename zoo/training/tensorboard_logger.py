"""Scalars, the config, hyperparameters, videos and histograms for TensorBoard."""

from __future__ import annotations

import json
import os
import socket
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zoo.config.resuming import SHOWN_ONLY
from zoo.envs.video import small_gif
from zoo.files.atomic import make_folder
from zoo.files.plain_data import to_yaml
from zoo.training.loggers import Ending, Logger, Report

FINAL, BEST = "final/mean_return", "final/best_mean_return"
"""The scores by which the tab HParams compares runs: the last evaluation's, and the best agent's."""

NOT_COMPARED = ("logger", "runs_dir", *SHOWN_ONLY)
"""What of a config has no influence on how an agent learns."""

CONFIG = "config"
"""Under what name the config is shown among the texts."""

_BINS = 64


class TensorBoardLogger(Logger):
    """Writes for TensorBoard into ``folder``, one event file a process.

    With a ``config`` its values are the run's hyperparameters, by their paths, beside the final scores; as a
    whole it is shown as text, once more where a resumed run has another one.

    No file says which hyperparameters and scores there are in all, as ``SummaryWriter.add_hparams`` does: of
    several runs TensorBoard would show those of an arbitrary one. Without, it finds them itself.
    """

    keeps_trying = True

    def __init__(self, folder: str | Path, config: Mapping[str, Any] | None = None) -> None:
        self.folder = Path(folder)
        self.config = config
        self._writer: Any = None
        self._timesteps = 0
        self._purge_step: int | None = None
        self._shown_config: str | None = None

    def write(self, report: Report) -> None:
        self._add_scalars(report.scalars, report.timesteps)

    def video(self, name: str, path: Path, timesteps: int) -> None:
        """Show a video among the images: TensorBoard plays GIFs."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        gif = small_gif(path)
        width, height = (int.from_bytes(gif[at : at + 2], "little") for at in (6, 8))
        image = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=gif)
        self._add_summary([Summary.Value(tag=name, image=image)], timesteps)

    def histograms(self, tensors: Mapping[str, Any], timesteps: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=f"policy/{name}", histo=_histogram(np.asarray(tensor)))
            for name, tensor in tensors.items()
            if np.isfinite(tensor).any()
        ]
        self._add_summary(values, timesteps)

    def conclude(self, ending: Ending) -> None:
        """Write the final scores, and that this session has ended; one that may be resumed has not."""
        if ending.status != "finished":
            return
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        scores = {FINAL: ending.evaluation.get("mean_return"), BEST: ending.best_mean}
        self._add_scalars(
            {tag: score for tag, score in scores.items() if score is not None}, ending.timesteps
        )
        end = plugin_data_pb2.SessionEndInfo(status=api_pb2.STATUS_SUCCESS, end_time_secs=time.time())
        self._add_hparams(
            metadata.SESSION_END_INFO_TAG, plugin_data_pb2.HParamsPluginData(session_end_info=end)
        )
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def state(self) -> dict[str, Any]:
        if self._writer is not None:
            os.fsync(self._file.fileno())
        return {"timesteps": self._timesteps, CONFIG: self._shown_config}

    def load_state(self, values: dict[str, Any]) -> None:
        self._timesteps = values["timesteps"]
        self._purge_step = values["timesteps"] + 1
        self._shown_config = values.get(CONFIG)

    def _add_scalars(self, scalars: Mapping[str, float], timesteps: int) -> None:
        # Here and not above: start-up has no time for it.
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._add_summary(values, timesteps)

    def _add_summary(self, values: list[Any], timesteps: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self._writer is not None and not os.fstat(self._file.fileno()).st_nlink:
            self.close()  # its folder was deleted
            self._shown_config = None
        if self._writer is None:
            self._open()
        self._add(Event(wall_time=time.time(), step=timesteps, summary=Summary(value=values)))
        self._writer.flush()
        self._timesteps = max(self._timesteps, timesteps)

    def _open(self) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        make_folder(self.folder)
        # TensorBoard reads the files in the order of their names.
        path = self.folder / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = open(path, "xb")  # noqa: SIM115
        self._writer = RecordWriter(self._file)
        self._add(Event(wall_time=time.time(), file_version="brain.Event:2"))
        if self._purge_step is not None:
            # TensorBoard then hides what an interrupted run wrote from this step on.
            start = SessionLog(status=SessionLog.START)
            self._add(Event(wall_time=time.time(), step=self._purge_step, session_log=start))
        if self.config is not None:
            self._add_hyperparameters(self.config)
            self._show_config(self.config)

    def _show_config(self, config: Mapping[str, Any]) -> None:
        """Show the config as text, as it stands in the run's folder, unless that is shown already."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text import metadata
        from tensorboard.util.tensor_util import make_tensor_proto

        text = to_yaml({key: value for key, value in config.items() if key not in SHOWN_ONLY})
        checksum = f"{zlib.crc32(text.encode()):08x}"
        if checksum == self._shown_config:
            return
        self._shown_config = checksum
        about = metadata.create_summary_metadata(display_name=CONFIG, description="")
        shown = make_tensor_proto([f"```yaml\n{text}```"])
        value = Summary.Value(tag=CONFIG, metadata=about, tensor=shown)
        self._add(Event(wall_time=time.time(), step=self._purge_step or 0, summary=Summary(value=[value])))

    def _add_hyperparameters(self, config: Mapping[str, Any]) -> None:
        from tensorboard.plugins.hparams import metadata, plugin_data_pb2

        start = plugin_data_pb2.SessionStartInfo(
            group_name=str(self.folder.parent.resolve()), start_time_secs=time.time()
        )
        for name, value in flat(config):
            if isinstance(value, bool):
                start.hparams[name].bool_value = value
            elif isinstance(value, int | float):
                start.hparams[name].number_value = value
            else:
                start.hparams[name].string_value = value if isinstance(value, str) else json.dumps(value)
        data = plugin_data_pb2.HParamsPluginData(session_start_info=start)
        self._add_hparams(metadata.SESSION_START_INFO_TAG, data)

    def _add_hparams(self, tag: str, data: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams import metadata

        about = metadata.create_summary_metadata(data)
        value = Summary.Value(tag=tag, metadata=about, tensor=metadata.NULL_TENSOR)
        self._add(Event(wall_time=time.time(), summary=Summary(value=[value])))

    def _add(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())


def flat(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Give the settings of a run by their paths, as the command line names them; what is null is left out."""
    for key, value in config.items():
        path = f"{above}{key}"
        if path in NOT_COMPARED or value is None or value == {}:
            continue
        if isinstance(value, Mapping):
            yield from flat(value, f"{path}.")
        else:
            yield path, value


def _histogram(values: np.ndarray[Any, Any]) -> Any:
    from tensorboard.compat.proto.summary_pb2 import HistogramProto

    finite = values[np.isfinite(values)].astype(np.float64)
    counts, edges = np.histogram(finite, _BINS)
    return HistogramProto(
        min=finite.min(),
        max=finite.max(),
        num=finite.size,
        sum=finite.sum(),
        sum_squares=np.square(finite).sum(),
        bucket_limit=edges[1:].tolist(),
        bucket=counts.tolist(),
    )
