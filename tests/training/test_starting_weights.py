"""What `init_from` says of how an agent was trained otherwise."""

from __future__ import annotations

from typing import Any

import zoo
from zoo.training.starting_weights import differences

SMALL = {"net_arch": [8]}


def told(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    model = zoo.DQN(SMALL, "CartPole-v1", seed=0, compile=False)
    return list(differences(then, model, now))


def test_a_memory_that_was_switched_on_or_off_is_told() -> None:
    plain = {"memory": {"n_step": 1, "prioritized": None}}
    prioritized = {"memory": {"n_step": 1, "prioritized": {"alpha": 0.6}}}
    (on,), (off,) = told(plain, prioritized), told(prioritized, plain)
    assert on.startswith("memory.prioritized: None → {")
    assert off.startswith("memory.prioritized: {")
    assert off.endswith("→ None")


def test_values_within_what_both_have_are_told_one_by_one() -> None:
    then = {"memory": {"prioritized": {"alpha": 0.6, "beta": 0.4}}}
    now = {"memory": {"prioritized": {"alpha": 0.7, "beta": 0.4}}}
    assert told(then, now) == ["memory.prioritized.alpha: 0.6 → 0.7"]
