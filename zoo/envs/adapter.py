"""The one way in which algorithms and evaluation touch a vector environment, whatever its autoreset mode."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from zoo.envs.env_group import EpisodeEnd
from zoo.envs.masks import VectorMasks
from zoo.envs.monitor import EpisodeMonitor, EpisodeRecord
from zoo.envs.normalize import Normalizer, VecNormalize, is_training
from zoo.envs.registry import closing_told
from zoo.envs.spaces import Info, Observations
from zoo.envs.sync_vec_env import VecEnv
from zoo.envs.vector_infos import (
    Games,
    attached,
    autoreset_mode,
    final_observations,
    info_of,
    refuse_other_shapes,
    rows,
    stacked,
    success_of,
)
from zoo.envs.wrappers import NanCheck, flat_vector_env, refuse_one_for_several
from zoo.errors import ZooError, nearest

NOTHING_FINISHED: NDArray[np.int64] = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class Step:
    """What one step of all environments gave; raw values.

    They are valid until the next step, and for ever where a `VecEnv` gave them.

    ``final_observations`` are the rows for ``finished``, in that order: what the episodes ended with, which
    ``observations`` shows no more where the environment was reset within the step. ``valid`` is None if all
    rows are real transitions; a row that merely reset its environment, or stood idle, is False there and
    belongs in no memory and no count.

    ``action_masks`` says which actions are valid for ``observations``, (num_envs, mask_size), and
    ``final_action_masks`` which were for ``final_observations``; both are None without masks.
    """

    observations: Observations
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    valid: NDArray[np.bool_] | None
    action_masks: NDArray[np.bool_] | None
    _infos: Any = field(repr=False)
    _env: VectorEnv[Any, Any, Any] = field(repr=False)
    _ends: Sequence[EpisodeEnd] = field(default=(), repr=False)
    finished: NDArray[np.int64] = field(default_factory=lambda: NOTHING_FINISHED)
    final_observations: Observations | None = None
    final_action_masks: NDArray[np.bool_] | None = None
    episodes: list[EpisodeRecord] = field(default_factory=list)

    def own_infos(self) -> list[Info]:
        """Return the info of each environment's own step: where an episode ended, that of its end."""
        n_envs = len(self.rewards)
        if isinstance(self._env, VecEnv):
            infos = [dict(info or {}) for info in self._infos]
            for end in self._ends:
                infos[end.env_index] = dict(end.info)
            return infos
        infos = [info_of(self._infos, i) for i in range(n_envs)]
        if "final_info" in self._infos:
            for i in self.finished.tolist():
                infos[i] = info_of(self._infos["final_info"], i)
        return infos

    @property
    def infos(self) -> Info:
        """The infos in Gymnasium's vector form, merged when they are read."""
        if isinstance(self._env, VecEnv):
            return self._env.merged_infos(self._infos, self._ends)
        infos: Info = self._infos
        return infos


class VecEnvAdapter:
    """Steps any `gymnasium.vector.VectorEnv` and says of each step what learning from it needs.

    Same-step, next-step and disabled autoreset come out alike, but for ``valid`` (see `Step`). Actions are
    values of the action space itself: those of ``Discrete(3, start=1)`` are 1, 2 and 3. A `VecNormalize`
    is unwrapped: ``env`` and all values are raw, ``normalizer`` is its statistics. ``monitor`` defaults to
    the one that `make_vec_env` attached. What environments do that are ``idle`` counts for nothing.

    ``observations`` is what the environments show now, None before the first reset; ``mask_size`` the length
    of a mask of valid actions, None without masks (known after the first reset at the latest).
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], monitor: EpisodeMonitor | None = None) -> None:
        if not isinstance(env, VectorEnv):
            raise ZooError(
                f"expected a gymnasium.vector.VectorEnv, got {type(env).__name__}; make_vec_env makes one"
            )
        self.normalizer: Normalizer | None = None
        self.given_env = env  # some releases of Gymnasium close an environment whose wrapper is forgotten
        if isinstance(env, VecNormalize):
            self.normalizer, env = env.normalizer, env.env
        if not isinstance(env.unwrapped, VecEnv):
            env = flat_vector_env(env, masked=attached(env, "mask_actions") is not False)
        self.env = env
        self.num_envs: int = env.num_envs
        self.observation_space: spaces.Space[Any] = env.single_observation_space
        self.action_space: spaces.Space[Any] = env.single_action_space
        self.monitor: EpisodeMonitor | None = monitor or attached(env, "monitor")
        self._info_keywords: tuple[str, ...] = tuple(attached(env, "info_keywords") or ())
        self._autoreset = autoreset_mode(env)
        self._same_step = env if isinstance(env, VecEnv) else None
        self._own = env.unwrapped if isinstance(env.unwrapped, VecEnv) else None
        self._stepped: Any = env.unwrapped
        self.observations: Observations = None
        self._foreign_masks: VectorMasks | None = None
        if self._own is None:
            refuse_one_for_several(getattr(self._stepped, "envs", ()))
            used = attached(env, "mask_actions") is not False
            self._foreign_masks = VectorMasks(env, self.action_space, self._name, used=used)
        self._action_masks: NDArray[np.bool_] | None = None
        self.mask_size: int | None = None if self._own is None else self._own.mask_size
        self.start = self.monitor.start if self.monitor is not None else time.time()
        self._n_steps = 0
        self.idle: NDArray[np.bool_] = np.zeros(self.num_envs, dtype=np.bool_)
        self._begin_episodes()
        self._seed_form = 0
        self._token = object()

    @property
    def was_disturbed(self) -> bool:
        """Whether anybody else has stepped or reset the vector environment since."""
        return getattr(self._stepped, "last_stepped_by", None) is not self._token

    def disturb(self) -> None:
        """Forget where the environments are: they count as disturbed until they are reset."""
        self._stepped.last_stepped_by = None

    @property
    def spaces(self) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        """The spaces of observations and of actions of one environment."""
        return self.observation_space, self.action_space

    @property
    def next_step_autoreset(self) -> bool:
        """Whether the step after an episode's end merely resets."""
        return self._autoreset is AutoresetMode.NEXT_STEP

    def reset(self, seeds: Sequence[int] | None = None) -> Observations:
        """Reset all environments, each with its own seed; what was unfinished is in no record."""
        self._begin_episodes()
        if self.normalizer is not None and is_training(self.given_env):
            self.normalizer.reset_returns()
        if seeds is None:
            observations, infos = self.env.reset()
        else:
            observations, infos = self._reset_with([int(seed) for seed in seeds])
        refuse_other_shapes(observations, self.observation_space, self.num_envs)
        self.observations = observations
        if self._foreign_masks is not None:
            self._foreign_masks.look_for_them(infos)
        self._take_masks(infos)
        self._stepped.last_stepped_by = self._token
        return observations

    def begin(self, seeds: Mapping[int, int]) -> Observations:
        """Begin an episode in some environments, if these are replayable: see `VecEnv.begin`."""
        own, rows = self._replayable(), list(seeds)
        self.observations = own.begin(seeds)
        self._returns[rows], self._first_steps[rows] = 0.0, self._n_steps
        self._action_masks, self.mask_size = own.action_masks(), own.mask_size
        self._stepped.last_stepped_by = self._token
        return self.observations

    def _begin_episodes(self) -> None:
        self._returns = np.zeros(self.num_envs)
        self._first_steps = np.full(self.num_envs, self._n_steps, dtype=np.int64)
        self._to_reset = np.zeros(self.num_envs, dtype=np.bool_)

    def step(self, actions: Any) -> Step:
        """Step all environments with values of the action space, (num_envs, …)."""
        if self._same_step is None:
            return self._step_any(actions)
        self._same_step.last_stepped_by = None  # until the step is done: it may be interrupted
        observations, rewards, terminated, truncated, masks, ends, infos = self._same_step.raw_step(actions)
        self._same_step.last_stepped_by = self._token
        self._n_steps += 1
        self.observations = observations
        self._action_masks = masks
        valid, env = self._counted(None), self._same_step
        step = Step(observations, _single(rewards), terminated, truncated, valid, masks, infos, env, ends)
        if ends:
            step.truncated = truncated & ~terminated
            step.finished = np.array([end.env_index for end in ends], dtype=np.int64)
            step.final_observations = stacked([end.observation for end in ends])
            step.final_action_masks = _final_masks(ends)
            step.episodes = self._records(ends)
        return step

    def action_masks(self) -> NDArray[np.bool_] | None:
        """Return which actions are valid now, (num_envs, mask_size), or None without masks."""
        return self._action_masks

    @property
    def is_replayable(self) -> bool:
        """Whether `state` can be taken: not where a vector environment resets its own out of reach."""
        return self._own is not None and _keeps_nothing(self.env)

    def state(self) -> dict[str, Any]:
        """Return all that `load_state` needs to go on as if nothing had happened: a state tree."""
        return {
            "envs": self._replayable().state(),
            "seconds": time.time() - self.start,
            "was_disturbed": self.was_disturbed,
        }

    def load_state(self, tree: Mapping[str, Any]) -> list[int]:
        """Bring the environments where they were when `state` returned ``tree``, by replaying their actions.

        Returns those that came out different: they are named in a warning, and their episodes are cut, that
        is, they are reset with their next seed, and the running return of the normaliser starts anew. No
        episode is recorded twice. Raises `ZooError` for a state of other environments.
        """
        env = self._replayable()
        different = env.load_state(tree["envs"])
        self._stepped.last_stepped_by = None if tree.get("was_disturbed") else self._token
        self.observations, self._action_masks = env.shown()
        self.mask_size = env.mask_size
        self._begin_episodes()
        self._returns = np.array(tree["envs"]["returns"], dtype=np.float64)
        lengths = np.array(tree["envs"]["lengths"], dtype=np.int64)
        lengths[different] = 0
        self._returns[different] = 0.0
        self._first_steps = self._n_steps - lengths
        self.start = time.time() - float(tree["seconds"])
        if self.normalizer is not None and len(self.normalizer.returns) == self.num_envs:
            self.normalizer.returns[different] = 0.0
        return different

    def longest_unfinished_episode(self) -> int:
        """Return the steps of the longest episode that is still going on."""
        return int(self._n_steps - self._first_steps.min())

    def render(self) -> Any:
        """Return one frame an environment, or what the vector environment renders."""
        try:
            return self.env.render()
        except gym.error.DependencyNotInstalled as error:
            raise ZooError(f"rendering needs a package: {error}") from error

    def close(self) -> None:
        """Close the environments and the monitor; what an environment raises then is told in a line."""
        if self.monitor is not None:
            self.monitor.close()
        with closing_told(type(self.env.unwrapped).__name__):
            self.env.close()

    def _step_any(self, actions: Any) -> Step:
        """Step a vector environment that is not our own, in whichever autoreset mode."""
        self._stepped.last_stepped_by = None
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._stepped.last_stepped_by = self._token
        refuse_other_shapes(observations, self.observation_space, self.num_envs)
        terminated = np.array(terminated, dtype=np.bool_)
        truncated = np.array(truncated, dtype=np.bool_) & ~terminated
        valid: NDArray[np.bool_] | None = None
        if self.next_step_autoreset and self._to_reset.any():
            valid = ~self._to_reset
            terminated &= valid
            truncated &= valid
            self._first_steps[~valid] += 1
        self._returns += rewards if valid is None else np.where(valid, rewards, 0.0)
        self._n_steps += 1
        done = terminated | truncated
        self._to_reset = done
        self.observations = observations
        self._take_masks(infos, None if self._autoreset is AutoresetMode.SAME_STEP else terminated)
        rewards, valid, masks = _single(np.asarray(rewards)), self._counted(valid), self._action_masks
        step = Step(observations, rewards, terminated, truncated, valid, masks, infos, self.env)
        if done.any():
            self._finish(step, np.flatnonzero(done))
        return step

    def _counted(self, valid: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        if not np.count_nonzero(self.idle):  # quicker than any()
            return valid
        return ~self.idle if valid is None else valid & ~self.idle

    def _finish(self, step: Step, finished: NDArray[np.int64]) -> None:
        """Fill in what the ends of episodes add to a step of a vector environment that is not our own."""
        infos = step._infos
        step.finished = finished
        if self._autoreset is AutoresetMode.SAME_STEP:
            step.final_observations = final_observations(infos, finished)
            refuse_other_shapes(step.final_observations, self.observation_space, len(finished))
            last_infos = [info_of(infos.get("final_info", {}), i) for i in finished.tolist()]
            step.final_action_masks = self._final_masks(last_infos, finished, step.terminated)
        else:
            step.final_observations = rows(step.observations, finished)
            step.final_action_masks = None if step.action_masks is None else step.action_masks[finished]
            last_infos = [info_of(infos, i) for i in finished.tolist()]
        step.episodes = self._records(map(self._end, finished.tolist(), last_infos))
        if self._autoreset is AutoresetMode.DISABLED:
            options = {"reset_mask": self._to_reset.copy()}
            step.observations, reset_infos = self.env.reset(options=options)
            refuse_other_shapes(step.observations, self.observation_space, self.num_envs)
            self.observations = step.observations
            self._take_masks(reset_infos, reset=self._to_reset)
            step.action_masks = self._action_masks

    def _take_masks(
        self,
        infos: Mapping[str, Any],
        over: NDArray[np.bool_] | None = None,
        reset: NDArray[np.bool_] | None = None,
    ) -> None:
        """Find the masks of what is shown now; ``over`` and ``reset`` are as in `VectorMasks.read`."""
        if self._own is not None:
            self._action_masks, self.mask_size = self._own.action_masks(), self._own.mask_size
            return
        assert self._foreign_masks is not None
        self._action_masks = self._foreign_masks.read(infos, over, reset)
        self.mask_size = self._foreign_masks.size

    def _final_masks(
        self, last_infos: Sequence[Info], finished: NDArray[np.int64], terminated: NDArray[np.bool_]
    ) -> NDArray[np.bool_] | None:
        """Return the masks at the ends of episodes."""
        if self._own is not None:
            return _final_masks(self._own.last_ends)
        assert self._foreign_masks is not None
        return self._foreign_masks.final(last_infos, finished.tolist(), terminated)

    def _name(self, i: int) -> str:
        """Return which environment it is, and how far its episode is, for a message."""
        return f"env {i} (step {int(self._n_steps - self._first_steps[i])} of its episode)"

    def _end(self, i: int, info: Info) -> EpisodeEnd:
        """Return how an episode ended, by our own sums, never by what its last ``info`` says."""
        games: Games | None = attached(self.env, "games")
        if self._own is not None:
            own = next(end for end in self._own.last_ends if end.env_index == i)
            return own._replace(info=info)
        if isinstance(games, Games):
            total, length, is_life = games.returns[i], games.lengths[i], bool(games.is_life[i])
        else:
            total, length, is_life = self._returns[i], self._n_steps - self._first_steps[i], False
        return EpisodeEnd(i, None, info, None, float(total), int(length), is_life)

    def _records(self, ends: Iterable[EpisodeEnd]) -> list[EpisodeRecord]:
        """Return one record for each whole episode that ended; a life lost ends none."""
        records = []
        for end in ends:
            if end.is_life:
                continue
            index = end.env_index
            self._returns[index] = 0.0
            self._first_steps[index] = self._n_steps
            if self.idle[index]:
                continue
            record = EpisodeRecord(
                index, end.episode_return, end.length, time.time() - self.start, self._logged(end.info)
            )
            if self.monitor is not None:
                self.monitor.write(record)
            records.append(record)
        return records

    def _logged(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of an episode's last info that are logged by name."""
        logged: dict[str, Any] = {}
        if (is_success := success_of(info)) is not None:
            logged["is_success"] = is_success
        for key in self._info_keywords:
            if key not in info:
                given = sorted(name for name in map(str, info) if not name.startswith("_"))
                raise ZooError(
                    f"env.info_keywords: no `{key}` in the info at an episode's end{nearest(key, given)}; "
                    f"there: {', '.join(given) or 'nothing'}"
                )
            logged[key] = _plain(info[key])
        return logged

    def _replayable(self) -> VecEnv:
        if self._own is None or not self.is_replayable:
            raise ZooError(
                f"{type(self.env).__name__} resets its environments out of reach, so what became of them "
                "can't be replayed; with env.vectorization=sync or workers it can"
            )
        return self._own

    def _reset_with(self, seeds: list[int]) -> tuple[Observations, Any]:
        """Reset with seeds in the first form that the vector environment takes: list, array, one int."""
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        forms: list[Any] = [seeds, np.array(seeds), seeds[0]]
        while True:
            try:
                return self.env.reset(seed=forms[self._seed_form])
            except (TypeError, ValueError, AssertionError, gym.error.Error):
                if self._seed_form == len(forms) - 1:
                    raise
                self._seed_form += 1


def _keeps_nothing(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether nothing with a state of its own is around our own vector environment."""
    while isinstance(env, NanCheck):
        env = env.env
    return isinstance(env, VecEnv)


def _final_masks(ends: Sequence[EpisodeEnd]) -> NDArray[np.bool_] | None:
    masks = [end.action_masks for end in ends if end.action_masks is not None]
    return np.stack(masks) if masks else None


@np.errstate(over="ignore")
def _single(rewards: NDArray[Any]) -> NDArray[np.float32]:
    return rewards.astype(np.float32)


def _plain(value: Any) -> Any:
    """Return NumPy's numbers and arrays as plain ones; an array of one entry as that entry."""
    if not isinstance(value, np.generic | np.ndarray):
        return value
    return value.item() if np.size(value) == 1 else value.tolist()
