"""Trust region policy optimisation (Schulman et al. 2015, https://arxiv.org/abs/1502.05477).

After each rollout the policy takes one long step: along the natural gradient of how much better its actions
were than expected, as far as the KL divergence to the old policy may become. A line search goes back from
there until the step keeps the bound and gains something. Then the critic learns the returns, without moving
anything that the actions depend on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from zoo.algorithms.arguments import SdeConfig
from zoo.algorithms.on_policy import IN_ROLLOUT, OnPolicyAlgorithm, OnPolicyConfig, RolloutBatch, standardized
from zoo.algorithms.search_space import ranges, searched
from zoo.buffers.arrays import transform
from zoo.config.fields import ScheduleValue, hyperparameter, with_defaults
from zoo.errors import ZooError
from zoo.optim.natural_gradient import (
    Product,
    conjugate_gradient,
    fisher_vector_product,
    line_search,
    longest_step,
)
from zoo.optim.optimizers import Adam, Optimizer
from zoo.optim.update_runner import State, StepResult, average
from zoo.policies.recurrent import unrolled


@dataclass
@with_defaults(n_steps=2048, normalize_advantage=True, ent_coef=0.0)
class TRPOConfig(SdeConfig, OnPolicyConfig):
    """Hyperparameters of TRPO."""

    learning_rate: ScheduleValue = hyperparameter(1e-3, "step size of the critic's optimizer", ge=0)
    max_grad_norm: float | None = hyperparameter(
        None, "bound of the norm of the critic's gradient; null: none", gt=0
    )
    target_kl: float = hyperparameter(
        0.01, "bound of the mean KL divergence to the old policy, summed over the parts of an action", gt=0
    )
    cg_max_steps: int = hyperparameter(15, "iterations of the conjugate gradient method", ge=1)
    cg_damping: float = hyperparameter(0.1, "multiple of the identity added to the Fisher matrix", ge=0)
    line_search_max_iter: int = hyperparameter(10, "lengths of the step that are tried", ge=1)
    line_search_shrinking_factor: float = hyperparameter(
        0.8, "length of each try as a part of the one before", gt=0, lt=1
    )
    line_search_kl_factor: float = hyperparameter(
        1.0, "KL divergence up to which a try is accepted, as a multiple of target_kl", gt=0
    )
    sub_sampling_factor: int = hyperparameter(
        1, "Fisher products take one of so many steps, drawn at random; 1: all", ge=1
    )
    n_critic_updates: int = hyperparameter(10, "passes of the critic over each rollout", ge=1)
    batch_size: int = hyperparameter(128, "size of the critic's minibatches", unit="steps", ge=1)
    adam_eps: float = hyperparameter(1e-5, "epsilon of the critic's Adam", gt=0)


class TRPO(OnPolicyAlgorithm):
    """Trust region policy optimisation: conjugate gradient and line search, with SB3-Contrib's defaults."""

    name = "trpo"
    config_class = TRPOConfig
    search_space = searched(
        OnPolicyAlgorithm.search_space,
        ranges("powers", n_steps=(128, 2048)),
        ranges("powers", IN_ROLLOUT, batch_size=(16, 1024)),
        ranges("even", n_critic_updates=(5, 30), cg_max_steps=(5, 30)),
        ranges("log", target_kl=(0.001, 0.5), cg_damping=(0.001, 2.0)),
    )
    uses_old_log_prob = True

    config: TRPOConfig

    def _make_policy(self) -> nn.Module:
        if self.policy_config.critic_lstm == "shared":
            raise ZooError(
                "`policy.critic_lstm=shared`: trpo's critic moves nothing that actions depend on, so it can't"
                " train the actor's recurrent layers; take detached, by which it reads them, or separate"
            )
        return super()._make_policy()

    def _optimizer(self) -> Optimizer:
        return Adam(eps=self.config.adam_eps)

    def update(self) -> None:
        rollout = self.finished_rollout()
        self._record_explained_variance(rollout)
        advantages = rollout["advantages"]
        if self.config.normalize_advantage:
            advantages = standardized(advantages)
        self._move_policy({**rollout, "advantages": advantages})
        self._fit_critic(rollout)

    # -- the policy -------------------------------------------------------------------------------------

    def _move_policy(self, batch: RolloutBatch) -> None:
        """Take the step, or none where no length of it was accepted."""
        config, runner = self.config, self.runner
        start = runner.state.snapshot("policy")
        old = runner.call(self._policy_gradient, batch)
        product = self._damped_product(self._fisher_batch(batch))
        direction = conjugate_gradient(product, old["gradient"], config.cg_max_steps)
        step = longest_step(direction, product, config.target_kl)
        objective, bound = average(old["objective"]), config.line_search_kl_factor * config.target_kl
        reached = {"objective": objective, "kl": torch.zeros_like(objective), "entropy": old["entropy"]}

        def accepts(vector: Tensor) -> Tensor:
            tried = {
                name: average(mean)
                for name, mean in runner.call(self._evaluate_step, batch, old["parameters"], vector).items()
            }
            accepted = (tried["kl"] < bound) & (tried["objective"] > objective)
            reached.update({name: torch.where(accepted, tried[name], reached[name]) for name in reached})
            return accepted

        vector, is_accepted = line_search(
            *(accepts, start, step, config.line_search_shrinking_factor, config.line_search_max_iter)
        )
        runner.state.overwrite({"policy": vector})
        self.n_updates += 1
        self.record("train/policy_objective", reached["objective"])
        self.record("train/kl_divergence_loss", reached["kl"])
        self.record("train/entropy_loss", -reached["entropy"])
        self.record("train/is_line_search_success", float(is_accepted))

    def _policy_gradient(self, state: State, batch: RolloutBatch) -> dict[str, Tensor]:
        """Return the distributions' parameters, the objective and its gradient at the policy of ``state``."""
        policy = self.updater.module(state)
        parameters, _, _ = policy(batch, batch.get("states"))
        objective, entropy = self._objective(parameters, batch)
        gradient = self.updater.gradient(policy, objective)
        return {
            "parameters": parameters.detach(),
            "objective": objective.detach(),
            "entropy": entropy.detach(),
            "gradient": gradient,
        }

    @torch.no_grad()
    def _evaluate_step(
        self, state: State, batch: RolloutBatch, old: Tensor, vector: Tensor
    ) -> dict[str, Tensor]:
        """Return objective, entropy and KL divergence to ``old`` where ``vector`` is the policy."""
        parameters, _, _ = self.updater.parameters.functional(vector, state)(batch, batch.get("states"))
        objective, entropy = self._objective(parameters, batch)
        kl = self.policy.head.kl(old, parameters).mean()
        return {"objective": objective, "entropy": entropy, "kl": kl}

    def _objective(self, parameters: Tensor, batch: RolloutBatch) -> tuple[Tensor, Tensor]:
        """Return the surrogate objective (equation 14 of the paper) with the entropy's bonus; the entropy."""
        log_prob, entropies = self.policy.head.log_prob_and_entropy(parameters, batch["actions"])
        ratio, entropy = (log_prob - batch["log_prob"]).exp(), entropies.mean()
        return (ratio * batch["advantages"]).mean() + self.config.ent_coef * entropy, entropy

    def _fisher_batch(self, batch: RolloutBatch) -> RolloutBatch:
        """Return the batch for Fisher products: all of it, or a random subset."""
        factor, n_rows = self.config.sub_sampling_factor, self.buffer.n_rows
        if factor == 1:
            return batch
        rows = self._tensors(self.buffer.minibatch_rows(self.rng, 1, 1, math.ceil(n_rows / factor))[0])
        drawn: RolloutBatch = transform(lambda column: column[rows], batch)
        return drawn

    def _damped_product(self, batch: RolloutBatch) -> Product:
        """Return the product with the mean Fisher matrix of all ranks, damped."""
        runner, damping = self.runner, self.config.cg_damping
        if runner.runtime.compile is True:
            product: Product = partial(runner.call, self._fisher_product, batch)
        else:
            product = self._fisher_products(State(runner.state), batch)
        return lambda vector: average(product(vector)) + damping * vector

    def _fisher_product(self, state: State, batch: RolloutBatch, vector: Tensor) -> Tensor:
        return self._fisher_products(state, batch)(vector)

    def _fisher_products(self, state: State, batch: RolloutBatch) -> Product:
        vector = state["policy"].detach().requires_grad_()
        with unrolled():
            parameters, _, _ = self.updater.parameters.functional(vector, state)(batch, batch.get("states"))
        old, kl = parameters.detach(), self.policy.head.kl
        return fisher_vector_product(parameters, vector, lambda new: kl(old, new).mean())

    # -- the critic -------------------------------------------------------------------------------------

    def _fit_critic(self, rollout: RolloutBatch) -> None:
        minibatches = self.buffer.minibatch_rows(self.rng, self.config.n_critic_updates, *self._minibatches())
        rates = self.rates(self._progress_before)
        shared = {"rollout": rollout, "critic_only": self._critic_only_mask(rollout), **rates}
        self.take_steps(self._critic_step, shared, self._tensors(minibatches))

    def _critic_step(self, state: State, shared: Any, rows: Tensor) -> StepResult:
        policy = self.updater.module(state)
        batch = transform(lambda column: column[rows], shared["rollout"])
        _, values, _ = policy(batch, batch.get("states"))
        value_loss = (values - batch["returns"]).square().mean()
        gradient = self.updater.gradient(policy, value_loss) * shared["critic_only"]
        state, grad_norm = self.updater.apply_gradient(policy.moved(state), gradient, shared["learning_rate"])
        return StepResult(state, {"value_loss": value_loss.detach(), "grad_norm": grad_norm})

    def _critic_only_mask(self, rollout: RolloutBatch) -> Tensor:
        """Return 1 for each parameter that no action depends on, which is the critic's own; 0 for others."""
        parameters = self.updater.parameters
        first = transform(lambda column: column[:1], rollout)
        outputs, _ = self.policy.action_parameters(first, first.get("states"))
        grads = torch.autograd.grad(outputs.sum(), list(parameters.leaves.values()), allow_unused=True)
        mask = torch.ones_like(parameters.flat)
        for name, grad in zip(parameters.leaves, grads, strict=True):
            if grad is not None:
                mask[parameters.slices[name]] = 0.0
        return mask

    def _batch_size(self) -> int:
        self._minibatches()
        return super()._batch_size()

    def gradient_steps_in(self, total_timesteps: int) -> float:
        steps_an_update = 1 + self.config.n_critic_updates * self._minibatches()[0]
        return total_timesteps / (self.buffer.n_steps * self.n_envs) * steps_an_update
