"""Zoo's vector environments, with same-step autoreset and exact replay, and the one in this process."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from zoo.config.aliases import AnswersNames
from zoo.envs.config import DEFAULT_RESEED_EVERY
from zoo.envs.masks import masks_of
from zoo.envs.registry import close_reporting, env_error
from zoo.envs.replay import EnvState, derived_seeds, from_tree, random_seed, seed_spaces, to_tree
from zoo.envs.spaces import (
    Env,
    Info,
    Observations,
    Space,
    action_array,
    check_supported,
    choice_limits,
    describe,
    is_composite,
    leaves,
    mask_size,
    misfit,
    nested,
    spaces_differ,
)
from zoo.envs.transition import EpisodeEnd, Transition, copied, map_arrays, stacked
from zoo.envs.wrappers import LifeLoss, check_distinct, find_wrapper, statistics_of
from zoo.errors import ZooError

NO_ENV = -1


class StepArrays:
    """What one step of all environments takes and gives, (num_envs, …) each: views of one array of records.

    ``actions`` are records where they are tuples or dictionaries: `action_array`. ``action_masks`` are None
    where actions can have none. ``progress`` is that of `StepProgress`.
    """

    def __init__(self, records: NDArray[Any]) -> None:
        self.records = records
        rows, names = records["observations"], records.dtype.names or ()
        self.observations: Observations = rows
        if rows.dtype.names is not None:
            self.observations = {key: rows[key] for key in rows.dtype.names}
        self.actions: NDArray[Any] = records["actions"]
        self.rewards: NDArray[np.float64] = records["rewards"]
        self.terminated: NDArray[np.bool_] = records["terminated"]
        self.truncated: NDArray[np.bool_] = records["truncated"]
        self.action_masks: NDArray[np.bool_] | None = records["masks"] if "masks" in names else None
        self.progress: NDArray[np.int64] = records["progress"]

    @classmethod
    def allocate(cls, num_envs: int, observation_space: Space, action_space: Space) -> StepArrays:
        """Return zeroed arrays."""
        observations: Any = (observation_space.dtype, observation_space.shape)
        if isinstance(observation_space, spaces.Dict):
            parts: Any = [(key, part.dtype, part.shape) for key, part in observation_space.items()]
            observations = (np.dtype(parts, align=True),)
        actions, n_masks = action_array(action_space, 1), mask_size(action_space)
        fields: Any = [
            ("observations", *observations),
            ("actions", actions.dtype, actions.shape[1:]),
            ("rewards", np.float64),
            ("progress", np.int64, 4),
            ("terminated", np.bool_),
            ("truncated", np.bool_),
        ]
        if n_masks is not None:
            fields.append(("masks", np.bool_, (n_masks,)))
        return cls(np.zeros(num_envs, np.dtype(fields, align=True)))


class StepProgress:
    """How far environments are, in rows of an array (num_envs, 4) that other processes can read.

    Each row holds an environment's last seed, or −1, and the step at which it got it. ``now``, in the first
    row, holds the environment at work, or `NO_ENV`, and the number of steps that all have begun.
    """

    def __init__(self, rows: NDArray[np.int64], first_index: int) -> None:
        self.seeds, self.seeded_at, self.now = rows[:, 0], rows[:, 1], rows[0, 2:]
        self._first_index = first_index

    def name(self, row: int) -> str:
        """Return a name such as ``env 3 (step 17 after seed 40)``, without unknown parts."""
        seed, steps = int(self.seeds[row]), int(self.now[1] - self.seeded_at[row])
        place = [f"step {steps}"] * (steps > 0) + [f"seed {seed}"] * (seed >= 0)
        return f"env {self._first_index + row}" + (f" ({' after '.join(place)})" if place else "")

    def at_work(self) -> str | None:
        """Return the name of the environment that is being stepped or reset, or None."""
        row = int(self.now[0])
        return None if row == NO_ENV else self.name(row)


class VecEnv(AnswersNames, VectorEnv[Any, Any, Any]):
    """A vector environment that resets a finished environment within the step that finished it.

    `step` is Gymnasium's; `transition` is the same step as a `Transition`, without the costly merging of
    infos. ``seed`` is what the first `reset` without a seed uses: environment i gets ``seed + i``.

    Each environment has a sequence of seeds, which a seed given to `reset` begins: at the first end of an
    episode after ``reseed_every`` steps it is reset with the next one. `state` is those seeds and the actions
    since; `load_state` replays them.
    """

    last_stepped_by: object = None
    """Who stepped it last (`VecEnvAdapter.was_disturbed`); None for a user who did it by hand."""

    users_env: Any = None
    """The single environment that a user made and can step too, if this is around such a one."""

    mask_size: int | None = None
    """Values in an environment's mask of valid actions; None if there are no masks."""

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        metadata: Mapping[str, Any],
        render_mode: str | None,
        num_envs: int,
        seed: int | None,
    ) -> None:
        check_supported(observation_space, action_space)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.action_space.seed(None if seed is None else derived_seeds(seed, 1)[0])
        self.metadata = {**metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = render_mode
        self._acts_in_parts = is_composite(action_space)
        self._first_seed = seed
        self.arrays = StepArrays.allocate(num_envs, observation_space, action_space)
        self._infos: list[Info] = [{} for _ in range(num_envs)]
        self.last_ends: list[EpisodeEnd] = []

    # -- what a subclass does ---------------------------------------------------------------------------

    @abstractmethod
    def step_envs(self, actions: NDArray[Any]) -> list[EpisodeEnd]:
        """Step every environment, reset the finished ones, and return how those ended.

        Arrays and infos are those after the step. The environments may keep ``actions``, or write into them.
        """

    @abstractmethod
    def reset_envs(
        self, seeds: Sequence[int | None], options: Info | None, rows: Sequence[int], once: bool = False
    ) -> list[Info]:
        """Reset the environments ``rows`` and return their infos, empty ones for others.

        A seed begins a new sequence; without one, the environment is reset with the next of its own. One
        that is to be played ``once`` stands still after the episode, without reward or end, until it is
        reset; unless it masks actions.
        """

    @abstractmethod
    def env_states(self) -> list[EnvState]:
        """Return, for each environment, what `load_env_states` brings it back with."""

    @abstractmethod
    def load_env_states(self, states: Sequence[EnvState]) -> list[int]:
        """Replay each environment from its seed; return those that differ, reset with their next seed."""

    # -- stepping ---------------------------------------------------------------------------------------

    @property
    def stepped(self) -> Any:
        """Object that records who stepped last: the user's environment if there is one, else this."""
        return self if self.users_env is None else self.users_env

    def transition(self, actions: Any) -> Transition:
        """Step every environment with its row of ``actions``; fill in all but the records of episodes."""
        arrays = self.arrays
        self.last_ends = ends = self.step_envs(self._checked_actions(actions))
        transition = Transition(
            copied(arrays.observations),
            as_float32(arrays.rewards),
            arrays.terminated.copy(),
            arrays.truncated.copy(),
            new_action_masks=self.action_masks(),
            infos=self._infos,
        )
        if ends:
            transition.truncated &= ~transition.terminated
            transition.finished = np.array([end.env_index for end in ends], dtype=np.int64)
            transition.final_observations = stacked([end.observation for end in ends])
            masks = [end.action_masks for end in ends if end.action_masks is not None]
            transition.final_action_masks = np.stack(masks) if masks else None
            transition.final_infos = [end.info for end in ends]
        return transition

    def step(
        self, actions: Any
    ) -> tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Step all environments; ``final_obs`` and ``final_info`` hold the end of those that finished."""
        transition = self.transition(actions)
        self.stepped.last_stepped_by = None
        ends = [
            (end.env_index, {"final_obs": end.observation, "final_info": end.info}) for end in self.last_ends
        ]
        infos = self._merged([*ends, *enumerate(self._infos)])
        rewards, truncated = self.arrays.rewards.copy(), self.arrays.truncated.copy()
        return transition.new_observations, rewards, transition.terminated, truncated, infos

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Info | None = None
    ) -> tuple[Observations, Info]:
        """Reset all environments; an int gives environment i ``seed + i``."""
        if options and "reset_mask" in options:
            raise ZooError("reset_mask: these environments reset themselves in a step; reset() is for all")
        infos = self.reset_envs(self._seed_each(seed), options, range(self.num_envs))
        self.stepped.last_stepped_by = None
        return self.observations(), self._merged(enumerate(infos))

    def reset_all(self, seeds: Sequence[int] | None) -> Observations:
        """Reset all environments as `reset` does, without merging their infos."""
        self.reset_envs(self._seed_each(seeds), None, range(self.num_envs))
        return self.observations()

    def observations(self) -> Observations:
        """Return a copy of the observations that the environments show now."""
        return copied(self.arrays.observations)

    def action_masks(self) -> NDArray[np.bool_] | None:
        """Return which actions are valid now, (num_envs, mask_size), or None without masks."""
        if self.mask_size is None:
            return None
        assert self.arrays.action_masks is not None
        return self.arrays.action_masks.copy()

    def _seed_each(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        """Return the seed of each environment, None for one that goes on with its own sequence."""
        if seed is None:
            seed, self._first_seed = self._first_seed, None
        if seed is None or isinstance(seed, int | np.integer):
            return [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"{len(seed)} seeds for {self.num_envs} environments")
        return [None if single is None else int(single) for single in seed]

    def _merged(self, infos: Iterable[tuple[int, Info]]) -> Info:
        """Return infos by environment in Gymnasium's vector form: one array and one mask a key."""
        merged: Info = {}
        for i, info in infos:
            merged = self._add_info(merged, info, i)
        return merged

    def _checked_actions(self, actions: Any) -> NDArray[Any]:
        """Return a copy of ``actions`` in the space's dtype, of nested ones as records."""
        if not self._acts_in_parts:
            array = np.array(actions, dtype=self.arrays.actions.dtype)
            if array.shape != self.arrays.actions.shape:
                raise ValueError(f"actions of shape {array.shape}; expected {self.arrays.actions.shape}")
            return array
        records = np.zeros_like(self.arrays.actions)
        for path, part in leaves(self.single_action_space, actions):
            rows = records[path]
            if np.shape(part) != rows.shape:
                raise ValueError(f"actions of `{path}` of shape {np.shape(part)}; expected {rows.shape}")
            rows[...] = part
        return records

    # -- exact resume -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return, for each environment, its seed, the actions since, and what came of them: a state tree."""
        return to_tree(self.env_states())

    def load_state(self, tree: Mapping[str, Any]) -> list[int]:
        """Reset every environment with its seed, replay its actions and compare what came of them.

        Returns those that came out different: a warning names them, and they begin an episode with their next
        seed. Raises `ZooError` for a state of other environments.
        """
        states = from_tree(tree, self.arrays)
        self._first_seed = None
        different = self.load_env_states(states)
        if different:
            name = "the environment" if self.spec is None else self.spec.id
            which = f"env{'s' * (len(different) > 1)} {', '.join(map(str, different))}"
            warnings.warn(
                f"{name}: {which} came out different when the actions were replayed, so these "
                "episodes are cut; an environment must follow from its seed alone (in the next run, "
                "env.renew=true helps where reset() keeps something of the past)",
                stacklevel=2,
            )
        return different

    # -- the environments themselves --------------------------------------------------------------------

    @abstractmethod
    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call the method ``name`` of each environment, or read the attribute, and return the results."""

    @abstractmethod
    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment, to its own value if a list or tuple of them is given."""

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return the attribute ``name`` of each environment."""
        return self.call(name)

    def render(self) -> tuple[Any, ...]:
        """Return one frame an environment."""
        return self.call("render")


class SyncVecEnv(VecEnv):
    """Steps its environments in a loop: the fastest way for quick environments.

    ``first_index`` is the place of the first one among those of all worker processes. With ``renew`` an
    environment that was used is closed and made anew to be seeded, for those whose reset keeps something of
    the past. Without ``mask_actions`` no environment is asked which actions are valid.
    """

    def __init__(
        self,
        make_envs: Sequence[Callable[[], Env]],
        first_index: int = 0,
        *,
        seed: int | None = None,
        reseed_every: int = DEFAULT_RESEED_EVERY,
        renew: bool = False,
        mask_actions: bool = True,
    ) -> None:
        n = len(make_envs)
        self.envs: list[Env] = []
        self._first_index = first_index
        self._make_envs, self._reseed_every, self._renew = make_envs, reseed_every, renew
        for i, make_env in enumerate(make_envs):
            try:
                self.envs.append(make_env())
            except (Exception, SystemExit) as error:
                self.close_extras()
                raise env_error(error, f"env {first_index + i}", "while it was made") from error
        check_distinct(self.envs, first_index)
        first = self.envs[0]
        for i, env in enumerate(self.envs):
            check_same_spaces(first_index, first, first_index + i, env)
        super().__init__(
            first.observation_space, first.action_space, first.metadata, first.render_mode, n, seed
        )
        self.spec = first.spec
        self._steps = [env.step for env in self.envs]
        self._statistics = [statistics_of(env) for env in self.envs]
        self._lives: list[LifeLoss | None] = [find_wrapper(env, LifeLoss) for env in self.envs]
        self._masks = masks_of(self.envs, lambda i: self._progress.name(i), used=mask_actions)
        self._set_values: list[dict[str, Any]] = [{} for _ in range(n)]
        self._seeds: list[int | None] = [None] * n
        self._n_reseeded = [0] * n
        self._first_steps = [0] * n
        self._was_used = [False] * n
        self._plays_once = [False] * n
        self._actions: list[NDArray[Any]] = []
        """A row (num_envs, …) for each step since the oldest of the seeds."""
        self._n_steps = 0
        self._returns = np.zeros(n)
        self.use_arrays(self.arrays)

    @property
    def mask_size(self) -> int | None:  # type: ignore[override]
        """Values in an environment's mask of valid actions; None if there are no masks."""
        return self._masks.size

    def step_shared(self) -> tuple[list[EpisodeEnd], list[Info]]:
        """Step with a copy of the actions that stand in the arrays; return the ends and the infos."""
        return self.step_envs(self.arrays.actions.copy()), self._infos

    def use_arrays(self, arrays: StepArrays) -> None:
        """Write every step and reset into these arrays from now on."""
        self.arrays = arrays
        space: Any = self.single_observation_space
        if isinstance(arrays.observations, dict):
            self._parts = [_Part(rows, key, space[key]) for key, rows in arrays.observations.items()]
        else:
            self._parts = [_Part(arrays.observations, None, space)]
        self._progress = StepProgress(arrays.progress, self._first_index)
        self._progress.seeds[:], self._progress.seeded_at[:], self._progress.now[:] = -1, 0, (NO_ENV, 0)

    def step_envs(self, actions: NDArray[Any]) -> list[EpisodeEnd]:
        rewards, parts, now = self.arrays.rewards, self._parts, self._progress.now
        self.arrays.terminated.fill(False)
        self.arrays.truncated.fill(False)
        self._actions.append(actions.copy())
        self._n_steps += 1
        now[1] = self._n_steps
        infos: list[Info] = []
        ends: list[EpisodeEnd] = []
        i = 0
        try:
            for i, (step, action) in enumerate(zip(self._steps, self._env_actions(actions), strict=True)):
                now[0] = i
                observation, rewards[i], terminated, truncated, info = step(action)
                if terminated or truncated:
                    end = self._end(i, observation, terminated, truncated, info)
                    ends.append(end)
                    observation, info = self._next_episode(i, end)
                for part in parts:
                    part.rows[i] = part.of(observation)
                infos.append(info)
        except (Exception, SystemExit) as error:
            raise env_error(error, self._progress.name(i), "in a step") from error
        now[0] = NO_ENV
        self._returns += rewards
        for end in ends:
            if not end.is_life:
                self._start_record(end.env_index)
        self._infos = infos
        if self._masks.size is not None:
            self._write_masks()
        elif infos[0] and "action_mask" in infos[0]:
            self._masks.refuse_late_mask(0)
        return ends

    def reset_envs(
        self, seeds: Sequence[int | None], options: Info | None, rows: Sequence[int], once: bool = False
    ) -> list[Info]:
        infos: list[Info] = [{} for _ in self.envs]
        for i in rows:
            seed = seeds[i]
            if seed is not None:
                self._seeds[i], self._n_reseeded[i] = seed, 0
            elif self._seeds[i] is not None:
                self._n_reseeded[i] += 1
            else:
                self._seeds[i] = random_seed()
            self._start_record(i)
            self._progress.now[0] = i
            try:
                self._plays_once[i] = once
                observation, infos[i] = self._seeded_reset(i, options)
                self._write_observation(i, observation)
            except (Exception, SystemExit) as error:
                raise env_error(error, self._progress.name(i), "in a reset") from error
        self._progress.now[0] = NO_ENV
        self._infos = [infos[i] if i in rows else info for i, info in enumerate(self._infos)]
        self._masks.detect(self._infos)
        if len(rows):
            self._write_masks()
        return infos

    def env_states(self) -> list[EnvState]:
        like = self.arrays.actions
        actions = np.array(self._actions, like.dtype).reshape(-1, *like.shape)
        states = []
        for i, n in enumerate((self._n_steps - self._progress.seeded_at).tolist()):
            since = actions[len(actions) - n :, i]
            total, length = float(self._returns[i]), self._n_steps - self._first_steps[i]
            seeding = self._seeds[i], self._n_reseeded[i]
            states.append(EnvState(*seeding, since, self._observation(i), total, length))
        return states

    def load_env_states(self, states: Sequence[EnvState]) -> list[int]:
        self._infos = list(self._infos)
        different = [i for i, state in enumerate(states) if not self._replay(i, state)]
        self._n_steps = max(len(state.actions) for state in states)
        rows = np.zeros((self._n_steps, *self.arrays.actions.shape), self.arrays.actions.dtype)
        for i, state in enumerate(states):
            rows[self._n_steps - len(state.actions) :, i] = state.actions
        self._actions = list(rows)
        self._progress.now[:] = NO_ENV, self._n_steps
        self._progress.seeded_at[:] = [self._n_steps - len(state.actions) for state in states]
        self._first_steps = [self._n_steps - state.length for state in states]
        if different:
            self.reset_envs([None] * self.num_envs, None, different)
        self._masks.detect(self._infos)
        if states[0].seed is not None:
            self._write_masks()
        return different

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        values = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(value(*args, **kwargs) if callable(value) else value for value in values)

    def set_attr(self, name: str, values: Any) -> None:
        values = values if isinstance(values, list | tuple) else [values] * self.num_envs
        for env, value, values_set in zip(self.envs, values, self._set_values, strict=True):
            env.set_wrapper_attr(name, value)
            values_set[name] = value

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment; what one raises is printed in a line."""
        for i in range(len(self.envs)):
            self._close_env(i)
        self.envs = []

    # -- episodes and seeds -----------------------------------------------------------------------------

    def _end(self, i: int, observation: Any, terminated: bool, truncated: bool, info: Info) -> EpisodeEnd:
        """Record the episode's end before autoreset."""
        arrays = self.arrays
        arrays.terminated[i], arrays.truncated[i] = terminated, truncated
        total, length = float(self._returns[i] + arrays.rewards[i]), self._n_steps - self._first_steps[i]
        if (statistics := self._statistics[i]) is not None:
            total = float(np.asarray(statistics.episode_returns).item())
            length = int(statistics.episode_lengths)
        masks = None
        if self._masks.size is not None:
            masks = self._masks.read([i], {i: info}, arrays.terminated)[0]
        final = {part.key: np.array(part.of(observation), dtype=part.rows.dtype) for part in self._parts}
        return EpisodeEnd(i, final.get(None, final), info, masks, total, length, self._has_lost_a_life(i))

    def _has_lost_a_life(self, i: int) -> bool:
        lives = self._lives[i]
        return lives is not None and lives.goes_on

    def _next_episode(self, i: int, end: EpisodeEnd) -> tuple[Any, Info]:
        """Reset an environment whose episode ended; with its next seed, once a whole one has ended."""
        if self._plays_once[i] and not end.is_life and self._masks.size is None:
            self._steps[i] = lambda action: (end.observation, 0.0, False, False, {})
            return end.observation, {}
        if self._n_steps - self._progress.seeded_at[i] < self._reseed_every or end.is_life:
            return self.envs[i].reset()
        self._n_reseeded[i] += 1
        return self._seeded_reset(i)

    def _seeded_reset(self, i: int, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Bring an environment into a state that its seed alone decides, and keep its actions from here."""
        first = self._seeds[i]
        assert first is not None
        if self._renew and self._was_used[i]:
            self._close_env(i)
            env = self.envs[i] = self._make_envs[i]()
            for name, value in self._set_values[i].items():
                env.set_wrapper_attr(name, value)
            self._statistics[i], self._lives[i] = statistics_of(env), find_wrapper(env, LifeLoss)
        self._was_used[i] = True
        self._steps[i] = self.envs[i].step
        self._progress.seeded_at[i] = self._n_steps
        n_kept = self._n_steps - int(self._progress.seeded_at.min())
        del self._actions[: len(self._actions) - n_kept]
        seed = seed_spaces(self.envs[i], first, self._n_reseeded[i])
        self._progress.seeds[i] = seed if seed < 2**63 else -1
        return self.envs[i].reset(seed=seed, **({"options": options} if options else {}))

    def _close_env(self, i: int) -> None:
        with close_reporting(f"env {self._first_index + i}"):
            self.envs[i].close()

    def _start_record(self, i: int) -> None:
        self._returns[i] = 0.0
        self._first_steps[i] = self._n_steps

    def _replay(self, i: int, state: EnvState) -> bool:
        """Seed an environment and repeat its actions; return whether it is where ``state`` says."""
        self._seeds[i], self._n_reseeded[i] = state.seed, state.n_reseeded
        self._returns[i] = state.episode_return
        if state.seed is None:
            return True
        total, length = np.float64(0.0), 0
        try:
            observation, info = self._seeded_reset(i)
            actions = self._env_actions(state.actions.copy())
            for n, action in enumerate(actions, start=self._n_steps + 1):
                self._progress.now[:] = i, n
                observation, self.arrays.rewards[i], terminated, truncated, info = self.envs[i].step(action)
                total, length = total + self.arrays.rewards[i], length + 1
                if terminated or truncated:
                    if not self._has_lost_a_life(i):
                        total, length = np.float64(0.0), 0
                    observation, info = self.envs[i].reset()
            self._write_observation(i, observation)
        except (Exception, SystemExit):  # An env that went another way may well refuse an action.
            return False
        self._infos[i] = info
        as_bytes = methodcaller("tobytes")
        is_same = map_arrays(as_bytes, self._observation(i)) == map_arrays(as_bytes, state.observation)
        is_same_return = np.array_equal(total, state.episode_return, equal_nan=True)
        return is_same and is_same_return and length == state.length

    def _env_actions(self, actions: NDArray[Any]) -> Iterable[Any]:
        """Return the actions of rows as environments take them."""
        if not self._acts_in_parts:
            return actions
        space, paths = self.single_action_space, actions.dtype.names or ()
        return [nested(space, {path: record[path] for path in paths}) for record in actions]

    def _observation(self, i: int) -> Any:
        """Return a copy of an environment's current observation."""
        return map_arrays(lambda array: array[i].copy(), self.arrays.observations)

    def _write_masks(self) -> None:
        if self._masks.size is not None:
            assert self.arrays.action_masks is not None
            self.arrays.action_masks[...] = self._masks.read(range(self.num_envs), self._infos)

    def _write_observation(self, i: int, observation: Any) -> None:
        """Write an observation into its row. Raises `ZooError` where the row can't hold it as it is."""
        for part in self._parts:
            part.rows[i] = part.of(observation)


def check_same_spaces(first: int, env: Any, other: int, other_env: Any) -> None:
    """Raise `ZooError` if two environments differ in a space."""
    for name in ("observation_space", "action_space"):
        difference = spaces_differ(getattr(env, name), getattr(other_env, name))
        if difference is not None:
            raise ZooError(f"env {other} has another {name} than env {first}: {difference}")


@np.errstate(over="ignore")
def as_float32(rewards: NDArray[Any]) -> NDArray[np.float32]:
    """Return a copy of rewards in 32 bits; too large ones become infinite."""
    return rewards.astype(np.float32)


class _Part:
    """One array of the observations: its rows, its key in a dictionary, and its space."""

    def __init__(self, rows: NDArray[Any], key: str | None, space: Space) -> None:
        self.rows, self.key, self.space = rows, key, space
        self._dtype, self._shape, self._limits = rows.dtype, rows.shape[1:], choice_limits(space)

    def of(self, observation: Any) -> Any:
        """Return this part of an observation. Raises `ZooError` for a shape or values that don't fit."""
        part = observation if self.key is None else observation[self.key]
        is_one_type = self._dtype.kind == "f" or getattr(part, "dtype", None) == self._dtype
        if is_one_type and self._limits is None and np.shape(part) == self._shape:
            return part  # the quick way
        if problem := misfit(part, self.space, limits=self._limits):
            name = "an observation" if self.key is None else f"an observation `{self.key}`"
            raise ZooError(f"{name} has {problem}; observation_space is {describe(self.space)}")
        return part
