"""Rollouts hold what happened, and their advantages follow from it, however environments reset."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from logged_envs import KINDS, Transition, logged_vector_env

from zoo import A2C, PPO2, make_vec_env
from zoo.algorithms.on_policy import OnPolicyAlgorithm

N_STEPS, N_ENVS = 11, 3


def collected(kind: str, **hyperparameters: Any) -> tuple[A2C, list[list[Transition]]]:
    """Return an algorithm with its second rollout, and what each environment saw in it."""
    vector_env, envs = logged_vector_env(kind)
    model = A2C(
        {"net_arch": [8]}, vector_env, seed=0, compile=False, n_steps=N_STEPS, **hyperparameters
    ).learn(N_STEPS * N_ENVS)
    before = [len(env.log) for env in envs]
    model.collect()
    return model, [env.log[start:] for env, start in zip(envs, before, strict=True)]


def value(model: OnPolicyAlgorithm, observation: np.ndarray) -> float:
    with torch.no_grad():
        return float(model.policy.values({"observations": torch.from_numpy(observation[None])})[0])


def slow_advantages(
    model: OnPolicyAlgorithm, log: list[Transition], gamma: float, gae_lambda: float
) -> list[float]:
    """Return A = r + γ·V(s′) − V(s) + γλ·A′, with no V(s′) after a termination, no A′ over any end."""
    advantages: list[float] = []
    following = 0.0
    for step in reversed(log):
        if step.terminated or step.truncated:
            following = 0.0
        next_value = 0.0 if step.terminated else value(model, step.next_observation)
        difference = step.reward + gamma * next_value - value(model, step.observation)
        following = difference + gamma * gae_lambda * following
        advantages.append(following)
    return advantages[::-1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_holds_what_happened(kind: str) -> None:
    model, logs = collected(kind)
    memory = model.buffer
    for env, log in enumerate(logs):
        rows = memory.valid[:, env]
        assert rows.sum() == len(log)
        np.testing.assert_array_equal(
            memory.columns["observations"][rows, env], [step.observation for step in log]
        )
        assert memory.columns["actions"][rows, env].tolist() == [step.action for step in log]
        np.testing.assert_array_equal(
            memory.rewards[rows, env], np.array([step.reward for step in log], np.float32)
        )
        assert memory.dones[rows, env].tolist() == [step.terminated or step.truncated for step in log]
    assert (kind == "NEXT_STEP") == (not memory.valid.all())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
def test_truncated_episodes_bootstrap_from_their_final_observation_and_terminated_ones_do_not(
    kind: str, gae_lambda: float
) -> None:
    model, logs = collected(kind)
    model.config.gamma, model.config.gae_lambda = 0.9, gae_lambda
    rollout = model.finished_rollout()
    torch.testing.assert_close(rollout["returns"], rollout["advantages"] + rollout["values"])
    table = rollout["advantages"].reshape(N_STEPS, N_ENVS).numpy()
    for env, log in enumerate(logs):
        assert any(step.truncated for step in log) == (env != 2)
        np.testing.assert_allclose(
            table[model.buffer.valid[:, env], env],
            slow_advantages(model, log, 0.9, gae_lambda),
            rtol=1e-4,
            atol=1e-5,
        )


PICTURE = spaces.Box(0, 255, (36, 36, 1), np.uint8)
WITH_PICTURE = spaces.Dict({"picture": PICTURE, "place": spaces.Discrete(7)})


class Shown(gym.Env[Any, Any]):
    """Shows samples of a space, allows some of three actions, cuts each episode after four steps."""

    def __init__(self, observation_space: spaces.Space[Any], *, masks: bool) -> None:
        self.observation_space, self.action_space = observation_space, spaces.Discrete(3)
        self.masks = masks

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._n_steps = 0
        return self._seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._n_steps += 1
        observation, info = self._seen()
        return observation, self.np_random.normal(), False, self._n_steps == 4, info

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        allowed = np.roll([True, True, False], self._n_steps)
        return self.observation_space.sample(), {"action_mask": allowed} if self.masks else {}


@pytest.mark.parametrize(
    ("observation_space", "encoder", "masks", "algorithm", "share_encoder"),
    [
        (spaces.Box(-1.0, 1.0, (5,)), "mlp", False, A2C, True),
        (PICTURE, "cnn", True, PPO2, False),
        (WITH_PICTURE, "multi", True, A2C, True),
    ],
    ids=["vectors", "masked pictures", "masked dictionaries"],
)
def test_a_long_rollout_is_valued_in_pieces(
    observation_space: spaces.Space[Any], encoder: str, masks: bool, algorithm: Any, share_encoder: bool
) -> None:
    env = make_vec_env(lambda: Shown(observation_space, masks=masks), N_ENVS, check=False)
    policy = {"encoder": encoder, "share_encoder": share_encoder}
    if encoder != "mlp":
        policy["features_dim"] = 8
    model = algorithm(policy, env, seed=0, compile=False, n_steps=N_STEPS, learning_rate=0.0)
    model.learn(N_STEPS * N_ENVS)
    sizes: list[int] = []
    model.policy.critic.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    model.acting = model._make_acting()  # which goes past modules only as long as nothing hooks into them
    whole = model.finished_rollout()
    assert sizes[0] == N_STEPS * N_ENVS
    sizes.clear()
    model._rows_at_once = 5
    in_pieces = model.finished_rollout()
    assert sizes[:7] == [5, 5, 5, 5, 5, 5, 3]
    assert max(sizes) == 5
    assert in_pieces.keys() == whole.keys()
    for name in ("values", "advantages", "returns", *(["log_prob"] if algorithm is PPO2 else [])):
        assert whole[name].shape == (N_STEPS * N_ENVS,)
        torch.testing.assert_close(in_pieces[name], whole[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", [A2C, PPO2])
def test_what_was_done_in_steps_that_merely_reset_changes_nothing(algorithm: Any) -> None:
    class Overwriting(algorithm):  # type: ignore[misc]
        action, n_overwritten = 0, 0

        def update(self) -> None:
            resets = ~self.buffer.valid
            self.buffer.columns["actions"][resets] = self.action
            self.n_overwritten += resets.sum()
            super().update()

    parameters = []
    for action in (0, 1):
        vector_env, _ = logged_vector_env("NEXT_STEP")
        model = Overwriting({"net_arch": [8]}, vector_env, seed=0, compile=False, n_steps=N_STEPS)
        model.action = action
        parameters.append(model.learn(60).get_parameters())
        assert model.n_overwritten > 5
    for name, array in parameters[0].items():
        np.testing.assert_array_equal(parameters[1][name], array)
