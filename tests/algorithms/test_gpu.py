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

from zoo import A2C, ACKTR, DQN, IQN, PPO1, PPO2, QRDQN, SAC, make_vec_env
from zoo.algorithms.algorithm import Algorithm
from zoo.optim.gpu import tensors_on
from zoo.policies.acting import ActingPolicy, Mirror, make_mirror

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
    "iqn": (IQN, "CartPole-v1", {**REPLAY, "n_quantiles": 10}),
}


def trained(name: str, n_timesteps: int = 128, **options: Any) -> Algorithm:
    """Return the model after some steps of two environments side by side."""
    if name in SEEN:
        algorithm, settings = SEEN[name]
        space = spaces.Box(-1, 1, (1,)) if algorithm is SAC else spaces.Discrete(3)
        envs = make_vec_env(lambda: Catch(space), 2)
        model = algorithm("CnnPolicy", envs, seed=1, threads=1, **settings, **options)
    else:
        algorithm, env_id, settings = {**RUNS, **MORE}[name]
        settings = {"policy": {"net_arch": [8]}, **settings}
        model = algorithm(env=make_vec_env(env_id, 2), seed=1, threads=1, **settings, **options)
    return model.learn(n_timesteps) if n_timesteps else model


def changes(model: Algorithm, start: dict[str, Any]) -> Any:
    """Return how far each parameter went, as one vector."""
    return np.concatenate([(values - start[key]).ravel() for key, values in model.get_parameters().items()])


@needs_gpu
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("name", [*RUNS, *MORE, *SEEN])
def test_a_gpu_learns_what_the_cpu_learns(name: str, compile: bool) -> None:
    on_cpu, on_gpu = trained(name, device="cpu", compile=False), trained(name, device="cuda", compile=compile)
    start = trained(name, n_timesteps=0, device="cpu", compile=False).get_parameters()
    assert on_gpu.n_updates == on_cpu.n_updates
    expected, found = changes(on_cpu, start), changes(on_gpu, start)
    if name in SEEN:  # convolutions round more, and Adam makes much of the smallest gradients
        assert expected @ found > 0.9 * np.linalg.norm(expected) * np.linalg.norm(found) > 0
        assert 0.8 < np.linalg.norm(found) / np.linalg.norm(expected) < 1.25
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert on_gpu.runtime.compile == (compile and not on_gpu.acting.state_size), "it was compiled"
    assert on_gpu.acting.uses_numpy == on_cpu.acting.uses_numpy


@needs_gpu
@pytest.mark.parametrize("name", ["ppo2", "ppo2_seen"])
def test_a_gpu_acts_with_the_weights_of_now(name: str) -> None:
    """In NumPy, or by a CUDA graph."""
    model = trained(name, device="cuda", compile=False)
    assert bool(model.acting._graphs) == (name == "ppo2_seen")
    model.learn(32)
    observations = np.stack([model.observation_space.sample() for _ in range(2)])
    with torch.inference_mode():
        inputs = {"observations": torch.from_numpy(observations).cuda()}
        expected = model.policy.action_parameters(inputs, None)[0].cpu()
    model.predict(observations)
    found = model.acting.parameters({"observations": observations})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


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


class MirroredSAC(SAC):
    """Acts as on a GPU."""

    def _make_acting(self) -> ActingPolicy:
        return ActingPolicy(self.policy.actor, mirror=Mirror(self.policy.actor))


def test_acting_with_a_mirror_changes_nothing() -> None:
    ends = []
    for algorithm in (SAC, MirroredSAC):
        model = algorithm({"net_arch": [8]}, "Pendulum-v1", seed=1, device="cpu", compile=False, **REPLAY)
        model.learn(128)
        action, _ = model.predict(np.ones(3, np.float32), deterministic=True)
        ends.append((model.get_parameters()["actor.trunk.0.weight"], action))
    np.testing.assert_array_equal(ends[0][0], ends[1][0])
    np.testing.assert_array_equal(ends[0][1], ends[1][1])


@pytest.mark.parametrize(
    ("width", "n_envs", "acts_in_numpy"), [(64, 8, True), (64, 4096, False), (512, 8, False)]
)
def test_small_gpu_policy_acts_in_numpy_for_few_envs(width: int, n_envs: int, acts_in_numpy: bool) -> None:
    policy = PPO2({"net_arch": [width, width]}, "CartPole-v1", device="cpu").policy
    assert (make_mirror(policy, torch.device("cuda"), n_envs) is not None) == acts_in_numpy
    assert make_mirror(policy, torch.device("cpu"), n_envs) is None


def test_set_env_decides_anew_how_the_policy_acts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("zoo.algorithms.agent.make_mirror", lambda *arguments: asked.append(arguments[2]))
    model = PPO2({"net_arch": [8]}, "CartPole-v1", device="cpu", n_steps=8)
    model.set_env("CartPole-v1", n_envs=3)
    assert asked[-1] == 3
