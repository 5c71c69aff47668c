"""Adapters that step any vector environment, in any autoreset mode, for algorithms and evaluation."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from zoo.envs.masks import ActionMasks, Masks, vector_query
from zoo.envs.normalize import Normalizer, VecNormalize, refuse_hidden_normalizer
from zoo.envs.registry import close_reporting, in_env_folder
from zoo.envs.spaces import Info, Observations, check_supported, is_goal_space
from zoo.envs.transition import (
    EpisodeEnd,
    EpisodeRecord,
    Games,
    Transition,
    attached,
    check_observations,
    copied,
    final_observations,
    info_of,
    map_arrays,
    now,
    success_of,
)
from zoo.envs.vec_env import VecEnv, as_float32
from zoo.envs.wrappers import MASK_KEY, check_distinct, check_finite
from zoo.errors import ZooError, nearest

if TYPE_CHECKING:
    from zoo.envs.monitor import EpisodeMonitor


def make_adapter(env: VectorEnv[Any, Any, Any], monitor: EpisodeMonitor | None = None) -> VecEnvAdapter:
    """Make the adapter for one of Zoo's vector environments, or for any other."""
    if not isinstance(env, VectorEnv):
        raise ZooError(
            f"expected a gymnasium.vector.VectorEnv, got {type(env).__name__}; make_vec_env makes one"
        )
    inner = env.env if isinstance(env, VecNormalize) else env
    refuse_hidden_normalizer(inner)
    return (ReplayableAdapter if isinstance(inner, VecEnv) else ForeignAdapter)(env, monitor)


class VecEnvAdapter(ABC):
    """Steps a vector environment, returns each step as a `Transition` and records the episodes.

    Actions are values of the action space itself. A `VecNormalize` is unwrapped: ``env`` and all values are
    raw, and ``normalizer`` holds its statistics. ``observations`` are None before the first reset.
    """

    is_replayable: ClassVar[bool] = False
    """Whether its state can be saved and restored: see `ReplayableAdapter.state`."""
    next_step_autoreset = False
    """Whether the step after an episode's end only resets."""

    def __init__(self, env: VectorEnv[Any, Any, Any], monitor: EpisodeMonitor | None) -> None:
        self.given_env = env  # some releases of Gymnasium close an environment when its wrapper is freed
        self.monitor: EpisodeMonitor | None = monitor or attached(env, "monitor")
        self._info_keywords: tuple[str, ...] = tuple(attached(env, "info_keywords") or ())
        self.n_frames: int = attached(env, "frame_stack") or 1
        """Number of frames in an observation, the newest last."""
        self._nan_check: bool = attached(env, "nan_check") is True
        self._may_move = attached(env, "may_move") is not False
        self.normalizer: Normalizer | None = None
        if isinstance(env, VecNormalize):
            self.normalizer, env = env.normalizer, env.env
        self.env = env
        self.num_envs: int = env.num_envs
        self.observation_space: spaces.Space[Any] = env.single_observation_space
        self.action_space: spaces.Space[Any] = env.single_action_space
        self.spaces = self.observation_space, self.action_space
        check_supported(*self.spaces)
        inner: Any = env.unwrapped
        self._stepped: Any = inner.stepped if isinstance(inner, VecEnv) else inner
        self.observations: Observations = None
        self._action_masks: Masks | None = None
        self.start = self.monitor.start if self.monitor is not None else now()
        self._n_steps = 0
        self._start_episodes()
        self._token = object()

    @property
    @abstractmethod
    def mask_size(self) -> int | None:
        """Length of a mask of valid actions; None without masks, or before the first reset."""

    @abstractmethod
    def _reset(self, seeds: Sequence[int] | None) -> tuple[Observations, Masks | None]:
        """Reset all environments; return their observations and masks."""

    @abstractmethod
    def _step_envs(self, actions: Any) -> Transition:
        """Step all environments."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.given_env!r}>"

    @property
    def was_disturbed(self) -> bool:
        """Whether other code has stepped or reset the vector environment since this adapter did."""
        return getattr(self._stepped, "last_stepped_by", None) is not self._token

    def disturb(self) -> None:
        """Mark the environments as disturbed until they are reset."""
        self._stepped.last_stepped_by = None

    def disturb_if_shared(self) -> None:
        """Mark environments as disturbed if a user can step them unnoticed."""
        if not isinstance(self._stepped, VecEnv):
            self.disturb()

    def action_masks(self) -> Masks | None:
        """Return which actions are valid now, (num_envs, mask_size), or None without masks."""
        return self._action_masks

    def longest_unfinished_episode(self) -> int:
        """Return the length of the longest running episode, in steps."""
        return int(self._n_steps - self._first_steps.min())

    def close(self) -> None:
        """Close the environments and the monitor; an exception is printed as one line."""
        if self.monitor is not None:
            self.monitor.close()
        with in_env_folder(), close_reporting(type(self.env.unwrapped).__name__):
            self.env.close()

    @in_env_folder()
    def reset(self, seeds: Sequence[int] | None = None) -> Observations:
        """Reset all environments, each with its own seed; unfinished episodes are not recorded."""
        self._start_episodes()
        self.observations, self._action_masks = self._reset(seeds)
        if self._nan_check:
            check_finite("observation of the reset of", self.observations, 0, range(self.num_envs))
        self._stepped.last_stepped_by = self._token
        return self.observations

    def _start_episodes(self) -> None:
        self._returns = np.zeros(self.num_envs)
        self._first_steps = np.full(self.num_envs, self._n_steps, dtype=np.int64)
        self._to_reset = np.zeros(self.num_envs, dtype=np.bool_)

    def step(self, actions: Any) -> Transition:
        """Step all environments with values of the action space, (num_envs, …)."""
        with in_env_folder() if self._may_move else contextlib.nullcontext():
            self._stepped.last_stepped_by = None  # until the step is done, as it may be interrupted
            if self._nan_check:
                check_finite("action given to", actions, self._n_steps + 1, range(self.num_envs))
            transition = self._step_envs(actions)
            self._stepped.last_stepped_by = self._token
            self.observations, self._action_masks = transition.new_observations, transition.new_action_masks
            if self._nan_check:
                n, rows = self._n_steps, range(self.num_envs)
                check_finite("observation of", transition.new_observations, n, rows)
                check_finite("reward of", transition.rewards, n, rows)
                check_finite("final observation of", transition.final_observations, n, transition.finished)
            return transition

    # -- records of episodes ----------------------------------------------------------------------------

    def _records(self, ends: Sequence[EpisodeEnd]) -> list[EpisodeRecord]:
        """Return a record of each episode that ended; a lost life does not end one."""
        records = []
        for end in ends:
            i = end.env_index
            if end.is_life:
                continue
            self._returns[i], self._first_steps[i] = 0.0, self._n_steps
            seconds, info = now() - self.start, self._logged_info(end.info)
            records.append(EpisodeRecord(i, end.episode_return, end.length, seconds, info))
            if self.monitor is not None:
                self.monitor.write(records[-1])
        return records

    def _logged_info(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values to log from an episode's last info, by name."""
        logged: dict[str, Any] = {}
        if (is_success := success_of(info)) is not None:
            logged["is_success"] = is_success
        for key in self._info_keywords:
            if key not in info:
                keys = sorted(name for name in map(str, info) if not name.startswith("_"))
                raise ZooError(
                    f"env.info_keywords: no `{key}` in the info at an episode's end{nearest(key, keys)}; "
                    f"there: {', '.join(keys) or 'nothing'}"
                )
            value = info[key]
            if isinstance(value, np.generic | np.ndarray):
                value = value.item() if np.size(value) == 1 else value.tolist()
            logged[key] = value
        return logged


class ReplayableAdapter(VecEnvAdapter):
    """Steps Zoo's own vector environments, whose state can be saved and restored."""

    is_replayable = True
    env: VecEnv

    @property
    def mask_size(self) -> int | None:
        return self.env.mask_size

    def _reset(self, seeds: Sequence[int] | None) -> tuple[Observations, Masks | None]:
        return self.env.reset_all(seeds), self.env.action_masks()

    @in_env_folder()
    def begin(self, seeds: Mapping[int, int]) -> None:
        """Begin one episode in some environments, each from its own seed; they stand still after its end."""
        rows = sorted(seeds)
        self.env.reset_envs([seeds.get(i) for i in range(self.num_envs)], None, rows, once=True)
        self.observations, self._action_masks = self.env.observations(), self.env.action_masks()
        self._first_steps[rows] = self._n_steps
        self._stepped.last_stepped_by = self._token

    def _step_envs(self, actions: Any) -> Transition:
        transition = self.env.transition(actions)
        self._n_steps += 1
        if self.env.last_ends:
            transition.episodes = self._records(self.env.last_ends)
        return transition

    def state(self) -> dict[str, Any]:
        """Return the state tree from which `load_state` continues exactly."""
        seconds, was_disturbed = now() - self.start, self.was_disturbed
        return {"envs": self.env.state(), "seconds": seconds, "was_disturbed": was_disturbed}

    @in_env_folder()
    def load_state(self, tree: Mapping[str, Any]) -> list[int]:
        """Restore the environments from the ``tree`` that `state` returned: see `VecEnv.load_state`."""
        different = self.env.load_state(tree["envs"])
        self._stepped.last_stepped_by = None if tree.get("was_disturbed") else self._token
        self.observations, self._action_masks = self.env.observations(), self.env.action_masks()
        self._start_episodes()
        lengths = np.array(tree["envs"]["lengths"], dtype=np.int64)
        lengths[different] = 0
        self._first_steps = self._n_steps - lengths
        self.start = now() - float(tree["seconds"])
        return different


class ForeignAdapter(VecEnvAdapter):
    """Steps any other `gymnasium.vector.VectorEnv`.

    Same-step, next-step and disabled autoreset give equal transitions, except ``stepped``.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], monitor: EpisodeMonitor | None) -> None:
        super().__init__(env, monitor)
        uses_masks, space = attached(env, "mask_actions") is not False, self.observation_space
        if uses_masks and isinstance(space, spaces.Dict) and MASK_KEY in space.spaces:
            raise ZooError(
                f"a part `{MASK_KEY}` of a vector environment's observations is not taken as its mask; single"
                " environments may have one (make_vec_env), and env.mask_actions=false shows it to the policy"
            )
        try:
            self._autoreset = AutoresetMode(self.env.metadata.get("autoreset_mode"))
        except ValueError:
            raise ZooError(
                f"{type(self.env.unwrapped).__name__} does not say when it resets: set "
                'metadata["autoreset_mode"] to a gymnasium.vector.AutoresetMode'
            ) from None
        self.next_step_autoreset = self._autoreset is AutoresetMode.NEXT_STEP
        check_distinct(getattr(self.env.unwrapped, "envs", ()))
        query, has_goals = vector_query(self.env), is_goal_space(space)
        self._masks = ActionMasks(self.action_space, has_goals, query, self._name, uses_masks)

    @property
    def mask_size(self) -> int | None:
        return self._masks.size

    def _reset(self, seeds: Sequence[int] | None) -> tuple[Observations, Masks | None]:
        observations, infos = self._reset_with(seeds)
        self._masks.detect(self._mask_infos(infos))
        return self._checked(observations), self._masks_now(infos)

    def _mask_infos(self, infos: Mapping[str, Any]) -> list[Info]:
        """Return an info for each environment that has only its mask, if there is one."""
        masks = {key: infos[key] for key in ("action_mask", "_action_mask") if key in infos}
        return [info_of(masks, i) for i in range(self.num_envs)]

    def _masks_now(self, infos: Mapping[str, Any], over: Masks | None = None) -> Masks | None:
        """Return the masks for the current observations; see `ActionMasks.read`."""
        if self.mask_size is not None:
            return self._masks.read(range(self.num_envs), self._mask_infos(infos), over)
        if infos.get("action_mask") is not None:
            self._masks.refuse_late_mask(int(np.argmax(infos.get("_action_mask", [True]))))
        return None

    def _reset_with(self, seeds: Sequence[int] | None) -> tuple[Observations, Any]:
        """Reset with seeds in the first form that the vector environment accepts: list, array, one int."""
        if seeds is None:
            return self.env.reset()
        for form in (list(map(int, seeds)), np.array(seeds)):
            with contextlib.suppress(TypeError, ValueError, AssertionError, gym.error.Error):
                return self.env.reset(seed=form)  # type: ignore[arg-type]
        return self.env.reset(seed=int(seeds[0]))

    def _checked(self, observations: Observations) -> Observations:
        """Check that all environments' observations have the shape of the space; return a copy."""
        check_observations(observations, self.observation_space, self.num_envs)
        return copied(observations)

    def _step_envs(self, actions: Any) -> Transition:
        """Step a vector environment in its autoreset mode."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        observations = self._checked(observations)
        for name, values in {"rewards": rewards, "terminated": terminated, "truncated": truncated}.items():
            if (shape := np.shape(values)) != (self.num_envs,):
                raise ZooError(f"the vector environment gave {name} of shape {shape}, not ({self.num_envs},)")
        terminated = np.array(terminated, dtype=np.bool_)
        truncated = np.array(truncated, dtype=np.bool_) & ~terminated
        stepped: NDArray[np.int64] | None = None
        if self.next_step_autoreset:
            stepped = np.flatnonzero(~self._to_reset)
            terminated[self._to_reset] = truncated[self._to_reset] = False
            self._first_steps[self._to_reset] += 1
        self._returns += np.where(self._to_reset & self.next_step_autoreset, 0.0, rewards)
        self._n_steps += 1
        self._to_reset = terminated | truncated
        masks = self._masks_now(infos, None if self._autoreset is AutoresetMode.SAME_STEP else terminated)
        rewards = as_float32(np.asarray(rewards))
        transition = Transition(observations, rewards, terminated, truncated, stepped, masks, infos=infos)
        if self._to_reset.any():
            self._finish(transition, np.flatnonzero(self._to_reset))
        return transition

    def _finish(self, transition: Transition, finished: NDArray[np.int64]) -> None:
        """Add final observations, infos, masks and records where episodes ended."""
        infos, rows = transition.infos, finished.tolist()
        transition.finished = finished
        if self._autoreset is AutoresetMode.SAME_STEP:
            final = final_observations(infos, finished)
            check_observations(final, self.observation_space, len(finished))
            transition.final_observations = final
            final_infos = [info_of(infos.get("final_info", {}), i) for i in rows]
            transition.final_infos = final_infos
            if transition.new_action_masks is not None:  # all true if unknown
                transition.final_action_masks = np.ones((len(rows), self.mask_size or 0), np.bool_)
                for row, (i, info) in enumerate(zip(rows, final_infos, strict=True)):
                    if "action_mask" in info:
                        mask = self._masks.read([i], {i: info}, transition.terminated)
                        transition.final_action_masks[row] = mask
        else:
            transition.final_observations = map_arrays(itemgetter(finished), transition.new_observations)
            transition.final_infos = [info_of(infos, i) for i in rows]
            if transition.new_action_masks is not None:
                transition.final_action_masks = transition.new_action_masks[finished]
        inner = self.env.unwrapped  # one of Zoo's, below wrappers, knows the raw episodes
        if isinstance(inner, VecEnv):
            transition.episodes = self._records(inner.last_ends)
        else:
            transition.episodes = self._records(list(map(self._end, rows, transition.final_infos)))
        if self._autoreset is AutoresetMode.DISABLED:
            observations, reset_infos = self.env.reset(options={"reset_mask": self._to_reset.copy()})
            transition.new_observations = self._checked(observations)
            if transition.new_action_masks is not None:
                transition.new_action_masks[rows] = self._masks.read(rows, self._mask_infos(reset_infos))

    def _end(self, i: int, info: Mapping[str, Any]) -> EpisodeEnd:
        """Return an episode's end, with the sum of its raw rewards."""
        games: Games | None = attached(self.env, "games")
        total, length, is_life = self._returns[i], self._n_steps - self._first_steps[i], False
        if isinstance(games, Games):
            total, length, is_life = games.returns[i], games.lengths[i], bool(games.is_life[i])
        return EpisodeEnd(i, None, dict(info), None, float(total), int(length), is_life)

    def _name(self, i: int) -> str:
        return f"env {i} (step {int(self._n_steps - self._first_steps[i])} of its episode)"
