"""What a stranger's files hold never reaches the terminal as a command to it, whichever verb shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from zoo import PPO2
from zoo.cli import status_of
from zoo.files.tensors import write_tensors

EVIL = "\x1b]0;owned\x07\x1b[2J\u202egnp"


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def agent() -> Path:
    return PPO2("MlpPolicy", "CartPole-v1", compile=False, device="cpu").save("agent")


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str]) -> Any:
    """Run a command, and return what it prints."""

    def run(*arguments: str) -> str:
        capfd.readouterr()
        status_of(arguments)
        out, err = capfd.readouterr()
        assert out or err
        shown = out + err
        assert not set("\x1b\x07\u202e") & set(shown), (arguments, shown)
        assert "Traceback" not in shown
        return shown

    return run


def edit(path: Path, change: Any) -> None:
    load, dump = (json.loads, json.dumps) if path.suffix == ".json" else (yaml.safe_load, yaml.safe_dump)
    values = load(path.read_text())
    change(values)
    path.write_text(dump(values))


def everywhere(values: Any) -> Any:
    """Return the same values, each text with an escape sequence behind it."""
    if isinstance(values, dict):
        return {key: everywhere(each) for key, each in values.items()}
    return values + EVIL if isinstance(values, str) else values


AGENT_COMMANDS = (("evaluate", "agent=agent", "n_episodes=1"), ("agents", "agent=agent"))


@pytest.mark.parametrize("command", AGENT_COMMANDS, ids=lambda command: command[0])
def test_agent(command: tuple[str, ...], agent: Path, printed: Any) -> None:
    config = yaml.safe_load((agent / "config.yaml").read_text())
    edit(agent / "card.json", lambda card: card.update(everywhere(card), env=EVIL, extra=EVIL))
    for change in (
        {"env": {"id": f"CartPole{EVIL}-v1"}},
        {"policy": {**config["policy"], f"key{EVIL}": EVIL}},
        {"observation_space": {"type": f"Box{EVIL}"}},
    ):
        (agent / "config.yaml").write_text(yaml.safe_dump({**config, **change}))
        printed(*command)
    (agent / "config.yaml").write_text(yaml.safe_dump(config))
    write_tensors(agent / "policy.safetensors", {f"a{EVIL}": np.zeros(2, np.float32)})
    printed(*command)
    (agent / "config.yaml").write_text(f"{{'{EVIL}': [")
    printed(*command)
