"""Evaluating an agent while it learns, and keeping the best one."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from zoo.algorithms.callback import PREEMPTED, Callback, InterruptedCallbackError, Training
from zoo.envs.adapter import EnvStepper
from zoo.envs.vec_env import make_vec_env
from zoo.errors import ZooError
from zoo.files import atomic
from zoo.files.damaged import UNREADABLE, move_aside
from zoo.files.npz import parse_arrays
from zoo.files.printing import one_line
from zoo.training.evaluation import Env, Evaluation, EvaluationCancelledError, evaluate
from zoo.training.problems import tell, told
from zoo.training.run_folder import RunFolder

_ARRAYS = ("timesteps", "results", "ep_lengths", "successes")
"""Under Stable-Baselines3's names; the last only where the environment tells of success."""


class EvalCallback(Callback):
    """Plays ``n_eval_episodes`` episodes every ``every`` environment steps, in environments of its own.

    With a ``run`` each evaluation goes to ``evaluations.npz``, under the names of Stable-Baselines3
    (timesteps, results, ep_lengths, successes), and the agent to ``best_agent`` when its mean return is the
    best so far; of two equal ones the later has learned more, and stays. An id, config or function as
    ``env`` is made into ``n_envs`` environments at the first evaluation. The seeds of an evaluation come from
    ``seed`` (None: the algorithm's) and its number, and from nothing that happened before.
    """

    def __init__(
        self,
        env: Env,
        *,
        every: int,
        n_eval_episodes: int = 10,
        deterministic: bool = True,
        n_envs: int = 5,
        seed: int | None = None,
        run: RunFolder | str | Path | None = None,
    ) -> None:
        self.env = env
        self.every = every
        self.n_eval_episodes = n_eval_episodes
        self.deterministic = deterministic
        self.n_envs = n_envs
        self.seed = seed
        self.run = run if run is None or isinstance(run, RunFolder) else RunFolder(run)
        self.n_evaluations = 0
        self.best_mean: float | None = None
        self.last: Evaluation | None = None
        self._history: list[tuple[int, Evaluation]] = []
        self._own_envs: EnvStepper | None = None
        self.evaluated_at: int | None = None

    def on_steps(self, algorithm: Training) -> None:
        """Evaluate; a signal that comes meanwhile ends the evaluation, which is then still due."""
        started = time.perf_counter()
        try:
            evaluation = self._evaluate(algorithm)
        except EvaluationCancelledError as error:
            raise InterruptedCallbackError from error
        except ZooError as error:
            if algorithm.stop_reason != PREEMPTED:
                raise
            # A signal to the whole group has ended workers that were starting.
            self.close()
            raise InterruptedCallbackError from error
        finally:
            algorithm.timings["evaluation"] += time.perf_counter() - started
        self._take_in(algorithm, evaluation)

    def on_training_end(self, algorithm: Training) -> None:
        """Close the environments that were made here, and write the last score into the run's record."""
        self.close()
        if self.run is not None and self.last is not None and self.run.record.exists():
            with told("the run's record lacks its score"):
                summary = {"timesteps": self.evaluated_at, **self.last.summary()}
                self.run.update_record(evaluation=summary)

    def close(self) -> None:
        """Close the environments that were made here."""
        if self._own_envs is not None:
            self._own_envs.close()
            self._own_envs = None

    def state(self) -> dict[str, Any]:
        """Return what later evaluations depend on, and how many rows of ``evaluations.npz`` are valid."""
        return {
            "n_evaluations": self.n_evaluations,
            "best_mean": self.best_mean,
            "rows": len(self._history),
            "evaluated_at": self.evaluated_at,
            "last": None if self.last is None else self.last.as_lists(),
        }

    def load_state(self, values: dict[str, Any]) -> None:
        """Go back to that evaluation, and drop what was written after it."""
        self.n_evaluations = values["n_evaluations"]
        self.best_mean = values["best_mean"]
        self.evaluated_at = values["evaluated_at"]
        self.last = None if values["last"] is None else Evaluation.from_lists(values["last"])
        if self.run is not None and values["rows"]:
            written = read_evaluations(self.run.evaluations, self.n_eval_episodes)
            self._history = written[: values["rows"]]
            if len(self._history) < values["rows"]:
                tell(
                    f"{self.run.evaluations} holds {len(self._history)} of the {values['rows']} evaluations"
                    " before the checkpoint; the run goes on"
                )
            if self._history:
                self._write_history()

    def _evaluate(self, algorithm: Training) -> Evaluation:
        seed = algorithm.seed if self.seed is None else self.seed
        return evaluate(
            algorithm,
            self._envs(),
            self.n_eval_episodes,
            deterministic=self.deterministic,
            seed=(seed, self.n_evaluations),
            cancelled=lambda: algorithm.stop_reason == PREEMPTED,
        )

    def _envs(self) -> Env:
        if isinstance(self.env, EnvStepper | VectorEnv | gym.Env):
            return self.env
        if self._own_envs is None:
            n_envs = min(self.n_envs, self.n_eval_episodes)
            self._own_envs = EnvStepper(make_vec_env(self.env, n_envs, training=False))
        return self._own_envs

    def _take_in(self, algorithm: Training, evaluation: Evaluation) -> None:
        self.n_evaluations += 1
        self.last, self.evaluated_at = evaluation, algorithm.num_timesteps
        scalars = {"eval/mean_reward": evaluation.mean, "eval/mean_ep_length": evaluation.mean_length}
        if evaluation.success_rate is not None:
            scalars["eval/success_rate"] = evaluation.success_rate
        algorithm.record_row(scalars)
        if self.run is not None:
            self._history.append((algorithm.num_timesteps, evaluation))
            self._write_history()
        is_best = self.best_mean is None or evaluation.mean >= self.best_mean
        if is_best and (self.run is None or self._save_best(algorithm, evaluation, self.run)):
            self.best_mean = evaluation.mean

    def _save_best(self, algorithm: Training, evaluation: Evaluation, run: RunFolder) -> bool:
        """Write the agent, and return whether that worked."""
        is_saved = False
        with told("the run goes on, and the earlier best agent, if any, stays"):
            algorithm.save(run.best_agent, card=score_for_card(evaluation))
            is_saved = True
        return is_saved

    def _write_history(self) -> None:
        assert self.run is not None
        with told("the run goes on"):
            write_evaluations(self.run.evaluations, self._history)


def score_for_card(evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation as an agent's card gives it."""
    scores = {
        "mean_return": evaluation.mean,
        "std_return": evaluation.std,
        "n_eval_episodes": evaluation.n_episodes,
    }
    success_rate = evaluation.success_rate
    return scores if success_rate is None else {**scores, "success_rate": success_rate}


def write_evaluations(path: Path, history: list[tuple[int, Evaluation]]) -> None:
    """Write evaluations and the steps at which they took place, in Stable-Baselines3's format."""
    evaluations = [evaluation for _, evaluation in history]
    arrays: dict[str, Any] = {
        "timesteps": np.array([timesteps for timesteps, _ in history], dtype=np.int64),
        "results": np.array([evaluation.returns for evaluation in evaluations]),
        "ep_lengths": np.array([evaluation.lengths for evaluation in evaluations]),
    }
    successes = [evaluation.successes for evaluation in evaluations if evaluation.successes is not None]
    if successes and len(successes) == len(evaluations):
        arrays["successes"] = np.array(successes)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    atomic.write_bytes(path, buffer.getvalue())


def read_evaluations(path: Path, n_episodes: int | None = None) -> list[tuple[int, Evaluation]]:
    """Return what `write_evaluations` wrote; a damaged file is moved aside, which is told.

    So is one whose evaluations are not of ``n_episodes``, if that is given: it belongs to another run.
    """
    try:
        return _parse_evaluations(path.read_bytes(), n_episodes)
    except FileNotFoundError:
        return []
    except UNREADABLE as error:
        problem = one_line(error)
        aside = move_aside(path)
        tell(f"{path} is damaged ({problem}): it is {aside.name} now, and another one begins")
        return []


def _parse_evaluations(content: bytes, n_episodes: int | None) -> list[tuple[int, Evaluation]]:
    """Raises `ValueError` for another form; nothing is unpacked that would take much memory."""
    arrays = parse_arrays(content, _ARRAYS)
    missing = [name for name in _ARRAYS[:3] if name not in arrays]
    if missing:
        raise ValueError(f"it has no {' and no '.join(missing)}")
    timesteps, results = arrays.pop("timesteps"), arrays["results"]
    if timesteps.ndim != 1 or results.ndim != 2 or len(results) != len(timesteps) or not results.size:
        raise ValueError("its arrays don't fit together")
    if any(array.shape != results.shape for array in arrays.values()):
        raise ValueError("its arrays don't fit together")
    if n_episodes not in (None, results.shape[1]):
        raise ValueError(
            f"its evaluations are of {results.shape[1]:,} episodes, those of this run {n_episodes}"
        )
    lengths, successes = arrays["ep_lengths"].astype(np.int64), arrays.get("successes")
    reached = [None] * len(results) if successes is None else successes.astype(np.bool_)
    rows = zip(timesteps.tolist(), results, lengths, reached, strict=True)
    return [(int(steps), Evaluation(*values)) for steps, *values in rows]
