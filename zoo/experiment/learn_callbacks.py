"""The callbacks that arguments of an algorithm and of its `learn` stand for."""

from __future__ import annotations

from pathlib import Path

from zoo.algorithms.callback import Callback, Training
from zoo.errors import ZooError
from zoo.experiment.loggers import ConsoleLogger, Logger, LoggingCallback
from zoo.experiment.progress_bar import ProgressBarCallback
from zoo.experiment.trackers import TensorBoardLogger

REPORTS = 100
"""How often something is logged where no interval is given."""


def learn_callbacks(
    algorithm: Training,
    log_interval: int | None,
    tb_log_name: str | None,
    reset_num_timesteps: bool,
    progress_bar: bool,
) -> list[Callback]:
    """Return what logs to the console and to TensorBoard, and the progress bar, as far as they are asked for.

    Raises `ZooError` for a name of a TensorBoard folder that there is not.
    """
    outputs: list[Logger] = [ConsoleLogger()] if algorithm.verbose else []
    if algorithm.tensorboard_log is not None:
        name = tb_log_name or type(algorithm).__name__
        outputs.append(TensorBoardLogger(_folder(Path(algorithm.tensorboard_log), name, reset_num_timesteps)))
    elif tb_log_name is not None:
        raise ZooError(f"learn(tb_log_name={tb_log_name!r}) needs tensorboard_log=FOLDER of the constructor")
    callbacks: list[Callback] = [ProgressBarCallback()] if progress_bar else []
    if outputs:
        steps = algorithm.total_timesteps - algorithm.num_timesteps
        logging = LoggingCallback(0 if log_interval else max(1, steps // REPORTS), outputs)
        callbacks += [logging, *([LogInterval(log_interval, logging)] if log_interval else [])]
    return callbacks


def _folder(parent: Path, name: str, is_new: bool) -> Path:
    """Return ``parent/name_N`` with the next number, or with the last one where a training goes on."""
    names = [path.name.rpartition("_") for path in parent.iterdir()] if parent.is_dir() else []
    last = max((int(number) for stem, _, number in names if stem == name and number.isdecimal()), default=0)
    return parent / f"{name}_{last + 1 if is_new or not last else last}"


class LogInterval(Callback):
    """Lets ``logging`` log every ``interval`` updates; of off-policy algorithms every so many episodes."""

    every = 1
    looks_often = True

    def __init__(self, interval: int, logging: LoggingCallback) -> None:
        self.interval, self.logging = interval, logging
        self._n_updates = self._due = 0

    def on_training_start(self, algorithm: Training) -> None:
        self._due = self._count(algorithm) + self.interval

    def on_steps(self, algorithm: Training) -> None:
        self._n_updates += 1
        if (count := self._count(algorithm)) >= self._due:
            self._due = count + self.interval
            algorithm.check_finite()
            self.logging.on_steps(algorithm)

    def _count(self, algorithm: Training) -> int:
        return algorithm.n_episodes if algorithm.has_replay else self._n_updates
