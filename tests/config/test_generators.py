"""GAIL's generator on the command line: its hyperparameters, tuned files for another one, and wrong ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import zoo
from zoo.algorithms.registry import algorithm_class
from zoo.cli import status_of
from zoo.config.fields import defaults
from zoo.errors import ZooError
from zoo.imitation.gail import GENERATORS

GAIL = ["algo=gail", "env=Nothing-v7", "dataset=expert.npz"]


def tuned(text: str) -> None:
    file = Path("hyperparams/gail/Nothing-v7.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize("generator", GENERATORS)
def test_generators_own_defaults_stand_beside_those_of_the_discriminator(
    generator: str, working_folder: Path
) -> None:
    algo = OmegaConf.to_container(zoo.compose("train", [*GAIL, f"algo.generator={generator}"]).algo)
    assert isinstance(algo, dict)
    own = defaults(algorithm_class(generator).config_class)
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


def test_tuned_values_are_for_the_generator_that_the_file_names(working_folder: Path) -> None:
    tuned("n_envs: 3\nalgo: {generator: ppo2, clip_range: 0.3, gamma: 0.5, d_step: 7}")
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


def test_tuned_file_that_names_none_is_for_the_usual_one(working_folder: Path) -> None:
    tuned("algo: {cg_max_steps: 3, g_step: 2}")
    assert zoo.compose("train", [*GAIL, "algo.generator=trpo"]).algo.cg_max_steps == 3
    algo = zoo.compose("train", [*GAIL, "algo.generator=a2c"]).algo
    assert algo.g_step == 2
    assert "cg_max_steps" not in algo


def test_run_of_one_generator_is_done_again_from_its_config(working_folder: Path) -> None:
    tuned("algo: {cg_max_steps: 3}")
    config = zoo.compose("train", [*GAIL, "algo.generator=ppo2", "algo.clip_range=0.3"])
    folder = Path("runs/gail/Nothing-v7/now_s0")
    folder.mkdir(parents=True)
    OmegaConf.save(config, folder / "config.yaml")
    again = zoo.compose("train", [f"experiment={folder}/config.yaml"])
    assert again.algo == config.algo
