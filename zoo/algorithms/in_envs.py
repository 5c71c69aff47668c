"""An agent in environments: given to it, reset, and exchanged for others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from zoo.algorithms.agent import Agent
from zoo.algorithms.interaction import Interaction, envs_for
from zoo.envs.adapter import EnvStepper
from zoo.envs.spaces import interfaces_differ
from zoo.errors import ZooError

Config = TypeVar("Config")


class AgentInEnvs(Agent[Config]):
    """An agent whose experience comes from ``envs``; ``interaction`` is with these."""

    interaction: Interaction
    interaction_class: ClassVar[type[Interaction]] = Interaction
    timings: dict[str, float]
    _mask_size: int | None = None

    @abstractmethod
    def _make_memory(self) -> None:
        """Allocate what `collect` fills."""

    @abstractmethod
    def record(self, name: str, value: float) -> None:
        """Add a scalar to a mean that is told from time to time."""

    def set_env(self, env: Any, *, n_envs: int | None = None) -> None:
        """Learn in another environment from now on; of an id or a function, in as many as before.

        Raises `ZooError` if its spaces differ.
        """
        config, envs = envs_for(env, n_envs, self.n_envs, self.config)
        difference = interfaces_differ(self.spaces, envs.spaces)
        if difference is not None:
            raise ZooError(f"the env's {difference[0]} differ from the agent's: {difference[1]}")
        self._check_envs(envs)
        if self.normalizer is not None:
            envs.normalizer = self.normalizer
        self.env_config = config or self.env_config
        self._take_envs(envs)

    def _check_envs(self, envs: EnvStepper) -> None:
        """Raise `ZooError` for environments that it can't learn in, though their spaces fit."""

    def _take_envs(self, envs: EnvStepper) -> None:
        self.envs, self.n_envs, self.normalizer = envs, envs.num_envs, envs.normalizer
        self.interaction = self.interaction_class(envs, self.codec.to_env, self.normalizer, self.timings)
        if envs.mask_size is not None:  # else it is not known before a reset, see `_note_masks`
            self._mask_size, self.masks_actions = envs.mask_size, True
        self._make_memory()

    def own_barrier(self) -> None:
        """Cut all episodes (bootstrapped as truncated, not counted) and reset the environments by new seeds.

        They depend on nothing before then. Only those that can't be replayed need it, before a checkpoint.
        """
        self._cut_episodes(range(self.n_envs))
        self._reset_envs()

    def _reset_envs(self) -> None:
        with self.runtime.in_force():
            self.interaction.reset([int(seed) for seed in self.rng.integers(2**31, size=self.n_envs)])
        self._note_masks()

    def _note_masks(self) -> None:
        """Make room for masks that are known only now: they stand in the infos of a reset."""
        size = self.interaction.envs.mask_size
        self.masks_actions = size is not None
        if size != self._mask_size:
            self._mask_size = size
            self._make_memory()

    def _cut_episodes(self, envs: Sequence[int]) -> None:
        """Mark the episodes under way in these environments as ended, where a part reaches over updates."""
