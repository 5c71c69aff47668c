"""What `init_from` says of how an agent was trained otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import zoo
from zoo.agents.agent_folder import read_agent
from zoo.experiment.init_from import differences

SMALL = {"net_arch": [8]}


def told(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    model = zoo.DQN(SMALL, "CartPole-v1", seed=0, compile=False)
    return list(differences(then, model, now))


def test_a_memory_that_was_switched_on_or_off_is_told() -> None:
    plain = {"replay": {"n_step": 1, "prioritized": None}}
    prioritized = {"replay": {"n_step": 1, "prioritized": {"alpha": 0.6}}}
    (on,), (off,) = told(plain, prioritized), told(prioritized, plain)
    assert on.startswith("replay.prioritized: None → {")
    assert off.startswith("replay.prioritized: {")
    assert off.endswith("→ None")


def test_values_within_what_both_have_are_told_one_by_one() -> None:
    then = {"replay": {"prioritized": {"alpha": 0.6, "beta": 0.4}}}
    now = {"replay": {"prioritized": {"alpha": 0.7, "beta": 0.4}}}
    assert told(then, now) == ["replay.prioritized.alpha: 0.6 → 0.7"]


def test_a_policy_that_reads_dictionaries_as_the_agents_did_is_no_difference(tmp_path: Path) -> None:
    """A config says what the user chose; the encoder for dictionaries follows from the environment."""
    env = ["env=Zoo/BitFlipping-v0", "policy.net_arch=[8]"]
    config = zoo.compose("train", ["algo=her_dqn", *env])
    chosen = {name: value for name, value in config.policy.items() if value != [8]}
    model = zoo.DQN({**chosen, "net_arch": [8]}, "Zoo/BitFlipping-v0", seed=0, compile=False)
    agent = read_agent(model.save(tmp_path / "agent")).config
    assert [line for line in differences(agent, model, config) if line.startswith("policy")] == []
    wider = zoo.DQN({**chosen, "net_arch": [16]}, "Zoo/BitFlipping-v0", seed=0, compile=False)
    told = [line for line in differences(agent, wider, config) if line.startswith("policy")]
    assert told == ["policy.net_arch: [8] → [16]"]
