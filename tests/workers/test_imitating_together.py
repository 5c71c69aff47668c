"""GAIL's discriminator learns from what all workers did, and is the same for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from forked_workers import together

from zoo.envs import EnvConfig
from zoo.experiment.expert_recording import record_expert
from zoo.imitation.expert_data import ExpertData
from zoo.imitation.gail import GAIL
from zoo.optim.state import tree_leaves, tree_map
from zoo.optim.workers import Workers

SHORT = EnvConfig("CartPole-v1", max_episode_steps=20)


@pytest.fixture(scope="module")
def expert() -> ExpertData:
    return record_expert(lambda seen: int(seen[2] + seen[3] > 0), SHORT, 3, seed=0)


def imitator(expert: ExpertData, generator: str) -> GAIL:
    batch = {"batch_size": 16} if generator == "trpo" else {}
    return GAIL(
        *({"net_arch": [8]}, SHORT, expert),
        **{"generator": generator, "n_steps": 16, "seed": 3, "compile": False, "threads": 1, **batch},
        g_step=1,
        d_step=2,
        d_gradient_penalty=1.0,
        d_spectral_norm=True,
        d_net_arch=[6],
    )


def learn(model: GAIL, workers: Workers, n_steps: int) -> None:
    """Learn as one of them, and do what the first one asks for until it has all that it wants to know."""
    model.join(workers)
    model.learn(n_steps)
    if workers.is_first:
        workers.end()
    else:
        workers.follow(model.distributed.orders)


def trained(expert: ExpertData, generator: str, workers: Workers) -> tuple[Any, Any, Any]:
    model = imitator(expert, generator)
    learn(model, workers, 256)
    discriminator = model.discriminator
    assert discriminator is not None
    assert discriminator.statistics is not None
    tensors = {name: tensor.numpy().copy() for name, tensor in model.runner.state.items()}
    return tensors, discriminator.statistics.state()["arrays"], discriminator.order.order


@pytest.mark.parametrize("generator", ["trpo", "ppo2"])
def test_workers_have_one_discriminator_and_so_again(expert: ExpertData, generator: str) -> None:
    one, two = together(lambda workers: trained(expert, generator, workers))
    again, _ = together(lambda workers: trained(expert, generator, workers))
    for first, second, third in zip(one[:2], two[:2], again[:2], strict=True):
        for name, array in first.items():
            assert np.array_equal(array, second[name]), name
            assert np.array_equal(array, third[name]), name
    assert not np.array_equal(one[2], two[2]), "workers go through the expert in the same order"


def one_update(expert: ExpertData, workers: Workers) -> tuple[list[Any], Any, Any]:
    """Return what the discriminator was shown, and the state before and after it."""
    model = imitator(expert, "ppo2")
    given: list[Any] = []
    take = model._take_steps

    def noted(step: Any, shared: Any, rows: Any) -> Any:
        if model.discriminator is None or step != model.discriminator.step:
            return take(step, shared, rows)
        before = {name: tensor.numpy().copy() for name, tensor in model.runner.state.items()}
        given.extend([tree_map(torch.clone, shared), tree_map(torch.clone, rows), before])
        return take(step, shared, rows)

    model._take_steps = noted  # type: ignore[method-assign]
    learn(model, workers, 32)
    after = {name: tensor.numpy().copy() for name, tensor in model.runner.state.items()}
    return given[:2], given[2], after


def test_step_of_two_workers_is_that_of_one_with_both_batches(expert: ExpertData) -> None:
    (given, before, after), (theirs, _, _) = together(lambda workers: one_update(expert, workers))
    reference = imitator(expert, "ppo2")
    for name, array in before.items():
        reference.runner.state[name].copy_(torch.from_numpy(array))
    others = iter(tree_leaves(theirs[1]))
    rows = tree_map(lambda tensor: torch.cat([tensor, next(others)], 1), given[1])
    assert reference.discriminator is not None
    reference.runner.run(reference.discriminator.step, given[0], rows)
    for name in ("discriminator", "discriminator.mean", "discriminator.count"):
        found = reference.runner.state[name].numpy()
        np.testing.assert_allclose(after[name], found, rtol=1e-4, atol=1e-6, err_msg=name)
    assert not np.array_equal(after["discriminator"], before["discriminator"])
