"""Keys, and names, that belong elsewhere are answered with whose they are and with what there is instead."""

from __future__ import annotations

import pytest

import zoo
from zoo.cli import status_of
from zoo.config.overrides import format_overrides
from zoo.errors import ZooError

ENV = "env=CartPole-v1"

ANSWERS = {
    "algo=trpo algo.n_epochs=3": "of ppo1, ppo2, not of trpo, which has algo.n_critic_updates",
    "algo=trpo n_epochs=3": "of ppo1, ppo2, not of trpo, which has algo.n_critic_updates",
    "algo=acktr algo.n_epochs=3": "not of acktr, one step is taken per rollout",
    "algo=bc algo.n_epochs=4": "not of bc, n_timesteps",
    "algo=ars algo.batch_size=5": "n_delta × n_eval_episodes",
    "algo=ars algo.gamma=0.9": "not of ars, returns are not discounted",
    "algo=ppo2 algo.learning_starts=9": "of ddpg, dqn, qrdqn, sac, td3, tqc, not of ppo2",
    "algo=ppo2 algo.max_episode_steps=9": "it is `env.max_episode_steps` here",
    "algo=bc expert=FILE": "unknown key `expert`: it is `dataset` here",
    "algo=recurrent_ppo policy=MlpPolicy tuned=none": "MlpPolicy does not: policy=MlpLstm",
    "algo=recurrent_ppo env=CartPoleNoVel-v1 policy=MlpPolicy": "MlpPolicy does not: policy=MlpLstm",
    "algo=ppo2 env=CartPoleNoVel-v1 tuned=recurrent_ppo/CartPoleNoVel-v1 policy=MlpPolicy": "NoVel-v1.yaml)",
}


@pytest.mark.parametrize("given", ANSWERS)
def test_key_of_others_is_answered(given: str) -> None:
    with pytest.raises(ZooError) as raised:
        zoo.compose("train", [*([] if "env=" in given else [ENV]), *given.split()])
    assert ANSWERS[given] in str(raised.value)


LINES = {
    "train algo=gail env=CartPole-v1 algo.generator=sac": "expected one of trpo, ppo2, ppo1, a2c, acktr\n",
    "train algo=acer env=CartPole-v1 workers=2 tuned=none": "as several processes; a2c, acktr, ars",
    "train algo=bc env=CartPole-v1 pretrain.dataset=some.npz tuned=none": "dataset=some.npz",
}


@pytest.mark.parametrize("line", LINES)
def test_command_of_others_is_answered(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert status_of(line.split()) == 2
    assert LINES[line] in capsys.readouterr().err


def test_overrides_are_shown_as_they_are_typed() -> None:
    assert format_overrides(["compile=False", "callbacks.eval=None", "env.id=True-v0"]) == (
        "compile=false callbacks.eval=null env.id=True-v0"
    )
