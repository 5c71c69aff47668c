"""Workers that share the candidates of ARS come to what one alone comes to, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from forked_workers import together

from zoo import ARS, make_vec_env
from zoo.errors import ZooError
from zoo.optim.workers import Workers


def model(n_envs: int = 2, *, seed: int = 0, **options: Any) -> ARS:
    envs = make_vec_env("CartPole-v1", n_envs, normalize=True, max_episode_steps=50)
    return ARS("LinearPolicy", envs, seed=seed, compile=False, threads=1, n_delta=4, n_top=3, **options)


def numbers(found: ARS) -> dict[str, np.ndarray]:
    moments = found.normalizer.moments[""]
    return {
        "weights": found.get_parameters()["head.logits.weight"],
        "mean": moments.mean,
        "squares": moments.squares,
        "counts": np.array([moments.count, found.num_timesteps, found.n_updates]),
    }


def learned(workers: Workers, steps: int) -> tuple[dict[str, np.ndarray], int, list[float]]:
    found = model(seed=workers.rank)  # all take the first one's
    found.join(workers)
    found.learn(steps)
    if workers.is_first:
        workers.end()
    else:
        workers.follow(found.distributed.orders)
    returns = sorted(each.episode_return for each in found.recent_episodes)
    return numbers(found), found.n_episodes, returns


def test_four_workers_come_to_the_weights_of_one() -> None:
    alone = model(3).learn(1000)
    (first, n_episodes, returns), *others = together(lambda workers: learned(workers, 1000), 4)
    for found, _, _ in others:
        for name, array in first.items():
            np.testing.assert_array_equal(found[name], array)
    for name, array in numbers(alone).items():
        np.testing.assert_array_equal(first[name], array)
    assert n_episodes == alone.n_episodes == 8 * alone.n_updates > 16
    assert returns == sorted(each.episode_return for each in alone.recent_episodes)


def test_workers_that_do_not_divide_the_episodes_are_refused() -> None:
    def refused(workers: Workers) -> str:
        found = model()
        found.join(workers)
        with pytest.raises(ZooError) as raised:
            found.learn(100)
        return str(raised.value)

    for message in together(refused, 3):
        assert message == (
            "3 workers can't share the 8 episodes of an update (2 × algo.n_delta × algo.n_eval_episodes)"
            " evenly; change one of them"
        )
