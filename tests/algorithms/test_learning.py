"""Each algorithm learns small things within seconds; none of these would pass with its update taken out."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from zoo import (
    A2C,
    ACER,
    ACKTR,
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


def narrow(space: str) -> dict[str, Any]:
    """Return a policy whose actions, where they are numbers, begin with little noise."""
    return {"log_std_init": -1.0} if space == "Box" else {}


PPO2_SETTINGS = {"n_steps": 32, "batch_size": 64, "learning_rate": 5e-3, "gamma": 0.0, "ent_coef": 0.0}
ACKTR_SETTINGS = {"n_steps": 16, "kfac_update": 5, "gamma": 0.0, "ent_coef": 0.0}
PPO1_SETTINGS = {"n_steps": 32, "learning_rate": "lin_5e-3", "gamma": 0.0, "ent_coef": 0.0}
TRPO_SETTINGS = {"n_steps": 64, "gamma": 0.0, "target_kl": 0.05, "cg_damping": 0.01, "learning_rate": 5e-3}
A2C_SETTINGS = {"n_steps": 8, "learning_rate": 1e-2, "gamma": 0.0, "ent_coef": 0.0}

ACER_SETTINGS: dict[str, dict[str, Any]] = {
    "Discrete": {"n_steps": 8, "learning_rate": 5e-3, "gamma": 0.0, "ent_coef": 0.0},
    "Box": {"n_steps": 8, "learning_rate": 5e-3, "gamma": 0.0, "ent_coef": 0.0, "correction_term": 5.0},
}

RUN: dict[str, Any] = {"seed": 0, "compile": False, "threads": 1}

OFF_POLICY_SETTINGS = {**RUN, "learning_starts": 100, "gamma": 0.0, "train_freq": 4, "gradient_steps": 2}
CONTINUOUS_SETTINGS = {**OFF_POLICY_SETTINGS, "learning_rate": 3e-3, "batch_size": 64}
CORRIDOR_SETTINGS = {
    "learning_starts": 200,
    "learning_rate": 3e-3,
    "gamma": 0.9,
    "target_update_interval": 100,
    "exploration_fraction": 0.6,
}


def mean_reward(model: Algorithm[Any], env_id: str, n_steps: int = 30) -> float:
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
    ("space", "enough"), [("Discrete", 0.98), ("MultiDiscrete", 0.98), ("MultiBinary", 0.98), ("Box", 0.93)]
)
def test_ppo2_names_what_it_sees(space: str, enough: float) -> None:
    env_id = f"Zoo/Identity{space}-v0"
    model = PPO2(narrow(space), env_id, n_envs=8, **RUN, **PPO2_SETTINGS).learn(8000)
    assert mean_reward(model, env_id) >= enough


@pytest.mark.parametrize(
    ("space", "enough"), [("Discrete", 0.98), ("MultiDiscrete", 0.98), ("MultiBinary", 0.98), ("Box", 0.9)]
)
def test_a2c_names_what_it_sees(space: str, enough: float) -> None:
    env_id = f"Zoo/Identity{space}-v0"
    model = A2C(narrow(space), env_id, n_envs=8, **RUN, **A2C_SETTINGS).learn(16_000)
    assert mean_reward(model, env_id) >= enough


@pytest.mark.parametrize(("space", "enough"), [("Discrete", 0.98), ("Box", 0.9)])
def test_acer_names_what_it_sees(space: str, enough: float) -> None:
    env_id = f"Zoo/Identity{space}-v0"
    model = ACER(narrow(space), env_id, n_envs=8, **RUN, **ACER_SETTINGS[space]).learn(5000)
    assert mean_reward(model, env_id) >= enough


@pytest.mark.parametrize(
    ("space", "enough"), [("Discrete", 0.98), ("MultiDiscrete", 0.98), ("MultiBinary", 0.98), ("Box", 0.88)]
)
def test_acktr_names_what_it_sees(space: str, enough: float) -> None:
    env_id = f"Zoo/Identity{space}-v0"
    model = ACKTR(narrow(space), env_id, n_envs=8, **RUN, **ACKTR_SETTINGS).learn(4000)
    assert mean_reward(model, env_id) >= enough


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
    ("space", "enough"), [("Discrete", 0.98), ("MultiDiscrete", 0.98), ("MultiBinary", 0.98), ("Box", 0.93)]
)
def test_ppo1_names_what_it_sees(space: str, enough: float) -> None:
    env_id = f"Zoo/Identity{space}-v0"
    model = PPO1(narrow(space), env_id, n_envs=8, **RUN, **PPO1_SETTINGS).learn(8000)
    assert mean_reward(model, env_id) >= enough


@pytest.mark.parametrize(
    ("space", "enough"), [("Discrete", 0.98), ("MultiDiscrete", 0.98), ("MultiBinary", 0.98), ("Box", 0.9)]
)
def test_trpo_names_what_it_sees(space: str, enough: float) -> None:
    env_id = f"Zoo/Identity{space}-v0"
    model = TRPO(narrow(space), env_id, n_envs=8, **RUN, **TRPO_SETTINGS).learn(16_000)
    assert mean_reward(model, env_id) >= enough


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [(DQN, {}), (QRDQN, {"n_quantiles": 10}), (QRDQN, {"n_quantiles": 10, "dueling": True, "double": True})],
)
def test_q_learning_names_what_it_sees(algorithm: Any, settings: dict[str, Any]) -> None:
    env_id = "Zoo/IdentityDiscrete-v0"
    model = algorithm(
        "MlpPolicy",
        env_id,
        n_envs=4,
        learning_rate=2e-3,
        exploration_fraction=0.5,
        **OFF_POLICY_SETTINGS,
        **settings,
    ).learn(1500)
    assert mean_reward(model, env_id) >= 0.98


@pytest.mark.parametrize(("algorithm", "extra"), [(DQN, {}), (QRDQN, {"n_quantiles": 10})])
def test_q_learning_explores_by_noise_on_its_parameters(algorithm: Any, extra: dict[str, Any]) -> None:
    """Without exploring, the first right guesses would be all that it ever knows of."""
    env_id = "Zoo/IdentityDiscrete-v0"
    model = algorithm(
        *({"net_arch": [32]}, env_id),
        n_envs=4,
        learning_rate=3e-3,
        exploration_fraction=0.9,
        parameter_noise=True,
        **{**OFF_POLICY_SETTINGS, "learning_starts": 0, **extra},
    ).learn(2000)
    assert mean_reward(model, env_id) >= 0.98


@pytest.mark.parametrize("algorithm", [SAC, TQC])
def test_sac_and_tqc_name_what_they_see(algorithm: Any) -> None:
    env_id = "Zoo/IdentityBox-v0"
    model = algorithm(
        {"net_arch": [64, 64]},
        env_id,
        n_envs=4,
        **CONTINUOUS_SETTINGS,
    ).learn(1500)
    assert mean_reward(model, env_id) >= 0.85
    assert np.exp(model.policy.temperature.log.item()) < 0.3


def test_td3_names_what_it_sees() -> None:
    env_id = "Zoo/IdentityBox-v0"
    model = TD3(
        {"net_arch": [64, 64]},
        env_id,
        n_envs=4,
        **CONTINUOUS_SETTINGS,
        action_noise={"type": "normal", "std": 0.3},
    ).learn(1500)
    assert mean_reward(model, env_id) >= 0.85


@pytest.mark.parametrize(
    "exploring",
    [
        {"action_noise": {"type": "normal", "std": 0.5}},
        {"parameter_noise": {"initial_std": 0.3, "desired_action_std": 0.5}},
        {"random_exploration": 0.5, "normalize_returns": True, "enable_popart": True, "reward_scale": 50.0},
    ],
    ids=str,
)
def test_ddpg_names_what_it_sees(exploring: dict[str, Any]) -> None:
    env_id = "Zoo/IdentityBox-v0"
    model = DDPG(
        {"net_arch": [32, 32]},
        env_id,
        n_envs=4,
        actor_learning_rate=1e-3,
        **CONTINUOUS_SETTINGS,
        **exploring,
    ).learn(1500)
    assert mean_reward(model, env_id) >= 0.95


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


@pytest.mark.parametrize("dueling", [False, True])
def test_qrdqn_learns_how_returns_are_distributed(dueling: bool) -> None:
    model = QRDQN(
        {"net_arch": []},
        make_vec_env(Lottery, 4, check=False),
        seed=0,
        compile=False,
        threads=1,
        n_quantiles=5,
        dueling=dueling,
        buffer_size=4000,
        learning_starts=2000,
        batch_size=256,
        learning_rate="lin_1",
        exploration_initial_eps=1.0,
        exploration_final_eps=1.0,
    ).learn(4000)
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
        (A2C, 8000, {"n_steps": 8, "learning_rate": 1e-2, "gamma": 0.9, "ent_coef": 0.02}),
        (ACER, 3000, {"n_steps": 8, "learning_rate": 1e-2, "gamma": 0.9, "ent_coef": 0.02}),
        (ACKTR, 6000, {"n_steps": 16, "kfac_update": 5, "gamma": 0.9, "ent_coef": 0.02}),
        (PPO1, 4000, {"n_steps": 32, "learning_rate": 5e-3, "gamma": 0.9}),
        (TRPO, 8000, {"n_steps": 64, "learning_rate": 5e-3, "gamma": 0.9, "target_kl": 0.03}),
        (DQN, 4000, {**CORRIDOR_SETTINGS, "train_freq": 4}),
        (DQN, 4000, {**CORRIDOR_SETTINGS, "train_freq": 4, "memory": {"prioritized": {}}}),
        (QRDQN, 4000, {**CORRIDOR_SETTINGS, "n_quantiles": 10}),
        (
            QRDQN,
            4000,
            {
                **CORRIDOR_SETTINGS,
                "n_quantiles": 10,
                "double": True,
                "dueling": True,
                "memory": {"prioritized": {}},
            },
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


TOY_SETTINGS = {"n_steps": 64, "batch_size": 128, "learning_rate": 5e-3}
TOYS = pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (PPO1, TOY_SETTINGS),
        (TRPO, {**TOY_SETTINGS, "target_kl": 0.03, "cg_damping": 0.01, "n_critic_updates": 5}),
    ],
)


@TOYS
def test_only_allowed_actions_are_learned_from(algorithm: Any, settings: dict[str, Any]) -> None:
    """Of the six actions three are forbidden at each step, and one of these ends the episode."""
    model = algorithm({"net_arch": [32]}, "Zoo/Masked-v0", n_envs=8, gamma=0.5, **RUN, **settings)
    assert evaluate_policy(model.learn(16_000), "Zoo/Masked-v0", 20)[0] >= 19


@pytest.mark.slow
@TOYS
def test_a_memory_answers_what_it_was_shown_before(algorithm: Any, settings: dict[str, Any]) -> None:
    """Without one the mean return is 0 at best."""
    policy = {"_target_": "recurrent_policies.GruActorCritic", "net_arch": [16]}
    model = algorithm(policy, "Zoo/Memory-v0", n_envs=8, gamma=0.95, **RUN, **settings)
    assert evaluate_policy(model.learn(20_000), "Zoo/Memory-v0", 50)[0] >= 0.9
