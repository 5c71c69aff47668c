"""Environments stepped one after the other: in this process, or in that of a worker."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo.envs.atari import LifeLoss
from zoo.envs.config import DEFAULT_RESEED_EVERY
from zoo.envs.masks import masks_of
from zoo.envs.registry import closing_told, env_error
from zoo.envs.replay import ActionLog, EnvState
from zoo.envs.seeds import random_seed, seeds_of, spaces_of
from zoo.envs.spaces import (
    Env,
    Info,
    Observations,
    Space,
    action_array,
    batch_array,
    from_record,
    is_composite,
    mask_size,
    spaces_differ,
)
from zoo.envs.wrappers import episode_so_far, find_wrapper, refuse_one_for_several, statistics_of
from zoo.errors import ZooError

N_COLUMNS = 4
"""Each row's seed and when it got it; in the first row of a group also which is at work, and when."""

NOWHERE = -1
LARGEST_SEED = 2**63 - 1


class StepProgress:
    """The place of a group of environments, in its rows of an array (num_envs, ``N_COLUMNS``).

    ``now`` holds the row of the environment that is at work, or ``NOWHERE``, and the number of steps that all
    have begun; whoever steps them writes it there. ``first_index`` is the place of the first row among all.
    """

    def __init__(self, rows: NDArray[np.int64], first_index: int) -> None:
        self._seeds, self._seeded_at, self.now = rows[:, 0], rows[:, 1], rows[0, 2:]
        self._first_index = first_index

    def clear(self) -> None:
        """Forget what stood there."""
        self._seeds[:] = NOWHERE
        self._seeded_at[:] = 0
        self.now[:] = NOWHERE, 0

    def seeded(self, row: int, seed: int, n_steps: int) -> None:
        """Note that an environment gets a seed after ``n_steps`` steps; a very large one stays unknown."""
        self._seeds[row] = seed if seed <= LARGEST_SEED else NOWHERE
        self._seeded_at[row] = n_steps

    def move(self, n_steps: int, since_seeds: Sequence[int]) -> None:
        """Count steps anew, with ``n_steps`` begun in all, and so many of each row since its seed."""
        self.now[:] = NOWHERE, n_steps
        self._seeded_at[:] = n_steps - np.asarray(since_seeds)

    def name(self, row: int) -> str:
        """Return ``env 3 (step 17 after seed 40)``, or what is known of it."""
        seed, steps = int(self._seeds[row]), int(self.now[1] - self._seeded_at[row])
        known = [f"step {steps}"] * (steps > 0) + [f"seed {seed}"] * (seed != NOWHERE)
        return f"env {self._first_index + row}" + (f" ({' after '.join(known)})" if known else "")

    def at_work(self) -> str | None:
        """Return the name of the environment that is being stepped or reset, or None."""
        row = int(self.now[0])
        return None if row == NOWHERE else self.name(row)


CACHE_LINE = 64


@dataclass
class StepArrays:
    """What one step of all environments takes and gives, (num_envs, …) each."""

    observations: Observations
    actions: NDArray[Any]
    """Records where actions are tuples or dictionaries: `action_array`."""
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    action_masks: NDArray[np.bool_] | None
    """Filled where the environments have masks; None where their actions can have none."""
    progress: NDArray[np.int64]
    """Which environment is being stepped, for whoever has to say where one hangs: `StepProgress`."""

    @classmethod
    def allocate(cls, num_envs: int, observation_space: Space, action_space: Space) -> StepArrays:
        """Return zeroed arrays."""
        n_masks = mask_size(action_space)
        return cls(
            batch_array(observation_space, num_envs),
            action_array(action_space, num_envs),
            np.zeros(num_envs),
            np.zeros(num_envs, dtype=np.bool_),
            np.zeros(num_envs, dtype=np.bool_),
            None if n_masks is None else np.zeros((num_envs, n_masks), dtype=np.bool_),
            np.zeros((num_envs, N_COLUMNS), dtype=np.int64),
        )

    def rows(self, start: int, stop: int) -> StepArrays:
        """Return views of the rows from ``start`` to ``stop``."""
        return StepArrays(*(_each(lambda array: array[start:stop], part) for part in vars(self).values()))

    def observation_parts(self) -> list[tuple[str | None, NDArray[Any]]]:
        """Return each key of the observations with its array; for those without keys, None with theirs."""
        if isinstance(self.observations, dict):
            return list(self.observations.items())
        return [(None, self.observations)]

    def shown(self, i: int) -> Any:
        """Return a copy of what environment ``i`` shows now."""
        return _each(lambda array: array[i].copy(), self.observations)

    def own(self, observation: Any) -> Any:
        """Return a copy of an observation in the type of its rows. Raises `ZooError` for another shape."""
        if not isinstance(self.observations, dict):
            return _own(self.observations, observation)
        return {key: _own(array, observation[key], key) for key, array in self.observations.items()}

    @property
    def n_bytes(self) -> int:
        """How much memory `within` needs, each array at a cache line of its own."""
        total = 0

        def add(array: NDArray[Any]) -> None:
            nonlocal total
            total += _aligned(array.nbytes)

        for part in vars(self).values():
            _each(add, part)
        return total

    def within(self, memory: mmap.mmap) -> StepArrays:
        """Return arrays of the same shapes and types that lie in ``replay``."""
        offset = 0

        def placed(array: NDArray[Any]) -> NDArray[Any]:
            nonlocal offset
            inside: NDArray[Any] = np.ndarray(array.shape, array.dtype, memory, offset=offset)
            offset += _aligned(array.nbytes)
            return inside

        return StepArrays(*(_each(placed, part) for part in vars(self).values()))


@contextlib.contextmanager
def anonymous_memory(size: int) -> Iterator[IO[bytes]]:
    """Give a file without a name that lives in memory for as long as somebody maps it."""
    in_memory = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("zoo-envs"), "r+b") if in_memory else tempfile.TemporaryFile() as file:
        try:
            os.truncate(file.fileno(), size)
        except OSError as error:
            raise ZooError(f"no memory for {size} bytes of observations: {error.strerror}") from error
        yield file


def copied(observations: Observations) -> Observations:
    """Return a copy of an array or of a dict of arrays."""
    if isinstance(observations, dict):
        return {key: values.copy() for key, values in observations.items()}
    return observations.copy()


def of_shape(shape: tuple[int, ...], observation: Any, key: str | None = None) -> Any:
    """Return an observation, or its part ``key``; another shape, which NumPy would broadcast, raises."""
    if np.shape(observation) == shape:
        return observation
    what = "an observation" if key is None else f"an observation `{key}`"
    raise ZooError(f"{what} of shape {np.shape(observation)}; observation_space says {shape}")


def _own(rows: NDArray[Any], observation: Any, key: str | None = None) -> NDArray[Any]:
    return np.array(of_shape(rows.shape[1:], observation, key), dtype=rows.dtype)


def _each(function: Any, part: Any) -> Any:
    """Apply a function to an array, to each of a dict of them, or to nothing."""
    if isinstance(part, dict):
        return {key: function(array) for key, array in part.items()}
    return None if part is None else function(part)


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // CACHE_LINE) * CACHE_LINE


class EpisodeEnd(NamedTuple):
    """What an environment gave at the last step of an episode, before it was reset."""

    env_index: int
    observation: Any
    info: Info
    action_masks: NDArray[np.bool_] | None
    episode_return: float
    """Sum of the raw rewards and number of steps since the last whole episode (see ``is_life``)."""
    length: int
    is_life: bool = False
    """Whether only a life was lost: the episode of which return and length are the sums goes on."""


class EnvGroup:
    """Some environments and the arrays that they are stepped into.

    ``first_index`` is the place of the first one in the whole vector environment, for messages. With
    ``renew`` an environment that was used is closed and made anew to be seeded, for those whose reset keeps
    something of the past. Without ``mask_actions`` nobody is asked which actions are valid.
    """

    def __init__(
        self,
        make_envs: Sequence[Callable[[], Env]],
        first_index: int = 0,
        *,
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
                self.close()
                raise env_error(error, f"env {first_index + i}", "while it was made") from error
        refuse_one_for_several(self.envs, first_index)
        self.observation_space: Space = self.envs[0].observation_space
        self.action_space: Space = self.envs[0].action_space
        self.metadata, self.render_mode = self.envs[0].metadata, self.envs[0].render_mode
        self._check_same_spaces()
        self._steps = [env.step for env in self.envs]
        self._acts_in_parts = is_composite(self.action_space)
        self._spaces = [spaces_of(env) for env in self.envs]
        self._statistics = [statistics_of(env) for env in self.envs]
        self._lives: list[LifeLoss | None] = [find_wrapper(env, LifeLoss) for env in self.envs]
        self.masks = masks_of(self.envs, self._name, used=mask_actions)
        self.last_infos: list[Info] = [{} for _ in self.envs]
        self._used = [False] * n
        self._set_values: list[dict[str, Any]] = [{} for _ in range(n)]
        self._seeds: list[int | None] = [None] * n
        self._n_reseeded = [0] * n
        self._log = ActionLog(n, self.action_space)
        self._returns = np.zeros(n)
        self._first_steps = [0] * n
        self._once = [False] * n
        self._standing: set[int] = set()
        self._has_flags = False  # whether an episode ended in the last step, or it was interrupted

    @property
    def mask_size(self) -> int | None:
        """Values in an environment's mask of valid actions; None if there are no masks."""
        return self.masks.size

    def example(self) -> Env:
        """Return one of the environments, to be asked things."""
        return self.envs[0]

    def use_arrays(self, arrays: StepArrays) -> StepArrays:
        """Take the arrays that every step and reset writes into, and return them."""
        self._arrays = arrays
        self._rewards = arrays.rewards
        self._parts = [(key, rows, rows.shape[1:]) for key, rows in arrays.observation_parts()]
        self._plain_observations = None if isinstance(arrays.observations, dict) else arrays.observations
        self._plain_shape = self.observation_space.shape
        self._progress = StepProgress(arrays.progress, self._first_index)
        self._progress.clear()
        return arrays

    def step(self, actions: NDArray[Any]) -> list[EpisodeEnd]:
        """Step every environment, reset the finished ones, and return how those ended.

        The environments may keep ``actions``, or write into them.
        """
        rewards, plain, now = self._rewards, self._plain_observations, self._progress.now
        shape = self._plain_shape
        if self._has_flags:
            self._arrays.terminated.fill(False)
            self._arrays.truncated.fill(False)
        self._has_flags = True
        self._log.add(actions)
        now[1] = self._log.n_steps
        infos: list[Info] = []
        ends: list[EpisodeEnd] = []
        i = 0
        try:
            for i, (step, action) in enumerate(zip(self._steps, self._as_taken(actions), strict=True)):
                now[0] = i
                observation, rewards[i], terminated, truncated, info = step(action)
                if terminated or truncated:
                    end = self._end(i, observation, terminated, truncated, info)
                    ends.append(end)
                    observation, info = self._next_episode(i, end)
                if plain is not None and getattr(observation, "shape", ()) == shape:
                    plain[i] = observation
                else:
                    self._show(i, observation)
                infos.append(info)
        except (Exception, SystemExit) as error:
            raise env_error(error, self._name(i), "in a step") from error
        now[0] = NOWHERE
        self._returns += rewards
        for end in ends:
            if not end.is_life:
                self._start_record(end.env_index)
        self._has_flags = bool(ends)
        self.last_infos = infos
        if self.masks.size is not None:
            self.masks.write(self._arrays.action_masks, infos)
        elif infos[0] and "action_mask" in infos[0]:
            self.masks.check_begun(0)
        return ends

    def reset(
        self,
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
        rows: Sequence[int],
        *,
        once: bool = False,
    ) -> list[Info]:
        """Reset the environments ``rows`` and return the infos of all.

        A seed begins a new sequence; without one, the environment is reset with the next of its own. One
        that is to be played ``once`` stands still after the episode, until it is reset again.
        """
        if once:
            for i in self._standing:
                self._log.start(i)
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
                observation, infos[i] = self._seeded_reset(i, options)
                self._once[i] = once
                self._show(i, observation)
            except (Exception, SystemExit) as error:
                raise env_error(error, self._name(i), "in a reset") from error
        self._progress.now[0] = NOWHERE
        self.last_infos = [infos[i] if i in rows else info for i, info in enumerate(self.last_infos)]
        self.masks.look_for_them(self.last_infos)
        if len(rows):
            self.masks.write(self._arrays.action_masks, self.last_infos)
        return infos

    def states(self) -> list[EnvState]:
        """Return, for each environment, what `load_states` brings it back with."""
        return [
            EnvState(
                self._seeds[i],
                self._n_reseeded[i],
                self._log.since_start(i),
                self._arrays.shown(i),
                float(self._returns[i]),
                self._log.n_steps - self._first_steps[i],
            )
            for i in range(len(self.envs))
        ]

    def load_states(self, states: Sequence[EnvState]) -> list[int]:
        """Seed every environment, replay its actions, and return which came out different.

        Those are reset with the next seed of their sequence.
        """
        self.last_infos = list(self.last_infos)
        came_out_same = [self._replay(i, state) for i, state in enumerate(states)]
        self._log.restore([state.actions for state in states])
        self._progress.move(self._log.n_steps, [len(state.actions) for state in states])
        self._first_steps = [self._log.n_steps - state.length for state in states]
        different = [i for i, same in enumerate(came_out_same) if not same]
        if different:
            self.reset([None] * len(self.envs), None, different)
        self.masks.look_for_them(self.last_infos)
        if states[0].seed is not None:
            self.masks.write(self._arrays.action_masks, self.last_infos)
        return different

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of each environment, or read an attribute."""
        results = []
        for env in self.envs:
            attribute = env.get_wrapper_attr(name)
            results.append(attribute(*args, **kwargs) if callable(attribute) else attribute)
        return results

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of each environment to its own value."""
        for i, (env, value) in enumerate(zip(self.envs, values, strict=True)):
            env.set_wrapper_attr(name, value)
            self._set_values[i][name] = value

    def close(self) -> None:
        """Close every environment; what one raises is told in a line."""
        for i in range(len(self.envs)):
            self._close(i)
        self.envs = []

    # -- episodes and seeds -----------------------------------------------------------------------------

    def _end(
        self, i: int, observation: Any, terminated: bool, truncated: bool, info: Info | None
    ) -> EpisodeEnd:
        """Keep what the reset that comes next would overwrite."""
        arrays = self._arrays
        arrays.terminated[i], arrays.truncated[i] = terminated, truncated
        info = {} if info is None else info
        total, length = float(self._returns[i] + arrays.rewards[i]), self._log.n_steps - self._first_steps[i]
        if (statistics := self._statistics[i]) is not None:
            total, length = episode_so_far(statistics)
        masks = (
            None if self.masks.size is None else self.masks.at_the_end(i, info, terminated=bool(terminated))
        )
        return EpisodeEnd(i, arrays.own(observation), info, masks, total, length, self._lost_a_life(i))

    def _lost_a_life(self, i: int) -> bool:
        lives = self._lives[i]
        return lives is not None and lives.goes_on

    def _next_episode(self, i: int, end: EpisodeEnd) -> tuple[Any, Info]:
        """Reset an environment whose episode ended; with its next seed, once a whole one has ended."""
        if self._once[i] and not end.is_life and self.masks.size is None:  # else nobody knows what it may do
            self._standing.add(i)
            self._steps[i] = lambda action: (end.observation, 0.0, False, False, {})
            return end.observation, {}
        if self._log.steps_since_start(i) < self._reseed_every or end.is_life:
            return self.envs[i].reset()
        self._n_reseeded[i] += 1
        return self._seeded_reset(i)

    def _seeded_reset(self, i: int, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Bring an environment into a state that its seed alone decides, and keep its actions from here."""
        first = self._seeds[i]
        assert first is not None
        if self._renew and self._used[i]:
            self._make_anew(i)
        self._used[i] = True
        self._once[i] = False
        self._standing.discard(i)
        self._steps[i] = self.envs[i].step
        self._log.start(i)
        spaces_of_env = self._spaces[i]
        seed, space_seeds = seeds_of(first, self._n_reseeded[i], len(spaces_of_env))
        self._progress.seeded(i, seed, self._log.n_steps)
        for space, space_seed in zip(spaces_of_env, space_seeds, strict=True):
            space.seed(space_seed)
        return self.envs[i].reset(seed=seed, **({"options": options} if options else {}))

    def _make_anew(self, i: int) -> None:
        self._close(i)
        env = self.envs[i] = self._make_envs[i]()
        for name, value in self._set_values[i].items():
            env.set_wrapper_attr(name, value)
        self._steps[i] = env.step
        self._spaces[i] = spaces_of(env)
        self._statistics[i], self._lives[i] = statistics_of(env), find_wrapper(env, LifeLoss)

    def _close(self, i: int) -> None:
        with closing_told(f"env {self._first_index + i}"):
            self.envs[i].close()

    def _start_record(self, i: int) -> None:
        self._returns[i] = 0.0
        self._first_steps[i] = self._log.n_steps

    def _replay(self, i: int, state: EnvState) -> bool:
        """Do what ``state`` says that was done; return whether the same came of it."""
        self._seeds[i], self._n_reseeded[i] = state.seed, state.n_reseeded
        self._returns[i] = state.episode_return
        if state.seed is None:
            return True
        total, length = np.float64(0.0), 0
        try:
            observation, info = self._seeded_reset(i)
            actions = self._as_taken(state.actions.copy())
            for n, action in enumerate(actions, start=self._log.n_steps + 1):
                self._progress.now[:] = i, n
                observation, self._arrays.rewards[i], terminated, truncated, info = self.envs[i].step(action)
                total, length = total + self._arrays.rewards[i], length + 1
                if terminated or truncated:
                    if not self._lost_a_life(i):
                        total, length = np.float64(0.0), 0
                    observation, info = self.envs[i].reset()
            self._show(i, observation)
        except (Exception, SystemExit):  # An env that went another way may well refuse an action.
            return False
        self.last_infos[i] = info
        return (
            _same(self._arrays.shown(i), state.observation)
            and _same(total, state.episode_return)
            and length == state.length
        )

    # -- arrays and messages ----------------------------------------------------------------------------

    def _as_taken(self, actions: NDArray[Any]) -> Iterable[Any]:
        """Return the actions of rows as environments take them."""
        if not self._acts_in_parts:
            return actions
        return [from_record(self.action_space, record) for record in actions]

    def _show(self, i: int, observation: Any) -> None:
        """Write what an environment shows into its row. Raises `ZooError` where it has another shape."""
        for key, rows, shape in self._parts:
            part = observation if key is None else observation[key]
            rows[i] = part if getattr(part, "shape", ()) == shape else of_shape(shape, part, key)

    def _check_same_spaces(self) -> None:
        for i, env in enumerate(self.envs):
            for name in ("observation_space", "action_space"):
                difference = spaces_differ(getattr(self, name), getattr(env, name))
                if difference is not None:
                    first = self._first_index
                    raise ZooError(f"env {first + i} has another {name} than env {first}: {difference}")

    def _name(self, i: int) -> str:
        return self._progress.name(i)


def _same(one: Any, other: Any) -> bool:
    """Whether two observations are equal bit for bit; a NaN is equal to itself."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f")
