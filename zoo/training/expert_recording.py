"""Recording what an expert does: an agent, or a function from an observation to an action."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from zoo.algorithms.interaction import Interaction
from zoo.envs.composite_spaces import is_composite, leaf_spaces, leaves, nested, row
from zoo.envs.config import EnvConfig
from zoo.envs.monitor import EpisodeRecord
from zoo.envs.spaces import Space
from zoo.envs.stepper import EnvStepper
from zoo.envs.vec_env import make_vec_env
from zoo.errors import ZooError, ZooWarning
from zoo.memory.columns import Column, transform
from zoo.memory.experience import Experience
from zoo.memory.expert_data import ExpertData, nothing_left
from zoo.training.evaluation import Env, Play, Predictor, refuse_not_finite, seeds_of
from zoo.version import __version__

TRIES = 10
"""Episodes that are played for each that is wanted, before those that were good enough have to do."""


def record_expert(
    expert: Predictor | Callable[[Any], Any],
    env: Env,
    n_episodes: int = 50,
    *,
    n_envs: int = 1,
    deterministic: bool = True,
    seed: int | Sequence[int] | None = None,
    min_return: float | None = None,
    successes_only: bool = False,
    source: Mapping[str, Any] | None = None,
    on_episode: Callable[[EpisodeRecord, bool], None] | None = None,
) -> ExpertData:
    """Return ``n_episodes`` episodes of an expert, only such as return ``min_return`` and, if asked, succeed.

    ``expert`` is an agent, or whatever else has its ``predict``; or a function that is given one raw
    observation and returns one action. ``env`` and ``n_envs`` are as for `zoo.evaluate_policy`: each
    environment plays a fixed share of the episodes. ``on_episode`` is told each, and whether it was kept.

    At most ten times as many episodes are played as are wanted. Raises `ZooError` if none was good enough;
    `ZooWarning` warns of fewer than are wanted.
    """
    if n_episodes < 1:
        raise ZooError(f"n_episodes={n_episodes}: at least one episode is needed")
    is_own = not isinstance(env, EnvStepper | VectorEnv | gym.Env)
    name = env.id if isinstance(env, EnvConfig) else env if isinstance(env, str) else None
    if not isinstance(env, EnvStepper | VectorEnv):
        env = make_vec_env(env, min(n_envs, n_episodes) if is_own else 1, training=False)
    envs = env if isinstance(env, EnvStepper) else EnvStepper(env)
    try:
        model = expert if hasattr(expert, "predict") else _Function(expert, envs.action_space)
        generators = getattr(expert, "generators", None)
        with nullcontext() if generators is None else generators.predicting_from(seed):
            play = Play(model, Interaction(envs), deterministic)  # type: ignore[arg-type]
            play.interaction.reset(seeds_of(seed, envs.num_envs))
            recorder = _Recorder(envs, n_episodes, min_return, successes_only, on_episode)
            while recorder.is_recording:
                recorder.add(play.step())
        return recorder.data({**_card(name, source, expert), "deterministic": deterministic, "seed": seed})
    finally:
        if is_own:
            envs.close()


def _card(env: str | None, source: Mapping[str, Any] | None, expert: Any) -> dict[str, Any]:
    if source is None:
        source = {
            "expert": getattr(expert, "name", None) or getattr(expert, "__name__", type(expert).__name__)
        }
    return {"env": env, "source": dict(source), "zoo": __version__}


class _Function:
    """A function from one observation to one action, as what an interaction asks."""

    def __init__(self, function: Any, space: Space) -> None:
        self.function, self.space = function, space

    def predict(self, observations: Any, state: Any = None, **others: Any) -> tuple[Any, None]:
        """Return actions for a batch of observations; numbers (Box) within their bounds."""
        n = len(next(iter(observations.values())) if isinstance(observations, Mapping) else observations)
        actions = [dict(leaves(self.space, self.function(row(observations, i)))) for i in range(n)]
        stacked = {path: self._stacked(path, part, actions) for path, part in leaf_spaces(self.space)}
        return nested(self.space, stacked), None

    def _stacked(self, path: str, space: Space, actions: list[dict[str, Any]]) -> np.ndarray:
        shape = tuple(space.shape or ())
        given = [np.asarray(each[path]) for each in actions]
        if any(each.size != int(np.prod(shape)) for each in given):
            raise ZooError(
                f"the expert returned an action of shape {given[0].shape}, expected {shape}: {space}"
            )
        stacked = np.stack([each.reshape(shape) for each in given])
        if isinstance(space, spaces.Box):
            stacked = stacked.clip(space.low, space.high)
        return stacked.astype(space.dtype)


class _Recorder:
    """The steps of the episodes under way, and of those that were kept."""

    def __init__(
        self,
        envs: EnvStepper,
        n_episodes: int,
        min_return: float | None,
        successes_only: bool,
        on_episode: Callable[[EpisodeRecord, bool], None] | None,
    ) -> None:
        self.envs, self.n_episodes = envs, n_episodes
        self.min_return, self.successes_only = min_return, successes_only
        self.on_episode = on_episode
        shares = np.array([(n_episodes + i) // envs.num_envs for i in range(envs.num_envs)])
        self._wanted, self._tries = shares, TRIES * shares
        self._steps: list[list[dict[str, Column]]] = [[] for _ in range(envs.num_envs)]
        self._kept: list[tuple[EpisodeRecord, bool, list[dict[str, Column]]]] = []
        self._played: list[EpisodeRecord] = []

    @property
    def is_recording(self) -> bool:
        """Whether an environment has to go on: it lacks episodes, and has tries left."""
        return bool(((self._wanted > 0) & (self._tries > 0)).any())

    def add(self, experience: Experience) -> None:
        """Take one step of all environments, and the episodes that it ended."""
        outcome = experience.outcome
        columns = {"observations": experience.observations, "actions": self._flat(experience)}
        columns["rewards"] = outcome.rewards
        if "action_masks" in experience.columns:
            columns["action_masks"] = experience.columns["action_masks"]
        for index, steps in enumerate(self._steps):
            if self._goes_on(index) and (outcome.valid is None or outcome.valid[index]):
                steps.append(transform(lambda array: np.array(array[index]), columns))  # noqa: B023
        for episode in outcome.episodes:
            self._end(episode, bool(outcome.terminated[episode.env_index]))

    def data(self, card: dict[str, Any]) -> ExpertData:
        """Return what was kept. Raises `ZooError` if that is nothing."""
        if not self._kept:
            played = np.array([each.episode_return for each in self._played])
            message = nothing_left(
                played, self._successes(self._played), self.min_return, self.successes_only
            )
            raise ZooError(message)
        if len(self._kept) < self.n_episodes:
            self._warn_of_few()
        records = [record for record, _, _ in self._kept]
        steps = [step for _, _, episode in self._kept for step in episode]
        columns = {name: _stacked([step[name] for step in steps]) for name in steps[0]}
        return ExpertData(
            *self.envs.spaces,
            columns["observations"],
            columns["actions"],
            columns["rewards"],
            lengths=np.array([len(episode) for _, _, episode in self._kept], np.int64),
            returns=np.array([record.episode_return for record in records], np.float64),
            terminated=np.array([terminated for _, terminated, _ in self._kept]),
            successes=self._successes(records),
            action_masks=columns.get("action_masks"),
            card={
                **card,
                "n_played": len(self._played),
                "min_return": self.min_return,
                "successes_only": self.successes_only,
            },
        )

    def _goes_on(self, index: int) -> bool:
        return bool(self._wanted[index] > 0 and self._tries[index] > 0)

    def _flat(self, experience: Experience) -> Column:
        space = self.envs.action_space
        actions = experience.columns["actions"]
        return dict(leaves(space, actions)) if is_composite(space) else np.asarray(actions)

    def _end(self, episode: EpisodeRecord, terminated: bool) -> None:
        index = episode.env_index
        if not self._goes_on(index):
            return
        refuse_not_finite(episode)
        is_kept = self._is_good(episode)
        self._played.append(episode)
        self._tries[index] -= 1
        if is_kept:
            self._wanted[index] -= 1
            self._kept.append((episode, terminated, self._steps[index]))
        self._steps[index] = []
        if self.on_episode is not None:
            self.on_episode(episode, is_kept)

    def _is_good(self, episode: EpisodeRecord) -> bool:
        if self.successes_only:
            if "is_success" not in episode.info:
                raise ZooError(
                    "successes_only: the environment does not say whether an episode succeeded (`is_success`"
                    " in the info of its last step); min_return=… can tell the good ones"
                )
            if not episode.info["is_success"]:
                return False
        return self.min_return is None or episode.episode_return >= self.min_return

    def _successes(self, episodes: Sequence[EpisodeRecord]) -> np.ndarray | None:
        if not all("is_success" in episode.info for episode in episodes):
            return None
        return np.array([bool(episode.info["is_success"]) for episode in episodes])

    def _warn_of_few(self) -> None:
        n_played, n_kept = len(self._played), len(self._kept)
        warnings.warn(
            f"of {n_played:,} episodes only {n_kept:,} were good enough; {self.n_episodes:,} were wanted",
            ZooWarning,
            stacklevel=4,
        )


def _stacked(steps: list[Column]) -> Column:
    if isinstance(steps[0], Mapping):
        return {key: np.stack([step[key] for step in steps]) for key in steps[0]}
    return np.stack(steps)
