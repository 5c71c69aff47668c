"""Scalars for Weights & Biases."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.errors import ZooError
from zoo.training.loggers import STEPS, Logger, Report


class WandbLogger(Logger):
    """Sends scalars to Weights & Biases; offline with ``mode="offline"`` or ``WANDB_MODE=offline``.

    ``config`` is shown beside the run; ``options`` go to `wandb.init` (project, entity, group, name, tags).
    """

    def __init__(self, folder: str | Path, config: Mapping[str, Any] | None = None, **options: Any) -> None:
        if importlib.util.find_spec("wandb") is None:
            raise ZooError('logger.wandb needs: pip install "zoo[wandb]"')
        self.folder = Path(folder)
        self.config = dict(config or {})
        self.options = {"project": "zoo", **options}
        self._run: Any = None
        self._id: str | None = None

    def write(self, report: Report) -> None:
        if self._run is None:
            self._open()
        self._run.log(report.scalars)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None

    def state(self) -> dict[str, Any]:
        return {"id": self._id}

    def load_state(self, values: dict[str, Any]) -> None:
        self._id = values["id"]

    def _open(self) -> None:
        import wandb

        try:
            self._run = wandb.init(
                dir=str(self.folder), config=self.config, id=self._id, resume="allow", **self.options
            )
        except wandb.errors.Error as error:
            raise ZooError(
                f"Weights & Biases: {error}; `wandb login`, or logger.wandb.mode=offline"
            ) from error
        self._id = self._run.id
        self._run.define_metric("*", step_metric=STEPS)
