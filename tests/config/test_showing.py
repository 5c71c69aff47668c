"""What people read before they run anything: the config with its meaning, and the help page."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

import zoo
from zoo.algorithms.registry import algorithm_class
from zoo.cli import VERBS, status_of
from zoo.config.schema import TrainSettings


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert status_of(arguments) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def test_config_is_shown_with_the_meaning_of_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "train", "algo=ppo2", "env=CartPole-v1", "--cfg", "job")
    composed = zoo.compose("train", ["algo=ppo2", "env=CartPole-v1"])
    assert yaml.safe_load(text) == OmegaConf.to_container(composed)
    config_class = algorithm_class("ppo2").config_class
    for field in [*dataclasses.fields(config_class), *dataclasses.fields(TrainSettings)]:
        assert f"# {field.metadata['help']}" in text


def test_config_can_be_shown_before_everything_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    config = yaml.safe_load(shown(capsys, "train", "algo=sac", "--cfg", "job"))
    assert config["algo"]["name"] == "sac"
    assert "env" not in config
    assert "algo" not in yaml.safe_load(shown(capsys, "train", "--cfg", "job"))


def test_part_of_the_config_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "train", "algo=sac", "--cfg", "job", "--package", "algo")
    assert yaml.safe_load(text)["name"] == "sac"
    assert "launcher:" in shown(capsys, "train", "algo=sac", "--cfg", "hydra")


def test_help_names_groups_options_settings_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    page = shown(capsys, "train", "--help")
    for word in (
        "zoo train algo=ppo2 env=CartPole-v1",
        "a2c",
        "PPO2 with the defaults of Stable-Baselines3's PPO",
        "any Gymnasium id",
        "LnCnnPolicy",
        "callbacks=NAME",
        "tensorboard",
        "cartpole_until_solved",
        "joblib",
        "slurm",
        "n_envs=1",
        "seed=null",
        "--cfg job",
    ):
        assert word in page
    assert max(map(len, page.splitlines())) <= 120


def test_help_shows_what_the_user_has_added(capsys: pytest.CaptureFixture[str], working_folder: Path) -> None:
    (working_folder / "conf" / "algo").mkdir(parents=True)
    (working_folder / "conf" / "algo" / "mine.yaml").write_text("# My own.\ndefaults: [ppo2]\n")
    assert re.search(r"mine +My own\.", shown(capsys, "train", "--help"))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"zoo {verb}" in shown(capsys, verb, "--help")


def test_files_of_a_config_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "hyperparams/ppo2/CartPole-v1.yaml: the whole" in shown(
        capsys, "train", "algo=ppo2", "env=CartPole-v1", "--info", "defaults"
    )


def test_showing_leaves_nothing_behind(working_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown(capsys, "train", "algo=ppo2", "--cfg", "job")
    shown(capsys, "train", "--help")
    assert list(working_folder.iterdir()) == []
