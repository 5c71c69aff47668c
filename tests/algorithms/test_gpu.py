"""On a GPU every algorithm learns what it learns on the CPU, eagerly and as CUDA graphs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from test_learning import Catch
from test_reproducibility import RUNS

from zoo import A2C, ACKTR, DQN, PPO1, PPO2, QRDQN, SAC, make_vec_env
from zoo.algorithms.algorithm import Algorithm
from zoo.optim.gpu import tensors_on
from zoo.policies.acting import ActingPolicy, Mirror, make_mirror
from zoo.policies.actor_critic import ActorCritic

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # else processes wait for the next compilation

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

REPLAY = {"learning_starts": 40, "buffer_size": 200, "batch_size": 16, "train_freq": 4}
SEEN: dict[str, Any] = {
    "ppo2_seen": (PPO2, {"n_steps": 16, "batch_size": 32, "n_epochs": 2}),
    "acktr_seen": (ACKTR, {"n_steps": 8}),
    "dqn_seen": (DQN, REPLAY),
    "sac_seen": (SAC, REPLAY),
}
MORE: dict[str, Any] = {
    "a2c": (A2C, "CartPole-v1", {"n_steps": 8}),
    "acktr": (ACKTR, "CartPole-v1", {"n_steps": 8}),
    "ppo1": (PPO1, "Pendulum-v1", {"n_steps": 16, "batch_size": 8}),
    "qrdqn": (QRDQN, "CartPole-v1", {**REPLAY, "n_quantiles": 10}),
}


def trained(name: str, **options: Any) -> Algorithm:
    """Return the model after 128 steps, two environments side by side."""
    if name in SEEN:
        algorithm, settings = SEEN[name]
        space = spaces.Box(-1, 1, (1,)) if algorithm is SAC else spaces.Discrete(3)
        envs = make_vec_env(lambda: Catch(space), 2)
        model = algorithm("CnnPolicy", envs, seed=1, threads=1, **settings, **options)
    else:
        algorithm, env_id, settings = {**RUNS, **MORE}[name]
        settings = {"policy": {"net_arch": [8]}, **settings}
        model = algorithm(env=make_vec_env(env_id, 2), seed=1, threads=1, **settings, **options)
    return model.learn(128)  # type: ignore[no-any-return]


@needs_gpu
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("name", [*RUNS, *MORE, *SEEN])
def test_a_gpu_learns_what_the_cpu_learns(name: str, compile: bool) -> None:
    on_cpu, on_gpu = trained(name, device="cpu", compile=False), trained(name, device="cuda", compile=compile)
    assert on_gpu.n_updates == on_cpu.n_updates
    expected = on_cpu.get_parameters()
    for key, values in on_gpu.get_parameters().items():
        np.testing.assert_allclose(values, expected[key], rtol=1e-3, atol=1e-2 if name in SEEN else 1e-4)
    is_recurrent = bool(on_gpu.acting.state_size)
    assert on_gpu.runtime.compile == (compile and not is_recurrent), "it was compiled"


@needs_gpu
def test_small_networks_on_a_gpu_act_in_numpy_with_the_weights_of_now() -> None:
    model = PPO2({"net_arch": [8]}, "CartPole-v1", n_envs=2, seed=1, device="cuda", n_steps=16)
    assert model.acting.uses_numpy
    observations = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    model.learn(64)
    inputs = {"observations": observations}
    with torch.inference_mode():
        on_gpu = model.policy.action_parameters({"observations": torch.from_numpy(observations).cuda()}, None)
    model.predict(observations)
    np.testing.assert_allclose(model.acting.parameters(inputs)[0], on_gpu[0].cpu(), rtol=1e-5, atol=1e-6)


def test_arrays_of_all_kinds_travel_together() -> None:
    rng = np.random.default_rng(0)
    arrays = [
        rng.random((3, 2, 5), dtype=np.float32).swapaxes(0, 2),
        np.array([True, False, True]),
        rng.integers(0, 256, (7, 1), np.uint8),
        rng.integers(-5, 5, 4),
        np.zeros((0, 3), np.float32),
        np.array(2.5),
    ]
    tensors = tensors_on(torch.device("cuda" if torch.cuda.is_available() else "cpu"), arrays)
    for array, tensor in zip(arrays, tensors, strict=True):
        assert tensor.cpu().numpy().dtype == array.dtype
        np.testing.assert_array_equal(tensor.cpu().numpy(), array)


def test_a_mirror_acts_with_the_weights_that_it_was_last_shown() -> None:
    model = PPO2({"net_arch": [8]}, "CartPole-v1", n_envs=2, seed=1, n_steps=16, device="cpu")
    assert isinstance(model.policy, ActorCritic)
    mirrored = ActingPolicy(model.policy, mirror=Mirror(model.policy))
    inputs = {"observations": np.ones((3, 4), np.float32)}
    before = model.acting.parameters(inputs)[0]
    np.testing.assert_array_equal(mirrored.parameters(inputs)[0], before)
    model.learn(64)
    np.testing.assert_array_equal(mirrored.parameters(inputs)[0], before)
    mirrored.refresh()
    np.testing.assert_array_equal(mirrored.parameters(inputs)[0], model.acting.parameters(inputs)[0])
    assert np.abs(mirrored.parameters(inputs)[0] - before).max() > 1e-4
    assert make_mirror(model.policy, torch.device("cpu")) is None, "its own memory is read"
