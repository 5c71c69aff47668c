"""TensorBoard and Weights & Biases."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.config.resume import SHOWN_ONLY
from zoo.config.schema import preset_or_name
from zoo.core import atomic
from zoo.core.plain_data import flat, parse_json, to_yaml
from zoo.envs.video import make_small_gif
from zoo.errors import ZooError, install_command
from zoo.experiment.loggers import STEPS, LogEntry, Logger, RunSummary

FINAL, BEST = "final/mean_return", "final/best_mean_return"  # of the last evaluation, and the best agent

NOT_COMPARED = ("logger", "runs_dir", *SHOWN_ONLY)  # without influence on how an agent learns


class TensorBoardLogger(Logger):
    """Writes for TensorBoard into ``folder``, one event file a process.

    The values of a run's config are its hyperparameters, by their paths, beside the final scores; as a whole
    it is shown as text, once more where a run is resumed.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()  # it is written by a thread, whatever an environment does
        self.config: Mapping[str, Any] = {}
        self._writer: Any = None
        self._last_step = 0
        self._purge_step: int | None = None

    def start(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.config = config

    def write(self, entry: LogEntry) -> None:
        for tag, value in entry.scalars.items():
            self._open(entry.timesteps).add_scalar(tag, value, entry.timesteps)

    def video(self, name: str, path: Path, timesteps: int) -> None:
        """Show a video among the images: TensorBoard plays GIFs."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        gif = make_small_gif(path)
        width, height = (int.from_bytes(gif[at : at + 2], "little") for at in (6, 8))
        image = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=gif)
        self._open(timesteps).file_writer.add_summary(
            Summary(value=[Summary.Value(tag=name, image=image)]), timesteps
        )

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def conclude(self, summary: RunSummary) -> None:
        """Write the final scores, and that this session has ended; one that may be resumed has not."""
        if summary.status != "finished":
            return
        from torch.utils.tensorboard.summary import hparams

        scores = {FINAL: summary.evaluation.get("mean_return"), BEST: summary.best_mean}
        self.write(LogEntry(summary.timesteps, {tag: v for tag, v in scores.items() if v is not None}))
        self._open(summary.timesteps).file_writer.add_summary(hparams({}, {})[2])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def state(self) -> dict[str, Any]:
        self.flush()
        return {"timesteps": self._last_step}

    def load_state(self, values: dict[str, Any]) -> None:
        """Restore the step; TensorBoard hides later rows of the interrupted run."""
        self._last_step = values["timesteps"]
        self._purge_step = values["timesteps"] + 1

    def _open(self, timesteps: int) -> Any:
        """Return the writer, which is opened at the first entry."""
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        self._last_step = max(self._last_step, timesteps)
        if self._writer is not None:
            return self._writer
        self._writer = SummaryWriter(str(self.folder), purge_step=self._purge_step)
        if self.config:
            values = {
                name: json.dumps(value) if isinstance(value, bool | list) else value
                for name, value in flat(self.config)
                if name.partition(".")[0] not in NOT_COMPARED and value is not None and value != {}
            }
            # A list of all hyperparameters and scores, which `add_hparams` writes too, would be taken from an
            # arbitrary one of several runs.
            _, start, _ = hparams(values, {})
            self._writer.file_writer.add_summary(start)
            text = to_yaml({key: value for key, value in self.config.items() if key not in SHOWN_ONLY})
            self._writer.add_text("config", f"```yaml\n{text}```", self._purge_step or 0)
        return self._writer


class WandbLogger(Logger):
    """Tells Weights & Biases of a run; offline with ``mode="offline"`` or ``WANDB_MODE=offline``.

    ``options`` go to `wandb.init` (project, entity, group, name, tags); W&B's own variables, such as
    ``WANDB_PROJECT``, decide about what is not among them. The run's id stands in ``wandb.json``, so that a
    resumed run goes on under it. With ``agent`` the best agent is sent as an artifact.
    """

    def __init__(self, *, agent: bool = True, **options: Any) -> None:
        if importlib.util.find_spec("wandb") is None:
            raise ZooError(f"logger.wandb needs: {install_command('wandb')}")
        self.folder, self.config = Path.cwd(), dict[str, Any]()
        self.agent, self.options = agent, options
        self._run: Any = None
        self._exit_code: int | None = None

    def start(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.folder = folder.absolute()  # its service may have been started in another folder
        self.config = dict(config)

    def write(self, entry: LogEntry) -> None:
        self._open().log(entry.scalars, step=entry.timesteps)

    def video(self, name: str, path: Path, timesteps: int) -> None:
        import wandb

        self._open().log({name: wandb.Video(str(path), format="mp4")}, step=timesteps)

    def conclude(self, summary: RunSummary) -> None:
        """Write the scores, and send the agent."""
        run = self._open()
        scores = {f"final/{name}": value for name, value in summary.evaluation.items()}
        scores |= {} if summary.best_mean is None else {BEST: summary.best_mean}
        run.summary.update({**scores, "status": summary.status})
        self._exit_code = 0 if summary.status == "finished" else 1
        if summary.status == "preempted":
            run.mark_preempting()
        if summary.status == "finished" and self.agent and summary.agent is not None:
            self._send_agent(summary.agent, scores)

    def close(self) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=self._exit_code)

    def _open(self) -> Any:
        if self._run is not None:
            return self._run
        import wandb

        file = self.folder / "wandb.json"
        new = {"id": os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)}
        stored = parse_json(file.read_bytes()) if file.exists() else new
        patience = {"init_timeout": 30, "finish_timeout": 120}
        settings: Any = {key: patience[key] for key in patience if f"WANDB_{key.upper()}" not in os.environ}
        runs_dir = Path(self.config.get("runs_dir") or "")
        group = f"multirun-{runs_dir.name}" if (runs_dir / "sweep.yaml").is_file() else None
        values = {"project": "zoo", "name": self.folder.name, "job_type": "train", "dir": str(self.folder)}
        values |= {} if group is None else {"run_group": group}
        options = {key: value for key, value in values.items() if not os.environ.get(f"WANDB_{key.upper()}")}
        options = {key.removeprefix("run_"): value for key, value in options.items()} | self.options
        arguments: Any = {"config": self.config, "id": stored["id"], "settings": wandb.Settings(**settings)}
        try:
            self._run = wandb.init(**{**arguments, "resume": "allow", **options})
        except wandb.errors.Error as error:
            how = "`wandb login`, or logger.wandb.mode=offline"
            raise ZooError(f"Weights & Biases: {error}; {how}") from error
        self._run.define_metric("*", step_metric=STEPS)
        atomic.write_json(file, {"id": self._run.id, "url": self._run.url})
        return self._run

    def _send_agent(self, agent: Path, scores: Mapping[str, Any]) -> None:
        import wandb

        algo, env = preset_or_name(self.config["algo"]), self.config["env"]["id"]
        name = f"{algo}-{env}-{self._run.id}"
        artifact = wandb.Artifact(re.sub(r"[^\w.-]", "-", name), type="model", metadata=dict(scores))
        artifact.add_dir(str(agent))
        self._run.log_artifact(artifact)
