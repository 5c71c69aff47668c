"""What environment variables give is used, and never written where others read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import zoo
from zoo.cli import status_of

TOKEN = "hf_secret4711"
NAMED = "${oc.env:MY_TOKEN}"

OWN = """
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
class Env(CartPoleEnv):
    def __init__(self, token, again=None, **options):
        assert token == again == "hf_secret4711", token
        super().__init__(**options)
gymnasium.register("Tokens-v0", entry_point=Env, max_episode_steps=20)
"""

TRAIN = (
    *(
        "algo=a2c",
        "env=tokens:Tokens-v0",
        "n_timesteps=40",
        "n_envs=2",
        "algo.n_steps=5",
        "seed=1",
        "verbose=0",
    ),
    *(
        "policy.net_arch=[4]",
        "callbacks.eval.n_episodes=1",
        "callbacks.checkpoint.keep=true",
        "compile=false",
    ),
    *(f"env.kwargs.token='{NAMED}'", "env.kwargs.again='${env.kwargs.token}'", "logger=[csv,tensorboard]"),
)


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    Path("tokens.py").write_text(OWN)
    return tmp_path


@pytest.fixture
def run() -> Path:
    assert status_of(["train", *TRAIN]) == 0
    return next(Path("runs").glob("a2c/*/*"))


def files_with(text: str, folder: Path) -> list[str]:
    return [str(each) for each in folder.rglob("*") if each.is_file() and text.encode() in each.read_bytes()]


def test_token_stands_in_no_file_of_a_run(run: Path) -> None:
    assert files_with(TOKEN, run) == []
    for file in ("config.yaml", "agent/config.yaml", "best_agent/config.yaml"):
        kwargs = yaml.safe_load((run / file).read_text())["env"]["kwargs"]
        assert kwargs == {"token": NAMED, "again": "${env.kwargs.token}"}


def test_run_that_has_one_is_played_and_gone_on_with(run: Path) -> None:
    assert status_of(["evaluate", f"agent={run}", "n_episodes=1"]) == 0
    assert zoo.load(run / "agent").env_config.kwargs["token"] == TOKEN
    assert status_of(["reproduce", str(run)]) == 0
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "status": "preempted"}))
    assert status_of(["train", f"resume={run}", "verbose=0"]) == 0
    assert status_of(["train", f"experiment={run}/config.yaml", "verbose=0"]) == 0
    assert files_with(TOKEN, Path("runs")) == []


def test_variable_that_is_not_set_is_named(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MY_TOKEN")
    assert status_of(["evaluate", f"agent={run}"]) == 2
    assert "MY_TOKEN" in capfd.readouterr().err
