"""How much the discriminator of GAIL is shown, and when: numbers written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from zoo import make_vec_env
from zoo.algorithms.gail import GAIL
from zoo.memory.expert_data import ExpertData


def expert(envs: Any, n: int = 6) -> ExpertData:
    rng = np.random.default_rng(0)
    return ExpertData(
        observation_space=envs.single_observation_space,
        action_space=envs.single_action_space,
        observations=rng.normal(size=(n, 4)).astype(np.float32),
        actions=rng.integers(0, 2, n),
        rewards=np.ones(n, np.float32),
        lengths=np.array([n]),
        returns=np.array([float(n)]),
        terminated=np.array([True]),
    )


def gail(n_envs: int = 2, **options: Any) -> GAIL:
    settings = {"generator": "a2c", "n_steps": 8, "seed": 0, "compile": False, "threads": 1, **options}
    envs = make_vec_env("CartPole-v1", n_envs)
    return GAIL({"net_arch": [4]}, envs, expert(envs), d_net_arch=[4], **settings)


def shown(model: GAIL, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int, Any]]:
    """Return what the discriminator will be shown: when, how many steps and ends, in what shape."""
    batches: list[tuple[int, int, int, Any]] = []
    adversary = model.adversary
    assert adversary is not None
    minibatches = adversary.minibatches

    def noted(steps: Any, n_absorbed: int, shape: Any, *others: Any) -> Any:
        batches.append((model.num_timesteps, len(steps["observations"]), n_absorbed, shape))
        return minibatches(steps, n_absorbed, shape, *others)

    monkeypatch.setattr(adversary, "minibatches", noted)
    return batches


@pytest.mark.parametrize("g_step", [1, 3])
def test_discriminator_is_trained_after_so_many_rollouts(
    g_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = gail(g_step=g_step)
    batches = shown(model, monkeypatch)
    model.learn(7 * 16)
    assert [when for when, *_ in batches] == [16 * n for n in range(g_step, 8, g_step)]


@pytest.mark.parametrize(("options", "pairs"), [({}, 16), ({"d_step": 3}, 5), ({"d_batch_size": 4}, 4)])
def test_a_rollout_is_shared_out_among_the_steps_of_the_discriminator(
    options: dict[str, Any], pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = gail(g_step=1, **options)
    batches = shown(model, monkeypatch)
    model.learn(16)
    assert batches == [(16, 16, 0, (options.get("d_step", 1), pairs))]


def test_steps_of_the_discriminator_are_foreseen_beside_those_of_the_generator() -> None:
    """A rollout of 16 steps is one of A2C's; after each second one come 3 of the discriminator."""
    assert gail(g_step=2, d_step=3).gradient_steps_in(320) == 320 / 16 + 320 / 32 * 3


def test_only_steps_that_do_not_merely_reset_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gail(g_step=1)
    batches = shown(model, monkeypatch)
    model.learn(16)
    model.memory.valid[3, 1] = model.memory.valid[7, 0] = False
    model._train_discriminator()
    assert [n for _, n, *_ in batches] == [16, 14]


def test_returns_of_imitation_are_means_over_the_episodes_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of them, of 2, 3 and 2 steps, each rewarded with 1, and a step that merely resets."""
    model = gail(n_envs=1)
    adversary, memory = model.adversary, model.memory
    assert adversary is not None
    monkeypatch.setattr(adversary, "rewards", lambda observations, actions: np.ones(8, np.float32))
    memory.ended[:] = np.array([0, 1, 1, 0, 0, 1, 0, 1], np.bool_)[:, None]
    memory.valid[:] = np.array([1, 1, 0, 1, 1, 1, 1, 1], np.bool_)[:, None]
    model._reward_imitation()
    metrics = model.read_metrics()
    assert metrics["rollout/imitation_reward"] == 1.0
    assert metrics["rollout/ep_imitation_rew_mean"] == pytest.approx((2 + 3 + 2) / 3)
    assert memory.rewards[:, 0].tolist() == [1, 1, 0, 1, 1, 1, 1, 1]


def test_nothing_is_said_of_episodes_where_none_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gail(n_envs=1)
    model._reward_imitation()
    assert set(model.read_metrics()) == {"rollout/imitation_reward"}


def test_weights_of_the_discriminator_are_drawn_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    from zoo.algorithms import gail as module

    counts, adversary = [], module.Adversary  # type: ignore[attr-defined]

    def noted(*arguments: Any) -> Any:
        counts.append(torch.get_num_threads())
        return adversary(*arguments)

    monkeypatch.setattr(module, "Adversary", noted)
    gail()
    assert counts == [1]
