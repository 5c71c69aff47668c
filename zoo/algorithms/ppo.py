"""Proximal policy optimisation (Schulman et al. 2017, https://arxiv.org/abs/1707.06347).

After each rollout the policy takes several epochs of minibatch steps on a surrogate objective that stops
paying once the probability of an action has changed by more than the clip range.

- `PPO2` is the algorithm, and holds all of the code; its defaults are those of Stable-Baselines' PPO2.
- `PPO` is the same with the defaults of Stable-Baselines3's PPO, `MaskablePPO` and `RecurrentPPO` with those
  of SB3-Contrib's.
- `RslRlPPO` has the values of rsl_rl (Schwarke et al. 2025, https://arxiv.org/abs/2509.10771), and
  standardises the advantages of a whole rollout.
- `PPO1` is Stable-Baselines' first form, for ranks that each learn from a batch of their own and average
  their gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.algorithms.arguments import Policy, SdeConfig
from zoo.algorithms.on_policy import IN_ROLLOUT, OnPolicyAlgorithm, OnPolicyConfig, RolloutBatch, standardized
from zoo.algorithms.search_space import choices, ranges, searched
from zoo.buffers.arrays import Array, transform
from zoo.config.fields import ScheduleValue, hyperparameter, with_defaults
from zoo.config.schedules import parse
from zoo.envs.spaces import describe
from zoo.errors import ZooError
from zoo.optim.optimizers import Adam, Optimizer
from zoo.optim.update_runner import STOPPED, State, StepResult, average, averaging_over
from zoo.policies.config import PolicyConfig
from zoo.policies.distributions import Gaussian

if TYPE_CHECKING:
    from zoo.algorithms.symmetry import Symmetry

SMALLEST_RATE, LARGEST_RATE = 1e-5, 1e-2
"""Bounds of a learning rate that follows `desired_kl`, those of rsl_rl."""

RATE_FACTOR = 1.5


@dataclass
class ClippedObjectiveConfig(SdeConfig, OnPolicyConfig):
    """Hyperparameters of both forms."""

    vf_coef: float = hyperparameter(0.25, "weight of the value's mean squared error", ge=0)
    n_epochs: int = hyperparameter(4, "passes over each rollout", ge=1)
    clip_range: ScheduleValue = hyperparameter(
        0.2, "change of an action's probability ratio beyond which nothing is gained", gt=0
    )
    adam_eps: float = hyperparameter(1e-5, "Adam's epsilon", gt=0)
    desired_kl: float | None = hyperparameter(
        None,
        "adapt the learning rate to this KL divergence from the old policy, often 0.01; null: off",
        gt=0,
    )
    rpo_alpha: float = hyperparameter(
        0.0,
        "half width of uniform noise on the means of Box actions, in updates only (RPO); more explores"
        " longer, often 0.5, 0.01 for MuJoCo; 0: none",
        ge=0,
    )
    symmetry: dict[str, Any] | None = hyperparameter(
        None,
        "a symmetry of the task, a function: {_target_: module.function, mode: augment | loss}; null: none",
    )

    def __post_init__(self) -> None:
        if self.desired_kl is not None and parse(self.learning_rate).type != "constant":
            raise ZooError(
                f"`algo.desired_kl` adapts the learning rate, but `algo.learning_rate={self.learning_rate}`"
                " is a schedule; give it as a number"
            )


@dataclass
@with_defaults(learning_rate=2.5e-4, normalize_advantage=True)
class PPO2Config(ClippedObjectiveConfig):
    """Hyperparameters of PPO2. Stable-Baselines halves the value's error: its ``vf_coef`` is twice ours."""

    batch_size: int | None = hyperparameter(
        None, "size of a minibatch; null: n_minibatches decides", unit="steps", ge=2
    )
    n_minibatches: int = hyperparameter(4, "minibatches an epoch, if batch_size is null", ge=1)
    clip_range_vf: ScheduleValue | Literal["same"] | None = hyperparameter(
        "same", "the same for the change of a value; same: clip_range, null: no clipping", gt=0
    )
    target_kl: float | None = hyperparameter(
        None, "an update ends when the KL divergence to the old policy exceeds 1.5 times this", gt=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        default = type(self).n_minibatches
        if self.batch_size is not None and self.n_minibatches != default:
            raise ZooError(
                f"`algo.n_minibatches={self.n_minibatches}` does nothing beside `algo.batch_size="
                f"{self.batch_size}`; set `algo.batch_size=null` too, or leave n_minibatches at {default}"
            )


class PPO2(OnPolicyAlgorithm):
    """Proximal policy optimisation, with clipped values and the defaults of Stable-Baselines' PPO2."""

    name = "ppo2"
    config_class: ClassVar[type[Any]] = PPO2Config
    search_space = searched(
        OnPolicyAlgorithm.search_space,
        ranges("powers", n_steps=(8, 2048)),
        ranges("powers", IN_ROLLOUT, batch_size=(8, 1024)),
        ranges("log falling", learning_rate=(1e-5, 3e-3)),
        ranges("even falling", clip_range=(0.1, 0.4)),
        ranges("even", n_epochs=(1, 20), ent_coef=(0.0, 0.1), vf_coef=(0.1, 1.0)),
        ranges("log", max_grad_norm=(0.3, 5.0)),
    )
    uses_old_log_prob = True
    standardizes_minibatches = True
    """Whether advantages are standardised in each minibatch, or in a rank's whole rollout."""

    config: PPO2Config
    mirror: Symmetry | None = None

    def _optimizer(self) -> Optimizer:
        return Adam(eps=self.config.adam_eps)

    def _make_buffer(self) -> None:
        super()._make_buffer()
        if self.config.symmetry is not None:
            from zoo.algorithms.symmetry import Symmetry

            self.mirror = Symmetry(self)

    def _make_state(self) -> State:
        state = super()._make_state()
        if self.config.target_kl is not None:
            state[STOPPED] = torch.zeros((), dtype=torch.bool, device=self.device)
        if self.config.desired_kl is not None:
            state["learning_rate"] = torch.tensor(parse(self.config.learning_rate).start, device=self.device)
        if self.config.rpo_alpha and not isinstance(self.policy.head, Gaussian):
            raise ZooError(
                f"`algo.rpo_alpha={self.config.rpo_alpha}` is for Box actions, but the env's are"
                f" {describe(self.action_space)}"
            )
        return state

    def _uses_old_parameters(self) -> bool:
        return self.config.desired_kl is not None

    def update(self) -> None:
        """Take a gradient step on each minibatch of each epoch, until the policy is too far from the old."""
        rollout, config = self.finished_rollout(), self.config
        self._record_explained_variance(rollout)
        if config.normalize_advantage and not self.standardizes_minibatches:
            with averaging_over(None):
                rollout["advantages"] = standardized(rollout["advantages"])
        if self.mirror is not None:
            rollout["mirrored"] = self.mirror.mirrored(rollout)
        n_minibatches, n_rows = self._minibatches()
        minibatches = self.buffer.minibatch_rows(self.rng, config.n_epochs, n_minibatches, n_rows)
        shared = {"rollout": rollout, **self.rates(self._progress_before)}
        # The loop over the (n_epochs × n_minibatches, n_rows) indices is the runner's: it can be compiled.
        self.take_steps(self._gradient_step, shared, self._tensors(self._steps_inputs(minibatches)))

    def _steps_inputs(self, minibatches: Array) -> Any:
        """Return the inputs of each step: ``rows``, and if needed noise and whether it is the first.

        The ``mean_noise`` (steps, n_rows, …, actions) is that of robust policy optimisation (Rahman and Xue
        2022, https://arxiv.org/abs/2212.07536).
        """
        alpha, extras = self.config.rpo_alpha, {}
        if self.config.desired_kl is not None:
            extras["is_first"] = np.arange(len(minibatches)) == 0
        if alpha:
            length = self.buffer.chunk_length
            n_steps, n_rows = minibatches.shape
            n_rows *= 2 if self.mirror is not None and self.mirror.is_augmenting else 1
            shape = (n_steps, n_rows, *(() if length is None else (length,)), self.policy.head.noise_size)
            extras["mean_noise"] = self.rng.uniform(-alpha, alpha, shape).astype(np.float32)
        return {"rows": minibatches, **extras} if extras else minibatches

    def _gradient_step(self, state: State, shared: Any, row: Any) -> StepResult:
        config, policy = self.config, self.updater.module(state)
        extras: Mapping[str, Tensor] = {} if isinstance(row, Tensor) else row
        rows = extras.get("rows", row)
        batch: RolloutBatch = transform(lambda column: column[rows], shared["rollout"])
        if config.normalize_advantage and self.standardizes_minibatches:
            batch["advantages"] = standardized(batch["advantages"])
        unmirrored, symmetry_loss = batch, None
        if self.mirror is not None:
            batch = self.mirror.doubled(batch)
        parameters, values, _ = policy(batch, batch.get("states"))
        learning_rate, n = shared.get("learning_rate"), len(rows)
        metrics: dict[str, Tensor] = {}
        if self.mirror is not None and not self.mirror.is_augmenting:
            symmetry_loss = self.mirror.loss(unmirrored, parameters)
            batch, parameters, values = unmirrored, parameters[:n], values[:n]
        if config.desired_kl is not None:
            kl = average(self.policy.head.kl(unmirrored["parameters"], parameters.detach()[:n]).mean())
            learning_rate = adapted(state["learning_rate"], kl, config.desired_kl, extras["is_first"])
            state = state.replaced({"learning_rate": learning_rate})
            metrics |= {"kl": kl, "learning_rate": learning_rate.clone()}
        if "mean_noise" in extras:
            noise = extras["mean_noise"]
            parameters = parameters + F.pad(noise, (0, parameters.shape[-1] - noise.shape[-1]))
        log_prob, entropy = self.policy.head.log_prob_and_entropy(parameters, batch["actions"])
        log_ratio = log_prob - batch["log_prob"]
        policy_loss = self.policy_loss(log_ratio, batch, shared["clip_range"])
        value_loss = self.value_loss(values, batch, shared)
        entropy_loss = -entropy[:n].mean()
        loss = policy_loss + config.ent_coef * entropy_loss + config.vf_coef * value_loss
        if self.mirror is not None and symmetry_loss is not None:
            loss = loss + self.mirror.config.coef * symmetry_loss
            metrics["symmetry_loss"] = symmetry_loss.detach()
        log_ratio = log_ratio.detach()[:n]
        ratio_change = log_ratio.expm1()
        approx_kl, too_far = (ratio_change - log_ratio).mean(), None
        if config.target_kl is not None:
            approx_kl = average(approx_kl)
            too_far = ~(approx_kl <= 1.5 * config.target_kl)  # NaN is too far as well
        state, grad_norm = self.updater.step(state, policy, loss, learning_rate, skip=too_far)
        if too_far is not None:
            state = state.replaced({STOPPED: too_far})
        metrics |= {
            "policy_gradient_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy_loss": entropy_loss.detach(),
            "loss": loss.detach(),
            "approx_kl": approx_kl,
            "clip_fraction": (ratio_change.abs() > shared["clip_range"]).float().mean(),
            "grad_norm": grad_norm,
        }
        return StepResult(state, metrics)

    def policy_loss(self, log_ratio: Tensor, batch: RolloutBatch, clip_range: Tensor) -> Tensor:
        """Return the clipped surrogate (equation 7 of the paper), negated."""
        advantages, ratio = batch["advantages"], log_ratio.exp()
        clipped = torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
        return -torch.minimum(advantages * ratio, advantages * clipped).mean()

    def value_loss(self, values: Tensor, batch: RolloutBatch, rates: Mapping[str, Tensor]) -> Tensor:
        """Return the squared error to the returns; clipped values can only make it worse, never better."""
        error = (values - batch["returns"]).square()
        clip_range = self.config.clip_range_vf
        if clip_range is not None:
            bound = rates["clip_range" if clip_range == "same" else "clip_range_vf"]
            change = torch.clamp(values - batch["values"], -bound, bound)
            error = torch.maximum(error, (batch["values"] + change - batch["returns"]).square())
        return error.mean()

    def _minibatches(self) -> tuple[int, int]:
        if self.config.batch_size is not None:
            return super()._minibatches()
        buffer, n_minibatches = self.buffer, self.config.n_minibatches
        n_rows = math.ceil(buffer.n_rows / n_minibatches)
        if n_minibatches > buffer.n_rows or n_rows * buffer.steps_a_row == 1:
            raise self._minibatch_error(f"{n_minibatches} minibatches", "n_minibatches")
        return n_minibatches, n_rows

    def gradient_steps_in(self, total_timesteps: int) -> float:
        n_rollouts = total_timesteps / (self.buffer.n_steps * self.n_envs)
        return n_rollouts * self.config.n_epochs * self._minibatches()[0]

    def _batch_size(self) -> int:
        super()._batch_size()
        return self._minibatches()[1] * self.buffer.steps_a_row


def adapted(learning_rate: Tensor, kl: Tensor, desired_kl: float, is_first: Tensor) -> Tensor:
    """Return the learning rate of a step: smaller after too large a KL divergence, larger after a small one.

    It changes by a factor of 1.5 above twice and below half of ``desired_kl``. The first step of an update
    has nothing to compare: its policy is the old one. There rsl_rl raises the rate.
    """
    lower = torch.where(kl > 2 * desired_kl, learning_rate / RATE_FACTOR, learning_rate)
    rate = torch.where((kl > 0) & (kl < desired_kl / 2), learning_rate * RATE_FACTOR, lower)
    return torch.where(is_first, learning_rate, rate.clamp(SMALLEST_RATE, LARGEST_RATE))


@dataclass
@with_defaults(
    learning_rate=3e-4,
    n_steps=2048,
    batch_size=64,
    n_epochs=10,
    clip_range_vf=None,
    ent_coef=0.0,
    vf_coef=0.5,
)
class PPOConfig(PPO2Config):
    """Hyperparameters of PPO: Stable-Baselines3's defaults."""


class PPO(PPO2):
    """PPO with the defaults of Stable-Baselines3."""

    of_preset = "ppo"
    config_class = PPOConfig


class MaskablePPO(PPO):
    """PPO2 with the defaults of SB3-Contrib's MaskablePPO; masks come from the environment."""

    of_preset = "maskable_ppo"


@dataclass
@with_defaults(n_steps=128, batch_size=128)
class RecurrentPPOConfig(PPOConfig):
    """Hyperparameters of RecurrentPPO: SB3-Contrib's defaults."""


class RecurrentPPO(PPO2):
    """PPO2 with the defaults of SB3-Contrib's RecurrentPPO, for recurrent policies."""

    of_preset = "recurrent_ppo"
    usual_policy = "MlpLstmPolicy"
    search_space = searched(
        PPO2.search_space,
        ranges("powers", n_steps=(16, 2048)),
        ranges("powers", IN_ROLLOUT, batch_size=(32, 1024)),
        policy=choices(
            critic_lstm=["separate", "shared", "none"],
            net_arch={"default": None, "small": {"pi": [64], "vf": [64]}, "before": {"shared": [64]}},
            activation=[None, "tanh", "relu"],
        )
        | ranges("powers", lstm_hidden_size=(16, 256)),
    )
    config_class = RecurrentPPOConfig

    def __init__(
        self, policy: Policy = "MlpLstmPolicy", env: Any = None, learning_rate: Any = None, **options: Any
    ) -> None:
        super().__init__(policy, env, learning_rate, **options)
        if options.get("config") is None:  # agents that were saved act as they do
            self.check_policy(self.policy_config)

    @classmethod
    def check_policy(cls, policy: PolicyConfig) -> None:
        """Raise `ZooError` for a policy that is not recurrent."""
        if policy.recurrent is None and policy._target_ is None:
            raise ZooError(
                f"{cls.of_preset} needs a recurrent policy, which {policy.name} is not:"
                " policy=MlpLstmPolicy is one; without recurrence it is algo=ppo"
            )


@dataclass
@with_defaults(
    learning_rate=1e-3,
    n_steps=24,
    n_epochs=5,
    vf_coef=1.0,
    max_grad_norm=1.0,
    adam_eps=1e-8,
    desired_kl=0.01,
)
class RslRlPPOConfig(PPO2Config):
    """Hyperparameters of rsl_rl, for thousands of environments."""


class RslRlPPO(PPO2):
    """PPO2 with the values of rsl_rl, for legged robots: a learning rate that follows the KL divergence."""

    of_preset = "rsl_rl"
    config_class = RslRlPPOConfig
    search_space = searched(
        PPO2.search_space, ranges("log", learning_rate=(1e-4, 1e-2), desired_kl=(0.003, 0.03))
    )
    standardizes_minibatches = False


@dataclass
@with_defaults(
    learning_rate="lin_1e-3",
    n_steps=256,
    normalize_advantage=True,
    vf_coef=1.0,
    max_grad_norm=None,
    clip_range="lin_0.2",
)
class PPO1Config(ClippedObjectiveConfig):
    """Hyperparameters of PPO1."""

    batch_size: int = hyperparameter(
        64, "size of a minibatch; what does not fill one is left out", unit="steps", ge=1
    )
    clip_range_vf: ClassVar[None] = None
    target_kl: ClassVar[None] = None


class PPO1(PPO2):
    """Proximal policy optimisation whose ranks standardise a batch each, as Stable-Baselines' PPO1."""

    name = "ppo1"
    config_class = PPO1Config
    search_space = searched(
        OnPolicyAlgorithm.search_space,
        {name: PPO2.search_space["algo"][name] for name in ("learning_rate", "clip_range", "n_epochs")},
        ranges("powers", n_steps=(16, 2048)),
        ranges("powers", IN_ROLLOUT, batch_size=(16, 1024)),
        ranges("even", ent_coef=(0.0, 0.1)),
    )
    standardizes_minibatches = False

    config: PPO1Config  # type: ignore[assignment]

    def _minibatches(self) -> tuple[int, int]:
        _, n_rows = super()._minibatches()
        return self.buffer.n_rows // n_rows, n_rows
