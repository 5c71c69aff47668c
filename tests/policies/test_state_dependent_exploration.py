"""How long the weights of state-dependent noise stay, and whose they are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from zoo.policies.acting import ActingPolicy
from zoo.policies.codecs import make_codec
from zoo.policies.config import PolicyConfig
from zoo.policies.exploration import NormalNoise
from zoo.policies.squashed_actor import SquashedActor
from zoo.policies.state_dependent_exploration import HeldNoise, StateDependentExploration

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
SEEN = {"observations": np.ones((4, 3), np.float32)}


def exploration(**options: Any) -> StateDependentExploration:
    torch.manual_seed(0)
    actor = SquashedActor(VECTOR, BOX, PolicyConfig(net_arch=[8], log_std_init=0.0), use_sde=True)
    return StateDependentExploration(ActingPolicy(actor), make_codec(BOX, scaled=True), **options)


def same_as_before(steps: list[np.ndarray]) -> list[bool]:
    return [bool((one == other).all()) for one, other in itertools.pairwise(steps)]


def test_noise_is_each_environments_own_and_stays_for_its_steps() -> None:
    head, rng = exploration().acting.head, np.random.default_rng(0)
    held = HeldNoise(head, 3)
    noise = [held.next(rng, 4) for _ in range(8)]
    assert same_as_before(noise) == [True, True, False, True, True, False, True]
    assert len(np.unique(noise[0], axis=0)) == 4
    same = np.random.default_rng(0)
    np.testing.assert_array_equal(noise[0], head.noise(same, (4,)))
    np.testing.assert_array_equal(noise[3], head.noise(same, (4,)))
    once = HeldNoise(head, -1)
    assert all(same_as_before([once.next(rng, 4) for _ in range(50)]))
    always = HeldNoise(head, 1)
    assert not any(same_as_before([always.next(rng, 4) for _ in range(5)]))


def test_like_states_get_like_actions_until_a_new_collection_starts() -> None:
    part, rng = exploration(), np.random.default_rng(0)
    part.start()
    first = [part.act(SEEN, rng, 0.0) for _ in range(5)]
    assert all(same_as_before(first))
    assert len(np.unique(first[0], axis=0)) == 4
    part.reset(np.array([0, 1]))
    np.testing.assert_array_equal(part.act(SEEN, rng, 0.0), first[0])
    part.start()
    assert not (part.act(SEEN, rng, 0.0) == first[0]).any()


def test_steps_are_counted_while_actions_are_random_too() -> None:
    part, rng = exploration(every=3), np.random.default_rng(0)
    part.start()
    warm = [part.warm_up(SEEN, rng) for _ in range(2)]
    assert not (warm[0] == warm[1]).any()
    actions = [part.act(SEEN, rng, 0.0) for _ in range(5)]
    assert same_as_before(actions) == [False, True, True, False]


def test_at_warmup_the_noise_takes_the_place_of_random_actions() -> None:
    part, rng = exploration(at_warmup=True), np.random.default_rng(0)
    part.start()
    warm = [part.warm_up(SEEN, rng) for _ in range(3)]
    assert all(same_as_before(warm))
    np.testing.assert_array_equal(part.act(SEEN, rng, 0.0), warm[0])


def test_other_noise_and_random_actions_come_on_top() -> None:
    part = exploration(noise=NormalNoise(0.1, 2), random_share=0.5)
    rng, same = np.random.default_rng(2), np.random.default_rng(2)
    part.start()
    weights = part.acting.head.noise(same, (4,))
    for _ in range(5):
        own, _ = part.acting.act(SEEN, weights)
        noisy = (own + np.float32(0.1) * same.standard_normal((4, 2), dtype=np.float32)).clip(-1, 1)
        is_random = same.random((4, 1)) < 0.5
        expected = np.where(is_random, same.uniform(-1, 1, (4, 2)).astype(np.float32), noisy)
        np.testing.assert_array_equal(part.act(SEEN, rng, 0.0), expected)


@pytest.mark.parametrize("n", [1, 6])
def test_another_number_of_environments_has_noise_from_the_next_start_on(n: int) -> None:
    part, rng = exploration(), np.random.default_rng(0)
    part.start()
    part.act(SEEN, rng, 0.0)
    part.start()
    assert part.act({"observations": np.ones((n, 3), np.float32)}, rng, 0.0).shape == (n, 2)
