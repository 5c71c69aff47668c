"""Callbacks: evaluation with the best agent, early stopping, kept agents and videos."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from zoo.agents.find import kept_name
from zoo.algorithms.callback import (
    PREEMPTED,
    Callback,
    Function,
    InterruptedCallbackError,
    Training,
    as_callback,
)
from zoo.core.printing import decimal, one_line, print_message, report_write_errors
from zoo.core.zips import opened_npz, write_npz
from zoo.envs.adapter import VecEnvAdapter, make_adapter
from zoo.envs.config import EnvConfig
from zoo.envs.make_env import make_vec_env
from zoo.envs.transition import EpisodeRecord
from zoo.envs.video import Size
from zoo.errors import ZooError
from zoo.experiment.evaluation import Env, Evaluation, EvaluationCancelledError, evaluate
from zoo.experiment.loggers import LoggerGroup
from zoo.experiment.recording import check_rendering, record
from zoo.experiment.run_folder import RunFolder

EVALUATION_COLUMNS = ("timesteps", "results", "ep_lengths", "successes")  # SB3's names in the file


class EvalCallback(Callback):
    """Plays ``n_eval_episodes`` episodes every ``every`` environment steps, in environments of its own.

    With a ``run`` each evaluation goes to ``evaluations.npz``, and the agent to ``best_agent`` when its mean
    return is the best so far; a tie goes to the later. An id, config or
    function as ``env`` is made into ``n_envs`` environments at the first evaluation. The seeds of an
    evaluation come from ``seed`` (None: the algorithm's) and its number only.

    ``confirm``: all evaluations use the same seeds. An agent that ties or beats the best plays ``confirm``
    extra episodes, whose mean decides, because the best of many short evaluations is often luck.

    As in SB3, ``eval_freq`` counts calls of the vector environment's step (10,000 where ``every`` is not
    given), ``best_model_save_path`` is the folder of ``best_model.zip``, ``log_path`` that of
    ``evaluations.npz``. ``verbose`` prints each evaluation. ``warn`` has no effect.
    """

    best_mean_reward = property(lambda self: self.best_mean, doc="SB3's name of ``best_mean``.")
    last_mean_reward = property(lambda self: self.last and self.last.mean, doc="SB3's name of ``last.mean``.")

    def __init__(
        self,
        env: Env,
        *,
        every: int | None = None,
        n_eval_episodes: int = 10,
        deterministic: bool = True,
        n_envs: int = 5,
        seed: int | None = None,
        confirm: int = 0,
        run: RunFolder | str | Path | None = None,
        eval_freq: int | None = None,
        best_model_save_path: str | Path | None = None,
        log_path: str | Path | None = None,
        callback_on_new_best: Callback | Function | None = None,
        callback_after_eval: Callback | Function | None = None,
        render: bool = False,
        verbose: int = 0,
        warn: bool = True,
    ) -> None:
        if render:
            raise ZooError('EvalCallback(render=True): make the environment with render_mode="human"')
        if every is not None and eval_freq is not None:
            raise ZooError("EvalCallback: every counts environment steps, eval_freq calls; give one of them")
        self.env = env
        self.every, self.verbose = every or 0, verbose
        self.every_calls = (10_000 if eval_freq is None else eval_freq) if every is None else 0
        self.on_new_best, self.after_eval = (
            None if callback is None else as_callback(callback)
            for callback in (callback_on_new_best, callback_after_eval)
        )
        children = (self.after_eval, self.on_new_best)
        self.child_callbacks = [callback for callback in children if callback is not None]
        for callback in self.child_callbacks:
            if isinstance(callback, _StopOnEvaluation):
                callback.evaluation = self
        self.confirm, self.n_eval_episodes, self.deterministic = confirm, n_eval_episodes, deterministic
        self.n_envs, self.seed = n_envs, seed
        self.run = run if run is None or isinstance(run, RunFolder) else RunFolder(run)
        best, log = best_model_save_path, log_path
        self.best_agent = Path(best, "best_model.zip") if best else getattr(self.run, "best_agent", None)
        self.evaluations = Path(log, "evaluations.npz") if log else getattr(self.run, "evaluations", None)
        self.n_evaluations = 0
        self.best_mean: float | None = None
        self.best_unconfirmed_mean: float | None = None  # before the best agent's ``confirm`` episodes
        self.last: Evaluation | None = None
        self.history: list[tuple[int, Evaluation]] = []
        self._own_envs: VecEnvAdapter | None = None
        self.evaluated_at: int | None = None

    def on_steps(self, algorithm: Training) -> None:
        """Evaluate; a stop signal cancels it and leaves it due."""
        try:
            with _as_evaluation(algorithm):
                seed_index = 0 if self.confirm else self.n_evaluations
                evaluation = self._evaluate(algorithm, self.n_eval_episodes, seed_index)
                candidate = evaluation if is_at_least(evaluation, self.best_unconfirmed_mean) else None
                if candidate is not None and self.confirm:
                    candidate = self._evaluate(algorithm, self.confirm, 1)
        except ZooError as error:
            if algorithm.stop_reason != PREEMPTED:
                raise
            # A signal to the whole group has ended workers that were starting.
            self.close()
            raise InterruptedCallbackError from error
        self._record(algorithm, evaluation, candidate)

    def on_training_end(self, algorithm: Training) -> None:
        """Close the environments that were made here, and write the last score into the run's record."""
        self.close()
        if self.run is not None and self.last is not None and self.run.record.exists():
            with report_write_errors("the run's record lacks its score"):
                summary = {"timesteps": self.evaluated_at, **self.last.summary()}
                self.run.update_record(evaluation=summary)

    def close(self) -> None:
        if self._own_envs is not None:
            self._own_envs.close()
            self._own_envs = None

    def state(self) -> dict[str, Any]:
        """Return the counts and best scores, and the number of valid rows of ``evaluations.npz``."""
        names = ("n_evaluations", "best_mean", "evaluated_at")
        values = {name: getattr(self, name) for name in names}
        return {"rows": len(self.history), **values, "best_evaluated": self.best_unconfirmed_mean}

    def load_state(self, values: dict[str, Any]) -> None:
        """Restore the counts, and drop later rows of ``evaluations.npz``."""
        self.n_evaluations, self.evaluated_at = values["n_evaluations"], values["evaluated_at"]
        self.best_mean = values["best_mean"]
        self.best_unconfirmed_mean = values.get("best_evaluated", self.best_mean)
        if self.evaluations is not None and values["rows"]:
            self.history = read_evaluations(self.evaluations)[: values["rows"]]
            self.last = self.history[-1][1] if self.history else None
            write_evaluations(self.evaluations, self.history)

    def card_at(self, num_timesteps: int) -> dict[str, Any]:
        """Return the score of the agent as it is at this step for its card: nothing, if it has none."""
        return self._score_for_card(self.last) if self.last and self.evaluated_at == num_timesteps else {}

    def _score_for_card(self, evaluation: Evaluation) -> dict[str, Any]:
        score: dict[str, Any] = {"mean_return": evaluation.mean, "std_return": evaluation.std}
        score |= {"n_eval_episodes": evaluation.n_episodes, "deterministic": self.deterministic}
        return score | ({} if evaluation.success_rate is None else {"success_rate": evaluation.success_rate})

    def _evaluate(self, algorithm: Training, n_episodes: int, seed_index: int) -> Evaluation:
        if self._own_envs is None and not isinstance(self.env, VecEnvAdapter | VectorEnv | gym.Env):
            n_envs = min(self.n_envs, self.n_eval_episodes)
            self._own_envs = make_adapter(make_vec_env(self.env, n_envs, training=False))
        return evaluate(
            algorithm,
            self._own_envs or self.env,
            n_episodes,
            deterministic=self.deterministic,
            seed=(algorithm.seed if self.seed is None else self.seed, seed_index),
            cancelled=lambda: algorithm.stop_reason == PREEMPTED,
        )

    def _record(self, algorithm: Training, evaluation: Evaluation, candidate: Evaluation | None) -> None:
        """Record an evaluation; ``candidate`` is compared with the best so far, unless None."""
        self.n_evaluations += 1
        self.last, self.evaluated_at = evaluation, algorithm.num_timesteps
        scalars = {"eval/mean_reward": evaluation.mean, "eval/mean_ep_length": evaluation.mean_length}
        if evaluation.success_rate is not None:
            scalars["eval/success_rate"] = evaluation.success_rate
        algorithm.scalars.record_row(algorithm.num_timesteps, scalars)
        if self.verbose:
            print_message(f"step {algorithm.num_timesteps:,}: mean return {decimal(evaluation.mean)}")
        self.history.append((algorithm.num_timesteps, evaluation))
        if self.evaluations is not None:
            write_evaluations(self.evaluations, self.history)
        if candidate is not None and is_at_least(candidate, self.best_mean):
            with report_write_errors("the run goes on, and the earlier best agent, if any, stays"):
                if self.best_agent is not None:
                    algorithm.save(self.best_agent, card=self._score_for_card(candidate))
                self.best_mean, self.best_unconfirmed_mean = candidate.mean, evaluation.mean
            if self.on_new_best is not None:
                self.on_new_best.call(algorithm)
        if self.after_eval is not None:
            self.after_eval.call(algorithm)


def is_at_least(evaluation: Evaluation, best: float | None) -> bool:
    return best is None or evaluation.mean >= best


@contextmanager
def _as_evaluation(algorithm: Training) -> Iterator[None]:
    """Count the block's time as evaluation; if a signal cancels it, the callback is still due."""
    started = time.perf_counter()
    try:
        yield
    except EvaluationCancelledError as error:
        raise InterruptedCallbackError from error
    finally:
        algorithm.timings["evaluation"] += time.perf_counter() - started


def write_evaluations(path: Path, history: list[tuple[int, Evaluation]]) -> None:
    """Write evaluations and their steps in Stable-Baselines3's format; a failure costs one message."""
    rows = [(steps, episodes.returns, episodes.lengths, episodes.successes) for steps, episodes in history]
    columns = dict(zip(EVALUATION_COLUMNS, zip(*rows, strict=True), strict=True))
    if any(successes is None for successes in columns["successes"]):
        del columns["successes"]
    with report_write_errors("the run goes on"):
        write_npz(path, {name: np.array(column) for name, column in columns.items()}, {})


def read_evaluations(path: Path) -> list[tuple[int, Evaluation]]:
    """Read the file of `write_evaluations`; no file: an empty list. Raises `ZooError`."""
    if not path.exists():
        return []
    with opened_npz(path) as npz:
        columns = [npz[name] for name in EVALUATION_COLUMNS if name in npz]
    return [(int(steps), Evaluation(*values)) for steps, *values in zip(*columns, strict=True)]


class _StopOnEvaluation(Callback):
    """Goes after ``evaluation`` in a list of callbacks, or is an argument ``callback_…`` of it."""

    def __init__(self, evaluation: EvalCallback | None, verbose: int, **limit: Any) -> None:
        ((name, value),) = limit.items()
        if value is None or not isinstance(evaluation, EvalCallback | None):
            raise ZooError(f"{type(self).__name__} needs {name}=N, and an EvalCallback before it, if any")
        self.evaluation, self.verbose = evaluation, verbose
        if evaluation is not None:
            self.every, self.every_calls = evaluation.every, evaluation.every_calls

    def on_training_start(self, algorithm: Training) -> None:
        if self.evaluation is None:
            name = type(self).__name__
            raise ZooError(f"{name} needs an evaluation: EvalCallback(env, callback_after_eval={name}(…))")

    def _stop(self, algorithm: Training, reason: str) -> None:
        if algorithm.stop_reason is None:
            algorithm.request_stop(reason)
            if self.verbose:
                print_message(reason)


class StopTrainingOnRewardThreshold(_StopOnEvaluation):
    """Ends the run once an evaluation reaches ``reward_threshold``, which may be the only argument."""

    def __init__(self, evaluation: Any = None, reward_threshold: Any = None, verbose: int = 0) -> None:
        if isinstance(evaluation, int | float):
            evaluation, reward_threshold = None, evaluation
        super().__init__(evaluation, verbose, reward_threshold=reward_threshold)
        self.reward_threshold = reward_threshold

    def on_steps(self, algorithm: Training) -> None:
        latest = None if self.evaluation is None else self.evaluation.last
        if latest is not None and latest.mean >= self.reward_threshold:
            reason = f"mean return {latest.mean:.4g} has reached the threshold {self.reward_threshold:g}"
            self._stop(algorithm, reason)


class StopTrainingOnNoModelImprovement(_StopOnEvaluation):
    """Ends the run after more than ``max_no_improvement_evals`` evaluations in a row without a better mean.

    The first ``min_evals`` don't count.
    """

    def __init__(
        self,
        evaluation: Any = None,
        max_no_improvement_evals: Any = None,
        min_evals: int = 0,
        verbose: int = 0,
    ) -> None:
        super().__init__(evaluation, verbose, max_no_improvement_evals=max_no_improvement_evals)
        self.max_no_improvement_evals, self.min_evals = max_no_improvement_evals, min_evals

    def on_steps(self, algorithm: Training) -> None:
        assert self.evaluation is not None
        means = [evaluation.mean for _, evaluation in self.evaluation.history]
        n_worse = len(means) - max(1 + int(np.argmax(means)), self.min_evals) if means else 0
        if n_worse > self.max_no_improvement_evals:
            self._stop(algorithm, f"no better mean return than {max(means):.4g} in {n_worse} evaluations")


class StopTrainingOnMaxEpisodes(Callback):
    """Ends the run after ``max_episodes`` episodes of all environments together."""

    def __init__(self, max_episodes: int) -> None:
        self.max_episodes = max_episodes

    def on_episode(self, algorithm: Training, episode: EpisodeRecord) -> None:
        if algorithm.n_episodes >= self.max_episodes and algorithm.stop_reason is None:
            algorithm.request_stop(f"{algorithm.n_episodes:,} episodes are done")


class KeepAgentsCallback(Callback):
    """Keeps the agent every ``every`` environment steps, with its score if ``evaluation`` has given one."""

    def __init__(self, run: RunFolder, *, every: int, evaluation: EvalCallback | None = None) -> None:
        self.run, self.every, self.evaluation = run, every, evaluation

    def on_steps(self, algorithm: Training) -> None:
        """Save the agent; where it can't be written the run goes on."""
        steps = algorithm.num_timesteps
        with report_write_errors("the run goes on, and keeps no agent of this step"):
            card = {} if self.evaluation is None else self.evaluation.card_at(steps)
            algorithm.save(self.run.kept_agents / kept_name(steps), card=card)


class VideoCallback(Callback):
    """Records ``length`` images (None: a whole episode) into ``folder`` every ``every`` environment steps.

    Seeds depend on the algorithm's seed and the step, so a resumed run records the same video. A failed video
    costs one message. Raises `ZooError` if rendering or video writing is unavailable.
    """

    def __init__(
        self,
        env: EnvConfig,
        folder: Path,
        *,
        every: int,
        length: int | None = 500,
        deterministic: bool = True,
        size: Size | None = None,
        loggers: LoggerGroup | None = None,
    ) -> None:
        self.env, self.folder, self.every = env, folder, every
        self.length, self.deterministic, self.size = length, deterministic, size
        self.loggers = loggers or LoggerGroup([])
        self._is_failing = False
        check_rendering(env)

    def on_steps(self, algorithm: Training) -> None:
        """Record a video; a stop signal cancels it and leaves it due."""
        steps = algorithm.num_timesteps
        path = self.folder / f"{kept_name(steps)}.mp4"
        try:
            with _as_evaluation(algorithm):
                n_frames = record(
                    algorithm,
                    self.env,
                    [path],
                    size=self.size,
                    n_episodes=1 if self.length is None else None,
                    length=self.length,
                    deterministic=self.deterministic,
                    seed=(algorithm.seed, steps, 2),  # differs from evaluation seeds
                    cancelled=lambda: algorithm.stop_reason == PREEMPTED,
                )
        except (ZooError, OSError) as error:
            if not self._is_failing:
                print_message(f"no video: {one_line(error, 500)}; the run goes on without it")
            self._is_failing = True
        else:
            self._is_failing = False
            if n_frames:
                self.loggers.call("video", "eval/video", path, steps)
