"""Recording expert data: the episodes of an agent, or of a function from an observation to an action."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from zoo.buffers.arrays import Arrays, join, transform
from zoo.envs.config import EnvConfig
from zoo.envs.replay import random_seed
from zoo.envs.spaces import Space, describe, is_composite, leaf_spaces, leaves, nested, row
from zoo.envs.transition import EpisodeRecord, Transition
from zoo.errors import ZooError, ZooWarning
from zoo.experiment.evaluation import Env, Predictor, check_finite_return, eval_loop
from zoo.imitation.expert_data import ExpertData, nothing_left, too_few, values_of
from zoo.version import __version__

MAX_TRIES = 10  # episodes that are played for each that is wanted


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

    ``expert`` is an agent, another object with its ``predict``, or a function from one raw observation to one
    action. ``env`` and ``n_envs`` are as for `zoo.evaluate_policy`: each environment plays a fixed share of
    the episodes; first come the first of all environments, then the second. ``on_episode`` is called with
    each, and whether it is kept. Rewards are raw, as wrappers leave them; a return is their sum.

    At most ten times as many episodes are played as are wanted. Raises `ZooError` if none was good enough;
    `ZooWarning` warns of fewer than are wanted. A ``seed`` of None is drawn, and stands in the card.
    """
    name = env.id if isinstance(env, EnvConfig) else env if isinstance(env, str) else None
    seed = random_seed(seed)
    model: Any = expert if hasattr(expert, "predict") else _FunctionPolicy(expert)
    loop = eval_loop(model, env, n_episodes, n_envs=n_envs, deterministic=deterministic, seed=seed)
    with loop as (envs, step):
        n = envs.num_envs
        if isinstance(model, _FunctionPolicy):
            model.space = envs.action_space
        missing = [(n_episodes + i) // n for i in range(n)]
        n_most, n_played = [MAX_TRIES * n_missing for n_missing in missing], [0] * n
        steps: list[list[dict[str, Arrays]]] = [[] for _ in range(n)]
        kept: list[_KeptEpisode] = []
        played: list[EpisodeRecord] = []
        while recording := {i for i in range(n) if missing[i] and n_played[i] < n_most[i]}:
            transition = step()
            columns = _columns(transition, envs.action_space)
            for i in recording.intersection(transition.envs.tolist()):
                steps[i].append(transform(lambda array: np.array(array[i : i + 1]), columns))  # noqa: B023
            for episode in transition.episodes:
                i = episode.env_index
                if i not in recording:
                    continue
                rewards = np.array([step["rewards"] for step in steps[i]], np.float64)
                episode = replace(episode, episode_return=float(rewards.sum()))
                check_finite_return(episode)
                if is_kept := _is_good(episode, min_return, successes_only):
                    missing[i] -= 1
                    kept.append(_KeptEpisode(n_played[i], i, episode, transition.terminated[i], steps[i]))
                n_played[i], steps[i] = n_played[i] + 1, []
                played.append(episode)
                if on_episode is not None:
                    on_episode(episode, is_kept)
    kept.sort(key=lambda episode: episode[:2])
    if not kept:
        returns = np.array([episode.episode_return for episode in played])
        raise ZooError(nothing_left(returns, min_return, successes_only))
    if len(kept) < n_episodes:
        warnings.warn(too_few(len(played), len(kept), n_episodes), ZooWarning, stacklevel=2)
    called = getattr(expert, "name", None) or getattr(expert, "__name__", type(expert).__name__)
    rows = [step for episode in kept for step in episode.steps]
    arrays = {key: join([row[key] for row in rows]) for key in rows[0]}
    successes = [episode.record.info.get("is_success") for episode in kept]
    return ExpertData(
        *envs.spaces,
        **arrays,
        lengths=np.array([len(episode.steps) for episode in kept], np.int64),
        returns=np.array([episode.record.episode_return for episode in kept], np.float64),
        terminated=np.array([episode.terminated for episode in kept]),
        successes=None if None in successes else np.array(successes, bool),
        card={
            "env": name,
            "source": dict(source or {"expert": called}),
            "zoo": __version__,
            "deterministic": deterministic,
            "seed": seed,
            "n_played": len(played),
            "min_return": min_return,
            "successes_only": successes_only,
        },
    )


class _FunctionPolicy:
    """A policy that calls a function from one observation to one action."""

    space: Space

    def __init__(self, function: Any) -> None:
        self.function = function

    def predict(self, observations: Any, state: Any = None, **others: Any) -> tuple[Any, None]:
        """Return actions for a batch of observations; numbers (Box) within their bounds."""
        n = len(next(iter(observations.values())) if isinstance(observations, Mapping) else observations)
        returned = [self.function(row(observations, i)) for i in range(n)]
        if any(action is None for action in returned):
            raise ZooError(f"the expert returned None, no action of {describe(self.space)}")
        actions = [dict(leaves(self.space, action)) for action in returned]
        stacked = {path: self._stacked(path, part, actions) for path, part in leaf_spaces(self.space)}
        return nested(self.space, stacked), None

    def _stacked(self, path: str, space: Space, actions: list[dict[str, Any]]) -> np.ndarray:
        """Return the actions in one array. Raises `ZooError` for one outside the space."""
        stacked = np.stack([np.asarray(action[path]) for action in actions])
        if isinstance(space, spaces.Box) and stacked.dtype.kind in "biuf":
            stacked = stacked.reshape(len(stacked), *space.shape).clip(space.low, space.high)
        return values_of(space, stacked, "the expert's actions")


class _KeptEpisode(NamedTuple):
    number: int  # among those of its environment
    env_index: int
    record: EpisodeRecord
    terminated: bool
    steps: list[dict[str, Arrays]]


def _columns(transition: Transition, action_space: Space) -> dict[str, Any]:
    """Return the recorded columns of one step of all environments."""
    actions: Any = transition.columns["actions"]
    columns = {
        "observations": transition.observations,
        "actions": dict(leaves(action_space, actions)) if is_composite(action_space) else np.asarray(actions),
        "rewards": transition.rewards,
    }
    return columns | {key: transition.columns[key] for key in ("action_masks",) if key in transition.columns}


def _is_good(episode: EpisodeRecord, min_return: float | None, successes_only: bool) -> bool:
    if successes_only and "is_success" not in episode.info:
        where = "(`is_success` or `success` in its last step's info); min_return=… can tell the good ones"
        raise ZooError(f"successes_only: the environment does not say whether an episode succeeded {where}")
    is_enough = min_return is None or episode.episode_return >= min_return
    return is_enough and bool(not successes_only or episode.info["is_success"])
