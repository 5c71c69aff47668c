"""Cloning an expert before a run's first step, as its section ``pretrain`` says."""

from __future__ import annotations

import csv
import io
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.algorithms.base import Algorithm
from zoo.algorithms.cloning import Epoch
from zoo.files.atomic import write_text
from zoo.files.printing import one_line
from zoo.training.problems import warnings_in_one_line

CURVES = "pretrain.csv"
"""The file in a run's folder with the losses of each epoch."""

logger = logging.getLogger(__name__)


def pretrain(algorithm: Algorithm[Any], settings: Mapping[str, Any] | None, folder: Path) -> None:
    """Clone the expert that the settings name, if they name one; leave `CURVES` in the run's folder."""
    values = dict(settings or {})
    dataset = values.pop("dataset", None)
    if dataset is None:
        return
    epochs: list[Epoch] = []
    every = max(1, values["n_epochs"] // 10)

    def note(epoch: Epoch) -> None:
        epochs.append(epoch)
        if epoch.number % every == 0:
            logger.info("pretraining, %s", _told(epoch))

    with warnings_in_one_line():
        algorithm.pretrain(dataset, on_epoch=note, **values)
    write_text(folder / CURVES, _as_csv(epochs))
    logger.info("pretrained from %s: %s", one_line(dataset), _told(epochs[-1]))


def _told(epoch: Epoch) -> str:
    validation = "" if math.isnan(epoch.validation_loss) else f", {epoch.validation_loss:.4g} validated"
    return f"epoch {epoch.number}: loss {epoch.loss:.4g}{validation}"


def _as_csv(epochs: Sequence[Epoch]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["epoch", *Epoch._fields[1:]])
    writer.writerows(epochs)
    return file.getvalue()
