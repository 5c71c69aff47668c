"""Scalars for TensorBoard."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

from zoo.files.atomic import make_folder
from zoo.training.loggers import Logger, Report


class TensorBoardLogger(Logger):
    """Writes scalars for TensorBoard into ``folder``, one event file a process."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._writer: Any = None
        self._timesteps = 0
        self._purge_step: int | None = None

    def write(self, report: Report) -> None:
        # Here and not above: start-up has no time for it.
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self._writer is not None and not os.fstat(self._file.fileno()).st_nlink:
            self.close()  # its folder was deleted
        if self._writer is None:
            self._open()
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in report.scalars.items()]
        self._add(Event(wall_time=time.time(), step=report.timesteps, summary=Summary(value=values)))
        self._writer.flush()
        self._timesteps = report.timesteps

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def state(self) -> dict[str, Any]:
        if self._writer is not None:
            os.fsync(self._file.fileno())
        return {"timesteps": self._timesteps}

    def load_state(self, values: dict[str, Any]) -> None:
        self._timesteps = values["timesteps"]
        self._purge_step = values["timesteps"] + 1

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

    def _add(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
