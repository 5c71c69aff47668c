"""What a run says about itself while it goes on, every so many steps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from zoo.algorithms.callback import Callback, Training
from zoo.envs.monitor import EpisodeRecord
from zoo.training.loggers import STEPS, Ending, Logger, Report
from zoo.training.trackers import Trackers


class LoggingCallback(Callback):
    """Makes a report every ``every`` environment steps and hands it to each of ``outputs``.

    The scalars have Stable-Baselines3's names. With ``stays_open`` the outputs are not closed with the
    training, because a run goes on with them (`conclude`): whoever asks for that closes.
    """

    def __init__(self, every: int, outputs: Sequence[Logger] | Trackers, *, stays_open: bool = False) -> None:
        self.every = every
        self.trackers = outputs if isinstance(outputs, Trackers) else Trackers(outputs)
        self.stays_open = stays_open
        self._elapsed_before = 0.0
        self._reported_before: int | None = None
        self._longest = 0

    @property
    def outputs(self) -> Sequence[Logger]:
        """Where the reports go."""
        return self.trackers.outputs

    def on_training_start(self, algorithm: Training) -> None:
        """Start the clock."""
        self._started = self._reported = time.perf_counter()
        self._compiled_before = algorithm.runtime.compile_clock.seconds
        self._first_step = algorithm.num_timesteps
        reported, self._reported_before = self._reported_before, None
        self._reported_step = algorithm.num_timesteps if reported is None else reported
        self._timings = dict(algorithm.timings)

    def on_steps(self, algorithm: Training) -> None:
        """Report; evaluations at steps before come first, each as a row of its own."""
        self._write_rows(algorithm, before=algorithm.num_timesteps)
        self.trackers.write(self._report(algorithm))

    def on_training_end(self, algorithm: Training) -> None:
        """Report what came since the last report, an evaluation after the training too; close the outputs."""
        if algorithm.num_timesteps > self._reported_step:
            self.on_steps(algorithm)
        self._write_rows(algorithm, before=algorithm.num_timesteps + 1)
        now = time.perf_counter()
        self._elapsed_before += now - self._started
        self._started = now
        self.trackers.flush()
        if not self.stays_open:
            self.close()

    def conclude(self, ending: Ending) -> None:
        """Tell the outputs how the run ended."""
        self.trackers.conclude(ending)

    def close(self) -> None:
        """Close the outputs."""
        self.trackers.close()

    def state(self) -> dict[str, Any]:
        """Return the time so far and the state of each output."""
        elapsed = self._elapsed_before + time.perf_counter() - self._started
        return {"elapsed": elapsed, "reported": self._reported_step, "outputs": self.trackers.state()}

    def load_state(self, values: dict[str, Any]) -> None:
        """Go back to there, also in the files."""
        self._elapsed_before, self._reported_before = values["elapsed"], values["reported"]
        self.trackers.load_state(values["outputs"])

    def _write_rows(self, algorithm: Training, *, before: int) -> None:
        for timesteps, scalars in algorithm.read_rows(before).items():
            self.trackers.write(Report(timesteps, {STEPS: timesteps, **scalars}))

    def _report(self, algorithm: Training) -> Report:
        now = time.perf_counter()
        seconds = now - self._started
        self._longest = max(self._longest, _longest_unfinished(algorithm))
        scalars = rollout_scalars(algorithm.recent_episodes)
        scalars["time/episodes"] = algorithm.n_episodes
        scalars["time/fps"] = self._speed(algorithm, seconds)
        scalars["time/time_elapsed"] = round(self._elapsed_before + seconds, 3)
        scalars[STEPS] = algorithm.num_timesteps
        scalars["train/n_updates"] = algorithm.n_updates
        scalars.update(algorithm.read_metrics())
        spent = self._spent(algorithm, now - self._reported)
        report = Report(algorithm.num_timesteps, scalars, spent, self._note(algorithm))
        self._reported, self._reported_step = now, algorithm.num_timesteps
        self._timings = dict(algorithm.timings)
        return report

    def _speed(self, algorithm: Training, seconds: float) -> float:
        """Return the steps per second so far, without what was compiled meanwhile: that is done once."""
        compiling = algorithm.runtime.compile_clock.seconds - self._compiled_before
        return round((algorithm.num_timesteps - self._first_step) / max(seconds - compiling, 1e-9), 1)

    def _spent(self, algorithm: Training, seconds: float) -> dict[str, float]:
        """Return what the last ``seconds`` were spent on."""
        spent = {name: total - self._timings.get(name, 0.0) for name, total in algorithm.timings.items()}
        return {**spent, "other": max(0.0, seconds - sum(spent.values()))}

    def _note(self, algorithm: Training) -> str | None:
        if algorithm.n_episodes or not self._longest:  # without a step there is nothing to wait for
            return None
        note = f"no episode has finished yet (longest: {self._longest:,} steps); set a time limit?"
        return f"{note} (env.max_episode_steps)"


def rollout_scalars(episodes: Iterable[EpisodeRecord]) -> dict[str, float]:
    """Return the means over finished episodes: return, length, success, and numeric values of their infos."""
    records = list(episodes)
    if not records:
        return {}
    scalars = {
        "rollout/ep_rew_mean": float(np.mean([record.episode_return for record in records])),
        "rollout/ep_len_mean": float(np.mean([record.length for record in records])),
    }
    values: dict[str, list[float]] = {}
    for record in records:
        for key, value in record.info.items():
            if isinstance(value, bool | int | float):
                values.setdefault(key, []).append(float(value))
    for key, numbers in values.items():
        name = "rollout/success_rate" if key == "is_success" else f"rollout/{key}_mean"
        scalars[name] = float(np.mean(numbers))
    return scalars


def _longest_unfinished(algorithm: Training) -> int:
    return 0 if algorithm.envs is None else algorithm.envs.longest_unfinished_episode()
