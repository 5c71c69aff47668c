"""CrossQ (Bhatt et al. 2024, https://openreview.net/forum?id=PczQtTsTIX).

Soft actor-critic without target networks: batch renormalisation keeps the critics' values bounded, as long as
one pass of the critics sees the actions of the batch and those of the next states together. In the paper,
wide critics then need a fraction of SAC's data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gymnasium import spaces
from torch import Tensor

from zoo.algorithms.off_policy import ReplayBatch, critic_passes
from zoo.algorithms.sac import SAC, SACConfig, SACPolicy
from zoo.config.fields import with_defaults
from zoo.errors import ZooError
from zoo.optim.optimizers import FunctionalModule
from zoo.optim.update_runner import State, joined
from zoo.policies.config import PolicyConfig


@dataclass
@with_defaults(learning_rate=1e-3, buffer_size=1_000_000, batch_size=256, policy_delay=3, betas=[0.5, 0.999])
class CrossQConfig(SACConfig):
    """Hyperparameters of CrossQ."""

    tau: ClassVar[None] = None  # type: ignore[assignment,misc]
    target_update_interval: ClassVar[None] = None  # type: ignore[assignment,misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size < 2:
            raise ZooError(f"`algo.batch_size={self.batch_size}` has no variance; expected at least 2")


class CrossQPolicy(SACPolicy):
    """Actor of 256-256 and critics of 1024-1024, with batch renormalisation unless the config says else."""

    critic_widths = (1024, 1024)

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PolicyConfig,
        **options: Any,
    ) -> None:
        config = replace(config, norm=config.norm or ("layer" if config.layer_norm else "batch_renorm"))
        super().__init__(observation_space, action_space, config, **options)


class CrossQ(SAC):
    """Soft actor-critic with batch renormalisation and no targets, with SB3-Contrib's values."""

    name = "crossq"
    supported_actions = (spaces.Box,)
    config_class = CrossQConfig
    policy_class = CrossQPolicy
    targets_of: ClassVar[dict[str, str]] = {}
    has_batch_norm = True

    config: CrossQConfig

    def _values_and_targets(
        self, state: State, critics: FunctionalModule, batch: ReplayBatch
    ) -> tuple[Tensor, Tensor]:
        """Return values and targets of one pass over the batch's steps and their next ones.

        Targets are constants, but the batch statistics that they share with the values have gradients.
        """
        next_actions, weighted_log_prob, _ = self._next_actions(state, batch)
        for_targets, for_critics, _ = critic_passes(batch)
        both = critics(
            joined(batch["observations"], batch["next_observations"]),
            joined(batch["actions"], next_actions),
            **{name: joined(part, for_targets[name]) for name, part in for_critics.items()},
        )
        values, next_values = both.chunk(2, dim=1)
        return values, self._soft_targets(batch, next_values.detach(), weighted_log_prob)

    def _move_targets(self, state: State, batch: ReplayBatch) -> State:
        return state
