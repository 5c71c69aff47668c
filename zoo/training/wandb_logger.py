"""Scalars, videos, the config, scores and the agent for Weights & Biases."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.errors import ZooError, install_command
from zoo.files import atomic
from zoo.files.plain_data import parse_json, to_json
from zoo.training.loggers import STEPS, Ending, Logger, Report
from zoo.training.tensorboard_logger import NOT_COMPARED

ID_FILE = "wandb.json"
"""Stands in the run's folder: under its id, and offline after its step, every later process goes on."""

SECONDS_TO_START, SECONDS_TO_FINISH = 30, 120
"""How long a server may keep a training from starting, and from ending; W&B's own settings overrule them."""

MULTIRUN = "multirun"

PROGRESS = "progress.csv"


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
        self._videos: dict[str, tuple[str, int]] = {}
        self._last_step: int | None = None
        self._exit_code: int | None = None

    def write(self, report: Report) -> None:
        if self._run is None:
            self._open()
            self._fill_in(report.timesteps)
        videos, self._videos = self._videos, {}
        # W&B takes one row with a number; an evaluation after the last report is at the same step.
        number = report.timesteps + (report.timesteps == self._last_step)
        self._last_step = report.timesteps
        if number >= self._next_step:
            media = {name: self._media(*video) for name, video in videos.items() if Path(video[0]).is_file()}
            self._run.log({**report.scalars, **media}, step=number, commit=True)
            self._keep(number)

    def video(self, name: str, path: Path, timesteps: int) -> None:
        """Keep a video for the next row."""
        self._videos[name] = str(path), timesteps

    def conclude(self, ending: Ending) -> None:
        """Write the scores, and send the agent."""
        if self._run is None:
            self._open()
        summary = {f"final/{name}": value for name, value in ending.evaluation.items()}
        if ending.best_mean is not None:
            summary["final/best_mean_return"] = ending.best_mean
        self._run.summary.update({**summary, "status": ending.status})
        if ending.status == "finished":
            self._exit_code = 0
            if self.agent and ending.agent is not None:
                self._send(ending.agent, summary)
        else:
            self._exit_code = 1
            if ending.status == "preempted":
                self._run.mark_preempting()

    def close(self) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=self._exit_code)

    def state(self) -> dict[str, Any]:
        return {"id": self._id, "videos": {name: list(video) for name, video in self._videos.items()}}

    def load_state(self, values: dict[str, Any]) -> None:
        self._id = values["id"]
        self._videos = {name: (path, steps) for name, (path, steps) in values.get("videos", {}).items()}

    def _open(self) -> None:
        import wandb

        kept = self._kept()
        self._id = self._id or kept.get("id") or secrets.token_hex(4)
        settings = wandb.Settings(**_patience())
        shown = {**self.config, "seed_group": seed_group(self.config)} if self.config else {}
        usual = {"group": group_of(self.config)} if self.config else {}
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._run = wandb.init(
                dir=str(self.folder),
                config=shown,
                id=self._id,
                resume="allow",
                settings=settings,
                **{**usual, **self.options},
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
        for row in _rows(self.folder / PROGRESS):
            steps = int(row.get(STEPS, 0))
            if self._next_step <= steps < timesteps:
                self._run.log(row, step=steps, commit=True)

    def _kept(self) -> dict[str, Any]:
        """Return the id and the last step of earlier processes of the run."""
        try:
            kept = parse_json((self.folder / ID_FILE).read_bytes())
        except (OSError, ValueError):
            return {}
        return dict(kept)

    def _keep(self, step: int) -> None:
        """Keep what a later process of the run needs."""
        values = {"id": self._id, "project": self.options.get("project"), "url": self._run.url}
        if self._run.offline:
            values["step"] = step
        if values != self._kept():
            atomic.write_text(self.folder / ID_FILE, to_json(values))

    def _media(self, path: str, timesteps: int) -> Any:
        import wandb

        return wandb.Video(path, caption=f"after {timesteps:,} steps", format="mp4")

    def _send(self, agent: Path, scores: Mapping[str, Any]) -> None:
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


def _patience() -> dict[str, Any]:
    """Return how long W&B may take, unless the user has said that otherwise."""
    usual = {"init_timeout": SECONDS_TO_START, "finish_timeout": SECONDS_TO_FINISH}
    return {name: value for name, value in usual.items() if f"WANDB_{name.upper()}" not in os.environ}
