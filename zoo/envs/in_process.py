"""Environments stepped one after the other in this process, with nothing between them and the arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from zoo.envs.config import DEFAULT_RESEED_EVERY
from zoo.envs.env_group import EnvGroup, EnvState, Info
from zoo.envs.same_step import SameStepVectorEnv, Transition
from zoo.envs.single_env import watch
from zoo.envs.step_arrays import Observations, copied

Env = gym.Env[Any, Any]


class InProcessVectorEnv(SameStepVectorEnv):
    """Steps its environments in a loop: the fastest way for quick environments.

    With ``watched``, or once somebody has asked for `envs`, it notices who else steps one of them.
    """

    def __init__(
        self,
        make_envs: Sequence[Callable[[], Env]],
        *,
        seed: int | None = None,
        reseed_every: int = DEFAULT_RESEED_EVERY,
        renew: bool = False,
        mask_actions: bool = True,
        watched: bool = True,
    ) -> None:
        self.group = EnvGroup(make_envs, reseed_every=reseed_every, renew=renew, mask_actions=mask_actions)
        first = self.group.envs[0]
        self.metadata, self.render_mode, self.spec = first.metadata, first.render_mode, first.spec
        super().__init__(len(make_envs), first.observation_space, first.action_space, seed=seed)
        self.group.use_arrays(self._arrays)
        self.mask_size = self.group.masks.size
        if watched:
            self._watch()

    @property
    def envs(self) -> list[Env]:
        """The environments themselves."""
        self._watch()
        return self.group.envs

    def _watch(self) -> None:
        for env in self.group.envs:
            watch(env, self)

    def transition(self, actions: Any) -> Transition:
        """Step every environment with its row of ``actions``."""
        ends = self.group.step(self.own_actions(actions))
        return self._transition(ends, self.group.last_infos)

    def reset_rows(
        self,
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
        rows: Sequence[int],
        *,
        once: bool = False,
    ) -> tuple[Observations, list[Info]]:
        """Reset the environments ``rows``."""
        infos = self.group.reset(seeds, options, rows, once=once)
        self.mask_size = self.group.masks.size
        return copied(self._arrays.observations), infos

    def env_states(self) -> list[EnvState]:
        """Return how each environment comes to be where it is."""
        return self.group.states()

    def load_env_states(self, states: Sequence[EnvState]) -> list[int]:
        """Bring each environment there, or to its next seed; return which came out different."""
        different = self.group.load_states(states)
        self.mask_size = self.group.masks.size
        return different

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or read an attribute."""
        self.note_call(name)
        return tuple(self.group.call(name, *args, **kwargs))

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment, to its own value if a list or tuple of them is given."""
        each = values if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ValueError(f"{len(each)} values for {self.num_envs} environments")
        self.group.set_attr(name, each)

    def render(self) -> tuple[Any, ...]:
        """Return one frame an environment."""
        return tuple(env.render() for env in self.group.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        if hasattr(self, "group"):
            self.group.close()
