"""Categorical DQN (Bellemare et al. 2017, https://arxiv.org/abs/1707.06887), and Rainbow.

A network estimates the probabilities of evenly spaced returns of each action, and the policy takes the action
with the best mean. The distribution moves towards that of reward plus discounted return of the next state,
which is projected to these returns, by cross-entropy. All else is DQN.

Rainbow (Hessel et al. 2018, https://arxiv.org/abs/1710.02298) joins it with double Q-learning, a dueling
network, noisy layers, prioritised replay by the cross-entropy, and returns of three steps.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.algorithms.categorical import Categorical, CategoricalConfig, distribution_of
from zoo.algorithms.dqn import DQN, DQNConfig
from zoo.algorithms.off_policy import ReplayBatch
from zoo.algorithms.search_space import NET_ARCHS, choices, ranges, searched
from zoo.config.fields import with_defaults
from zoo.errors import ZooError
from zoo.policies.distributions import gather
from zoo.policies.q_networks import CategoricalNetwork


@dataclass
@with_defaults(
    learning_rate=2.5e-4,
    buffer_size=1_000_000,
    learning_starts=50_000,
    train_freq=4,
    double=False,
    dueling=False,
    target_update_interval=10_000,
    exploration_fraction=0.02,
    exploration_final_eps=0.01,
    max_grad_norm=None,
    n_atoms=51,
    value_range=[-10.0, 10.0],
)
class C51Config(CategoricalConfig, DQNConfig):
    """Hyperparameters of categorical DQN, by default the paper's, which are for Atari."""

    critic_loss: ClassVar[str] = "categorical"  # type: ignore[misc]
    munchausen: ClassVar[None] = None  # type: ignore[misc]


class C51(DQN):
    """Categorical DQN, by default neither double nor dueling, as in the paper."""

    name = "c51"
    config_class = C51Config
    search_space = searched(DQN.search_space, choices(n_atoms=[21, 51, 101]))
    policy_class = CategoricalNetwork

    config: C51Config
    policy: CategoricalNetwork

    @property
    def distribution(self) -> Categorical:
        distribution = distribution_of(self.config)
        assert distribution is not None
        return distribution

    def _policy_options(self) -> dict[str, Any]:
        config, distribution = self.config, self.distribution
        return {
            **super()._policy_options(),
            "n_atoms": config.n_atoms,
            "value_range": (distribution.low, distribution.high),
        }

    def _bytes_ahead(self) -> int:
        return self.config.n_atoms * super()._bytes_ahead()

    def _adam_eps(self) -> float:
        return 0.01 / self.config.batch_size  # from the paper, for batches of 32

    def _values_of_actions(self, estimates: Tensor, actions: Tensor) -> Tensor:
        """Return the logits (batch, atoms) of these actions (batch,)."""
        return gather(estimates, actions[:, None])

    def _bootstrapped(self, batch: ReplayBatch, next_values: Tensor) -> Tensor:
        """Return the probabilities (batch, atoms) of the returns after next logits (batch, atoms)."""
        returns = super()._bootstrapped(batch, self.distribution.atoms(next_values)[None])
        return self.distribution.projected(torch.softmax(next_values, -1), returns)

    def _losses_and_errors(
        self, values: Tensor, targets: Tensor, batch: ReplayBatch
    ) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy (batch,) twice: it is also the priority, as in Rainbow."""
        losses, _ = self.distribution.losses_and_errors(values[None], targets)
        return losses, losses

    def _apply_changed(self, changed: Collection[str]) -> None:
        super()._apply_changed(changed)
        if "value_range" in changed:
            raise ZooError("`algo.value_range`: the network of this agent learned returns of another range")


@dataclass
@with_defaults(
    learning_rate=6.25e-5,
    learning_starts=20_000,
    target_update_interval=8_000,
    double=True,
    dueling=True,
    noisy=True,
    max_grad_norm=10.0,
)
class RainbowConfig(C51Config):
    """Hyperparameters of Rainbow."""


class Rainbow(C51):
    """C51 with double, dueling and noisy networks, prioritised replay and returns of three steps."""

    of_preset = "rainbow"
    config_class = RainbowConfig
    search_space = searched(
        C51.search_space,
        {"exploration_fraction": None, "exploration_final_eps": None},  # noise explores
        ranges("log", noisy_std=(0.1, 1.0)),
        policy=choices(net_arch={**NET_ARCHS, "pair": [128, 128]}),
    )
    usual_replay: ClassVar[dict[str, Any]] = {"n_step": 3, "prioritized": {"alpha": 0.5}}

    def _adam_eps(self) -> float:
        return 0.005 / self.config.batch_size  # nearly the paper's 1.5e-4, for batches of 32
