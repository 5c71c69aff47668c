"""Implicit quantile networks (Dabney et al. 2018, https://arxiv.org/abs/1806.06923).

A network reads a fraction beside the observation, through cosines, and estimates the quantile of the return
of each action at this fraction. A gradient step draws fractions for each transition, and moves the quantiles
there towards those of reward plus discounted return of the next state, as in QR-DQN. The policy takes the
action with the best mean over evenly spaced fractions. All else is DQN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from zoo.algorithms.dqn import DQN
from zoo.algorithms.qrdqn import QRDQN, QRDQNConfig
from zoo.algorithms.search_space import NET_ARCHS, choices, ranges, searched
from zoo.config.fields import hyperparameter
from zoo.policies.q_networks import ImplicitQuantileNetwork


@dataclass
class IQNConfig(QRDQNConfig):
    """Hyperparameters of IQN, by default the paper's, which are for Atari."""

    n_quantiles: int = hyperparameter(
        64, "quantiles drawn for each transition; more: steadier gradients, slower; 8 to 64", ge=1, le=100_000
    )
    n_target_quantiles: int = hyperparameter(
        64, "quantiles of the next state drawn for each transition; 8 to 64", ge=1, le=100_000
    )
    n_acting_quantiles: int = hyperparameter(
        32, "evenly spaced quantiles whose mean chooses actions, also in targets", ge=1, le=100_000
    )
    n_cosines: int = hyperparameter(
        64, "cosines of a fraction that the network reads; more: finer distributions", ge=1, le=100_000
    )


class IQN(QRDQN):
    """Implicit quantile networks, by default neither double nor dueling, as in the paper."""

    name = "iqn"
    config_class = IQNConfig
    search_space = searched(
        DQN.search_space,
        ranges("log", n_quantiles=(4, 64), n_target_quantiles=(4, 64)),
        policy=choices(net_arch={**NET_ARCHS, "pair": [128, 128]}),
    )
    policy_class = ImplicitQuantileNetwork

    config: IQNConfig
    policy: ImplicitQuantileNetwork

    def _policy_options(self) -> dict[str, Any]:
        config = self.config
        sizes = {"n_acting_quantiles": config.n_acting_quantiles, "n_cosines": config.n_cosines}
        return {**DQN._policy_options(self), **sizes}

    def _bytes_ahead(self) -> int:
        return 4 * (self.config.n_quantiles + self.config.n_target_quantiles)

    def _draws(self, n_steps: int) -> dict[str, Tensor]:
        """Return rows with each step's fractions (batch, n), for values and targets, beside noise."""
        draws, config = super()._draws(n_steps), self.config
        for name, n in (("fractions", config.n_quantiles), ("target_fractions", config.n_target_quantiles)):
            shape = n_steps, config.batch_size, n
            draws[name] = self._tensors(self.rng.random(shape, dtype=np.float32))
        return draws
