"""Environments stepped one after the other: in this process, or in a worker's.

Each has seeds of its own sequence. At the first end of an episode after ``reseed_every`` steps it is reset
with the next one, so that its state is never more than a seed and the actions since: see `EnvGroup.states`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from zoo.envs.action_log import ActionLog
from zoo.envs.action_masks import ActionMasks
from zoo.envs.atari import LifeLoss
from zoo.envs.closing import closing_told
from zoo.envs.composite_spaces import from_record, is_composite
from zoo.envs.env_error import env_error
from zoo.envs.seeds import random_seed, seeds_of, spaces_of
from zoo.envs.single_env import refuse_one_for_several
from zoo.envs.spaces import Space, spaces_differ
from zoo.envs.step_arrays import StepArrays, of_shape
from zoo.envs.whereabouts import NOWHERE, Whereabouts
from zoo.envs.wrappers import episode_so_far, find_wrapper, statistics_of
from zoo.errors import ZooError

Env = gym.Env[Any, Any]
Info = dict[str, Any]


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


class EnvState(NamedTuple):
    """How one environment comes to be where it is, and what it must show then."""

    seed: int | None
    """The seed that its sequence begins with; None before the first reset."""
    n_reseeded: int
    actions: NDArray[Any]
    observation: Any
    episode_return: float
    length: int


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
        reseed_every: int,
        renew: bool,
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
        self._check_same_spaces()
        self._steps = [env.step for env in self.envs]
        self._acts_in_parts = is_composite(self.action_space)
        self._spaces = [spaces_of(env) for env in self.envs]
        self._statistics = [statistics_of(env) for env in self.envs]
        self._lives: list[LifeLoss | None] = [find_wrapper(env, LifeLoss) for env in self.envs]
        self.masks = ActionMasks(self.envs, self.action_space, self._name, used=mask_actions)
        self.last_infos: list[Info] = [{} for _ in self.envs]
        self._used = [False] * n
        self._set_values: list[dict[str, Any]] = [{} for _ in range(n)]
        self._seeds: list[int | None] = [None] * n
        self._n_reseeded = [0] * n
        self._log = ActionLog(n, self.action_space, first_index)
        self._returns = np.zeros(n)
        self._first_steps = [0] * n
        self._once = [False] * n
        self._standing: set[int] = set()
        self._has_flags = False  # whether an episode ended in the last step, or it was interrupted

    def use_arrays(self, arrays: StepArrays) -> None:
        """Take the arrays that every step and reset writes into."""
        self._arrays = arrays
        self._rewards = arrays.rewards
        self._parts = [(key, rows, rows.shape[1:]) for key, rows in arrays.observation_parts()]
        self._plain_observations = None if isinstance(arrays.observations, dict) else arrays.observations
        self._plain_shape = self.observation_space.shape
        self._whereabouts = Whereabouts(arrays.whereabouts, self._first_index)
        self._whereabouts.clear()

    def step(self, actions: NDArray[Any]) -> list[EpisodeEnd]:
        """Step every environment, reset the finished ones, and return how those ended.

        The environments may keep ``actions``, or write into them.
        """
        rewards, plain, now = self._rewards, self._plain_observations, self._whereabouts.now
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
            self.masks.come_too_late()
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
            self._whereabouts.now[0] = i
            try:
                observation, infos[i] = self._seeded_reset(i, options)
                self._once[i] = once
                self._show(i, observation)
            except (Exception, SystemExit) as error:
                raise env_error(error, self._name(i), "in a reset") from error
        self._whereabouts.now[0] = NOWHERE
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
        self._whereabouts.move(self._log.n_steps, [len(state.actions) for state in states])
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
        self._whereabouts.seeded(i, seed, self._log.n_steps)
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
        self.masks.made_anew(i, env)

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
                self._whereabouts.now[:] = i, n
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
        return self._whereabouts.name(i)


def _same(one: Any, other: Any) -> bool:
    """Whether two observations are equal bit for bit; a NaN is equal to itself."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f")
