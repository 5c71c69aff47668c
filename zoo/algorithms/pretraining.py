"""Letting any algorithm's policy start as the clone of an expert."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zoo.algorithms.agent import Agent
from zoo.algorithms.cloning import Cloning, CloningTerms, Epoch, Patience
from zoo.algorithms.demonstrations import Demonstrations, take_in_statistics
from zoo.algorithms.expert_episodes import chosen_episodes
from zoo.config.fields import hyperparameter
from zoo.errors import NotFiniteError
from zoo.memory.expert_data import ExpertData
from zoo.optim.program import Program
from zoo.optim.runtime import Runtime
from zoo.policies.modes import Modes

OWN_GENERATOR = 2
"""Beside the seed of a run: pretraining draws from a generator of its own, and learning as without it."""


@dataclass
class PretrainConfig(CloningTerms):
    """Behaviour cloning before reinforcement learning: the config section ``pretrain``."""

    dataset: str | None = hyperparameter(
        None, "expert data to start from: a .npz file, or minari:ID; null: start from nothing"
    )
    n_epochs: int = hyperparameter(50, "passes over the expert data at most", ge=1)
    learning_rate: float = hyperparameter(1e-3, "step size of Adam", ge=0)


def pretrain(
    agent: Agent[Any],
    dataset: ExpertData | str | Path,
    config: PretrainConfig,
    on_epoch: Callable[[Epoch], bool | None] | None = None,
) -> list[Epoch]:
    """Clone an expert with the part of the agent's policy that acts; return how the losses went.

    Critics, targets' other parts and optimizers stay as they are, and so does what the expert does not teach:
    a standard deviation that is no function of the state. The parameters with the best validation loss are
    taken. It ends after an epoch for which ``on_epoch`` returns True. Raises `ZooError` for other spaces.
    """
    data = chosen_episodes(dataset, agent, config)
    take_in_statistics(agent, data)
    rng = np.random.default_rng((agent.seed, OWN_GENERATOR))
    demonstrations = Demonstrations(data, agent, config.validation_fraction, rng)
    policy = copy.deepcopy(agent.acting.policy)
    cloning, modes, patience = Cloning(policy, config), Modes(policy), Patience(config.patience)
    runtime = Runtime(device=str(agent.device), compile=False, threads="auto", precision="float32")
    weights = sum(parameter.numel() for parameter in policy.parameters())
    runtime.expect(config.n_epochs * len(demonstrations.train), float(weights * config.batch_size))
    program = Program(cloning.descent.initial_state(), runtime)
    rate = torch.tensor(config.learning_rate, device=agent.device)
    epochs: list[Epoch] = []
    with runtime.in_force(), agent.generators.torch_of_this_run():
        for number in range(1, config.n_epochs + 1):
            rows = demonstrations.minibatches(rng, config.batch_size)
            with modes.training():
                shared = cloning.shared(demonstrations, rate)
                ran = program.run(cloning.step, shared, torch.from_numpy(rows).to(agent.device))
            metrics = dict(zip(ran.names, ran.metrics.tolist(), strict=True))
            validation_loss = cloning.validation_loss(demonstrations)
            epochs.append(Epoch(number, metrics["loss"], metrics["imitation_loss"], validation_loss))
            if not np.isfinite(metrics["loss"]):
                raise NotFiniteError(
                    f"pretraining's loss is not finite in epoch {number}; a smaller learning_rate may help"
                )
            is_told_to_end = on_epoch is not None and on_epoch(epochs[-1])
            if patience.is_over(validation_loss, program.state["policy"]) or is_told_to_end:
                break
    if patience.vector is not None:
        program.state["policy"].copy_(patience.vector)
    _take_over(agent, policy)
    return epochs


def _take_over(agent: Agent[Any], policy: torch.nn.Module) -> None:
    """Copy a policy's parameters and buffers to the agent's, and to the targets that follow it."""
    own = agent.acting.policy.state_dict()
    with torch.no_grad():
        for name, tensor in policy.state_dict().items():
            own[name].copy_(tensor)
    agent._copy_to_targets()
