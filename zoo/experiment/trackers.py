"""TensorBoard and Weights & Biases."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zoo.config.resume import SHOWN_ONLY
from zoo.core import atomic
from zoo.core.plain_data import flat, parse_json, to_json, to_yaml
from zoo.envs.video import make_small_gif
from zoo.errors import ZooError, install_command
from zoo.experiment.loggers import STEPS, LogEntry, Logger, RunSummary

FINAL, BEST = "final/mean_return", "final/best_mean_return"
"""The scores by which TensorBoard compares runs: the last evaluation's, and the best agent's."""

NOT_COMPARED = ("logger", "runs_dir", *SHOWN_ONLY)
"""What of a config has no influence on how an agent learns."""

CONFIG = "config"
"""Under what name TensorBoard shows the config among the texts."""

ID_FILE = "wandb.json"
"""Stands in the run's folder: under its id, and offline after its step, every later process goes on."""

SECONDS_TO_START, SECONDS_TO_FINISH = 30, 120
"""How long W&B may keep a training from starting, and from ending; its own settings overrule them."""

MULTIRUN = "multirun"


class TensorBoardLogger(Logger):
    """Writes for TensorBoard into ``folder``, one event file a process.

    With a ``config`` its values are the run's hyperparameters, by their paths, beside the final scores; as a
    whole it is shown as text, once more where a run is resumed.

    No file lists all hyperparameters and scores, as ``SummaryWriter.add_hparams`` does: of
    several runs TensorBoard would show those of an arbitrary one. And its writer's thread would print a
    traceback where a disk is full, so the summaries are torch's, and their file is written here.
    """

    keeps_trying = True

    def __init__(self, folder: str | Path, config: Mapping[str, Any] | None = None) -> None:
        self.folder = Path(folder)
        self.config = config
        self._writer: Any = None
        self._timesteps = 0
        self._purge_step: int | None = None

    def write(self, entry: LogEntry) -> None:
        self._add_scalars(entry.scalars, entry.timesteps)

    def video(self, name: str, path: Path, timesteps: int) -> None:
        """Show a video among the images: TensorBoard plays GIFs."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        gif = make_small_gif(path)
        width, height = (int.from_bytes(gif[at : at + 2], "little") for at in (6, 8))
        image = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=gif)
        self._add([Summary(value=[Summary.Value(tag=name, image=image)])], timesteps)

    def histograms(self, tensors: Mapping[str, Any], timesteps: int) -> None:
        from torch.utils.tensorboard.summary import histogram

        finite = {name: tensor[np.isfinite(tensor)] for name, tensor in tensors.items()}
        summaries = [
            histogram(f"policy/{name}", values, 64) for name, values in finite.items() if values.size
        ]
        self._add(summaries, timesteps)

    def conclude(self, summary: RunSummary) -> None:
        """Write the final scores, and that this session has ended; one that may be resumed has not."""
        if summary.status != "finished":
            return
        from torch.utils.tensorboard.summary import hparams

        scores = {FINAL: summary.evaluation.get("mean_return"), BEST: summary.best_mean}
        self._add_scalars({tag: each for tag, each in scores.items() if each is not None}, summary.timesteps)
        _, _, end = hparams({}, {})
        self._add([end], 0)

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

    def _add_scalars(self, scalars: Mapping[str, float], timesteps: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._add([Summary(value=values)], timesteps)

    def _add(self, summaries: list[Any], timesteps: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        if self._writer is None:
            self._open()
        for summary in summaries:
            self._write(Event(step=timesteps, summary=summary))
        self._writer.flush()
        self._timesteps = max(self._timesteps, timesteps)

    def _write(self, event: Any) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())

    def _open(self) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter
        from torch.utils.tensorboard.summary import hparams, text

        atomic.make_folder(self.folder)
        # TensorBoard reads the files in the order of their names.
        path = self.folder / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = open(path, "xb")  # noqa: SIM115
        self._writer = RecordWriter(self._file)
        self._write(Event(file_version="brain.Event:2"))
        if self._purge_step is not None:
            # TensorBoard then hides what an interrupted run wrote from this step on.
            self._write(Event(step=self._purge_step, session_log=SessionLog(status=SessionLog.START)))
        if self.config is None:
            return
        settings = {
            name: json.dumps(each) if isinstance(each, bool | list) else each
            for name, each in flat(
                {key: each for key, each in self.config.items() if key not in NOT_COMPARED}
            )
            if each is not None and each != {}
        }
        _, start, _ = hparams(settings, {})
        self._write(Event(summary=start))
        shown = to_yaml({key: value for key, value in self.config.items() if key not in SHOWN_ONLY})
        self._write(Event(step=self._purge_step or 0, summary=text(CONFIG, f"```yaml\n{shown}```")))


class WandbLogger(Logger):
    """Tells Weights & Biases of a run; offline with ``mode="offline"`` or ``WANDB_MODE=offline``.

    ``config`` is shown beside the run; ``options`` go to `wandb.init` (project, entity, group, name, tags).
    Rows have the environment's steps as their number, so that none comes twice when a run is resumed: it goes
    on after the last step that the server has, or offline after the last one that was logged here. What a
    killed process had not handed on is read from ``progress.csv`` beside. With ``agent`` the best agent is
    sent as an artifact.
    """

    def __init__(
        self,
        folder: str | Path,
        config: Mapping[str, Any] | None = None,
        *,
        agent: bool = True,
        **options: Any,
    ) -> None:
        if importlib.util.find_spec("wandb") is None:
            raise ZooError(f"logger.wandb needs: {install_command('wandb')}")
        self.folder = Path(folder).absolute()  # its service may have been started in another folder
        self.config = dict(config or {})
        self.agent = agent
        self.options = {"project": "zoo", **options}
        self._run: Any = None
        self._id: str | None = None
        self._next_step = 0
        self._row: tuple[int, dict[str, Any]] | None = None
        """The latest row, which waits for other scalars of its step: of training, of an evaluation."""
        self._videos: dict[str, tuple[str, int]] = {}
        self._exit_code: int | None = None

    def write(self, entry: LogEntry) -> None:
        if self._run is None:
            self._open()
            self._fill_in(entry.timesteps)
        import wandb

        videos, self._videos = self._videos, {}
        row = {
            **entry.scalars,
            **{
                name: wandb.Video(path, caption=f"after {timesteps:,} steps", format="mp4")
                for name, (path, timesteps) in videos.items()
                if Path(path).is_file()
            },
        }
        if self._row is not None and self._row[0] == entry.timesteps:
            row = {**self._row[1], **row}
        else:
            self._send_row()
        self._row = entry.timesteps, row

    def video(self, name: str, path: Path, timesteps: int) -> None:
        """Keep a video for the next row."""
        self._videos[name] = str(path), timesteps

    def conclude(self, summary: RunSummary) -> None:
        """Write the scores, and send the agent."""
        if self._run is None:
            self._open()
        self._send_row()
        scores = {f"final/{name}": value for name, value in summary.evaluation.items()}
        if summary.best_mean is not None:
            scores["final/best_mean_return"] = summary.best_mean
        self._run.summary.update({**scores, "status": summary.status})
        if summary.status == "finished":
            self._exit_code = 0
            if self.agent and summary.agent is not None:
                self._send_agent(summary.agent, scores)
        else:
            self._exit_code = 1
            if summary.status == "preempted":
                self._run.mark_preempting()

    def close(self) -> None:
        if self._run is not None:
            self._send_row()
            run, self._run = self._run, None
            run.finish(exit_code=self._exit_code)

    def state(self) -> dict[str, Any]:
        return {"id": self._id, "videos": {name: list(video) for name, video in self._videos.items()}}

    def load_state(self, values: dict[str, Any]) -> None:
        self._id = values["id"]
        self._videos = {name: (path, steps) for name, (path, steps) in values["videos"].items()}

    def _open(self) -> None:
        import wandb

        kept = self._kept()
        self._id = self._id or kept.get("id") or secrets.token_hex(4)
        patience = {"init_timeout": SECONDS_TO_START, "finish_timeout": SECONDS_TO_FINISH}
        settings: dict[str, Any] = {
            name: each for name, each in patience.items() if f"WANDB_{name.upper()}" not in os.environ
        }
        shown = {**self.config, "seed_group": seed_group(self.config)} if self.config else {}
        defaults = {"group": group_of(self.config)} if self.config else {}
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._run = wandb.init(
                dir=str(self.folder),
                config=shown,
                id=self._id,
                resume="allow",
                settings=wandb.Settings(**settings),
                **{**defaults, **self.options},
            )
        except wandb.errors.Error as error:
            raise ZooError(
                f"Weights & Biases: {error}; `wandb login`, or logger.wandb.mode=offline"
            ) from error
        self._run.define_metric("*", step_metric=STEPS)
        self._next_step = 1 + kept.get("step", -1) if self._run.offline else self._run.starting_step
        self._id = self._run.id
        self._keep(self._next_step - 1)

    def _fill_in(self, timesteps: int) -> None:
        """Log the rows before this one that a killed process had not handed on: progress.csv has them all."""
        rows: dict[int, dict[str, float]] = {}
        for row in _rows(self.folder / "progress.csv"):
            steps = int(row.get(STEPS, 0))
            rows[steps] = {**rows.get(steps, {}), **row}
        for steps, row in rows.items():
            if self._next_step <= steps < timesteps:
                self._run.log(row, step=steps, commit=True)

    def _send_row(self) -> None:
        if self._row is None:
            return
        (steps, row), self._row = self._row, None
        if steps >= self._next_step:
            self._run.log(row, step=steps, commit=True)
            self._next_step = steps + 1
            self._keep(steps)

    def _kept(self) -> dict[str, Any]:
        """Return the id and the last step of earlier processes of the run."""
        try:
            return parse_json((self.folder / ID_FILE).read_bytes())
        except (OSError, ValueError):
            return {}

    def _keep(self, step: int) -> None:
        """Keep what a later process of the run needs."""
        values = {"id": self._id, "project": self.options.get("project"), "url": self._run.url}
        if self._run.offline:
            values["step"] = step
        if values != self._kept():
            atomic.write_text(self.folder / ID_FILE, to_json(values))

    def _send_agent(self, agent: Path, scores: Mapping[str, Any]) -> None:
        import wandb

        name = re.sub(r"[^\w.-]", "-", f"{_names(self.config)}-{self._id}")
        artifact = wandb.Artifact(name, type="model", metadata=dict(scores))
        artifact.add_dir(str(agent))
        self._run.log_artifact(artifact)


def _rows(path: Path) -> list[dict[str, float]]:
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return [
                {name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)
            ]
    except (OSError, ValueError, TypeError, csv.Error):
        return []  # whoever keeps that file tells what is wrong with it


def group_of(config: Mapping[str, Any]) -> str:
    """Return the group of a run: its multirun, where it is one of many, else that of its seeds."""
    folder = Path(config.get("runs_dir") or "")
    if folder.parent.name == MULTIRUN or (folder / "sweep.csv").is_file():
        return f"{MULTIRUN}-{folder.name}"
    return seed_group(config)


def seed_group(config: Mapping[str, Any]) -> str:
    """Return a name that runs share which differ in nothing but the seed."""
    left_out = (*NOT_COMPARED, "seed")
    compared = {str(key): value for key, value in config.items() if key not in left_out}
    digest = hashlib.sha256(to_json(dict(sorted(compared.items()))).encode()).hexdigest()
    return f"{_names(config)}-{digest[:8]}"


def _names(config: Mapping[str, Any]) -> str:
    algo, env = config.get("algo") or {}, config.get("env") or {}
    return f"{algo.get('preset') or algo.get('name', 'agent')}-{str(env.get('id', 'env')).rpartition('/')[2]}"
