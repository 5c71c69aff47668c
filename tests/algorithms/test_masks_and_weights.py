"""What comes later fits in: masks, importance weights, natural gradients, other optimizers and workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from zoo import A2C, DQN, PPO2, QRDQN, SAC, TD3, TQC, make_vec_env
from zoo.buffers.arrays import transform

SMALL = {"net_arch": [8]}

# Masks, from the environment to the loss


def masked_env(n_envs: int = 3, **options: Any) -> Any:
    return make_vec_env("Zoo/Masked-v0", n_envs, **options)


WORKERS = {"vectorization": "workers", "n_workers": 2, "start_method": "fork"}


@pytest.mark.parametrize(("make", "options"), [(PPO2, WORKERS), (A2C, {})], ids=["workers", "in_process"])
def test_a_rollout_holds_the_masks_under_which_its_actions_were_drawn(make: Any, options: Any) -> None:
    env = masked_env(**options)
    model = make(SMALL, env, seed=0, compile=False, n_steps=64).learn(64 * 3)
    columns = model.buffer.columns
    masks, actions = columns["action_masks"], columns["actions"]
    assert masks.shape == (64, 3, 6)
    assert (masks.sum(-1) == 3).all()
    assert np.take_along_axis(masks, actions[..., None], -1).all()
    assert len(np.unique(actions)) == 6
    assert model.buffer.rewards.min() > 0, "a forbidden action costs 1"
    env.close()


@pytest.mark.parametrize(("optimize", "options"), [(False, {}), (True, WORKERS)], ids=["plain", "workers"])
def test_replay_holds_the_masks_before_and_after_each_step(optimize: bool, options: Any) -> None:
    env = masked_env(**options)
    model = DQN(SMALL, env, seed=0, compile=False, learning_starts=30, optimize_memory_usage=optimize)
    model.learn(300)
    batch = model.buffer.sample(np.random.default_rng(0), (500,))
    assert np.take_along_axis(batch["action_masks"], batch["actions"][:, None], -1).all()
    assert batch["rewards"].min() > 0
    mask_of = {
        tuple(observation.tolist()): tuple(mask.tolist())
        for observation, mask in zip(batch["observations"], batch["action_masks"], strict=True)
    }
    n_compared = 0
    for observation, mask in zip(batch["next_observations"], batch["next_action_masks"], strict=True):
        known = mask_of.get(tuple(observation.tolist()))
        n_compared += known is not None
        assert known is None or known == tuple(mask.tolist())
    assert n_compared > 100
    env.close()


# Importance weights


def repeated(batch: dict[str, Any], counts: list[int]) -> dict[str, Any]:
    rows = np.repeat(np.arange(len(counts)), counts)
    return {name: transform(lambda column: column[:, rows], column) for name, column in batch.items()}


@pytest.mark.parametrize("make", [DQN, SAC, TD3, TQC, QRDQN])
def test_a_weight_counts_as_so_many_transitions(make: Any) -> None:
    is_continuous = make not in (DQN, QRDQN)
    env_id = "Pendulum-v1" if is_continuous else "CartPole-v1"
    settings = {} if is_continuous else {"max_grad_norm": None}
    settings = {"learning_starts": 100, "batch_size": 6, "learning_rate": 0.01, **settings}
    settings = {**settings, "buffer_size": 1000}
    is_soft = make in (SAC, TQC)
    counts = [2, 0, 1, 3, 0, 0]

    def after(weighted: bool) -> dict[str, np.ndarray]:
        model = make(SMALL, env_id, seed=0, compile=False, **settings).learn(80)
        batch = model._tensors(model.buffer.sample(np.random.default_rng(0), (1, 6)))
        noise = torch.randn((1, 2, 6, 1), generator=torch.Generator().manual_seed(1))
        rows = {**batch, "noise": noise, "tau": torch.tensor([0.1])} if is_soft else dict(batch)
        if make is TD3:
            rows["noise"] = 0.2 * noise[:, 0]
        if weighted:
            rows["weights"] = torch.tensor([counts], dtype=torch.float32)
        else:
            rows = {**rows, **repeated(batch, counts)}
            if is_soft:
                rows["noise"] = noise[:, :, np.repeat(np.arange(6), counts)]
        if make is TD3:  # a round of one step of the critics
            rows = transform(lambda column: column[None], rows)
        model.learns_ent_coef = False  # its loss is no mean over transitions' errors
        step = model._round if make is TD3 else model._gradient_step
        model._take_steps(step, model.rates(0.0), rows)
        return model.get_parameters()

    ours, theirs = after(True), after(False)
    before = make(SMALL, env_id, seed=0, compile=False, **settings).get_parameters()
    for name, expected in theirs.items():
        np.testing.assert_allclose(ours[name], expected, atol=1e-5, err_msg=name)
    assert any(np.abs(theirs[name] - before[name]).max() > 1e-3 for name in before)
