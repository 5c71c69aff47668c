"""The config of a run that goes on, and what environment variables give to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

import zoo
from zoo.cli import status_of
from zoo.errors import ZooError

RUN = "runs/ppo/CartPole-v1/one"


@pytest.fixture
def saved() -> DictConfig:
    config = zoo.compose(
        "train",
        ["algo=ppo", "env=CartPole-v1", "seed=3", "algo.gamma=0.5", "env.kwargs.gravity=20", "logger=csv"],
    )
    Path(RUN).mkdir(parents=True)
    Path(RUN, "config.yaml").write_text(OmegaConf.to_yaml(config))
    return config


def test_resume_ignores_new_tuned_file(saved: DictConfig) -> None:
    Path("hyperparams/ppo").mkdir(parents=True)
    Path("hyperparams/ppo/CartPole-v1.yaml").write_text("n_envs: 3\nalgo: {gamma: 0.7}")
    resumed = zoo.compose("train", [f"resume={RUN}"])
    assert resumed.resume == RUN
    resumed.resume = None
    assert resumed == saved


def test_old_run_keeps_flattened_images(saved: DictConfig) -> None:
    old = OmegaConf.to_container(saved)
    assert isinstance(old, dict)
    del old["policy"]["flatten_images"]
    Path(RUN, "config.yaml").write_text(yaml.safe_dump(old))
    assert zoo.compose("train", [f"resume={RUN}"]).policy.flatten_images is True
    assert zoo.compose("train", ["algo=ppo", "env=CartPole-v1"]).policy.flatten_images is False


@pytest.mark.parametrize(
    "override", ["policy=MlpPolicy", "n_timesteps=1e5", "seed=3", "algo.gamma=0.5", "env.kwargs.gravity=20"]
)
def test_what_the_run_has_anyway_may_be_said_again(saved: DictConfig, override: str) -> None:
    assert zoo.compose("train", [f"resume={RUN}", override]).algo == saved.algo


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algo=a2c", r"algo=a2c \(the run has ppo\)"),
        ("env=Pendulum-v1", r"env=Pendulum-v1 \(the run has CartPole-v1\)"),
        ("policy=LnMlpPolicy", r"policy=LnMlpPolicy \(the run has MlpPolicy\)"),
        ("n_timesteps=5", r"n_timesteps=5 \(the run has 100000\)"),
        ("algo.gamma=0.9", r"algo.gamma=0.9 \(the run has 0.5\)"),
        ("callbacks=none", "callbacks=none"),
        ("experiment=cartpole_until_solved", "experiment="),
        ("algo.nonsense=1", "algo.nonsense=1"),
        ("+algo.nonsense=1", "algo.nonsense=1"),
    ],
)
def test_what_would_change_the_run_is_refused_by_name(saved: DictConfig, override: str, message: str) -> None:
    with pytest.raises(ZooError, match=message):
        zoo.compose("train", [f"resume={RUN}", override])


def test_folder_that_is_no_run_is_refused() -> None:
    Path("empty").mkdir()
    with pytest.raises(ZooError, match=r"no config\.yaml"):
        zoo.compose("train", ["resume=empty"])
    Path("empty/config.yaml").write_text("a: 1")
    with pytest.raises(ZooError, match="no config of a run"):
        zoo.compose("train", ["resume=empty"])
    Path("empty/config.yaml").write_text("a: [")
    with pytest.raises(ZooError, match="can't read"):
        zoo.compose("train", ["resume=empty"])


def test_what_is_kept_of_checkpoints_may_change(saved: DictConfig) -> None:
    assert saved.callbacks.checkpoint.keep == "auto"
    resumed = zoo.compose("train", [f"resume={RUN}", "callbacks.checkpoint.keep=true"])
    assert resumed.callbacks.checkpoint == {"every": saved.callbacks.checkpoint.every, "keep": True}


@pytest.mark.parametrize(
    ("chosen", "given", "is_same"),
    [
        ("[prioritized,hindsight]", "[hindsight,prioritized]", True),
        ("[hindsight,prioritized]", "hindsight", False),
        ("hindsight", "uniform", False),
    ],
)
def test_the_order_of_replay_options_means_nothing(chosen: str, given: str, is_same: bool) -> None:
    config = zoo.compose("train", ["algo=dqn", "env=Zoo/BitFlipping-v0", f"replay={chosen}"])
    Path(RUN).mkdir(parents=True)
    Path(RUN, "config.yaml").write_text(OmegaConf.to_yaml(config))
    if is_same:
        assert zoo.compose("train", [f"resume={RUN}", f"replay={given}"]).replay == config.replay
        return
    with pytest.raises(ZooError, match="can't take replay="):
        zoo.compose("train", [f"resume={RUN}", f"replay={given}"])


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
    *("algo=a2c", "env=tokens:Tokens-v0", "n_timesteps=40", "n_envs=2", "algo.n_steps=5", "seed=1"),
    *("policy.net_arch=[4]", "callbacks.eval.n_episodes=1", "callbacks.checkpoint.keep=true"),
    *("compile=false", "verbose=0", "runs_dir='${oc.env:MY_RUNS}'"),
    *(f"env.kwargs.token='{NAMED}'", "env.kwargs.again='${env.kwargs.token}'", "logger=[csv,tensorboard]"),
)


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    monkeypatch.setenv("MY_RUNS", "runs/own")
    Path("tokens.py").write_text(OWN)


@pytest.fixture
def run(token: None) -> Path:
    assert status_of(["train", *TRAIN]) == 0
    return next(Path("runs/own").glob("a2c/*/*"))


def files_with(text: str, folder: Path) -> list[str]:
    return [str(each) for each in folder.rglob("*") if each.is_file() and text.encode() in each.read_bytes()]


def test_token_stands_in_no_file_of_a_run(run: Path) -> None:
    assert files_with(TOKEN, run) == []
    for file in ("config.yaml", "agent/config.yaml", "best_agent/config.yaml"):
        config = yaml.safe_load((run / file).read_text())
        assert config["env"]["kwargs"] == {"token": NAMED, "again": "${env.kwargs.token}"}
        assert config.get("runs_dir", "${oc.env:MY_RUNS}") == "${oc.env:MY_RUNS}"  # agents have none


def test_run_that_has_one_is_played_and_gone_on_with(run: Path) -> None:
    assert status_of(["evaluate", f"agent={run}", "n_episodes=1"]) == 0
    assert zoo.load(run / "agent").env_config.kwargs["token"] == TOKEN
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
