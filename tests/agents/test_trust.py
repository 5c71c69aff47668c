"""An agent is data: none of what a hostile one names is run, and each is refused in one line."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import zoo
from zoo.cli import status_of

EVIL = "import pathlib\npathlib.Path('ran').mkdir(exist_ok=True)\nclass Class:\n    pass\n"
"""A module that leaves a mark when it is imported."""


class Payload:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    model = zoo.PPO2("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, n_envs=1, seed=0, compile=False)
    model.learn(8)
    model.save(folder / "agent")
    return folder / "agent"


@pytest.fixture
def agent(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of an agent in an empty working folder, beside a module of somebody else's."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "downloaded")
    for name in ("evil", "evil-module"):
        Path(f"{name}.py").write_text(EVIL)
    return Path("downloaded")


def set_in_config(**sections: dict[str, Any]) -> Callable[[Path], None]:
    def change(agent: Path) -> None:
        config = yaml.safe_load((agent / "config.yaml").read_text())
        for name, values in sections.items():
            config[name].update(values)
        (agent / "config.yaml").write_text(yaml.safe_dump(config))

    return change


def replaced(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda agent: (agent / name).write_bytes(content) and None


def appended(name: str, text: str) -> Callable[[Path], None]:
    return lambda agent: (agent / name).write_text((agent / name).read_text() + text) and None


def torch_saved() -> bytes:
    content = io.BytesIO()
    torch.save(Payload(), content)
    return content.getvalue()


def array_of_objects() -> bytes:
    content = io.BytesIO()
    np.save(content, np.array([Payload()], dtype=object), allow_pickle=True)
    return content.getvalue()


HOSTILE: dict[str, Callable[[Path], None]] = {
    "environment of a module": set_in_config(env={"id": "evil:CartPole-v1"}),
    "environment of a module of EnvPool's": set_in_config(env={"id": "envpool:evil:CartPole-v1"}),
    "module beside it": set_in_config(env={"id": "evil:Anything-v0"}),
    "module whose name is no identifier": set_in_config(env={"id": "evil-module:Anything-v0"}),
    "wrapper by path": set_in_config(env={"wrappers": ["evil.Class"]}),
    "wrapper by target": set_in_config(env={"wrappers": [{"_target_": "evil.Class"}]}),
    "target of os": set_in_config(env={"wrappers": [{"_target_": "os.mkdir", "path": "ran"}]}),
    "wrapper that writes": set_in_config(
        env={"wrappers": [{"_target_": "gymnasium.wrappers.RecordVideo", "video_folder": "ran"}]}
    ),
    "function that masks": set_in_config(
        env={"wrappers": [{"_target_": "ActionMasker", "action_mask_fn": "evil.Class"}]}
    ),
    "target within arguments": set_in_config(
        env={"kwargs": {"env": {"_target_": "os.mkdir", "path": "ran"}}}
    ),
    "argument that names a module": set_in_config(env={"kwargs": {"task": "evil:Class"}}),
    "partial": set_in_config(env={"kwargs": {"_partial_": True}}),
    "environment variable": set_in_config(env={"kwargs": {"token": "${oc.env:HOME}"}}),
    "interpolated key": set_in_config(env={"kwargs": {"${oc.env:HOME}": 1}}),
    "policy by target": set_in_config(policy={"_target_": "evil.Class"}),
    "policy of os": set_in_config(policy={"_target_": "os.mkdir"}),
    "YAML tag": appended("config.yaml", "more: !!python/object/apply:os.mkdir [ran]\n"),
    "config that is a pickle": replaced("config.yaml", pickle.dumps(Payload())),
    "weights that are a pickle": replaced("policy.safetensors", pickle.dumps(Payload())),
    "weights by torch.save": replaced("policy.safetensors", torch_saved()),
    "weights by np.save": replaced("policy.safetensors", array_of_objects()),
    "weights that are cut off": replaced("policy.safetensors", b"\x00" * 20),
    "weights with a long header": replaced("policy.safetensors", b"\xff" * 64),
    "statistics that are a pickle": replaced("normalization.safetensors", pickle.dumps(Payload())),
    "card that is a pickle": replaced("card.json", pickle.dumps(Payload())),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_of_a_hostile_agent_runs(kind: str, agent: Path, capfd: pytest.CaptureFixture[str]) -> None:
    HOSTILE[kind](agent)
    is_zipped = kind in ("module beside it", "weights by torch.save", "card that is a pickle")
    path = Path(shutil.make_archive("downloaded", "zip", agent)) if is_zipped else agent
    assert status_of(["evaluate", f"agent={path}", "n_episodes=1"]) == 2
    assert len(capfd.readouterr().err.strip().splitlines()) == 1
    assert not Path("ran").exists()


@pytest.mark.parametrize("name", ["config", "policy.pth", "data"])
def test_nothing_of_a_hostile_zip_runs(name: str, agent: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile("agent.zip", "w") as archive:
        for each in ("data", "policy.pth"):
            archive.writestr(each, torch_saved() if each == name else b"{}")
    assert status_of(["import", "agent.zip", "out=imported"]) == 2
    assert len(capfd.readouterr().err.strip().splitlines()) == 1
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    "env",
    [
        {"wrappers": ["TimeLimit", {"_target_": "gymnasium.wrappers.ClipReward", "max_reward": 1.0}]},
        {"wrappers": ["minigrid.wrappers.FlatObsWrapper"]},
        {"wrappers": [{"_target_": "zoo.envs.wrappers.TimeFeature", "max_steps": 500}]},
        {"kwargs": {"sutton_barto_reward": True}},
        {"id": "envpool:CartPole-v1"},
    ],
)
def test_names_of_zoo_and_gymnasium_are_followed(env: dict[str, Any], agent: Path) -> None:
    from zoo.agents.agent_folder import read_agent

    set_in_config(env=env)(agent)
    assert read_agent(agent).config["env"].items() >= env.items()


def name_own_wrapper(agent: Path) -> None:
    Path("own_wrapper.py").write_text(
        "import gymnasium\nclass Mine(gymnasium.Wrapper):\n    '''Changes nothing.'''\n"
    )
    set_in_config(env={"wrappers": ["own_wrapper.Mine"]})(agent)


def test_trusted_agent_may_name_code(agent: Path) -> None:
    name_own_wrapper(agent)
    assert status_of(["evaluate", f"agent={agent}", "n_episodes=1"]) == 2
    assert status_of(["evaluate", f"agent={agent}", "n_episodes=1", "trust=true"]) == 0


def test_agent_in_the_users_own_runs_is_the_users_own(agent: Path) -> None:
    name_own_wrapper(agent)
    shutil.copytree(agent, "runs/ppo2/CartPole-v1/run/agent")
    assert status_of(["evaluate", "agent=runs/ppo2/CartPole-v1/run/agent", "n_episodes=1"]) == 0


def test_id_that_the_user_types_may_import_its_module(agent: Path) -> None:
    Path("registers_mine.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Mine-v0', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=9)\n"
    )
    set_in_config(env={"id": "registers_mine:Mine-v0"})(agent)
    assert status_of(["evaluate", f"agent={agent}", "n_episodes=1"]) == 2
    assert status_of(["evaluate", f"agent={agent}", "env=registers_mine:Mine-v0", "n_episodes=1"]) == 0
