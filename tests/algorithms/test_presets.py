"""Classes of presets: the same as ``algo=`` of that name is on the command line."""

from __future__ import annotations

import dataclasses

import pytest

import zoo
from zoo.algorithms.registry import PRESETS
from zoo.config.paths import data_folder
from zoo.config.schema import ALGO_LABELS


def test_every_preset_has_a_class() -> None:
    folder = data_folder("conf")
    assert folder is not None
    assert {file.stem for file in (folder / "algo").glob("*.yaml")} == set(PRESETS)
    assert set(PRESETS.values()) <= set(zoo.__all__)


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_is_what_the_command_line_makes(preset: str) -> None:
    found = getattr(zoo, PRESETS[preset])
    config = zoo.compose("train", [f"algo={preset}", "env=CartPole-v1", "tuned=none"])
    values = {key: value for key, value in config.algo.items() if key not in ALGO_LABELS}
    assert dataclasses.asdict(found.config_class()) == values
    assert (found.name, found.of_preset) == (config.algo.name, preset)
    assert found.usual_policy == config.policy.name
    assert getattr(zoo, preset) is found


def test_recurrent_ppo_remembers_and_her_relabels() -> None:
    model = zoo.RecurrentPPO(env="CartPole-v1", compile=False, threads=1)
    assert model.policy_config.recurrent == "lstm"
    from zoo.envs.toys import BitFlipping

    relabelling = zoo.HerDQN("MultiInputPolicy", BitFlipping, compile=False, threads=1)
    assert relabelling.replay_config.hindsight is not None
    with_more = zoo.HerDQN("MultiInputPolicy", BitFlipping, replay={"n_step": 2, "prioritized": {}})
    assert with_more.replay_config.n_step == 2
    assert with_more.replay_config.prioritized is not None
    assert with_more.replay_config.hindsight is not None
    plain = zoo.HerDQN("MultiInputPolicy", BitFlipping, replay={"hindsight": None})
    assert plain.replay_config.hindsight is None


def test_names_of_others_are_answered() -> None:
    for name, meant in {
        "PPO3": "'PPO",
        "SubprocVecEnv": "vectorization='workers'",
        "evaluate": "evaluate_",
    }.items():
        with pytest.raises(AttributeError, match=meant):
            getattr(zoo, name)
    assert not hasattr(zoo, "_nothing")
