"""Rollouts hold what happened, and their advantages follow from it, however environments reset."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from logged_envs import KINDS, Logged, Transition, logged_vector_env

from zoo import A2C, PPO1, PPO2, TRPO, make_vec_env
from zoo.algorithms.on_policy import OnPolicyAlgorithm
from zoo.envs.sync_vec_env import InProcessVectorEnv

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


def value(model: OnPolicyAlgorithm[Any], observation: np.ndarray) -> float:
    with torch.no_grad():
        return float(model.policy.values({"observations": torch.from_numpy(observation[None])})[0])


def slow_advantages(
    model: OnPolicyAlgorithm[Any], log: list[Transition], gamma: float, gae_lambda: float
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
    memory = model.memory
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
        assert memory.ended[rows, env].tolist() == [step.terminated or step.truncated for step in log]
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
            table[model.memory.valid[:, env], env],
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
    ("observation_space", "encoder", "masks"),
    [
        (spaces.Box(-1.0, 1.0, (5,)), "mlp", False),
        (PICTURE, "cnn", True),
        (WITH_PICTURE, "multi", False),
        (WITH_PICTURE, "multi", True),
    ],
    ids=["vectors", "masked pictures", "dictionaries", "masked dictionaries"],
)
@pytest.mark.parametrize("algorithm", [A2C, PPO2])
@pytest.mark.parametrize("share_encoder", [True, False])
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


@pytest.mark.parametrize(
    ("observation_space", "rows"),
    [
        (spaces.Box(-1.0, 1.0, (376,)), 44_620),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), 594),
        (spaces.Discrete(500), 33_554),
        (spaces.Dict({"a": spaces.Box(-1.0, 1.0, (76,)), "b": spaces.Discrete(300)}), 44_620),
    ],
    ids=["vectors", "pictures", "numbers", "dictionaries"],
)
def test_the_floats_of_a_piece_take_64_mebibytes(observation_space: spaces.Space[Any], rows: int) -> None:
    """So a rollout of vectors is one piece; pictures, and numbers that become vectors, are not."""
    env = make_vec_env(lambda: Shown(observation_space, masks=False), 1, check=False)
    policy = "MultiInputPolicy" if isinstance(observation_space, spaces.Dict) else {"net_arch": [8]}
    assert A2C(policy, env, seed=0)._rows_at_once == rows


@pytest.mark.parametrize("algorithm", [A2C, PPO2])
def test_resets_are_neither_counted_nor_learned_from(algorithm: Any) -> None:
    vector_env, envs = logged_vector_env("NEXT_STEP")
    model = algorithm({"net_arch": [8]}, vector_env, seed=0, compile=False, n_steps=N_STEPS).learn(100)
    assert model.num_timesteps == sum(len(env.log) for env in envs) >= 100
    assert model.n_episodes == sum(step.terminated or step.truncated for env in envs for step in env.log)
    assert all(np.isfinite(array).all() for array in model.get_parameters().values())


@pytest.mark.parametrize("algorithm", [A2C, PPO2])
def test_what_was_done_in_steps_that_merely_reset_changes_nothing(algorithm: Any) -> None:
    class Overwriting(algorithm):  # type: ignore[misc]
        action, n_overwritten = 0, 0

        def update(self) -> None:
            resets = ~self.memory.valid
            self.memory.columns["actions"][resets] = self.action
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


def test_environments_are_reset_by_seeds_of_31_bits() -> None:
    model = A2C({"net_arch": [8]}, "CartPole-v1", n_envs=32, seed=0, compile=False, n_steps=1).learn(32)
    seeds = model.interaction._seeds
    assert len(set(seeds)) == 32
    assert 2**30 < max(seeds) < 2**31


@pytest.mark.parametrize("seed", range(3))
def test_short_rollouts_of_an_environment_that_resets_in_a_step_of_its_own(seed: int) -> None:
    """A rollout of one step may hold nothing but a reset."""
    env = SyncVectorEnv([lambda: Logged((1,))], autoreset_mode=AutoresetMode.NEXT_STEP)
    model = A2C({"net_arch": [8]}, env, seed=seed, compile=False, n_steps=1).learn(10)
    assert model.num_timesteps == 10


def test_rollouts_of_nothing_but_resets_are_thrown_away_however_many_there_are() -> None:
    class Unlucky(A2C):
        n_left = 2_000

        def _lacks_steps(self) -> bool:
            self.n_left -= 1
            return self.n_left > 0

    model = Unlucky({"net_arch": [8]}, "CartPole-v1", seed=0, compile=False, n_steps=1).learn(1)
    assert model.n_left == 0
    assert (model.num_timesteps, model.n_updates) == (2_000, 1)


@pytest.mark.parametrize("recurrent", [None, "gru"])
@pytest.mark.parametrize("algorithm", [PPO1, PPO2, TRPO])
def test_explained_variance_is_that_of_the_steps_that_do_not_merely_reset(
    algorithm: Any, recurrent: Any
) -> None:
    class Unrelated(Logged):
        def step(self, action: Any) -> Any:
            observation, _, terminated, truncated, info = super().step(action)
            return observation, float(self.np_random.normal()), terminated, truncated, info

    env = SyncVectorEnv([Unrelated] * 4, autoreset_mode=AutoresetMode.NEXT_STEP)
    policy = {"net_arch": [8], "recurrent": recurrent}
    model = algorithm(policy, env, seed=0, compile=False, n_steps=16, batch_size=32)
    rollouts, take = [], model.finished_rollout

    def noted() -> dict[str, Any]:
        rollouts.append(take())
        return dict(rollouts[-1])

    model.finished_rollout = noted
    model.learn(1)
    values, returns = (model.memory.as_steps(rollouts[0][name].numpy()) for name in ("values", "returns"))
    real = model.memory.valid
    expected = 1 - (returns - values)[real].var() / returns[real].var()
    of_all = 1 - (returns - values).var() / returns.var()
    assert abs(expected - of_all) > 1e-3
    assert model.read_metrics()["train/explained_variance"] == pytest.approx(expected, abs=1e-5)


class Noting(A2C):
    """Keeps each environment's transitions as they stand in the rollouts."""

    def collect(self) -> None:
        super().collect()
        memory = self.memory
        if not hasattr(self, "seen"):
            self.seen: list[list[tuple[Any, ...]]] = [[] for _ in range(self.n_envs)]
        for step, env in np.argwhere(memory.valid):
            self.seen[env].append(
                (
                    tuple(memory.columns["observations"][step, env].tolist()),
                    int(memory.columns["actions"][step, env]),
                    float(memory.rewards[step, env]),
                    bool(memory.ended[step, env]),
                )
            )


def test_native_cartpole_gives_the_learning_data_that_a_single_one_gives() -> None:
    """Every stored transition is one that CartPole itself makes from there, and no reset is among them."""
    envs = make_vec_env("CartPole-v1", 4, vectorization="native", max_episode_steps=15)
    model = Noting("MlpPolicy", envs, seed=3, compile=False, n_steps=8, learning_rate=0.0).learn(8 * 4 * 8)
    cartpole = gym.make("CartPole-v1").unwrapped
    n_compared = 0
    for seen in model.seen:
        starts = [seen[0][0]]
        for (observation, action, reward, ended), (following, *_) in itertools.pairwise(seen):
            cartpole.reset()
            cartpole.state = np.array(observation)  # type: ignore[attr-defined]
            expected, expected_reward, terminated, *_ = cartpole.step(action)
            assert reward == expected_reward
            if ended:
                starts.append(following)
                n_compared += 1
                continue
            assert not terminated
            np.testing.assert_allclose(following, expected, rtol=1e-4, atol=1e-5)
        assert np.abs(starts).max() <= 0.05
    assert n_compared > 8


def test_native_cartpole_bootstraps_from_its_final_observation() -> None:
    envs = make_vec_env("CartPole-v1", 4, vectorization="native", max_episode_steps=5)
    model = A2C("MlpPolicy", envs, seed=3, compile=False, n_steps=12, learning_rate=0.0).learn(1)
    truncations = model.memory.truncations()
    assert truncations is not None
    cartpole = gym.make("CartPole-v1").unwrapped
    columns = model.memory.columns
    for step, env, final in zip(*truncations[:3], strict=True):
        assert model.memory.ended[step, env]
        cartpole.reset()
        cartpole.state = columns["observations"][step, env].astype(np.float64)  # type: ignore[attr-defined]
        expected, *_ = cartpole.step(int(columns["actions"][step, env]))
        np.testing.assert_allclose(final, expected, rtol=1e-4, atol=1e-5)
    assert truncations[0].tolist() == [4] * 4 + [10] * 4


def test_learning_goes_on_from_a_reset_after_a_step_that_was_interrupted() -> None:
    """As by Ctrl-C in a notebook, where one environment has ended its episode and the next is not stepped."""

    class Ending(Logged):
        interrupts = False

        def step(self, action: Any) -> Any:
            if self.interrupts:
                type(self).interrupts = False
                raise KeyboardInterrupt
            return super().step(action)

    envs = InProcessVectorEnv([lambda: Logged((5,)), lambda: Ending((1000,))])
    model = A2C({"net_arch": [4]}, envs, seed=0, compile=False, n_steps=4)
    model.learn(8)
    Ending.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        model.learn(8, reset_num_timesteps=False)
    stepper = model.envs
    assert stepper is not None
    assert stepper.was_disturbed
    model.learn(8, reset_num_timesteps=False)
    assert not model.memory.ended.any()
