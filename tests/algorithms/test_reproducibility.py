"""Same seed, same weights; worker processes change nothing; a restored run ends as an uninterrupted one."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import create_empty_array
from logged_envs import Logged
from own_sight import OwnSight

from zoo import (
    A2C,
    ACER,
    ACKTR,
    ARS,
    DDPG,
    DQN,
    PPO1,
    PPO2,
    QRDQN,
    SAC,
    TD3,
    TQC,
    TRPO,
    evaluate_policy,
    make_vec_env,
)
from zoo.algorithms.base import Algorithm
from zoo.algorithms.callback import Callback, Training
from zoo.errors import ZooError
from zoo.files.trees import join, split
from zoo.optim.runtime import computing_with

Run = tuple[type[Algorithm[Any]], str, dict[str, Any]]

MEMORY = {"n_step": 3, "prioritized": {"beta": 0.3}}

RUNS: dict[str, Run] = {
    "ppo2": (
        PPO2,
        "CartPole-v1",
        {"n_steps": 16, "n_epochs": 2, "learning_rate": "lin_0.01", "target_kl": 0.01},
    ),
    "a2c": (A2C, "CartPole-v1", {"learning_rate": 0.01, "n_steps": 8}),
    "ppo2_lstm": (
        PPO2,
        "CartPole-v1",
        {
            "policy": {"recurrent": "lstm", "lstm_hidden_size": 5, "net_arch": [8]},
            "learning_rate": 0.01,
            "n_steps": 16,
            "chunk_length": 4,
            "n_epochs": 2,
        },
    ),
    "a2c_gru": (
        A2C,
        "CartPole-v1",
        {
            "policy": {"recurrent": "gru", "lstm_hidden_size": 5, "net_arch": [8], "critic_lstm": "shared"},
            "learning_rate": 0.01,
            "n_steps": 6,
        },
    ),
    "trpo_lstm": (
        TRPO,
        "CartPole-v1",
        {
            "policy": {"recurrent": "lstm", "lstm_hidden_size": 5, "net_arch": [8]},
            "n_steps": 16,
            "batch_size": 16,
            "n_critic_updates": 2,
        },
    ),
    "ppo1_gru": (
        PPO1,
        "CartPole-v1",
        {
            "policy": {"recurrent": "gru", "lstm_hidden_size": 5, "net_arch": [8], "critic_lstm": "detached"},
            "n_steps": 16,
            "chunk_length": 4,
            "batch_size": 16,
            "n_epochs": 2,
        },
    ),
    "acktr_lstm": (
        ACKTR,
        "CartPole-v1",
        {
            "policy": {"recurrent": "lstm", "lstm_hidden_size": 5, "net_arch": [8]},
            "n_steps": 8,
            "cold_updates": 6,
            "kfac_update": 4,
        },
    ),
    "acer_gru": (
        ACER,
        "CartPole-v1",
        {
            "policy": {"recurrent": "gru", "lstm_hidden_size": 5, "net_arch": [8]},
            "n_steps": 7,
            "buffer_size": 200,
            "replay_start": 40,
        },
    ),
    "a2c_box": (A2C, "Pendulum-v1", {"learning_rate": 0.01, "n_steps": 8, "use_rms_prop": False}),
    "acktr": (ACKTR, "CartPole-v1", {"n_steps": 8, "cold_updates": 6, "kfac_update": 4}),
    "ppo2_sde": (
        PPO2,
        "Pendulum-v1",
        {"learning_rate": 0.01, "n_steps": 16, "use_sde": True, "sde_sample_freq": 6},
    ),
    "a2c_sde": (A2C, "Pendulum-v1", {"learning_rate": 0.01, "n_steps": 8, "use_sde": True}),
    "acer": (
        ACER,
        "CartPole-v1",
        {"n_steps": 7, "buffer_size": 200, "replay_start": 40, "learning_rate": "lin_0.01"},
    ),
    "acer_box": (
        ACER,
        "Pendulum-v1",
        {"n_steps": 6, "buffer_size": 100, "replay_start": 40, "learning_rate": 0.01, "delta": 0.1},
    ),
    "ars": (ARS, "CartPole-v1", {"n_delta": 2, "learning_rate": "lin_0.1", "zero_policy": False}),
    "ars_box": (
        ARS,
        "Zoo/BitFlippingContinuous-v0",
        {"n_delta": 2, "policy": "LinearPolicy", "n_eval_episodes": 2},
    ),
    "ppo1": (PPO1, "CartPole-v1", {"n_steps": 16, "batch_size": 12, "n_epochs": 2}),
    "trpo": (
        TRPO,
        "CartPole-v1",
        {"n_steps": 16, "batch_size": 12, "n_critic_updates": 2, "sub_sampling_factor": 2},
    ),
    "trpo_sde": (
        TRPO,
        "Pendulum-v1",
        {"n_steps": 16, "batch_size": 16, "n_critic_updates": 1, "use_sde": True, "sde_sample_freq": 6},
    ),
    "dqn": (
        DQN,
        "CartPole-v1",
        {
            "learning_starts": 40,
            "buffer_size": 200,
            "train_freq": 5,
            "gradient_steps": 2,
            "target_update_interval": 50,
        },
    ),
    "dqn_once": (
        DQN,
        "CartPole-v1",
        {"learning_starts": 40, "buffer_size": 100, "train_freq": 4, "optimize_memory_usage": True},
    ),
    "ppo2_parts": (PPO2, "Zoo/MaskedComposite-v0", {"n_steps": 16, "n_epochs": 2, "learning_rate": 0.01}),
    "a2c_parts": (A2C, "Zoo/Composite-v0", {"n_steps": 8, "learning_rate": 0.01}),
    "dqn_masked": (
        DQN,
        "Zoo/Masked-v0",
        {"learning_starts": 40, "buffer_size": 100, "train_freq": 4, "optimize_memory_usage": True},
    ),
    "dqn_parameter_noise": (
        DQN,
        "CartPole-v1",
        {"learning_starts": 40, "buffer_size": 200, "train_freq": 5, "parameter_noise": True},
    ),
    "qrdqn_parameter_noise": (
        QRDQN,
        "CartPole-v1",
        {"learning_starts": 40, "buffer_size": 200, "n_quantiles": 6, "parameter_noise": True},
    ),
    "dqn_episodes": (DQN, "CartPole-v1", {"learning_starts": 40, "train_freq": [1, "episode"]}),
    "qrdqn": (
        QRDQN,
        "CartPole-v1",
        {
            "learning_starts": 40,
            "buffer_size": 200,
            "train_freq": 5,
            "gradient_steps": 2,
            "n_quantiles": 6,
            "double": True,
            "target_update_interval": 50,
            "learning_rate": 1e-3,
            "memory": MEMORY,
        },
    ),
    "dqn_memory": (
        DQN,
        "CartPole-v1",
        {
            "learning_starts": 40,
            "buffer_size": 150,
            "train_freq": 4,
            "gradient_steps": 2,
            "optimize_memory_usage": True,
            "memory": MEMORY,
        },
    ),
    "sac_memory": (
        SAC,
        "Pendulum-v1",
        {"learning_starts": 40, "batch_size": 16, "buffer_size": 150, "train_freq": 4, "memory": MEMORY},
    ),
    "ddpg": (
        DDPG,
        "Pendulum-v1",
        {
            "learning_starts": 40,
            "batch_size": 16,
            "train_freq": 6,
            "gradient_steps": 2,
            "action_noise": {"type": "ornstein-uhlenbeck", "std": 0.3},
        },
    ),
    "ddpg_units_and_noise": (
        DDPG,
        "Pendulum-v1",
        {
            "learning_starts": 40,
            "batch_size": 16,
            "train_freq": 6,
            "gradient_steps": 2,
            "normalize_returns": True,
            "enable_popart": True,
            "critic_l2_reg": 0.01,
            "parameter_noise": {"initial_std": 0.5},
            "random_exploration": 0.2,
        },
    ),
    "sac": (SAC, "Pendulum-v1", {"learning_starts": 40, "batch_size": 16, "train_freq": 4}),
    "sac_sde": (
        SAC,
        "Pendulum-v1",
        {
            "learning_starts": 40,
            "batch_size": 16,
            "train_freq": 16,
            "gradient_steps": 2,
            "use_sde": True,
            "sde_sample_freq": 3,
        },
    ),
    "sac_noise": (
        SAC,
        "Pendulum-v1",
        {
            "learning_starts": 40,
            "batch_size": 16,
            "train_freq": 6,
            "gradient_steps": -1,
            "target_update_interval": 4,
            "random_exploration": 0.2,
            "action_noise": {"type": "ornstein-uhlenbeck", "std": 0.3},
        },
    ),
    "dqn_hindsight_once": (
        DQN,
        "Zoo/BitFlipping-v0",
        {
            "learning_starts": 40,
            "buffer_size": 100,
            "train_freq": 5,
            "optimize_memory_usage": True,
            "memory": {"n_step": 2, "hindsight": {"goal_selection_strategy": "episode"}},
        },
    ),
    "sac_hindsight": (
        SAC,
        "Zoo/BitFlippingContinuous-v0",
        {"learning_starts": 40, "batch_size": 16, "train_freq": 4, "memory": {"hindsight": {}}},
    ),
    "td3": (
        TD3,
        "Pendulum-v1",
        {
            "learning_starts": 40,
            "batch_size": 16,
            "train_freq": 6,
            "gradient_steps": 5,
            "policy_delay": 3,
            "random_exploration": 0.2,
            "action_noise": {"type": "ornstein-uhlenbeck", "std": 0.3},
        },
    ),
    "tqc": (
        TQC,
        "Pendulum-v1",
        {"learning_starts": 40, "batch_size": 16, "train_freq": 4, "buffer_size": 300, "n_quantiles": 5},
    ),
    "tqc_sde": (
        TQC,
        "Pendulum-v1",
        {"learning_starts": 40, "train_freq": 8, "buffer_size": 300, "n_quantiles": 5, "use_sde": True},
    ),
}


def make(
    name: str, *, seed: int | None = 1, n_envs: int = 2, env: Any = None, **options: Any
) -> Algorithm[Any]:
    algorithm, env_id, hyperparameters = RUNS[name]
    envs = make_vec_env(env_id, n_envs, **options) if env is None else env
    options = {"policy": {"net_arch": [8]}, **hyperparameters}
    return algorithm(env=envs, seed=seed, compile=False, threads=1, **options)


def numbers(model: Algorithm[Any]) -> dict[str, bytes]:
    """Return everything that the rest of a run depends on, to the bit."""
    arrays, values = split(model.state())
    del values["counts"]["timings"], values["recent_episodes"]
    for clocked in (values["interaction"], values["interaction"].get("envs", {})):
        clocked.pop("seconds", None)
    episodes = [(e.env_index, e.episode_return, e.length) for e in model.recent_episodes]
    return {
        **{name: array.tobytes() for name, array in arrays.items()},
        "values": json.dumps([values, episodes]).encode(),
    }


def differences(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    return [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]


@pytest.mark.parametrize("name", RUNS)
def test_same_seed_gives_the_same_numbers(name: str) -> None:
    first = make(name, normalize=True).learn(300)
    np.random.random(100)
    torch.rand(100)
    second = make(name, normalize=True).learn(300)
    assert differences(numbers(first), numbers(second)) == []
    other = make(name, seed=2, normalize=True).learn(300)
    assert numbers(other) != numbers(first)


@pytest.mark.parametrize(
    "name",
    [
        *("ppo2", "ppo2_lstm", "ppo2_parts", "a2c", "acer", "acktr"),
        *("dqn", "sac", "sac_hindsight", "td3", "tqc", "qrdqn"),
    ],
)
def test_worker_processes_change_no_number(name: str) -> None:
    inside = make(name, n_envs=3, normalize=True).learn(200)
    workers = make(name, n_envs=3, normalize=True, vectorization="workers", n_workers=2, start_method="fork")
    try:
        assert differences(numbers(workers.learn(200)), numbers(inside)) == []
    finally:
        assert workers.envs is not None
        workers.envs.close()


class Keep(Callback):
    """Keeps the state of a run, as files would."""

    comes_last = True

    def __init__(self, every: int) -> None:
        self.every = every
        self.kept: dict[int, tuple[dict[str, np.ndarray], str]] = {}

    def on_steps(self, algorithm: Training) -> None:
        assert algorithm.envs is not None
        if not algorithm.envs.is_replayable:
            algorithm.barrier()
        arrays, values = split(algorithm.state())
        self.kept[algorithm.num_timesteps] = copy.deepcopy(arrays), json.dumps(values)


class Watch(Callback):
    """Records something between the checkpoints, as evaluations do."""

    every = 70

    def on_steps(self, algorithm: Training) -> None:
        algorithm.record("watch/steps", algorithm.num_timesteps)
        algorithm.predict(create_empty_array(algorithm.observation_space, 3))


def assert_goes_on_exactly(straight: Algorithm[Any], fresh: list[Algorithm[Any]], total: int) -> None:
    """Run once through, then from each of the first checkpoints in another object."""
    keep = Keep(110)
    straight.learn(total, [Watch(), keep])
    metrics = straight.read_metrics()
    straight_record = numbers(straight)
    assert len(keep.kept) > len(fresh)
    for resumed, (timesteps, (arrays, values)) in zip(fresh, keep.kept.items(), strict=False):
        resumed.load_state(join(arrays, json.loads(values)))
        assert resumed.num_timesteps == timesteps
        again = Keep(110)
        resumed.learn(total - timesteps, [Watch(), again], reset_num_timesteps=False)
        assert list(again.kept) == [steps for steps in keep.kept if steps > timesteps]
        assert resumed.read_metrics() == pytest.approx(metrics, nan_ok=True)
        assert differences(numbers(resumed), straight_record) == []


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_restored_run_ends_as_an_uninterrupted_one(name: str, normalize: bool) -> None:
    straight = make(name, normalize=normalize)
    fresh = [make(name, seed=None, normalize=normalize) for _ in range(2)]
    assert_goes_on_exactly(straight, fresh, 480)


@pytest.mark.parametrize("name", ["ppo2", "acer", "dqn", "dqn_once", "sac_noise", "td3"])
def test_a_used_object_can_be_restored_too(name: str) -> None:
    straight, used = make(name, normalize=True), make(name, seed=5, normalize=True).learn(250)
    assert_goes_on_exactly(straight, [used], 360)


class Fading(gym.Env[Any, Any]):
    """Shows a number that gets smaller than any normal one, then the same again as long as it is not 0."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.number = self.np_random.uniform(1e-37, 2e-37, 4).astype(np.float32)
        return np.sign(self.number), {}

    def step(self, action: Any) -> Any:
        self.number = self.number * np.float32(0.5)
        return np.sign(self.number), 0.0, False, False, {}


def test_environments_are_replayed_with_the_same_arithmetic(recwarn: pytest.WarningsRecorder) -> None:
    def make_fading(seed: int) -> PPO2:
        env = make_vec_env(Fading, 2, check=False)
        return PPO2({"net_arch": [8]}, env, seed=seed, compile=False, n_steps=16)

    torch.set_flush_denormal(False)
    straight, resumed = make_fading(1).learn(32), make_fading(2)
    assert not straight.interaction.seen["observations"].any()
    resumed.load_state(copy.deepcopy(straight.state()))
    assert not recwarn
    assert not resumed.interaction.seen["observations"].any()


class Peculiar(OwnSight):
    """A policy with a frozen layer, a buffer that each update's forward pass moves, and dropout."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.frozen = torch.nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.dropout = torch.nn.Dropout(0.3)
        self.register_buffer("n_seen", torch.zeros(()))

    def changed(self, observations: torch.Tensor) -> torch.Tensor:
        self.n_seen += 1.0
        mixed: torch.Tensor = self.dropout(self.frozen(observations)) + 1e-3 * self.n_seen
        return mixed


@pytest.mark.parametrize("algorithm", [PPO2, A2C])
def test_frozen_parameters_buffers_and_what_a_policy_draws_itself_are_restored(algorithm: Any) -> None:
    def make_peculiar(seed: int) -> Any:
        policy = {"net_arch": [8], "_target_": f"{__name__}.Peculiar"}
        return algorithm(policy, "CartPole-v1", n_envs=2, seed=seed, compile=False, n_steps=16)

    straight, resumed = make_peculiar(1), make_peculiar(2)
    keep = Keep(96)
    straight.learn(192, keep)
    torch.rand(7)
    timesteps, (arrays, values) = next(iter(keep.kept.items()))
    resumed.load_state(join(arrays, json.loads(values)))
    resumed.learn(192 - timesteps, reset_num_timesteps=False)
    assert differences(numbers(resumed), numbers(straight)) == []
    assert resumed.policy.n_seen == straight.policy.n_seen > 0
    assert torch.equal(resumed.policy.frozen.weight, straight.policy.frozen.weight)


# Whatever the process did before


class Denormal(OwnSight):
    """A policy that sees something else where denormal numbers are not taken for zero."""

    def changed(self, observations: torch.Tensor) -> torch.Tensor:
        wide = observations.repeat(1, 100) * 1e-20 * 1e-19 * 1e38  # many: torch shares them among its threads
        mean = wide.reshape(len(observations), 100, -1).mean(1)
        return observations + mean


TRAINING = f"""
import hashlib
import sys

import zoo

sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
policy = {{"net_arch": [256], "_target_": "test_reproducibility.Denormal"}}
model = zoo.PPO2(policy, "CartPole-v1", seed=1, compile=False, threads=2, n_steps=512, n_epochs=1)
for name, value in model.learn(512).get_parameters().items():
    print(name, hashlib.sha256(value.tobytes()).hexdigest())
"""

USING_THREADS = """
import torch

torch.set_flush_denormal(True)
torch.set_num_threads(4)
torch.rand(1_000_000).mul(2).sum()
torch.linalg.qr(torch.rand(300, 300))
torch.set_num_threads(3)
"""

ANOTHER_TRAINING = """
import zoo

zoo.PPO2("MlpPolicy", "CartPole-v1", n_steps=64).learn(64)
"""


def printed_by(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_process_that_used_several_threads_before_gives_the_same_weights() -> None:
    alone = printed_by(TRAINING)
    assert "critic" in alone
    assert printed_by(USING_THREADS + TRAINING) == alone
    assert printed_by(ANOTHER_TRAINING + TRAINING) == alone


@pytest.mark.parametrize("name", ["ppo2", "a2c", "dqn", "sac", "td3", "tqc"])
def test_initial_weights_are_the_same_with_any_number_of_threads(name: str) -> None:
    algorithm, env_id, _ = RUNS[name]

    def weights() -> dict[str, np.ndarray]:
        policy = {"net_arch": [300, 300], "ortho_init": True}
        return algorithm(policy, env_id, seed=2).get_parameters()

    with computing_with(threads=1):
        expected = weights()
    with computing_with(threads=4):
        for parameter, value in weights().items():
            assert np.array_equal(value, expected[parameter]), parameter


def test_learning_leaves_torchs_threads_and_denormals_as_they_were() -> None:
    with computing_with(threads=1):
        torch.set_flush_denormal(False)
        make("ppo2").learn(64)
        assert torch.get_num_threads() == 1
        assert (torch.full((1_000_000,), 1e-30) * 1e-10).all()


def test_learning_leaves_torchs_generator_as_it_was() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make("ppo2").learn(64)
    assert torch.equal(torch.rand(3), expected)


def test_asking_for_random_actions_changes_nothing_of_a_training() -> None:
    class Asking(Callback):
        every = 16

        def on_steps(self, algorithm: Training) -> None:
            algorithm.predict(np.zeros((3, 4), np.float32), deterministic=False)

    asked, alone = make("ppo2").learn(256, Asking()), make("ppo2").learn(256)
    assert asked.get_parameters().keys() == alone.get_parameters().keys()
    for name, value in alone.get_parameters().items():
        assert np.array_equal(asked.get_parameters()[name], value)


@pytest.mark.parametrize("name", ["ppo2", "dqn_once"])
def test_restored_run_in_an_environment_that_resets_in_a_step_of_its_own(name: str) -> None:
    def env() -> SyncVectorEnv:
        makers = [lambda length=length: Logged((length, 4)) for length in (3, 7)]  # type: ignore[misc]
        return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP)

    def env_that_forgets() -> SyncVectorEnv:
        """Episodes of these go by a counter that no seed sets back, so all start at the first one."""
        made = env()
        for each in made.envs:
            original = each.reset

            def reset(
                *, seed: int | None = None, options: Any = None, each: Any = each, original: Any = original
            ) -> Any:
                if seed is not None:
                    each._episode = -1
                return original(seed=seed, options=options)

            each.reset = reset  # type: ignore[method-assign]
        return made

    straight = make(name, env=env_that_forgets())
    fresh = [make(name, seed=None, env=env_that_forgets()) for _ in range(2)]
    assert_goes_on_exactly(straight, fresh, 480)


def test_a_barrier_resets_the_environments_with_seeds_of_the_runs_generator() -> None:
    ours, theirs = make("ppo2"), make("ppo2")
    for model in (ours, theirs):
        model.learn(64)
    before = ours.interaction.seen["observations"]
    ours.barrier()
    theirs.barrier()
    after = ours.interaction.seen["observations"]
    assert np.array_equal(after, theirs.interaction.seen["observations"])
    assert not np.array_equal(after, before)
    ours.barrier()
    assert not np.array_equal(after, ours.interaction.seen["observations"])


def test_episodes_cut_by_a_barrier_are_not_counted() -> None:
    model = make("ppo2", n_envs=1)
    for _ in range(20):
        model.learn(16, reset_num_timesteps=False)
        model.barrier()
    assert all(episode.length <= 16 for episode in model.recent_episodes)


def test_a_checkpoint_of_other_networks_is_refused() -> None:
    small = make("dqn").learn(50)
    large = DQN({"net_arch": [9]}, "CartPole-v1", n_envs=2, compile=False)
    with pytest.raises(ZooError, match="has shape"):
        large.load_state(small.state())


def test_a_run_with_another_length_of_its_schedules_is_told_apart_by_its_total() -> None:
    """The part of training that is done is counted over the whole run, before and after a restore."""
    model = make("ppo2").learn(96)
    assert model.progress == 1.0
    model.learn(96, reset_num_timesteps=False)
    assert model.num_timesteps == model.total_timesteps == 192


class EvaluatingWhereItLearns(Callback):
    every = 64

    def on_steps(self, algorithm: Any) -> None:
        evaluate_policy(algorithm, algorithm.get_env(), 3)


def test_run_that_is_evaluated_where_it_learns_is_resumed_exactly() -> None:
    keep = Keep(64)
    straight = make("ppo2").learn(192, [EvaluatingWhereItLearns(), keep])
    resumed = make("ppo2", seed=2)
    arrays, values = keep.kept[64]
    resumed.load_state(join(arrays, json.loads(values)))
    resumed.learn(128, EvaluatingWhereItLearns(), reset_num_timesteps=False)
    ours, theirs = (
        {name: array.tobytes() for name, array in split({"weights": model.get_parameters()})[0].items()}
        for model in (resumed, straight)
    )
    assert len(theirs) > 4
    assert ours == theirs


@pytest.mark.parametrize("nan_check", [False, True])
@pytest.mark.parametrize("who", ["an evaluation", "somebody by hand", "a callback"])
@pytest.mark.parametrize("name", ["dqn", "dqn_once", "ppo2"])
def test_environments_that_somebody_else_stepped_are_reset_before_learning_goes_on(
    name: str, who: str, nan_check: bool
) -> None:
    envs = [Logged((4, 3)) for _ in range(2)]
    waiting = list(envs)
    algorithm, _, hyperparameters = RUNS[name]
    model = algorithm(
        {"net_arch": [8]},
        make_vec_env(lambda: waiting.pop(0), 2, check=False, nan_check=nan_check),
        seed=1,
        compile=False,
        **{**hyperparameters, **({"learning_starts": 10**6} if name != "ppo2" else {})},
    )
    model.learn(96 if who == "a callback" else 64, EvaluatingWhereItLearns() if who == "a callback" else None)
    env = model.get_env()
    assert env is not None
    if who == "an evaluation":
        evaluate_policy(model, env, 3)
    elif who == "somebody by hand":
        for _ in range(2):
            env.step(np.zeros(2, np.int64))
    if who != "a callback":
        model.learn(32, reset_num_timesteps=False)
    happened = {
        (tuple(step.observation.tolist()), tuple(step.next_observation.tolist()))
        for each in envs
        for step in each.log
    }
    if name == "ppo2":
        columns = model.memory.columns["observations"]
        assert all(any(tuple(row.tolist()) == seen for seen, _ in happened) for row in columns.reshape(-1, 3))
        return
    batch = model.memory.sample(np.random.default_rng(0), (500,))
    for observation, following in zip(batch["observations"], batch["next_observations"], strict=True):
        assert (tuple(observation.tolist()), tuple(following.tolist())) in happened
