"""The section ``replay``: chosen by name, set value by value, and refused where nothing is replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import zoo
from zoo.errors import ZooError

DQN = ["algo=dqn", "env=CartPole-v1"]
PRIORITIZED = {"alpha": 0.6, "beta": 0.4, "beta_fraction": 1.0, "epsilon": 1e-6}
HINDSIGHT = {"goal_selection_strategy": "future", "n_sampled_goal": 4, "copy_info_dict": False}
UNIFORM = {"n_step": 1, "prioritized": None, "hindsight": None}


def replay(*overrides: str) -> Any:
    return OmegaConf.to_container(zoo.compose("train", overrides).replay)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], {}),
        (["replay=prioritized"], {"prioritized": PRIORITIZED}),
        (["replay=hindsight"], {"hindsight": HINDSIGHT}),
        (["replay=[prioritized,hindsight]"], {"prioritized": PRIORITIZED, "hindsight": HINDSIGHT}),
        (["replay=prioritized", "replay.n_step=3"], {"n_step": 3, "prioritized": PRIORITIZED}),
        (["replay.prioritized.alpha=0.5"], {"prioritized": {**PRIORITIZED, "alpha": 0.5}}),
    ],
)
def test_replay_is_chosen_and_set(overrides: list[str], expected: dict[str, Any]) -> None:
    assert replay(*DQN, *overrides) == {**UNIFORM, **expected}


def test_presets_and_tuned_files_choose_and_set_it_and_the_command_line_has_the_last_word() -> None:
    Path("conf/algo").mkdir(parents=True)
    Path("conf/algo/my_dqn.yaml").write_text(
        "defaults: [dqn, override /replay: hindsight, _self_]\nlearning_starts: 7\n"
    )
    Path("hyperparams/my_dqn").mkdir(parents=True)
    tuned = Path("hyperparams/my_dqn/CartPole-v1.yaml")
    tuned.write_text("replay: {n_step: 2, hindsight: {n_sampled_goal: 8}}")
    mine = ["algo=my_dqn", "env=CartPole-v1"]
    assert replay(*mine, "tuned=none") == {**UNIFORM, "hindsight": HINDSIGHT}
    expected = {**UNIFORM, "n_step": 2, "hindsight": {**HINDSIGHT, "n_sampled_goal": 8}}
    assert replay(*mine) == expected
    assert replay(*mine, "replay.n_step=5") == {**expected, "n_step": 5}
    assert replay(*mine, "replay=uniform") == UNIFORM
    assert replay(*mine, "replay=prioritized") == {**UNIFORM, "prioritized": PRIORITIZED}


def test_prioritized_replay_does_not_replace_hindsight_of_a_preset() -> None:
    goals = ["algo=her_dqn", "env=Zoo/BitFlipping-v0", "tuned=none"]
    with pytest.raises(
        ZooError, match=r"`algo=her_dqn` replays with hindsight, .* algo=dqn replay=prioritized"
    ):
        replay(*goals, "replay=prioritized")
    both = {**UNIFORM, "prioritized": PRIORITIZED, "hindsight": HINDSIGHT}
    assert replay(*goals, "replay=[prioritized,hindsight]") == both
    assert replay(*goals, "replay=uniform") == UNIFORM


def test_a_run_is_trained_once_more_with_its_replay_or_another() -> None:
    run = Path("runs/dqn/CartPole-v1/one")
    run.mkdir(parents=True)
    config = zoo.compose("train", [*DQN, "seed=1", "replay=prioritized", "replay.prioritized.beta=0.9"])
    (run / "config.yaml").write_text(OmegaConf.to_yaml(config))
    again = f"experiment={run}/config.yaml"
    assert replay(again) == OmegaConf.to_container(config.replay)
    assert replay(again, "replay=uniform") == UNIFORM
    assert replay(f"resume={run}") == OmegaConf.to_container(config.replay)
    assert replay(f"resume={run}", "replay=prioritized") == OmegaConf.to_container(config.replay)
    for other in ("replay=uniform", "replay=[prioritized,hindsight]", "replay.n_step=2"):
        with pytest.raises(ZooError, match=f"resume .* can't take {other}".replace("[", r"\[")):
            zoo.compose("train", [f"resume={run}", other])


@pytest.mark.parametrize("override", ["replay=uniform", "replay.n_step=2"])
def test_an_algorithm_that_does_not_replay_refuses_one(override: str) -> None:
    with pytest.raises(ZooError, match="`replay` can't be set: ppo2 has no replay buffer"):
        zoo.compose("train", ["algo=ppo2", "env=CartPole-v1", override])
    assert "replay" not in zoo.compose("train", ["algo=ppo2", "env=CartPole-v1"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("replay.prioritised.alpha=1", "`replay.prioritised`; did you mean `replay.prioritized`"),
        ("replay.prioritized.alfa=1", "`replay.prioritized.alfa`; did you mean `replay.prioritized.alpha`"),
        ("replay.prioritized=true", "expected {alpha, beta, beta_fraction, epsilon} or null"),
        ("replay.hindsight.goal_selection_strategy=futur", "did you mean `future`"),
        ("replay=priority", "unknown replay 'priority'"),
    ],
)
def test_mistakes_are_told_in_one_line(override: str, message: str) -> None:
    with pytest.raises(ZooError) as raised:
        zoo.compose("train", [*DQN, override])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
