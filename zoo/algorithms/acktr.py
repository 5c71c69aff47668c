"""Actor-critic by Kronecker-factored trust regions (Wu et al. 2017, https://arxiv.org/abs/1708.05144).

As A2C takes one step on each rollout, but the natural one: the gradient is divided by the curvature of the
policy and of the critic, of which K-FAC keeps running averages layer by layer, and the step is as long as the
KL divergence to the old policy may grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from zoo.algorithms.a2c import actor_critic_loss
from zoo.algorithms.collector import check_parameters
from zoo.algorithms.on_policy import (
    PLAIN_ACTIONS,
    OnPolicyAlgorithm,
    OnPolicyConfig,
    RolloutBatch,
    standardized,
)
from zoo.algorithms.search_space import NET_ARCHS, NETWORKS, choices, ranges, searched
from zoo.config.fields import hyperparameter, with_defaults
from zoo.optim.kfac import COUNT, KFac
from zoo.optim.optimizers import Momentum, Parameters, Updater
from zoo.optim.update_runner import State, StepResult
from zoo.policies.recurrent import unrolled


@dataclass
@with_defaults(learning_rate="lin_0.25", n_steps=20, gae_lambda=1.0)
class ACKTRConfig(OnPolicyConfig):
    """Hyperparameters of ACKTR. Defaults are Stable-Baselines', except ``kfac_update`` (there 1).

    The learning rate only matters where it is less than what ``kfac_clip`` allows, which is late in a run.
    ``max_grad_norm`` only bounds the first steps, before there are curvatures.
    """

    vf_coef: float = hyperparameter(0.25, "weight of the value's mean squared error", ge=0)
    normalize_advantage: bool | None = hyperparameter(  # type: ignore[assignment]
        None, "standardise the advantages of each rollout; null: where actions are Box"
    )
    kfac_clip: float = hyperparameter(
        1e-3, "twice the KL divergence, by the quadratic model of it, that a step may cause", gt=0
    )
    kfac_update: int = hyperparameter(10, "updates after which the inverses are computed anew", ge=1)
    kfac_inverse: Literal["eigen", "cholesky"] = hyperparameter(
        "eigen", "eigen: exact damping; cholesky: approximate damping, far faster for wide layers"
    )
    kfac_damping: float = hyperparameter(0.01, "added to the diagonal of the curvature", gt=0)
    kfac_decay: float = hyperparameter(0.99, "decay of the running averages of the curvature", ge=0, lt=1)
    cold_updates: int = hyperparameter(
        10, "first updates, by plain gradients with momentum, while the averages begin", ge=1
    )
    momentum: float = hyperparameter(0.9, "decay of earlier steps; 0: no momentum", ge=0, lt=1)
    vf_fisher_coef: float = hyperparameter(1.0, "weight of the critic's curvature", ge=0)


class ACKTR(OnPolicyAlgorithm):
    """Actor-critic by natural gradients (K-FAC) within a trust region."""

    name = "acktr"
    search_space = searched(
        OnPolicyAlgorithm.search_space,
        ranges("log falling", learning_rate=(1e-3, 0.5)),
        ranges("log", n_steps=(8, 2048), kfac_clip=(1e-4, 3e-2), vf_fisher_coef=(0.1, 3.0)),
        ranges("log", kfac_damping=(1e-3, 0.1)),
        ranges("even", ent_coef=(0.0, 0.1), vf_coef=(0.1, 1.0)),
        choices(normalize_advantage=[None, False, True]),
        policy=NETWORKS | choices(net_arch={**NET_ARCHS, "shared": {"shared": [256, 256]}}),
    )
    config_class = ACKTRConfig
    supported_actions = PLAIN_ACTIONS

    config: ACKTRConfig

    def _make_state(self) -> State:
        config, parameters = self.config, Parameters("policy", self.policy)
        self.updater = Updater(parameters, Momentum(config.momentum))
        self.cold_updater = Updater(
            parameters, Momentum(config.momentum), max_grad_norm=config.max_grad_norm, name="cold"
        )
        self.kfac = KFac(
            self.updater,
            n_plain=config.cold_updates,
            decay=config.kfac_decay,
            damping=config.kfac_damping,
            inverse=config.kfac_inverse,
        )
        states = (part.initial_state() for part in (self.cold_updater, self.updater, self.kfac))
        named = {name: tensor for state in states for name, tensor in state.items()}
        return State({**named, **self._return_moments()})

    def update(self) -> None:
        rollout = self.finished_rollout()
        self._update_inverses()
        shared = {"rollout": rollout, **self.rates(self._progress_before)}
        noise = self.rng.standard_normal(rollout["returns"].shape, dtype=np.float32)
        self.take_steps(self._gradient_step, shared, self._tensors(noise[None]))

    def _update_inverses(self) -> None:
        n_natural = int(self.runner.state[COUNT]) - self.config.cold_updates
        if n_natural < 0 or n_natural % self.config.kfac_update:
            return
        try:
            self.runner.state.overwrite(self.kfac.inverses(self.runner.state))
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            check_parameters(self)
            raise

    def _gradient_step(self, state: State, shared: Any, noise: Tensor) -> StepResult:
        config, policy = self.config, self.updater.module(state)
        rollout: RolloutBatch = shared["rollout"].copy()
        with self.kfac.recording() as watch, unrolled():
            parameters, values, _ = policy(rollout, rollout.get("states"))
        log_prob, entropy = self.policy.head.log_prob_and_entropy(parameters, rollout["actions"])
        fisher_loss = self.fisher_losses(log_prob, values, noise).mean()
        factors = self.kfac.factors(watch, fisher_loss, values.numel())
        if self._normalizes_advantage():
            rollout["advantages"] = standardized(rollout["advantages"])
        loss, metrics = actor_critic_loss(config, log_prob, entropy, values, rollout)
        gradient = self.updater.gradient(policy, loss)
        natural = self.kfac.natural_gradient(state, gradient)
        step_size = self.step_size(natural, gradient, shared["learning_rate"])
        is_cold = state[COUNT] < config.cold_updates
        state = self.kfac.update_averages(policy.moved(state), factors)
        state, grad_norm = self.cold_updater.apply_gradient(
            state, gradient, shared["learning_rate"], skip=~is_cold
        )
        rest = torch.full_like(step_size, 1.0 - config.momentum)
        state, _ = self.updater.apply_gradient(state, step_size * natural, rest, skip=is_cold)
        return StepResult(state, {**metrics, "grad_norm": grad_norm, "step_size": step_size})

    def fisher_losses(self, log_prob: Tensor, values: Tensor, noise: Tensor) -> Tensor:
        """Return minus the log-likelihoods of actions and values drawn from policy and critic (section 3.1).

        The actions taken are such draws, as a rollout is learned from once. The critic's are its values with
        standard normal ``noise``. As where the scores were published, the half of a normal density is left
        out, so the Fisher information of a value is 4 times ``vf_fisher_coef`` squared.
        """
        drawn = (values + noise).detach()
        return self.config.vf_fisher_coef * (values - drawn).square() - log_prob

    def step_size(self, natural: Tensor, gradient: Tensor, learning_rate: Tensor) -> Tensor:
        """Return min(η, √(2δ / ΔᵀFΔ)) (equation 8), where 2δ is ``kfac_clip`` and FΔ the gradient."""
        curvature = (natural @ gradient).clamp(min=0.0)
        return torch.minimum(learning_rate, (self.config.kfac_clip / curvature).sqrt())

    def _normalizes_advantage(self) -> bool:
        normalize = self.config.normalize_advantage
        return isinstance(self.action_space, spaces.Box) if normalize is None else normalize
