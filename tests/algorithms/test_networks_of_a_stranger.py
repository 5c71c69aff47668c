"""An agent's config that asks for huge networks is refused before memory is taken for them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import zoo
from zoo import PPO2, QRDQN, SAC
from zoo.agents.agent_folder import MisfitError
from zoo.algorithms.foreseen import _at_most
from zoo.errors import ZooError
from zoo.policies.recurrent_cores import GatedCore, LstmLayer

HUGE = 10**7
"""A layer of this width between two such has 400 terabytes."""


def changed(agent: Path, section: str, **values: Any) -> Path:
    config = yaml.safe_load((agent / "config.yaml").read_text())
    config[section] |= values
    (agent / "config.yaml").write_text(yaml.safe_dump(config))
    return agent


def refusal(agent: Path) -> str:
    with pytest.raises(ZooError) as caught:
        zoo.load(agent, device="cpu", compile=False)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("widths", [[HUGE, HUGE], {"pi": [64, 64], "vf": [HUGE, HUGE]}, [10**18, 10**18]])
def test_widths_that_there_are_no_weights_for_are_refused(widths: Any, tmp_path: Path) -> None:
    agent = PPO2("MlpPolicy", "CartPole-v1", compile=False, device="cpu").save(tmp_path / "agent")
    assert "GiB of memory, but" in refusal(changed(agent, "policy", net_arch=widths))


def test_widths_of_other_weights_are_refused(tmp_path: Path) -> None:
    agent = PPO2("MlpPolicy", "CartPole-v1", compile=False, device="cpu").save(tmp_path / "agent")
    assert "don't fit the policy" in refusal(changed(agent, "policy", net_arch=[64, 65]))


def test_layers_without_number_are_refused(tmp_path: Path) -> None:
    agent = PPO2("MlpPolicy", "CartPole-v1", compile=False, device="cpu").save(tmp_path / "agent")
    assert "many more than there are in the files" in refusal(changed(agent, "policy", net_arch=[1] * 2000))


def test_critics_without_number_are_refused(tmp_path: Path) -> None:
    agent = SAC("MlpPolicy", "Pendulum-v1", compile=False, device="cpu").save(tmp_path / "agent")
    assert "many more than there are in the files" in refusal(changed(agent, "algo", n_critics=1_000))


@pytest.mark.parametrize(
    ("n_layers", "problem"), [(100, "many more than there are in the files"), (10**9, "n_lstm_layers")]
)
def test_layers_of_a_memory_without_number_are_refused(n_layers: int, problem: str, tmp_path: Path) -> None:
    agent = PPO2("MlpPolicy", "CartPole-v1", compile=False, device="cpu").save(tmp_path / "agent")
    assert problem in refusal(changed(agent, "policy", recurrent="lstm", n_lstm_layers=n_layers))


def test_layers_of_a_memory_are_counted_one_by_one() -> None:
    """Whatever their number, no list is made of it first."""
    tracemalloc.start()
    with pytest.raises(MisfitError), torch.device("meta"), _at_most(10):
        GatedCore(LstmLayer, 4, 8, 10**7)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22


def test_outputs_that_there_are_no_weights_for_are_refused(tmp_path: Path) -> None:
    agent = QRDQN("MlpPolicy", "CartPole-v1", compile=False, device="cpu").save(tmp_path / "agent")
    assert "don't fit the policy" in refusal(changed(agent, "algo", n_quantiles=100_000))


def test_spaces_of_more_numbers_than_there_is_memory_are_refused(tmp_path: Path) -> None:
    agent = PPO2("MlpPolicy", "CartPole-v1", compile=False, device="cpu").save(tmp_path / "agent")
    message = refusal(changed(agent, "observation_space", shape=[HUGE, HUGE], low=0.0, high=1.0))
    assert "more than 16,777,216 numbers" in message
    assert len(message) < 500


def test_foreseeing_draws_nothing(tmp_path: Path) -> None:
    """A loaded agent goes on with the random numbers that it would have had."""
    options: Any = {"compile": False, "device": "cpu", "seed": 3}
    made = SAC("MlpPolicy", "Pendulum-v1", **options)
    loaded = zoo.load(made.save(tmp_path / "agent"), **options)
    first, second = (each.generators.state()["torch"] for each in (made, loaded))
    assert (first == second).all()
