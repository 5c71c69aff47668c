"""What recurrent policies learn from: sequences, the states before them, and values that remember."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from logged_envs import KINDS, Transition, logged_vector_env

from zoo import A2C, PPO2
from zoo.algorithms.on_policy import OnPolicyAlgorithm

N_STEPS, N_ENVS, CHUNK = 12, 3, 4
GAMMA, GAE_LAMBDA = 0.9, 0.7
ALGORITHMS = pytest.mark.parametrize("algorithm", [A2C, PPO2])


def policy(core: str = "Gru", share_encoder: bool = True) -> dict[str, Any]:
    return {
        "_target_": f"toy_policies.{core}ActorCritic",
        "net_arch": {"shared": [6], "pi": [5], "vf": [4]},
        "share_encoder": share_encoder,
    }


def collected(
    algorithm: Any = PPO2, kind: str = "own", **options: Any
) -> tuple[OnPolicyAlgorithm[Any], list[list[Transition]], list[int]]:
    """Return an algorithm with its third rollout, all that each env saw, and where that rollout began."""
    vector_env, envs = logged_vector_env(kind)
    chosen = {"policy": policy(), "n_steps": N_STEPS, "chunk_length": CHUNK, "gamma": GAMMA, **options}
    model = algorithm(chosen.pop("policy"), vector_env, seed=0, compile=False, learning_rate=0.0, **chosen)
    model.config.gae_lambda = GAE_LAMBDA
    model.learn(2 * N_STEPS * N_ENVS - 10)
    before = [len(env.log) for env in envs]
    model.collect()
    return model, [env.log for env in envs], before


@torch.no_grad()
def stepped(model: OnPolicyAlgorithm[Any], log: list[Transition]) -> tuple[list[Any], list[float]]:
    """Return the states before each step of a log, and γ·V after each, by remembering from its beginning."""
    network = model.policy
    states, following = [], []
    state: Any = network.initial_state(1)
    start = True
    for step in log:
        states.append(state)
        seen = torch.from_numpy(step.observation[None])
        _, _, state = network({"observations": seen, "episode_starts": torch.tensor([start])}, state)
        next_seen = {"observations": torch.from_numpy(step.next_observation[None])}
        start = step.terminated or step.truncated
        following.append(0.0 if step.terminated else GAMMA * float(network.values(next_seen, state)))
    return states, following


def slow_advantages(
    model: OnPolicyAlgorithm[Any], log: list[Transition], first: int
) -> tuple[list[float], list[float]]:
    """Return advantages and values of the steps from ``first`` on, one by one."""
    states, following = stepped(model, log)
    starts = [True, *(step.terminated or step.truncated for step in log[:-1])]
    values, advantages = [], []
    carried = 0.0
    for i in reversed(range(first, len(log))):
        step = log[i]
        seen = {
            "observations": torch.from_numpy(step.observation[None]),
            "episode_starts": torch.tensor([starts[i]]),
        }
        values.append(float(model.policy.values(seen, states[i]).detach()))
        ended = step.terminated or step.truncated
        carried = step.reward + following[i] - values[-1] + GAMMA * GAE_LAMBDA * (0.0 if ended else carried)
        advantages.append(carried)
    return advantages[::-1], values[::-1]


@pytest.mark.parametrize(
    ("algorithm", "share_encoder", "core"), [(A2C, True, "Integrating"), (PPO2, False, "Gru")]
)
def test_a_rollout_is_cut_into_sequences_with_the_state_before_each(
    algorithm: Any, share_encoder: bool, core: str
) -> None:
    model, logs, firsts = collected(algorithm, policy=policy(core, share_encoder))
    rollout = model.finished_rollout()
    assert rollout["observations"].shape == (9, CHUNK, 3)
    assert (
        rollout["actions"].shape == rollout["values"].shape == rollout["episode_starts"].shape == (9, CHUNK)
    )
    assert rollout["advantages"].shape == rollout["returns"].shape == (9, CHUNK)
    assert ("log_prob" in rollout) == (algorithm is PPO2)
    assert "weights" not in rollout
    for env, (log, first) in enumerate(zip(logs, firsts, strict=True)):
        states, _ = stepped(model, log)
        for chunk in range(3):
            row, start = chunk * N_ENVS + env, first + chunk * CHUNK
            steps = log[start : start + CHUNK]
            np.testing.assert_array_equal(
                rollout["observations"][row].numpy(), [step.observation for step in steps]
            )
            assert rollout["actions"][row].tolist() == [step.action for step in steps]
            torch.testing.assert_close(rollout["states"][row], states[start][0], rtol=1e-4, atol=1e-5)
            before = log[start - 1 : start + CHUNK - 1]
            assert rollout["episode_starts"][row].tolist() == [s.terminated or s.truncated for s in before]


@pytest.mark.parametrize(
    ("algorithm", "share_encoder", "kind"),
    [*((PPO2, True, kind) for kind in KINDS), (A2C, False, "NEXT_STEP")],
)
def test_values_and_advantages_remember_since_the_episode_began(
    algorithm: Any, share_encoder: bool, kind: str
) -> None:
    """Also those of a truncated episode's last observation, and of the observation after the rollout."""
    model, logs, firsts = collected(algorithm, kind, policy=policy("Gru", share_encoder))
    rollout = model.finished_rollout()
    torch.testing.assert_close(rollout["returns"], rollout["advantages"] + rollout["values"])
    for env, (log, first) in enumerate(zip(logs, firsts, strict=True)):
        advantages, values = slow_advantages(model, log, first)
        real = model.buffer.valid[:, env]
        assert real.sum() == len(values)
        found = model.buffer.as_steps(rollout["values"].numpy())[real, env]
        np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-5)
        found = model.buffer.as_steps(rollout["advantages"].numpy())[real, env]
        np.testing.assert_allclose(found, advantages, rtol=1e-4, atol=1e-5)
    if kind == "NEXT_STEP":
        assert not model.buffer.valid.all()
        np.testing.assert_array_equal(
            model.buffer.as_steps(rollout["weights"].numpy()), model.buffer.valid.astype(np.float32)
        )


@ALGORITHMS
def test_steps_that_merely_reset_teach_nothing(algorithm: Any) -> None:
    """An update is the same whatever such steps hold; it is another one if a real step is another."""

    def updated(change: str) -> dict[str, np.ndarray]:
        model, _, _ = collected(algorithm, "NEXT_STEP", normalize_advantage=True)
        memory = model.buffer
        where = {"resets": ~memory.valid, "real": memory.valid, "nothing": np.zeros_like(memory.valid)}[
            change
        ]
        memory.rewards[where] += 5.0
        memory.columns["actions"][where] = 2
        model.schedules["learning_rate"] = lambda progress: 0.1
        model.config.n_epochs = 2
        model.update()
        return model.get_parameters()

    nothing, resets, real = updated("nothing"), updated("resets"), updated("real")
    for name, expected in nothing.items():
        np.testing.assert_allclose(resets[name], expected, rtol=1e-6, atol=1e-7)
    assert any(np.abs(real[name] - nothing[name]).max() > 1e-4 for name in nothing)
