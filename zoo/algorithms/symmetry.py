"""Symmetric policies for symmetric bodies: mirrored steps to learn from, or a loss on mirrored means.

A mirrored step has the old log-probability, advantage and return of the step itself (Mittal et al. 2024,
https://arxiv.org/abs/2403.04359). The loss is the squared difference between the mean action of the mirrored
state and the mirrored mean action of the state, a constant (Yu et al. 2018, https://arxiv.org/abs/1801.08093).
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from gymnasium import spaces
from torch import Tensor

from zoo.algorithms.on_policy import RAW, RolloutBatch
from zoo.config.fields import build, hyperparameter
from zoo.config.user_files import named_class, own_object
from zoo.envs.spaces import describe
from zoo.errors import ZooError
from zoo.optim.update_runner import joined, tree_map, tree_signature
from zoo.policies.distributions import Gaussian

if TYPE_CHECKING:
    from zoo.algorithms.ppo import PPO2

WHERE = "algo.symmetry"


@dataclass
class SymmetryConfig:
    """The symmetry of a task: a function and how PPO uses it."""

    _target_: str = hyperparameter(
        "", "a function (observations, actions) → the mirrored ones, of tensors (n, …): module.function"
    )
    mode: str = hyperparameter(
        "augment",
        "augment: learn from mirrored steps too; loss: penalise means that are not symmetric (Box actions)",
        choices=("augment", "loss"),
    )
    coef: float = hyperparameter(0.25, "weight of the loss (mode=loss)", ge=0)


class Symmetry:
    """Mirrors the rollouts of an agent. Raises `ZooError` for a policy or function that does not fit."""

    def __init__(self, agent: PPO2) -> None:
        settings = agent.config.symmetry = named_class(agent.config.symmetry, WHERE)
        self.config = build(SymmetryConfig, settings, WHERE)
        self.agent, self.target = weakref.proxy(agent), self.config._target_
        if not self.target:
            raise ZooError(f"`{WHERE}` needs the function that mirrors: {{_target_: module.function, …}}")
        if self.config.coef != SymmetryConfig.coef and self.config.mode == "augment":
            raise ZooError(f"`{WHERE}.coef` is the weight of the loss; it needs `{WHERE}.mode=loss`")
        self.function = own_object(WHERE, self.target)
        if not callable(self.function):
            raise ZooError(f"`{WHERE}`: {self.target} is no function")
        self.is_augmenting, head = self.config.mode == "augment", agent.policy.head
        if agent.policy_config.recurrent is not None or agent.recurrent.array is not None:
            raise ZooError(f"`{WHERE}` is not for recurrent policies, whose states it can't mirror")
        if agent._mask_size is not None:
            raise ZooError(f"`{WHERE}` is not for envs that mask actions, as it can't mirror the masks")
        if not self.is_augmenting and not isinstance(head, Gaussian):
            kind = describe(agent.action_space)
            raise ZooError(f"`{WHERE}.mode=loss` is for Box actions, but the env's are {kind}; take augment")

    def mirrored(self, rollout: RolloutBatch) -> dict[str, Any]:
        """Return a rollout's mirrored ``observations``, as the policy reads them, and ``actions``."""
        agent = self.agent
        if agent.normalizer is None:
            return self._mirror(rollout["observations"], rollout["actions"])
        raw = agent._tensors(agent.buffer.rows()[RAW])
        mirrored = self._mirror(raw, rollout["actions"])
        arrays = tree_map(lambda tensor: tensor.cpu().numpy(), mirrored["observations"])
        return {**mirrored, "observations": agent._tensors(agent.normalizer.normalize_observations(arrays))}

    def _mirror(self, observations: Any, actions: Any) -> dict[str, Any]:
        pair = {"observations": observations, "actions": actions}
        result = self.function(*self._copies(observations, actions))
        try:
            mirrored = dict(zip(pair, result, strict=True))
            fits = tree_signature(mirrored) == tree_signature(pair)
        except (TypeError, ValueError):
            fits = False
        if not fits:
            expected = tree_map(lambda tensor: f"{list(tensor.shape)} {tensor.dtype}", pair)
            raise ZooError(f"`{WHERE}`: {self.target} returned other things than tensors like {expected}")
        self._check_choices(mirrored["actions"])
        return mirrored

    def _copies(self, *trees: Any) -> Any:
        """Return copies, which the function may change in place."""
        return tree_map(Tensor.clone, trees)

    def _check_choices(self, actions: Tensor) -> None:
        """Raise `ZooError` for mirrored choices, counted from 0, that the space does not have."""
        space = self.agent.action_space
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            sizes = actions.new_tensor(space.n if isinstance(space, spaces.Discrete) else space.nvec)
            if ((actions < 0) | (actions >= sizes)).any():
                raise ZooError(
                    f"`{WHERE}`: {self.target} returned actions that {describe(space)} does not have"
                )

    def doubled(self, batch: RolloutBatch) -> RolloutBatch:
        """Return a batch with its mirrored steps behind its own."""
        mirrored = batch["mirrored"]
        columns = {name: column for name, column in batch.items() if name != "mirrored"}
        return cast(
            RolloutBatch, {name: joined(part, mirrored.get(name, part)) for name, part in columns.items()}
        )

    def loss(self, batch: RolloutBatch, parameters: Tensor) -> Tensor:
        """Return the squared difference, of the parameters of a `doubled` batch's distributions."""
        means, of_mirrored = parameters[..., : self.agent.policy.head.noise_size].chunk(2)
        _, mirrored_means = self.function(*self._copies(batch["observations"], means.detach()))
        return (of_mirrored - mirrored_means).square().mean()
