"""Same seed, same weights; worker processes change nothing; a restored run ends as an uninterrupted one."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import create_empty_array
from logged_envs import Logged
from toy_policies import ChangedObservations

from zoo import ACER, ARS, DDPG, DQN, PPO2, PQN, SAC, TD3, TQC, TRPO, CrossQ, DroQ, make_vec_env
from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.callback import Callback, Training
from zoo.core.tensors import join, split

Run = tuple[type[Algorithm], str, dict[str, Any]]

STARTING = {"learning_starts": 40, "buffer_size": 200, "batch_size": 16}
NOISE = {"type": "ornstein-uhlenbeck", "std": 0.3}
ONCE = {**STARTING, "buffer_size": 100, "train_freq": 4, "optimize_memory_usage": True}
LSTM = {"recurrent": "lstm", "lstm_hidden_size": 5, "net_arch": [8]}
UNITS = {"normalize_returns": True, "enable_popart": True, "critic_l2_reg": 0.01}
MANY_UPDATES = {"train_freq": 4, "n_critics": 3, "n_target_critics": 2, "critic_reset_every": 60}
DROPOUT = {"net_arch": [8], "critic": {"dropout": 0.3, "norm": "layer"}}
SLOWLY = {"train_freq": 6, "gradient_steps": 5, "policy_delay": 3}
FUTURE = {"n_step": 2, "hindsight": {"goal_selection_strategy": "episode"}}
UNNORMALIZED = ("acer_gru", "sac_noise", "td3")

RUNS: dict[str, Run] = {
    "ppo2": (PPO2, "CartPole-v1", {"n_steps": 16, "n_epochs": 2, "learning_rate": "lin_0.01"}),
    "ppo2_lstm": (
        PPO2,
        "CartPole-v1",
        {"policy": LSTM, "n_steps": 16, "chunk_length": 4, "n_epochs": 2, "value_normalization": True},
    ),
    "ppo2_parts": (PPO2, "Zoo/MaskedComposite-v0", {"n_steps": 16, "n_epochs": 2, "target_kl": 0.01}),
    "ppo2_today": (
        PPO2,
        "Pendulum-v1",
        {"n_steps": 16, "n_epochs": 2, "desired_kl": 0.01, "rpo_alpha": 0.5, "intrinsic": {"batch_size": 8}}
        | {"value_normalization": True, "symmetry": {"_target_": "toy_envs.mirrored_pendulum"}},
    ),
    "acer_gru": (
        ACER,
        "CartPole-v1",
        {"policy": {**LSTM, "recurrent": "gru"}, "n_steps": 7, "buffer_size": 200, "replay_start": 40},
    ),
    "ars": (ARS, "CartPole-v1", {"n_delta": 2, "learning_rate": "lin_0.1", "zero_policy": False}),
    "trpo": (
        TRPO,
        "CartPole-v1",
        {"n_steps": 16, "batch_size": 12, "n_critic_updates": 2, "sub_sampling_factor": 2},
    ),
    "pqn": (PQN, "CartPole-v1", {"n_steps": 16, "batch_size": 8}),
    "pqn_lstm": (PQN, "CartPole-v1", {"policy": LSTM, "n_steps": 16, "chunk_length": 4, "batch_size": 16}),
    "dqn_once": (DQN, "CartPole-v1", {**ONCE, "target_update_interval": 50}),
    "dqn_memory": (
        DQN,
        "CartPole-v1",
        {**ONCE, "parameter_noise": True, "replay": {"n_step": 3, "prioritized": {"beta": 0.3}}},
    ),
    "dqn_hindsight_once": (DQN, "Zoo/BitFlipping-v0", {**ONCE, "replay": FUTURE}),
    "ddpg": (
        DDPG,
        "Pendulum-v1",
        {**STARTING, **UNITS, "parameter_noise": {"initial_std": 0.5}, "random_exploration": 0.2},
    ),
    "sac_sde": (SAC, "Pendulum-v1", {**STARTING, "train_freq": 16, "use_sde": True, "sde_sample_freq": 3}),
    "sac_noise": (SAC, "Pendulum-v1", {**STARTING, "gradient_steps": -1, "action_noise": NOISE}),
    "sac_hindsight": (SAC, "Zoo/BitFlippingContinuous-v0", {**STARTING, "replay": {"hindsight": {}}}),
    "sac_batch_norm": (
        SAC,
        "Pendulum-v1",
        {**STARTING, "policy": {"net_arch": [8], "_target_": "toy_policies.BatchNormCritics"}},
    ),
    "sac_recurrent": (
        SAC,
        "Pendulum-v1",
        {**STARTING, "policy": {"net_arch": [8], "_target_": "toy_policies.CountingSAC"}},
    ),
    "td3_dropout": (
        TD3,
        "Pendulum-v1",
        {**STARTING, **SLOWLY, "policy": {"net_arch": [8], "critic": {"dropout": 0.2}}},
    ),
    "td3": (TD3, "Pendulum-v1", {**STARTING, **SLOWLY, "action_noise": NOISE}),
    "crossq": (CrossQ, "Pendulum-v1", {**STARTING, "train_freq": 4, "gradient_steps": 2}),
    "tqc": (TQC, "Pendulum-v1", {**STARTING, "train_freq": 4, "n_quantiles": 5}),
    "tqc_resets": (TQC, "Pendulum-v1", {**STARTING, **MANY_UPDATES, "n_quantiles": 5}),
    "droq": (DroQ, "Pendulum-v1", {**STARTING, "policy": DROPOUT, "train_freq": 4, "gradient_steps": 7}),
}


def make(name: str, *, seed: int | None = 1, n_envs: int = 2, env: Any = None, **options: Any) -> Algorithm:
    algorithm, env_id, hyperparameters = RUNS[name]
    envs = make_vec_env(env_id, n_envs, **options) if env is None else env
    options = {"policy": {"net_arch": [8]}, **hyperparameters}
    return algorithm(env=envs, seed=seed, compile=False, threads=1, **options)


def numbers(model: Algorithm) -> dict[str, bytes]:
    """Return everything that the rest of a run depends on, to the bit."""
    arrays, values = split(model.state())
    del values["counts"]["timings"], values["recent_episodes"]
    for clocked in (values["collector"], values["collector"].get("envs", {})):
        clocked.pop("seconds", None)
    episodes = [(e.env_index, e.episode_return, e.length) for e in model.recent_episodes]
    return {
        **{name: array.tobytes() for name, array in arrays.items()},
        "values": json.dumps([values, episodes]).encode(),
    }


def differences(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    return [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]


@pytest.mark.parametrize("name", ["ppo2_parts", "sac_hindsight"])
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
            algorithm.distributed.reset_all()
        arrays, values = split(algorithm.state())
        self.kept[algorithm.num_timesteps] = copy.deepcopy(arrays), json.dumps(values)


class Watch(Callback):
    """Records something between the checkpoints, as evaluations do."""

    every = 70

    def on_steps(self, algorithm: Training) -> None:
        algorithm.record("watch/steps", algorithm.num_timesteps)
        algorithm.predict(create_empty_array(algorithm.observation_space, 3))


def assert_goes_on_exactly(straight: Algorithm, fresh: list[Algorithm], total: int) -> None:
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


@pytest.mark.parametrize("name", RUNS)
def test_restored_run_ends_as_an_uninterrupted_one(name: str) -> None:
    """In another object with another seed, so the same seed gives the same numbers, too."""
    normalize = name not in UNNORMALIZED
    straight, fresh = make(name, normalize=normalize), make(name, seed=None, normalize=normalize)
    assert_goes_on_exactly(straight, [fresh], 260)


class Peculiar(ChangedObservations):
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


def test_state_restores_frozen_layers_buffers_and_rng() -> None:
    def make_peculiar(seed: int) -> Any:
        policy = {"net_arch": [8], "_target_": f"{__name__}.Peculiar"}
        return PPO2(policy, "CartPole-v1", n_envs=2, seed=seed, compile=False, n_steps=16)

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


class FirstAgain(Logged):
    """Starts at its first episode wherever it is given a seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self._episode = -1
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("name", ["ppo2", "dqn_once"])
def test_next_step_autoreset_run_is_restored_exactly(name: str) -> None:
    def env() -> SyncVectorEnv:
        """Episodes of these go by a counter that no seed sets back, so all start at the first one."""
        return SyncVectorEnv(
            [lambda length=length: FirstAgain((length, 4)) for length in (3, 7)],  # type: ignore[misc]
            autoreset_mode=AutoresetMode.NEXT_STEP,
        )

    straight = make(name, env=env())
    assert_goes_on_exactly(straight, [make(name, seed=None, env=env())], 260)


def test_stochastic_predict_leaves_training_unchanged() -> None:
    class Asking(Callback):
        every = 16

        def on_steps(self, algorithm: Training) -> None:
            algorithm.predict(np.zeros((3, 4), np.float32), deterministic=False)

    asked, alone = make("ppo2").learn(256, Asking()), make("ppo2").learn(256)
    for name, value in alone.get_parameters().items():
        assert np.array_equal(asked.get_parameters()[name], value)
