"""Videos of an agent as it learns, in environments of their own: the training never notices."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from zoo.algorithms.callback import PREEMPTED, Callback, InterruptedCallbackError, Training
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError
from zoo.files.printing import one_line
from zoo.training.evaluation import EvaluationCancelledError
from zoo.training.problems import tell
from zoo.training.recording import Look, check_camera, record
from zoo.training.trackers import Trackers

NAME = "eval/video"
"""What videos are called where they are tracked."""

_OWN_SEEDS = 2
"""Keeps the seeds of videos apart from those of evaluations."""


class VideoCallback(Callback):
    """Films ``length`` images (None: a whole episode) into ``folder`` every ``every`` environment steps.

    The file is called after the steps so far. Seeds follow from the algorithm's and from these steps, so that
    a run that was killed films the same again when it is resumed. A video that can't be made is told in one
    line. Raises `ZooError` if the environment can't be drawn here, or nothing here writes videos.
    """

    def __init__(
        self,
        env: EnvConfig,
        folder: Path,
        *,
        every: int,
        length: int | None = 500,
        deterministic: bool = True,
        look: Look | None = None,
        trackers: Trackers | None = None,
    ) -> None:
        self.env, self.folder, self.every = env, folder, every
        self.length, self.deterministic = length, deterministic
        self.look = look or Look()
        self.trackers = trackers or Trackers([])
        self._is_failing = False
        check_camera(env)

    def on_steps(self, algorithm: Training) -> None:
        """Film; a signal that comes meanwhile ends that, and the video is still due."""
        started = time.perf_counter()
        steps = algorithm.num_timesteps
        path = self.folder / f"step-{steps:09}.mp4"
        try:
            done = record(
                algorithm,
                self.env,
                [path],
                self.look,
                n_episodes=1 if self.length is None else None,
                length=self.length,
                deterministic=self.deterministic,
                seed=self._seed(algorithm, steps),
                cancelled=lambda: algorithm.stop_reason == PREEMPTED,
            )
        except EvaluationCancelledError as error:
            raise InterruptedCallbackError from error
        except (ZooError, OSError) as error:
            self._tell(error)
        else:
            self._is_failing = False
            for each in done.paths:
                self.trackers.video(NAME, each, steps)
        finally:
            algorithm.timings["evaluation"] += time.perf_counter() - started

    def _seed(self, algorithm: Training, steps: int) -> Sequence[int]:
        return algorithm.seed, steps, _OWN_SEEDS

    def _tell(self, error: Exception) -> None:
        if not self._is_failing:
            tell(f"no video: {one_line(error, 500)}; the run goes on without it")
        self._is_failing = True
