"""The ring of actions since each environment was seeded, beside plain lists of them."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from gymnasium import spaces

from zoo.envs import action_log
from zoo.envs.action_log import ActionLog

TOLD = 1_048_576
"""Steps since a seed that are told once they become more."""


def test_kept_are_the_actions_since_each_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action_log, "INITIAL_CAPACITY", 4)
    log = ActionLog(2, spaces.Discrete(1000))
    kept: list[list[int]] = [[], []]
    for step in range(60):
        assert log.n_steps == step
        for env, actions in enumerate(kept):
            assert log.steps_since_start(env) == len(actions)
            assert log.since_start(env).tolist() == actions
        if step % 13 == 5:
            log.start(1)
            kept[1] = []
        if step == 31:
            log.start(0)
            kept[0] = []
        log.add(np.array([step, 100 + step]))
        kept[0].append(step)
        kept[1].append(100 + step)


@pytest.mark.parametrize(("n_kept", "is_told"), [(TOLD, True), (TOLD // 2, False)])
def test_actions_that_no_seed_bounds_are_told(
    n_kept: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = ActionLog(1, spaces.Discrete(2), first_index=3)
    log.restore([np.zeros(n_kept, np.int64)])
    with caplog.at_level(logging.WARNING):
        log.add(np.array([1]))
    assert len(caplog.records) == is_told
    assert all(record.message.startswith("env 3 keeps the 1,048,576 ") for record in caplog.records)
    assert log.steps_since_start(0) == n_kept + 1
    assert log.since_start(0)[-1] == 1
