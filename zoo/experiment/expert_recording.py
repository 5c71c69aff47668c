"""Recording expert data: the episodes of an agent, or of a function from an observation to an action."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from zoo.buffers.arrays import Arrays, transform
from zoo.envs.adapter import VecEnvAdapter
from zoo.envs.config import EnvConfig
from zoo.envs.monitor import EpisodeRecord
from zoo.envs.replay import random_seed
from zoo.envs.spaces import Space, describe, is_composite, leaf_spaces, leaves, nested, row
from zoo.envs.transition import Transition
from zoo.errors import ZooError, ZooWarning
from zoo.experiment.evaluation import Env, Predictor, check_finite_return, eval_loop
from zoo.imitation.expert_data import (
    ExpertData,
    nothing_left,
    too_few,
    values_of,
)
from zoo.version import __version__

MAX_TRIES = 10
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

    ``expert`` is an agent, another object with its ``predict``, or a function that is given one raw
    observation and returns one action. ``env`` and ``n_envs`` are as for `zoo.evaluate_policy`: each
    environment plays a fixed share of the episodes, and they are returned in the order of their turns: the
    first of each environment, then the second of each. ``on_episode`` is called with each, and whether it is
    kept.

    Rewards are those that the environment gives, as its wrappers leave them; a return is their sum, also the
    one that ``min_return`` is held against.

    At most ten times as many episodes are played as are wanted. Raises `ZooError` if none was good enough;
    `ZooWarning` warns of fewer than are wanted. A ``seed`` of None is drawn, and stands in the card.
    """
    if n_episodes < 1:
        raise ZooError(f"n_episodes={n_episodes}: at least one episode is needed")
    name = env.id if isinstance(env, EnvConfig) else env if isinstance(env, str) else None
    seed = random_seed() if seed is None else seed
    model: Any = expert
    with eval_loop(model, env, n_episodes, n_envs=n_envs, deterministic=deterministic, seed=seed) as loop:
        envs = loop.collector.envs
        if not hasattr(expert, "predict"):
            loop.model = _FunctionPolicy(expert, envs.action_space)  # type: ignore[assignment]
        recorder = _EpisodeRecorder(envs, n_episodes, min_return, successes_only, on_episode)
        while recorder.is_recording:
            recorder.add(loop.step())
    if source is None:
        source = {
            "expert": getattr(expert, "name", None) or getattr(expert, "__name__", type(expert).__name__)
        }
    card = {"env": name, "source": dict(source), "zoo": __version__}
    return recorder.data({**card, "deterministic": deterministic, "seed": seed})


class _FunctionPolicy:
    """A policy that calls a function from one observation to one action."""

    def __init__(self, function: Any, space: Space) -> None:
        self.function, self.space = function, space

    def predict(self, observations: Any, state: Any = None, **others: Any) -> tuple[Any, None]:
        """Return actions for a batch of observations; numbers (Box) within their bounds."""
        n = len(next(iter(observations.values())) if isinstance(observations, Mapping) else observations)
        returned = [self.function(row(observations, i)) for i in range(n)]
        if any(each is None for each in returned):
            raise ZooError(f"the expert returned None, no action of {describe(self.space)}")
        actions = [dict(leaves(self.space, each)) for each in returned]
        stacked = {path: self._stacked(path, part, actions) for path, part in leaf_spaces(self.space)}
        return nested(self.space, stacked), None

    def _stacked(self, path: str, space: Space, actions: list[dict[str, Any]]) -> np.ndarray:
        """Return the actions in one array. Raises `ZooError` for one outside the space."""
        stacked = np.stack([np.asarray(each[path]) for each in actions])
        if isinstance(space, spaces.Box) and stacked.dtype.kind in "biuf":
            stacked = stacked.reshape(len(stacked), *space.shape).clip(space.low, space.high)
        return values_of(space, stacked, "the expert's actions")


class _RecordedEpisode(NamedTuple):
    """An episode that is kept."""

    number: int
    """Its number among those of its environment."""
    record: EpisodeRecord
    terminated: bool
    steps: list[dict[str, Arrays]]


class _EpisodeRecorder:
    """Collects the steps of episodes, and keeps those of good ones."""

    def __init__(
        self,
        envs: VecEnvAdapter,
        n_episodes: int,
        min_return: float | None,
        successes_only: bool,
        on_episode: Callable[[EpisodeRecord, bool], None] | None,
    ) -> None:
        self.envs, self.n_episodes = envs, n_episodes
        self.min_return, self.successes_only = min_return, successes_only
        self.on_episode = on_episode
        shares = np.array([(n_episodes + i) // envs.num_envs for i in range(envs.num_envs)])
        self._missing, self._tries_left = shares, MAX_TRIES * shares
        self._steps: list[list[dict[str, Arrays]]] = [[] for _ in range(envs.num_envs)]
        self._n_played = [0] * envs.num_envs
        self._kept: list[_RecordedEpisode] = []
        self._all_episodes: list[EpisodeRecord] = []

    @property
    def is_recording(self) -> bool:
        """Whether an environment has to go on: it lacks episodes, and has tries left."""
        return bool(((self._missing > 0) & (self._tries_left > 0)).any())

    def add(self, transition: Transition) -> None:
        """Take one step of all environments, and the episodes that it ended."""
        space = self.envs.action_space
        actions: Any = transition.columns["actions"]
        columns = {
            "observations": transition.observations,
            "actions": dict(leaves(space, actions)) if is_composite(space) else np.asarray(actions),
            "rewards": transition.rewards,
        }
        if "action_masks" in transition.columns:
            columns["action_masks"] = transition.columns["action_masks"]
        for index, steps in enumerate(self._steps):
            if self._is_active(index) and (transition.valid is None or transition.valid[index]):
                steps.append(transform(lambda array: np.array(array[index]), columns))  # noqa: B023
        for episode in transition.episodes:
            self._end(episode, bool(transition.terminated[episode.env_index]))

    def data(self, card: dict[str, Any]) -> ExpertData:
        """Return the episodes that were kept. Raises `ZooError` if there are none."""
        if not self._kept:
            played = np.array([each.episode_return for each in self._all_episodes])
            raise ZooError(nothing_left(played, self.min_return, self.successes_only))
        if len(self._kept) < self.n_episodes:
            message = too_few(len(self._all_episodes), len(self._kept), self.n_episodes)
            warnings.warn(message, ZooWarning, stacklevel=3)
        kept = sorted(self._kept, key=lambda each: (each.number, each.record.env_index))
        records = [each.record for each in kept]
        steps = [step for each in kept for step in each.steps]
        columns = {name: _stacked([step[name] for step in steps]) for name in steps[0]}
        return ExpertData(
            *self.envs.spaces,
            columns["observations"],
            columns["actions"],
            columns["rewards"],
            lengths=np.array([len(each.steps) for each in kept], np.int64),
            returns=np.array([record.episode_return for record in records], np.float64),
            terminated=np.array([each.terminated for each in kept]),
            successes=self._successes(records),
            action_masks=columns.get("action_masks"),
            card={
                **card,
                "n_played": len(self._all_episodes),
                "min_return": self.min_return,
                "successes_only": self.successes_only,
            },
        )

    def _is_active(self, index: int) -> bool:
        return bool(self._missing[index] > 0 and self._tries_left[index] > 0)

    def _end(self, episode: EpisodeRecord, terminated: bool) -> None:
        index = episode.env_index
        if not self._is_active(index):
            return
        rewards = np.array([step["rewards"] for step in self._steps[index]], np.float64)
        episode = replace(episode, episode_return=float(rewards.sum()))
        check_finite_return(episode)
        is_kept = self._passes(episode)
        self._all_episodes.append(episode)
        self._tries_left[index] -= 1
        if is_kept:
            self._missing[index] -= 1
            self._kept.append(
                _RecordedEpisode(self._n_played[index], episode, terminated, self._steps[index])
            )
        self._n_played[index] += 1
        self._steps[index] = []
        if self.on_episode is not None:
            self.on_episode(episode, is_kept)

    def _passes(self, episode: EpisodeRecord) -> bool:
        if self.successes_only:
            if "is_success" not in episode.info:
                raise ZooError(
                    "successes_only: the environment does not say whether an episode succeeded (`is_success`"
                    " or `success` in the info of its last step); min_return=… can tell the good ones"
                )
            if not episode.info["is_success"]:
                return False
        return self.min_return is None or episode.episode_return >= self.min_return

    def _successes(self, episodes: Sequence[EpisodeRecord]) -> np.ndarray | None:
        if not all("is_success" in episode.info for episode in episodes):
            return None
        return np.array([bool(episode.info["is_success"]) for episode in episodes])


def _stacked(steps: list[Arrays]) -> Arrays:
    if isinstance(steps[0], Mapping):
        return {key: np.stack([step[key] for step in steps]) for key in steps[0]}
    return np.stack(steps)
