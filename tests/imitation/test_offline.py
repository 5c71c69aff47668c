"""Learning from a dataset: what fills the buffer, what a step of the run is, exact resume, wrong input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_bc

import zoo
from zoo.algorithms.dqn import DQN, DQNConfig
from zoo.config.fields import with_defaults
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError
from zoo.imitation.demonstrations import EpisodeChoice
from zoo.imitation.expert_data import ExpertData, write_expert
from zoo.imitation.offline import OfflineAlgorithm

SHORT = EnvConfig("CartPole-v1", max_episode_steps=100)
cartpole = test_bc.cartpole


@dataclass
@with_defaults(learning_starts=0)
class OfflineDQNConfig(DQNConfig, EpisodeChoice):
    pass


class OfflineDQN(OfflineAlgorithm, DQN):
    config_class = OfflineDQNConfig


def offline(data: Any, **options: Any) -> Any:
    settings = {"env": SHORT, "seed": 1, "compile": False, "threads": 1, "train_freq": 8, "batch_size": 16}
    return OfflineDQN({"net_arch": [8]}, dataset=data, **{**settings, **options})


def with_ends(data: ExpertData, *terminated: bool) -> ExpertData:
    return replace(data, terminated=np.array(terminated))


def test_buffer_holds_known_transitions(cartpole: ExpertData) -> None:
    data = with_ends(cartpole.only(np.arange(2)), True, False)
    buffer = offline(data).buffer
    first, n = int(data.lengths[0]), data.n_steps - 1
    assert len(buffer) == n
    columns = {name: column[:n, 0] for name, column in buffer.columns.items()}
    np.testing.assert_array_equal(columns["observations"], data.observations[:-1])
    np.testing.assert_array_equal(columns["rewards"], data.rewards[:-1])
    np.testing.assert_array_equal(np.flatnonzero(columns["terminated"]), [first - 1])
    np.testing.assert_array_equal(np.flatnonzero(columns["dones"]), [first - 1, n - 1])
    following = np.delete(columns["next_observations"], first - 1, 0)
    np.testing.assert_array_equal(following, np.delete(data.observations[1:], first - 1, 0))


def test_step_of_the_run_is_a_gradient_step(cartpole: ExpertData) -> None:
    model = offline(cartpole, n_envs=2)
    before = model.get_parameters()
    model.learn(20)
    assert (model.num_timesteps, model.n_updates, model.n_episodes) == (20, 20, 0)
    assert any((model.get_parameters()[name] != value).any() for name, value in before.items())


def test_values_and_targets_follow_the_data(cartpole: ExpertData) -> None:
    """Without a discount the value of each action that was taken is its reward, 1."""
    model = offline(cartpole, gamma=0.0, learning_rate=1e-2, target_update_interval=16)
    target = model.runner.state["target"].clone()
    model.learn(400)
    assert (model.runner.state["target"] != target).any()
    model.read_metrics()
    model.learn(80, reset_num_timesteps=False)
    assert model.read_metrics()["train/q_value"] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("replay", [{}, {"prioritized": {}, "n_step": 3}], ids=["uniform", "prioritized"])
def test_same_seed_and_exact_resume(cartpole: ExpertData, replay: Any) -> None:
    env = replace(SHORT, normalize=True)
    make = partial(offline, cartpole, env=env, replay=replay, target_update_interval=16)
    test_bc.assert_resumes_exactly(make, 96, (32, 56))


def test_command_line_trains_and_loads(
    cartpole: ExpertData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_expert("data.npz", cartpole)
    run = ["algo._target_=test_offline.OfflineDQN", "env=CartPole-v1", "n_timesteps=64", "algo.n_episodes=3"]
    quiet = ["callbacks=none", "verbose=0", "device=cpu", "compile=false", "progress_bar=false"]
    result = zoo.train(*run, "dataset=data.npz", *quiet)
    assert len(result.algorithm.buffer) == cartpole.lengths[:3].sum() - 3  # all were truncated
    with pytest.raises(ZooError, match="learns from expert data: dataset=PATH"):
        zoo.train(*run, *quiet)
    loaded = zoo.load(result.algorithm.save("agent"), trust=True)
    seen = cartpole.observations
    np.testing.assert_array_equal(loaded.predict(seen)[0], result.algorithm.predict(seen)[0])


def test_wrong_input_gets_one_clear_line(cartpole: ExpertData) -> None:
    with pytest.raises(ZooError, match="learns from expert data: dataset=PATH"):
        offline(None).learn(10)
    with pytest.raises(ZooError, match="which episodes terminated"):
        offline(replace(cartpole, terminated=None))
    with pytest.raises(ZooError, match="differ"):
        offline(cartpole, env="Acrobot-v1")


@dataclass
class ForgetfulConfig(DQNConfig, EpisodeChoice):
    pass


class ForgetfulDQN(OfflineDQN):
    config_class = ForgetfulConfig


def test_offline_learning_starts_at_once(cartpole: ExpertData) -> None:
    model = ForgetfulDQN({"net_arch": [8]}, SHORT, dataset=cartpole, buffer_size=3, compile=False, threads=1)
    model.learn(20)
    assert (model.n_updates, model.learning_starts, model.buffer_size) == (20, 0, cartpole.n_steps)
