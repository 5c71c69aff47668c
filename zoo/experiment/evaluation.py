"""Evaluation: play episodes with a fixed policy and report their returns."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from zoo.algorithms.collector import Collector
from zoo.config.aliases import refuse_unknown_arguments
from zoo.core.printing import decimal, show
from zoo.envs.adapter import VecEnvAdapter, make_adapter
from zoo.envs.config import EnvConfig
from zoo.envs.make_env import make_vec_env
from zoo.envs.replay import random_seed
from zoo.envs.transition import EpisodeRecord, Transition
from zoo.errors import NotFiniteError, ZooError, ZooWarning
from zoo.experiment import statistics
from zoo.policies.actor_critic import PolicyInput

PATIENCE = 30.0  # seconds without an episode end after which playing says so, and again once doubled

GymEnv = gym.Env[Any, Any]
Env = str | EnvConfig | GymEnv | Callable[[], GymEnv] | VectorEnv[Any, Any, Any] | VecEnvAdapter


class Predictor(Protocol):
    """An object that acts: an algorithm, or any other with this method."""

    @property
    def predict(self) -> Callable[..., tuple[Any, Any]]:
        """Return actions for raw observations (num_envs, …), and the policy's next state.

        Arguments: observations, state, episode_start (num_envs,), deterministic, and by name action_masks.
        """


class EvaluationCancelledError(Exception):
    """The evaluation was cancelled before its last episode."""


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The episodes of one evaluation, in the order in which they ended; a return is a sum of raw rewards."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    successes: NDArray[np.bool_] | None = None  # at reaching the goal, where the environment says so

    @classmethod
    def from_episodes(cls, episodes: Sequence[EpisodeRecord]) -> Evaluation:
        """Return the evaluation of these episodes."""
        successes = [episode.info.get("is_success") for episode in episodes]
        return cls(
            returns=np.array([episode.episode_return for episode in episodes], dtype=np.float64),
            lengths=np.array([episode.length for episode in episodes], dtype=np.int64),
            successes=None if None in successes else np.array(successes, dtype=np.bool_),
        )

    def __repr__(self) -> str:
        spread = f"{decimal(self.mean)} ± {decimal(self.std)}"
        return f"<Evaluation: mean return {spread} over {self.n_episodes:,} episodes>"

    @property
    def n_episodes(self) -> int:
        return len(self.returns)

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation over the episodes."""
        return float(self.returns.std())

    @property
    def iqm(self) -> float:
        """Interquartile mean: that of the middle half of the returns."""
        return float(statistics.iqm(self.returns))

    def ci95(self) -> tuple[float, float]:
        """Return the 95 % interval of the mean return, from bootstrap resamples of the episodes."""
        return statistics.interval(statistics.bootstrapped(statistics.mean_of_means, [self.returns]))

    @property
    def mean_length(self) -> float:
        """Mean environment steps of an episode."""
        return float(self.lengths.mean())

    @property
    def success_rate(self) -> float | None:
        return None if self.successes is None else float(self.successes.mean())

    def summary(self) -> dict[str, Any]:
        """Return the statistics by name, as ``zoo evaluate`` and ``run.json`` give them."""
        returns = {"mean_return": self.mean, "std_return": self.std, "iqm_return": self.iqm}
        rest = {"ci95": list(self.ci95()), "mean_length": self.mean_length, "n_episodes": self.n_episodes}
        return returns | rest | ({} if self.success_rate is None else {"success_rate": self.success_rate})


@refuse_unknown_arguments
def evaluate_policy(
    model: Predictor,
    env: Env,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    render: bool = False,
    callback: Callable[[dict[str, Any], dict[str, Any]], Any] | None = None,
    reward_threshold: float | None = None,
    return_episode_rewards: bool = False,
    warn: bool = True,
    *,
    seed: int | None = None,
    n_envs: int = 1,
) -> tuple[Any, Any]:
    """Return mean and standard deviation of the episodes' returns; see `evaluate`, which returns more.

    With ``return_episode_rewards`` the returns and lengths themselves. After each step ``callback`` is called
    with (locals, globals) for each environment ``i``; its ``reward``, ``done``, ``info`` are locals. Returns
    are sums of raw rewards: there is nothing to ``warn`` of. Raises `ZooError` below ``reward_threshold``.
    """
    if render:
        raise ZooError('evaluate_policy(render=True): make the environment with render_mode="human"')

    def call_back(step: Transition, rows: Sequence[int]) -> None:
        rewards, dones, infos = step.rewards, step.dones, step.step_infos()
        vectors = {**step.columns, "rewards": rewards, "dones": dones, "infos": infos}
        for i in rows:
            row = {"reward": rewards[i], "done": dones[i], "info": infos[i], "i": i}
            callback({**vectors, **row, "model": model, "env": env}, {})  # type: ignore[misc]

    on_step = None if callback is None else call_back
    options: dict[str, Any] = {"deterministic": deterministic, "seed": seed, "n_envs": n_envs}
    evaluation = evaluate(model, env, n_eval_episodes, on_step=on_step, **options)
    if reward_threshold is not None and evaluation.mean < reward_threshold:
        raise ZooError(f"mean return {evaluation.mean:.4g} is below reward_threshold={reward_threshold:g}")
    if return_episode_rewards:
        return evaluation.returns.tolist(), evaluation.lengths.tolist()
    return evaluation.mean, evaluation.std


def evaluate(
    model: Predictor,
    env: Env,
    n_episodes: int = 10,
    *,
    deterministic: bool = True,
    seed: int | Sequence[int] | None = None,
    n_envs: int = 1,
    on_episode: Callable[[EpisodeRecord], None] | None = None,
    on_step: Callable[[Transition, Sequence[int]], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Evaluation:
    """Play ``n_episodes`` episodes with ``model`` and return how they went.

    ``n_envs`` environments are made where ``env`` is no vector environment. Each plays a fixed share of the
    episodes: taking whichever end first would favour short ones. They are reset with seeds drawn from
    ``seed``, so one evaluation never depends on another. ``model.predict`` gets raw observations. ``on_step``
    gets each step and the environments in it whose episodes count. Raises `EvaluationCancelledError` once
    ``cancelled()`` is true.
    """
    loop = eval_loop(model, env, n_episodes, n_envs=n_envs, deterministic=deterministic, seed=seed)
    with loop as (envs, step):
        n = envs.num_envs
        episodes: list[EpisodeRecord] = []
        left = [(n_episodes + i) // n for i in range(n)]
        while any(left):
            transition = step()
            if on_step is not None:
                on_step(transition, [i for i in transition.envs.tolist() if left[i]])
            for episode in transition.episodes:
                if left[episode.env_index]:
                    check_finite_return(episode)
                    left[episode.env_index] -= 1
                    episodes.append(episode)
                    if on_episode is not None:
                        on_episode(episode)
            if cancelled is not None and cancelled():
                raise EvaluationCancelledError
    return Evaluation.from_episodes(episodes)


@contextmanager
def eval_loop(
    model: Predictor,
    env: Env,
    n_episodes: int,
    *,
    n_envs: int,
    deterministic: bool,
    seed: int | Sequence[int] | None,
) -> Iterator[tuple[VecEnvAdapter, Callable[[], Transition]]]:
    """Give environments that were reset, and what steps the model in them, raw; own ones are closed."""
    if n_episodes < 1:
        raise ZooError(f"n_episodes={n_episodes}: at least one episode is needed")
    is_own = not isinstance(env, VecEnvAdapter | VectorEnv | gym.Env)
    if not isinstance(env, VecEnvAdapter | VectorEnv):
        env = make_vec_env(env, min(n_envs, n_episodes) if is_own else 1, training=False)
    envs = env if isinstance(env, VecEnvAdapter) else make_adapter(env)
    generators = getattr(model, "generators", None)
    collector, state = Collector(envs), None

    def act(inputs: PolicyInput) -> dict[str, Any]:
        nonlocal state
        actions, state = model.predict(
            inputs["observations"],
            state=state,
            episode_start=collector.episode_starts,
            action_masks=inputs.get("action_masks"),
            deterministic=deterministic,
        )
        return {"actions": actions}

    n_steps, ended, patience = 0, time.monotonic(), PATIENCE

    def step() -> Transition:
        nonlocal n_steps, ended, patience
        transition, n_steps, seconds = collector.step(act), n_steps + 1, time.monotonic() - ended
        if transition.episodes:
            n_steps, ended, patience = 0, ended + seconds, PATIENCE
        elif seconds > patience:
            patience *= 2
            silence = f"playing: no episode has ended for {seconds:,.0f} s ({n_steps:,} steps)"
            warnings.warn(f"{silence}; env.max_episode_steps sets a time limit", ZooWarning, stacklevel=3)
        return transition

    try:
        collector.reset(reset_seeds(seed, envs.num_envs))
        with nullcontext() if generators is None else generators.predicting_from(seed):
            yield envs, step
    finally:
        if is_own:
            envs.close()


def check_finite_return(episode: EpisodeRecord) -> None:
    """Raise `NotFiniteError` for an episode whose return is not."""
    if not math.isfinite(episode.episode_return):
        raise NotFiniteError(
            f"an evaluation episode returned {episode.episode_return}: environment {episode.env_index}"
            f" gave a reward that is not finite within {episode.length} steps"
        )


def reset_seeds(seed: int | Sequence[int] | None, n: int) -> list[int]:
    """Return seeds for ``n`` environments, drawn from ``seed``."""
    seed = random_seed(seed) if isinstance(seed, int) else seed
    return [int(number) >> 1 for number in np.random.SeedSequence(seed).generate_state(n)]


class EpisodeReporter:
    """Prints a line for each episode as it ends."""

    def __init__(self) -> None:
        self.episodes: list[EpisodeRecord] = []

    def add(self, episode: EpisodeRecord) -> None:
        """Take an episode and print a line about it."""
        self.episodes.append(episode)
        success = {None: "", False: ", no success", True: ", success"}[episode.info.get("is_success")]
        number, gained = len(self.episodes), decimal(episode.episode_return)
        show(f"episode {number}: return {gained} in {episode.length:,} steps{success}", flush=True)

    def summary(self) -> str:
        """Return one line about all of them."""
        if not self.episodes:
            return "no episode was finished"
        evaluation = Evaluation.from_episodes(self.episodes)
        success = "" if evaluation.success_rate is None else f", success {evaluation.success_rate:.0%}"
        episodes = f"{evaluation.n_episodes} episodes{success}"
        return f"mean return {decimal(evaluation.mean)} in {evaluation.mean_length:,.1f} steps, {episodes}"
