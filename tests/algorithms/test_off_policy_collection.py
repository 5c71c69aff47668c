"""Replay holds what happened, exploration is each environment's own, and updates keep pace with the data."""

from __future__ import annotations

import copy
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from logged_envs import KINDS, Logged, Transition, logged_vector_env

from zoo import ACER, DDPG, DQN, SAC, make_vec_env
from zoo.algorithms.callback import Callback
from zoo.buffers import replay
from zoo.buffers.config import PrioritizedConfig, ReplayConfig
from zoo.errors import ZooError, ZooWarning

SMALL = {"net_arch": [8]}
BOX = spaces.Box(-2.0, 6.0, (2,), np.float32)


def dqn(env: Any, algorithm: Any = DQN, **hyperparameters: Any) -> Any:
    settings = {"learning_starts": 20, "batch_size": 8, **hyperparameters}
    return algorithm(SMALL, env, seed=0, compile=False, **settings)


def by_observation(envs: list[Logged]) -> dict[tuple[float, ...], Transition]:
    return {tuple(step.observation.tolist()): step for env in envs for step in env.log}


@pytest.mark.parametrize(
    ("algorithm", "policy", "options"),
    [
        (SAC, "CountingSAC", {"random_exploration": 0.5}),
        (SAC, "CountingSAC", {"use_sde_at_warmup": True}),
        (DDPG, "CountingDDPG", {"parameter_noise": {}}),
        (DQN, "CountingQNetwork", {"exploration_initial_eps": 1.0, "exploration_fraction": 1.0}),
        (DQN, "CountingQNetwork", {"parameter_noise": True}),
    ],
)
def test_recurrent_actor_forgets_at_episode_ends(algorithm: Any, policy: str, options: Any) -> None:
    states = []

    class Watch(Callback):
        every = 1

        def on_steps(self, algorithm: Any) -> None:
            states.append(algorithm.recurrent.array[:, 0].tolist())

    env = make_vec_env("CartPole-v1" if algorithm is DQN else "Pendulum-v1", 2, max_episode_steps=7)
    settings = {"learning_starts": 20, "batch_size": 8, "train_freq": 2, **options}
    config = {**SMALL, "_target_": f"toy_policies.{policy}"}
    algorithm(config, env, seed=0, compile=False, **settings).learn(80, Watch(), progress_bar=False)
    assert states == [[step % 7 + 1] * 2 for step in range(40)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("algorithm", "train_freq", "optimize"), [(DQN, 1, True), (DQN, 120, False), (SAC, 39, False)]
)
def test_replay_holds_what_happened(kind: str, algorithm: Any, train_freq: int, optimize: bool) -> None:
    """Final observations follow truncated and terminated steps, and no reset is among the transitions."""
    actions: spaces.Space[Any] = spaces.Discrete(3, start=2) if algorithm is DQN else BOX
    env, envs = logged_vector_env(kind, actions)
    settings = {"optimize_memory_usage": optimize, "buffer_size": 600, "train_freq": train_freq}
    model = dqn(env, algorithm, **settings, learning_starts=80).learn(150)
    log = by_observation(envs)
    assert len(model.buffer) == len(log) == model.num_timesteps
    batch = model.buffer.sample(np.random.default_rng(0), (1000,))
    stored = batch["actions"] + 2 if algorithm is DQN else -2 + 4 * (batch["actions"] + 1)
    for i, observation in enumerate(batch["observations"]):
        step = log[tuple(observation.tolist())]
        np.testing.assert_allclose(stored[i], step.action, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(batch["next_observations"][i], step.next_observation)
        assert batch["rewards"][i] == np.float32(step.reward)
        assert batch["terminated"][i] == step.terminated
    assert {(step.terminated, step.truncated) for step in log.values()} >= {(True, False), (False, True)}


def assert_led_to_what_followed(model: Any, envs: Any, under_way: list[Any]) -> None:
    """What the memory gives is what the environments wrote down, also of the steps that were cut."""
    log = by_observation(envs)
    batch = model.buffer.sample(np.random.default_rng(0), (3000,))
    for observation, following in zip(batch["observations"], batch["next_observations"], strict=True):
        np.testing.assert_array_equal(following, log[tuple(observation.tolist())].next_observation)
    for step in under_way:
        rows = (batch["observations"] == step.observation).all(1)
        assert rows.any()
        assert (batch["terminated"][rows] == step.terminated).all()


class Watching(Callback):
    """Notes how much is stored when an episode ends, and raises at the end of one."""

    def __init__(self, raises_at: int = 0) -> None:
        self.stored: list[tuple[int, int]] = []
        self.raises_at = raises_at

    def on_episode(self, algorithm: Any, episode: Any) -> None:
        self.stored.append((algorithm.num_timesteps, len(algorithm.buffer)))
        if len(self.stored) == self.raises_at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("memory", [ReplayConfig(), ReplayConfig(prioritized=PrioritizedConfig())])
@pytest.mark.parametrize("train_freq", [1, 120])
def test_steps_of_an_episode_are_stored_when_it_ends(memory: ReplayConfig, train_freq: int) -> None:
    watching = Watching()
    env, _ = logged_vector_env("own")
    dqn(env, train_freq=train_freq, replay=memory).learn(150, callback=watching)
    assert len(watching.stored) > 20
    assert all(n_stored == n_taken for n_taken, n_stored in watching.stored)


@pytest.mark.parametrize("place", ["callback", "before it is shown", "before it is stored"])
@pytest.mark.parametrize(("train_freq", "optimize"), [(1, True), (120, False)])
def test_no_transition_spans_an_interrupted_step(
    train_freq: int, optimize: bool, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environments have gone on, so what the model saw last is not what they show."""
    env, envs = logged_vector_env("own")
    settings = {"train_freq": train_freq, "buffer_size": 600, "learning_starts": 1000}
    memory = ReplayConfig(n_step=2)
    model = dqn(env, **settings, optimize_memory_usage=optimize, replay=memory)
    watching, calls = Watching(raises_at=8 if place == "callback" else 0), itertools.count(1)
    patched = {
        "before it is shown": (model.collector, "set_observations"),
        "before it is stored": (model.buffer, "add"),
    }

    def interrupted(*arguments: Any) -> Any:
        if next(calls) == 11:
            raise KeyboardInterrupt
        return original(*arguments)

    if place in patched:
        original = getattr(*patched[place])
        monkeypatch.setattr(*patched[place], interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.learn(120, callback=watching)
    model.learn(120, reset_num_timesteps=False)
    n_lost = 0 if place == "callback" else len(envs)
    log = by_observation(envs)
    assert len(model.buffer) == len(log) - n_lost
    batch = model.buffer.sample(np.random.default_rng(0), (3000,))
    n_pairs = 0
    for i, observation in enumerate(batch["observations"]):
        first = log[tuple(observation.tolist())]
        following = tuple(batch["next_observations"][i].tolist())
        if following == tuple(first.next_observation.tolist()):
            assert batch["rewards"][i] == np.float32(first.reward)
            continue
        second = log[tuple(first.next_observation.tolist())]
        assert following == tuple(second.next_observation.tolist())
        expected = first.reward + model.config.gamma * second.reward
        np.testing.assert_allclose(batch["rewards"][i], expected, rtol=1e-5, atol=1e-5)
        n_pairs += 1
    assert n_pairs > 300


@pytest.mark.parametrize("optimize", [False, True])
def test_set_env_keeps_the_buffer_and_adds_to_it(optimize: bool, recwarn: pytest.WarningsRecorder) -> None:
    (env, envs), (other, others) = logged_vector_env("own"), logged_vector_env("NEXT_STEP")
    model = dqn(env, optimize_memory_usage=optimize, buffer_size=900, learning_starts=1000).learn(120)
    under_way = [each.log[-1] for each in envs]
    model.set_env(other)
    assert len(model.buffer) == 120
    newest = (model.buffer.heads - 1) % model.buffer.length, np.arange(3)
    assert model.buffer.columns["dones"][newest].all()
    model.learn(60, reset_num_timesteps=False)
    assert all(each.category is ZooWarning for each in recwarn)  # of learning nothing, which is meant
    assert len(model.buffer) == model.num_timesteps >= 180
    assert_led_to_what_followed(model, [*envs, *others], under_way)


def many_actions(n_envs: int) -> tuple[Any, list[Logged]]:
    envs = [Logged((50,), spaces.Discrete(50)) for _ in range(n_envs)]
    waiting = list(envs)
    return make_vec_env(lambda: waiting.pop(0), n_envs, check=False), envs


def always_seven(model: DQN) -> DQN:
    """Let the greedy action be 7 everywhere."""
    parameters = model.get_parameters()
    parameters["advantages.2.bias"][:] = 0
    parameters["advantages.2.bias"][7] = 1e6
    model.set_parameters(parameters)
    return model


def test_each_environment_explores_by_itself() -> None:
    env, envs = many_actions(8)
    epsilon = {"exploration_initial_eps": 0.5, "exploration_final_eps": 0.5}
    model = always_seven(dqn(env, learning_starts=0, train_freq=1600, **epsilon)).learn(1600)
    greedy = np.array([[step.action == 7 for step in env.log] for env in envs])
    assert model.num_timesteps == greedy.size
    assert greedy.mean() == pytest.approx(0.51, abs=0.06)
    n_greedy = greedy.sum(0)
    assert n_greedy.var() == pytest.approx(8 * 0.51 * 0.49, rel=0.35)
    actions = np.array([[step.action for step in env.log] for env in envs])
    assert len(np.unique(actions)) == 50


def test_exploration_rate_falls_over_its_fraction() -> None:
    """The rate of each step is exact; of a batch of steps that many are random, but for chance."""
    env, envs = many_actions(20)
    epsilon = {"exploration_fraction": 0.4, "exploration_initial_eps": 0.9, "exploration_final_eps": 0.1}
    model = always_seven(dqn(env, learning_starts=0, train_freq=10_000, **epsilon))
    rates: list[float] = []
    rate = model.exploration.rate
    model.exploration.rate = lambda progress: rates.append(rate(progress)) or rates[-1]  # type: ignore[func-returns-value]
    model.learn(10_000)
    expected = 0.9 - 0.8 * np.minimum(np.arange(500) / 500 / 0.4, 1.0)
    np.testing.assert_allclose(rates[:500], expected, atol=1e-12)
    assert model.read_metrics()["rollout/exploration_rate"] == pytest.approx(0.1)
    is_random = np.array([[step.action != 7 for step in each.log] for each in envs])
    shares = is_random.reshape(20, 10, 50).mean((0, 2))
    np.testing.assert_allclose(shares, expected.reshape(10, 50).mean(1) * 0.98, atol=0.06)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_stochastic_predict_explores_at_the_final_rate(share: float) -> None:
    epsilon = {"exploration_initial_eps": 0.6, "exploration_final_eps": share}
    model = always_seven(dqn(many_actions(1)[0], **epsilon))
    observations = np.zeros((5000, 3), np.float32)
    assert (model.predict(observations, deterministic=True)[0] == 7).all()
    actions, _ = model.predict(observations, deterministic=False)
    assert (actions != 7).mean() == pytest.approx(0.98 * share, abs=0.03)
    assert len(np.unique(actions)) == (1 if share == 0 else 50)


@pytest.mark.parametrize(
    ("train_freq", "gradient_steps", "ratio"),
    [(1, 1, 1.0), (4, 2, 0.5), (16, 1, 1 / 16), (5, -1, 1.0), ([3, "step"], 1, 1 / 3)],
)
def test_updates_keep_their_ratio_to_the_data(train_freq: Any, gradient_steps: int, ratio: float) -> None:
    settings = {"learning_starts": 48, "train_freq": train_freq, "gradient_steps": gradient_steps}
    model = dqn("CartPole-v1", n_envs=3, batch_size=4, **settings).learn(48 + 240)
    assert model.n_updates == pytest.approx(ratio * (model.num_timesteps - 48), abs=5)


@pytest.mark.parametrize(("starts", "n_envs"), [(11, 3), (12, 1)])
def test_run_shorter_than_learning_starts_warns(starts: int, n_envs: int) -> None:
    for n_steps in (11, 12, 13):
        model = dqn(many_actions(n_envs)[0], learning_starts=starts, train_freq=1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.learn(n_steps)
        told = [str(each.message) for each in caught if "nothing will be learned" in str(each.message)]
        assert len(told) == (model.n_updates == 0)


class Counted(DQN):
    """Notes after each update how many steps, episodes and gradient steps there were."""

    def update(self) -> None:
        super().update()
        if not hasattr(self, "counts"):
            self.counts = []
        self.counts.append((self.num_timesteps, self.n_episodes, self.n_updates))


@pytest.mark.parametrize("train_freq", [[2, "episode"], {"frequency": 2, "unit": "episode"}])
def test_updates_after_episodes_come_when_they_end(train_freq: Any) -> None:
    env = make_vec_env(lambda: Logged((3, 5, 2)), 1, check=False)
    settings = {"learning_starts": 0, "train_freq": train_freq, "gradient_steps": 4}
    model = dqn(env, Counted, **settings).learn(30)
    assert model.counts == [(8, 2, 4), (13, 4, 8), (20, 6, 12), (28, 8, 16), (30, 9, 16)]


@pytest.mark.parametrize("train_freq", [[1, "epsiode"], [1], [0, "step"]])
def test_other_train_freqs_are_refused(train_freq: Any) -> None:
    with pytest.raises(ZooError, match=r"`algo\.train_freq=.*\[1, episode\]"):
        dqn("CartPole-v1", train_freq=train_freq)


class Watched(DQN):
    """Notes the steps at which the target network is made the online one."""

    def _learn_from(self, batches: Any, n_steps: int) -> None:
        if not hasattr(self, "copied_at"):
            self.copied_at: list[int] = []
        state = self.runner.state
        if torch.equal(state["target"], state["q_network"]):
            self.copied_at.append(self.num_timesteps)
        super()._learn_from(batches, n_steps)


@pytest.mark.parametrize(("n_envs", "expected"), [(1, [10, 20, 30, 40, 50]), (3, [12, 21, 30, 42, 51])])
def test_target_is_copied_at_its_interval_of_env_steps(n_envs: int, expected: list[int]) -> None:
    settings = {"learning_starts": 5, "batch_size": 4, "target_update_interval": 10}
    model = dqn("CartPole-v1", Watched, n_envs=n_envs, **settings).learn(52)
    assert model.copied_at[1:] == expected


@pytest.mark.parametrize("n_due", [1, 3])
def test_target_moves_by_tau(n_due: int) -> None:
    """Of several moves that are due at once each goes from where the one before it came to."""
    settings = {"target_update_interval": 4, "tau": 0.25, "train_freq": 4 * n_due}
    model = dqn("CartPole-v1", learning_starts=0, **settings)
    online, target = model.runner.state["q_network"], model.runner.state["target"]
    online.add_(torch.linspace(-1, 1, len(online)))
    expected = online + 0.75**n_due * (target - online)
    model.learn(4 * n_due)
    torch.testing.assert_close(target, expected)


def test_importance_weights_use_beta_at_rollout_start() -> None:
    class Noting(DQN):
        def _learn_from(self, batches: Any, n_steps: int) -> Any:
            noted.append(batches["weights"].numpy())
            return super()._learn_from(batches, n_steps)

        def update(self) -> None:
            progress = (self.num_timesteps - 10) / 200
            batch = self.buffer.sample(copy.deepcopy(self.rng), (2, 8), progress)
            super().update()
            np.testing.assert_array_equal(noted[-1], batch["weights"])

    noted: list[np.ndarray] = []
    memory = ReplayConfig(prioritized=PrioritizedConfig(beta=0.1, beta_fraction=0.8))
    settings = {"learning_starts": 0, "train_freq": 10, "gradient_steps": 2, "learning_rate": 0.01}
    dqn("CartPole-v1", Noting, replay=memory, **settings).learn(200)
    assert len(noted) == 20
    assert min(weights.min() for weights in noted) < 0.5


@pytest.mark.parametrize("algorithm", [DQN, SAC])
def test_optimize_memory_usage_gives_the_same_weights(algorithm: Any) -> None:
    """It holds a transition of each environment less, so it gets room for one more; in a full ring."""
    actions: spaces.Space[Any] = spaces.Discrete(3) if algorithm is DQN else BOX

    def model_of(**storage: Any) -> Any:
        env, _ = logged_vector_env("own", actions)
        return dqn(env, algorithm, learning_starts=30, train_freq=6, gradient_steps=2, **storage)

    plain = model_of(buffer_size=120, optimize_memory_usage=False)
    once = model_of(buffer_size=123, optimize_memory_usage=True)
    for _ in range(10):
        for model in (plain, once):
            model.learn(30, reset_num_timesteps=False)
        assert all(torch.equal(once.runner.state[name], each) for name, each in plain.runner.state.items())
    assert plain.n_updates > 80


@pytest.mark.parametrize("algorithm", [DQN, ACER])
def test_buffer_that_does_not_fit_is_refused_at_once(algorithm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "free_bytes", lambda: 2**20)
    with pytest.raises(ZooError, match=r"`algo.buffer_size=50000` needs .* GiB .* algo.buffer_size=\d+ fits"):
        algorithm(SMALL, "CartPole-v1")
    algorithm(SMALL, "CartPole-v1", buffer_size=5000)


def test_loaded_agent_fills_its_buffer_before_learning(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"learning_starts": 40, "batch_size": 8, "compile": False, "seed": 0}
    model = DQN({"net_arch": [8]}, "CartPole-v1", **settings).learn(100)
    loaded = DQN.load(model.save(tmp_path / "agent"), "CartPole-v1")
    updates = loaded.n_updates
    loaded.learn(40, reset_num_timesteps=False)
    assert loaded.n_updates == updates
    loaded.learn(40, reset_num_timesteps=False)
    assert loaded.n_updates > updates
