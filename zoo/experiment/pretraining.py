"""Pretraining: behaviour cloning before a run's first step, by the section ``pretrain``."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.callback import PREEMPTED
from zoo.config.fields import build
from zoo.core.atomic import write_text
from zoo.core.printing import csv_lines, one_line
from zoo.experiment.run_folder import RunFolder
from zoo.experiment.signals import stop_on_signals
from zoo.imitation.bc import Epoch, PretrainConfig, clone_expert

logger = logging.getLogger(__name__)


def pretrain(algorithm: Algorithm, settings: Mapping[str, Any] | None, run: RunFolder) -> None:
    """Clone the expert that the settings name, if they name one; leave the losses of all epochs in the run.

    After a signal ``algorithm.stop_reason`` is PREEMPTED: a run that goes on begins with its pretraining.
    """
    config = build(PretrainConfig, dict(settings or {}), "pretrain")
    if config.dataset is None:
        return
    every = max(1, config.n_epochs // 10)

    def note(epoch: Epoch) -> bool:
        if epoch.number % every == 0:
            logger.info("pretraining, %s", _told(epoch))
        return algorithm.stop_reason == PREEMPTED

    with stop_on_signals(algorithm):
        epochs = clone_expert(algorithm, config.dataset, config, note)
    write_text(run.pretraining_curves, csv_lines([["epoch", *Epoch._fields[1:]], *epochs]))
    if algorithm.stop_reason != PREEMPTED:
        logger.info("pretrained from %s: %s", one_line(config.dataset), _told(epochs[-1]))


def _told(epoch: Epoch) -> str:
    validation = "" if math.isnan(epoch.validation_loss) else f", {epoch.validation_loss:.4g} validated"
    return f"epoch {epoch.number}: loss {epoch.loss:.4g}{validation}"
