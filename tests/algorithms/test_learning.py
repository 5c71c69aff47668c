"""Each algorithm learns small things within seconds; none of these would pass with its update taken out."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from zoo import A2C, ACER, ACKTR, C51, DDPG, DQN, IQN, PPO1, PPO2, PQN, QRDQN, SAC, TD3, TQC, TRPO, CrossQ
from zoo.algorithms.algorithm import Algorithm
from zoo.envs.make_env import make_vec_env
from zoo.experiment.evaluation import evaluate_policy
from zoo.policies.encoders import NatureCnn


def narrow(space: str) -> dict[str, Any]:
    """Return a policy whose actions, where they are numbers, begin with little noise."""
    return {"log_std_init": -1.0} if space == "Box" else {}


RUN: dict[str, Any] = {"seed": 0, "compile": False, "threads": 1}
AT_ONCE: dict[str, Any] = {"gamma": 0.0, "ent_coef": 0.0}
ACKTR_SETTINGS = {"n_steps": 16, "kfac_update": 5, **AT_ONCE}
TRPO_SETTINGS = {"n_steps": 64, "gamma": 0.0, "target_kl": 0.05, "cg_damping": 0.01, "learning_rate": 5e-3}
PPO2_SETTINGS = {"n_steps": 32, "batch_size": 64, "learning_rate": 5e-3, **AT_ONCE}
OFF_POLICY = {"learning_starts": 100, "gamma": 0.0, "train_freq": 4, "gradient_steps": 2}
NOISY = {**OFF_POLICY, "exploration_fraction": 0.9, "parameter_noise": True, "learning_starts": 0}
IN_A_BOX = {**OFF_POLICY, "learning_rate": 3e-3, "batch_size": 64}
DDPG_SETTINGS = {**IN_A_BOX, "actor_learning_rate": 1e-3}
UNITS = {"random_exploration": 0.5, "normalize_returns": True, "enable_popart": True, "reward_scale": 50.0}
C51_SETTINGS = {"learning_rate": 3e-3, "value_range": [-0.5, 1.5], "n_atoms": 21}
IQN_SETTINGS = {"learning_rate": 3e-3, "n_quantiles": 8, "n_target_quantiles": 8, "exploration_fraction": 0.5}
CORRIDOR_SETTINGS = {"learning_starts": 200, "learning_rate": 3e-3, "gamma": 0.9}
CORRIDOR_SETTINGS |= {"target_update_interval": 100, "exploration_fraction": 0.6}

ON_POLICY: list[tuple[Any, dict[str, Any], int, float]] = [
    (PPO2, PPO2_SETTINGS, 8000, 0.93),
    (A2C, {"n_steps": 8, "learning_rate": 1e-2, **AT_ONCE}, 16_000, 0.9),
    (ACKTR, ACKTR_SETTINGS, 4000, 0.88),
    (PPO1, {"n_steps": 32, "learning_rate": "lin_5e-3", **AT_ONCE}, 8000, 0.93),
    (TRPO, TRPO_SETTINGS, 16_000, 0.9),
]
"""An algorithm, its settings, how long it learns, and what a step gives then at least in a Box."""

SLOW = pytest.mark.slow
OTHERS: list[Any] = [
    (ACER, "Discrete", {"n_steps": 8, "learning_rate": 5e-3, **AT_ONCE}, 5000, 0.98),
    pytest.param(
        *(ACER, "Box", {"n_steps": 8, "learning_rate": 5e-3, "correction_term": 5.0, **AT_ONCE}, 5000, 0.9),
        marks=SLOW,
    ),
    (DQN, "Discrete", {**OFF_POLICY, "learning_rate": 2e-3, "exploration_fraction": 0.5}, 1500, 0.98),
    (QRDQN, "Discrete", {**NOISY, "learning_rate": 3e-3, "n_quantiles": 10}, 2000, 0.98),
    (C51, "Discrete", {**OFF_POLICY, **C51_SETTINGS, "noisy": True}, 2000, 0.98),
    (IQN, "Discrete", {**OFF_POLICY, **IQN_SETTINGS, "munchausen": {}}, 2000, 0.98),
    (PQN, "Discrete", {"n_steps": 8, "batch_size": 16, "gamma": 0.0, "learning_rate": 5e-3}, 6000, 0.98),
    (SAC, "Box", IN_A_BOX, 1500, 0.85),
    (SAC, "MultiDiscrete", IN_A_BOX, 1500, 0.95),
    pytest.param(
        *(SAC, "Box", {**IN_A_BOX, "train_freq": 32, "gradient_steps": 16, "use_sde": True}, 1600, 0.85),
        marks=SLOW,
    ),
    pytest.param(TQC, "Box", IN_A_BOX, 1500, 0.85, marks=SLOW),
    (CrossQ, "Box", {**IN_A_BOX, "policy_delay": 1}, 1500, 0.85),
    (TD3, "Box", {**IN_A_BOX, "action_noise": {"type": "normal", "std": 0.3}}, 1500, 0.85),
    (
        DDPG,
        "Box",
        {**DDPG_SETTINGS, **UNITS, "parameter_noise": {"initial_std": 0.3, "desired_action_std": 0.5}},
        1500,
        0.95,
    ),
]
"""Those that do not take every kind of action; slow are those for which others stand."""


def mean_reward(model: Algorithm, env_id: str, n_steps: int = 30) -> float:
    """Return the mean reward of a step, acting deterministically in ten environments."""
    env = make_vec_env(env_id, 10)
    observations, _ = env.reset(seed=list(range(10)))
    total = 0.0
    for _ in range(n_steps):
        actions, _ = model.predict(observations)
        observations, rewards, *_ = env.step(actions)
        total += rewards.mean()
    return total / n_steps


@pytest.mark.parametrize(
    ("algorithm", "settings", "n_timesteps", "enough", "space"),
    [
        (*each, space)
        for each in ON_POLICY
        for space in ("Discrete", "MultiDiscrete", "MultiBinary", "Box")
        if each[0] is PPO2 or space == ("Box" if each[0] in (A2C, TRPO) else "MultiBinary")
    ],
)
def test_what_it_sees_is_named(
    algorithm: Any, settings: dict[str, Any], n_timesteps: int, enough: float, space: str
) -> None:
    env_id = f"Zoo/Identity{space}-v0"
    model = algorithm(narrow(space), env_id, n_envs=8, **RUN, **settings).learn(n_timesteps)
    assert mean_reward(model, env_id) >= (enough if space == "Box" else 0.98)


@pytest.mark.parametrize(("algorithm", "space", "settings", "n_timesteps", "enough"), OTHERS)
def test_what_it_sees_is_named_in_some_spaces(
    algorithm: Any, space: str, settings: dict[str, Any], n_timesteps: int, enough: float
) -> None:
    env_id, acer = f"Zoo/Identity{space}-v0", algorithm is ACER
    widths = 64 if algorithm in (SAC, TQC, CrossQ, TD3) else 32
    policy = narrow(space) if acer else {"net_arch": [widths] * (1 if algorithm is QRDQN else 2)}
    model = algorithm(policy, env_id, n_envs=8 if acer else 4, **RUN, **settings).learn(n_timesteps)
    assert mean_reward(model, env_id) >= enough
    if algorithm in (SAC, TQC, CrossQ):
        assert np.exp(model.policy.temperature.log.item()) < 0.3


def test_masked_acktr_only_does_what_is_allowed() -> None:
    """One forbidden action ends an episode of 20 steps with −1."""
    model = ACKTR({"net_arch": [32]}, "Zoo/Masked-v0", n_envs=8, **RUN, **ACKTR_SETTINGS).learn(8000)
    assert {episode.length for episode in model.recent_episodes} == {20}
    assert np.mean([episode.episode_return for episode in model.recent_episodes]) > 0.85 * 20


def test_recurrent_acktr_remembers() -> None:
    """Without a memory the mean return is 0."""
    policy = {"net_arch": [16], "recurrent": "lstm", "lstm_layer_norm": True, "lstm_hidden_size": 16}
    settings = {**RUN, "n_steps": 24, "kfac_update": 5, "kfac_clip": 0.01}
    model = ACKTR(policy, "Zoo/Memory-v0", n_envs=8, **settings).learn(6500)
    assert np.mean([episode.episode_return for episode in model.recent_episodes]) > 0.9


@pytest.mark.parametrize(
    ("policy", "env_id", "n_timesteps"),
    [
        ({"encoder": "cnn", "features_dim": 64}, "Zoo/IdentityImage-v0", 1500),
        ({"encoder": "multi", "features_dim": 32}, "Zoo/IdentityDict-v0", 4000),
    ],
)
def test_ppo2_learns_from_images_and_dictionaries(policy: Any, env_id: str, n_timesteps: int) -> None:
    settings = {**PPO2_SETTINGS, "learning_rate": 1e-3}
    model = PPO2(policy, env_id, n_envs=8, **RUN, **settings).learn(n_timesteps)
    assert mean_reward(model, env_id) >= 0.93


class Catch(gym.Env[Any, Any]):
    """A ball falls through 9 rows of a picture, and the paddle below catches it (1) or does not (−1).

    Actions of a ``Discrete`` space are a step to the left, none, and one to the right; in a ``Box`` a number
    from −1 to 1 that is rounded. Standing still catches one ball of nine.
    """

    observation_space: spaces.Space[Any] = spaces.Box(0, 255, (36, 36, 1), np.uint8)

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.action_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._row, self._ball, self._paddle = 0, int(self.np_random.integers(9)), 4
        return self._picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        move = action - 1 if isinstance(self.action_space, spaces.Discrete) else round(float(action[0]))
        self._paddle = min(max(self._paddle + int(move), 0), 8)
        self._row += 1
        is_over, is_caught = self._row == 8, self._paddle == self._ball
        return self._picture(), (1.0 if is_caught else -1.0) * is_over, is_over, False, {}

    def _picture(self) -> Any:
        cells = np.zeros((9, 9, 1), np.uint8)
        cells[8, self._paddle], cells[self._row, self._ball] = 128, 255
        return cells.repeat(4, 0).repeat(4, 1)


FROM_BUFFER: dict[str, Any] = {"buffer_size": 20_000, "batch_size": 64, "gamma": 0.9}
FROM_BUFFER |= {"learning_starts": 500, "train_freq": 16, "gradient_steps": 8}
EPSILON = {"exploration_fraction": 0.5, "target_update_interval": 200}
BY_EPSILON = {**FROM_BUFFER, **EPSILON, "learning_rate": 5e-4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "precision", "n_timesteps", "settings"),
    [
        (PPO2, "float32", 30_000, {"n_steps": 64, "learning_rate": 1e-3, "gamma": 0.9}),
        (PPO2, "bfloat16", 30_000, {"n_steps": 64, "learning_rate": 1e-3, "gamma": 0.9}),
        (DQN, "float32", 8_000, BY_EPSILON),
        (DQN, "bfloat16", 8_000, BY_EPSILON),
        (QRDQN, "float32", 8_000, {**BY_EPSILON, "n_quantiles": 10}),
        (SAC, "float32", 8_000, {**FROM_BUFFER, "learning_rate": 1e-3}),
    ],
)
def test_balls_are_caught_by_sight(algorithm: Any, precision: str, n_timesteps: int, settings: Any) -> None:
    space = spaces.Box(-1.0, 1.0, (1,)) if algorithm is SAC else spaces.Discrete(3)
    policy = {"name": "CnnPolicy", "features_dim": 64, "precision": precision}
    model = algorithm(policy, lambda: Catch(space), n_envs=8, **RUN, **settings).learn(n_timesteps)
    assert {each.precision for each in model.policy.modules() if isinstance(each, NatureCnn)} == {precision}
    assert evaluate_policy(model, make_vec_env(lambda: Catch(space), 8), n_eval_episodes=100, seed=0)[0] > 0.8


class Corridor(gym.Env[int, int]):
    """Six places in a row; only the right end pays. Places count from 1, actions are 3 (left) and 4 (right).

    What pays is five steps away, so that it can only be learned by passing values on from step to step.
    """

    observation_space: spaces.Space[Any] = spaces.Discrete(6, start=1)
    action_space: spaces.Space[Any] = spaces.Discrete(2, start=3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = 1
        return self._place, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        assert action in (3, 4)
        self._place = max(1, self._place + (1 if action == 4 else -1))
        return self._place, float(self._place == 6), self._place == 6, False, {}


class Lottery(gym.Env[int, int]):
    """One step: action 0 pays anything between 0 and 50, action 1 anything between 10 and 20."""

    observation_space: spaces.Space[Any] = spaces.Discrete(1)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        low, high = ((0, 50), (10, 20))[action]
        return 0, float(self.np_random.uniform(low, high)), True, False, {}


def test_qrdqn_learns_how_returns_are_distributed() -> None:
    settings = {"n_quantiles": 5, "dueling": True, "buffer_size": 4000, "learning_starts": 2000}
    settings |= {"batch_size": 256, "exploration_initial_eps": 1.0, "exploration_final_eps": 1.0}
    env = make_vec_env(Lottery, 4, check=False)
    model = QRDQN({"net_arch": []}, env, **RUN, learning_rate="lin_1", **settings).learn(4000)
    quantiles = model.policy(model._tensors(np.zeros(1, np.int64)))[0].T.tolist()
    assert quantiles[0] == pytest.approx([5, 15, 25, 35, 45], abs=3)
    assert quantiles[1] == pytest.approx([11, 13, 15, 17, 19], abs=1)
    assert model.predict(np.zeros(1, np.int64))[0].tolist() == [0]


def corridor() -> gym.Env[int, int]:
    return gym.wrappers.TimeLimit(Corridor(), 40)


@pytest.mark.parametrize(
    ("algorithm", "n_timesteps", "settings"),
    [
        (PPO2, 4000, {"n_steps": 32, "learning_rate": 5e-3, "gamma": 0.9}),
        (ACER, 3000, {"n_steps": 8, "learning_rate": 1e-2, "gamma": 0.9, "ent_coef": 0.02}),
        pytest.param(
            *(ACKTR, 6000, {"n_steps": 16, "kfac_update": 5, "gamma": 0.9, "ent_coef": 0.02}), marks=SLOW
        ),
        (DQN, 4000, {**CORRIDOR_SETTINGS, "train_freq": 4}),
        pytest.param(
            *(QRDQN, 4000, {**CORRIDOR_SETTINGS, "n_quantiles": 10, "replay": {"prioritized": {}}}),
            marks=SLOW,
        ),
    ],
)
def test_values_are_passed_on_over_steps(algorithm: Any, n_timesteps: int, settings: dict[str, Any]) -> None:
    env = make_vec_env(corridor, 4)
    model = algorithm({"net_arch": [32]}, env, **RUN, **settings).learn(n_timesteps)
    actions, _ = model.predict(np.arange(1, 6))
    assert actions.tolist() == [4] * 5
    if algorithm in (DQN, QRDQN):
        estimates = model.policy(model._tensors(np.arange(1, 6)))
        values = model.policy.action_values(estimates)[:, 1].tolist()
        assert values == pytest.approx([0.9**4, 0.9**3, 0.9**2, 0.9, 1.0], abs=0.1)
    else:
        values = model.policy.values({"observations": model._tensors(np.arange(1, 6))}).tolist()
        assert values[0] > 0.1
        assert values[-1] > values[0] + 0.15
