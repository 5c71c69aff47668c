"""Going on with a run takes the run's own config, and nothing that would make another run of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

import zoo
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


def test_config_is_that_of_the_run(saved: DictConfig) -> None:
    Path("hyperparams/ppo").mkdir(parents=True)
    Path("hyperparams/ppo/CartPole-v1.yaml").write_text("n_envs: 3\nalgo: {gamma: 0.7}")
    resumed = zoo.compose("train", [f"resume={RUN}"])
    assert resumed.resume == RUN
    resumed.resume = None
    assert resumed == saved


@pytest.mark.parametrize(
    "override",
    [
        "policy=MlpPolicy",
        "n_timesteps=1e5",
        "seed=3",
        "algo.gamma=0.5",
        "env.kwargs.gravity=20",
    ],
)
def test_what_the_run_has_anyway_may_be_said_again(saved: DictConfig, override: str) -> None:
    assert zoo.compose("train", [f"resume={RUN}", override]).algo == saved.algo


def test_what_is_shown_may_change(saved: DictConfig) -> None:
    resumed = zoo.compose("train", [f"resume={RUN}", "progress_bar=false", "verbose=0"])
    assert (resumed.progress_bar, resumed.verbose) == (False, 0)


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
    with pytest.raises(ZooError, match="not the config of a run"):
        zoo.compose("train", ["resume=empty"])
    Path("empty/config.yaml").write_text("a: [")
    with pytest.raises(ZooError, match="can't read"):
        zoo.compose("train", ["resume=empty"])


def test_null_resumes_nothing() -> None:
    assert zoo.compose("train", ["algo=ppo2", "env=CartPole-v1", "resume=null"]).resume is None


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
