"""The sections whose keys depend on a choice: gail's generator and the replay buffer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import zoo
from zoo.algorithms.registry import algorithm_class
from zoo.cli import status_of
from zoo.config.fields import defaults
from zoo.errors import ZooError
from zoo.imitation.gail import GENERATORS

GAIL = ["algo=gail", "env=Nothing-v7", "dataset=expert.npz"]


def write_gail_file(text: str) -> None:
    file = Path("hyperparams/gail/Nothing-v7.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize("generator", GENERATORS)
def test_gail_config_adds_defaults_of_its_generator(generator: str, working_folder: Path) -> None:
    algo = OmegaConf.to_container(zoo.compose("train", [*GAIL, f"algo.generator={generator}"]).algo)
    assert isinstance(algo, dict)
    own = defaults(algorithm_class(generator).config_class)
    del own["reward_model"], own["intrinsic"]  # the discriminator is the reward model
    assert not {"reward_model", "intrinsic"} & algo.keys()
    assert own.items() <= algo.items()
    assert algo.keys() - own.keys() >= {"name", "generator", "g_step", "d_step", "d_learning_rate"}
    others = [algorithm_class(name).config_class for name in GENERATORS if name != generator]
    foreign = {field.name for each in others for field in dataclasses.fields(each)} - own.keys()
    assert foreign
    assert not foreign & algo.keys()


def test_values_are_checked_as_the_generators(working_folder: Path) -> None:
    algo = zoo.compose("train", [*GAIL, "algo.generator=ppo2", "algo.clip_range=lin_0.3"]).algo
    assert algo.clip_range == "lin_0.3"
    with pytest.raises(ZooError, match=r"`algo\.clip_range`"):
        zoo.compose("train", [*GAIL, "algo.clip_range=0.3"])
    with pytest.raises(ZooError, match=r"`algo\.clip_range=-1` is out of range"):
        zoo.compose("train", [*GAIL, "algo.generator=ppo2", "algo.clip_range=-1"])
    with pytest.raises(ZooError, match=r"`algo\.d_learning_rate`: .*sin_1"):
        zoo.compose("train", [*GAIL, "algo.d_learning_rate=sin_1"])
    with pytest.raises(ZooError, match=r"it is `algo\.d_ent_coef` here"):
        zoo.compose("train", [*GAIL, "algo.adversary_entcoeff=0.1"])


@pytest.mark.parametrize("name", ["sac", "ppo", "bc", "gail", "7"])
def test_what_is_no_generator_gets_one_line(
    name: str, working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["train", *GAIL, f"algo.generator={name}"]) == 2
    printed = capsys.readouterr().err
    assert f"`algo.generator={name}`: a generator learns from its own rollouts" in printed
    assert "expected one of trpo, ppo2, ppo1, a2c, acktr" in printed
    assert printed.count("\n") == 1


def test_tuned_values_apply_only_to_their_generator(working_folder: Path) -> None:
    write_gail_file("n_envs: 3\nalgo: {generator: ppo2, clip_range: 0.3, gamma: 0.5, d_step: 7}")
    algo = zoo.compose("train", GAIL).algo
    assert (algo.generator, algo.clip_range, algo.gamma, algo.d_step) == ("ppo2", 0.3, 0.5, 7)
    config = zoo.compose("train", [*GAIL, "algo.generator=trpo", "algo.cg_max_steps=4"])
    algo = config.algo
    assert (config.n_envs, algo.generator, algo.gamma, algo.d_step, algo.cg_max_steps) == (
        *(3, "trpo", 0.99, 7, 4),
    )
    assert "clip_range" not in algo
    same = zoo.compose("train", [*GAIL, "algo.generator=ppo2", "algo.d_step=2"]).algo
    assert (same.clip_range, same.d_step) == (0.3, 2)


def test_experiment_repeats_run_with_its_generator(working_folder: Path) -> None:
    write_gail_file("algo: {cg_max_steps: 3}")
    config = zoo.compose("train", [*GAIL, "algo.generator=ppo2", "algo.clip_range=0.3"])
    folder = Path("runs/gail/Nothing-v7/now_s0")
    folder.mkdir(parents=True)
    OmegaConf.save(config, folder / "config.yaml")
    again = zoo.compose("train", [f"experiment={folder}/config.yaml"])
    assert again.algo == config.algo


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


def test_command_line_overrides_replay_of_tuned_file() -> None:
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


def test_hindsight_preset_refuses_prioritized_alone() -> None:
    goals = ["algo=her_dqn", "env=Zoo/BitFlipping-v0", "tuned=none"]
    with pytest.raises(
        ZooError, match=r"`algo=her_dqn` needs hindsight replay, .* algo=dqn replay=prioritized"
    ):
        replay(*goals, "replay=prioritized")
    both = {**UNIFORM, "prioritized": PRIORITIZED, "hindsight": HINDSIGHT}
    assert replay(*goals, "replay=[prioritized,hindsight]") == both
    assert replay(*goals, "replay=uniform") == UNIFORM


def test_experiment_can_override_replay_resume_cannot() -> None:
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
        ("replay.hindsight.goal_selection_strategy=futur", "did you mean 'future'"),
        ("replay=priority", "unknown replay 'priority'"),
    ],
)
def test_replay_error_is_one_line(override: str, message: str) -> None:
    with pytest.raises(ZooError) as raised:
        zoo.compose("train", [*DQN, override])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
