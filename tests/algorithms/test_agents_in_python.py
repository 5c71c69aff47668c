"""Algorithms as Python objects: made, asked, saved, loaded, pickled; presets and policies by name."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import zoo
from zoo import A2C, DDPG, DQN, PPO2, PQN, QRDQN, SAC, TD3, TQC, CrossQ, make_vec_env
from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.callback import Callback
from zoo.algorithms.ppo import PPO2Config
from zoo.algorithms.registry import ALGORITHMS, CLASS_NAMES, PRESETS, algorithm_class
from zoo.config.schema import ALGO_LABELS
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError, ZooWarning

# -- The Python API of an agent: predicting, parameters, saving and loading, other environments, mistakes ---

SMALL = {"net_arch": [8]}
UNCLIPPED = {"clip_obs": 1e6, "clip_reward": 1e6}

AGENTS: dict[str, tuple[Any, Any, str, dict[str, Any]]] = {
    "ppo2": (PPO2, SMALL, "CartPole-v1", {}),
    "ppo2_normalized": (PPO2, SMALL, "Pendulum-v1", {"normalize": True}),
    "ppo2_dict": (PPO2, {"encoder": "multi", "features_dim": 16}, "Zoo/IdentityDict-v0", {}),
    "pqn": (PQN, SMALL, "CartPole-v1", {}),
    "ppo2_image": (PPO2, {"encoder": "cnn", "features_dim": 16}, "Zoo/IdentityImage-v0", {}),
    "a2c_bits": (A2C, SMALL, "Zoo/IdentityMultiBinary-v0", {}),
    "a2c_choices": (A2C, SMALL, "Zoo/IdentityMultiDiscrete-v0", {}),
    "dqn": (DQN, SMALL, "Zoo/IdentityDiscrete-v0", {}),
    "qrdqn_image": (QRDQN, {"encoder": "cnn", "features_dim": 16}, "Zoo/IdentityImage-v0", {}),
    "sac_normalized": (SAC, SMALL, "Pendulum-v1", {"normalize": True}),
    "td3": (TD3, SMALL, "Pendulum-v1", {}),
    "tqc": (TQC, SMALL, "Pendulum-v1", {}),
    "crossq": (CrossQ, SMALL, "Pendulum-v1", {}),
    "ddpg": (DDPG, SMALL, "Pendulum-v1", {}),
}


def make(name: str, *, n_envs: int = 2, seed: int = 0) -> Algorithm:
    algorithm, policy, env_id, options = AGENTS[name]
    hyperparameters: dict[str, Any] = (
        {"n_steps": 16} if algorithm in (PPO2, A2C, PQN) else {"learning_starts": 20}
    )
    if algorithm not in (PPO2, A2C, PQN):
        hyperparameters |= {"buffer_size": 200, "batch_size": 32}
    if algorithm in (TD3, DDPG):
        hyperparameters |= {"train_freq": 4, "gradient_steps": 4}
    envs = make_vec_env(env_id, n_envs, **options)
    return algorithm(policy, envs, seed=seed, compile=False, threads=1, **hyperparameters)


def observations(model: Algorithm, n: int = 7) -> Any:
    space = model.observation_space
    space.seed(3)
    rows = [space.sample() for _ in range(n)]
    if isinstance(space, spaces.Dict):
        return {key: np.stack([np.asarray(row[key]) for row in rows]) for key in space.spaces}
    return np.clip(np.stack([np.asarray(row) for row in rows]), -100, 255).astype(space.dtype)


def row(batch: Any, i: int) -> Any:
    return {key: part[i] for key, part in batch.items()} if isinstance(batch, dict) else batch[i]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("ppo2", np.zeros(5), r"shape \(5,\) are neither one of shape \(4,\) nor a batch"),
        ("ppo2", np.zeros((2, 5)), r"shape \(2, 5\) are neither one of shape \(4,\) nor a batch"),
        ("ppo2", 0.0, r"shape \(\) are neither one of shape \(4,\) nor a batch"),
        ("ppo2_image", np.zeros((36, 36), np.uint8), r"are neither one of shape \(36, 36, 1\)"),
        ("ppo2_dict", np.zeros(2), "expected a dictionary of observations"),
        ("ppo2_dict", {"vector": np.zeros(2)}, "expected a dictionary of observations"),
        ("dqn", np.zeros((2, 1), np.int64), r"shape \(2, 1\) are neither one of shape \(\)"),
        ("ppo2", [0.0, np.nan, 0.0, 0.0], "`observations` has nan"),
        ("ppo2", [[0.0] * 4, [0.0, np.inf, 0.0, 0.0]], "`observations` has inf"),
        ("dqn", None, "`observations` are NoneType, not numbers"),
        ("dqn", 1.9, r"`observations` has 1.9, which is no int64; expected Discrete"),
        ("dqn", [0, 99], "99, which is not within 0 to"),
        ("parts", {"image": np.zeros((8, 4, 3), np.uint8), "n": 0}, r"`image` of shape \(8, 4, 3\)"),
        ("parts", {"image": np.zeros((4, 8, 3), np.uint8), "n": 1.9}, "`n` has 1.9"),
        ("parts", {"image": np.zeros((2, 4, 8, 3), np.uint8), "n": [0, 1, 2]}, "different sizes .*: 2.*: 3"),
        ("parts", {"image": np.full((4, 8, 3), 0.5), "n": 0}, "`image` has 0.5, which is no uint8"),
        ("parts", {"image": None, "n": 0}, "`image` are NoneType"),
    ],
)
def test_observations_of_another_shape_are_refused(name: str, given: Any, message: str) -> None:
    with pytest.raises(ZooError, match=message):
        (model_of_parts() if name == "parts" else make(name)).predict(given)


def model_of_parts() -> PPO2:
    image = spaces.Box(0, 255, (4, 8, 3), np.uint8)
    parts = {"observation_space": spaces.Dict(image=image, n=spaces.Discrete(3))}
    return PPO2("MlpPolicy", **parts, action_space=spaces.Discrete(2), compile=False)


# Probabilities
def test_probabilities_of_discrete_actions() -> None:
    model = make("ppo2").learn(200)
    assert isinstance(model, PPO2)
    batch = observations(model)
    probabilities = model.action_probability(batch)
    assert probabilities.shape == (7, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert (probabilities.argmax(1) == model.predict(batch)[0]).all()
    np.testing.assert_allclose(model.action_probability(batch[0]), probabilities[0], rtol=1e-5)
    drawn = np.stack([model.predict(batch, deterministic=False)[0] for _ in range(2000)])
    np.testing.assert_allclose(drawn.mean(0), probabilities[:, 1], atol=0.06)


# Saving and loading
@pytest.mark.parametrize("name", AGENTS)
def test_loaded_agent_acts_as_saved_and_keeps_learning(name: str, tmp_path: Path) -> None:
    model = make(name).learn(64)
    batch = observations(model)
    expected, state = model.predict(batch)
    assert state is None
    for i in range(7):
        action, _ = model.predict(row(batch, i))
        assert model.action_space.contains(action) or model.action_space.contains(np.asarray(action))
        np.testing.assert_allclose(action, expected[i], rtol=1e-4, atol=1e-5)
    path = model.save(tmp_path / ("agent.zip" if "ppo2" in name else "agent"))
    before = model.get_parameters()
    env = make_vec_env(AGENTS[name][2], 2)
    for loaded in (type(model).load(path), zoo.load(path, env=env, seed=1, compile=False)):
        assert type(loaded) is type(model)
        assert (loaded.num_timesteps, loaded.config) == (model.num_timesteps, model.config)
        np.testing.assert_array_equal(loaded.predict(batch)[0], expected)
        assert all(np.array_equal(before[key], value) for key, value in loaded.get_parameters().items())
        assert_targets_follow(loaded)
    loaded.learn(64)
    assert any(not np.array_equal(before[key], value) for key, value in loaded.get_parameters().items())


def assert_targets_follow(model: Algorithm) -> None:
    """Target networks are equal to the online ones."""
    state = model.runner.state
    online = {"target": state.get("q_network", state.get("critics"))}
    online |= {f"target_{name}": state.get(name) for name in ("actor", "critics")}
    assert all(torch.equal(state[name], online[name]) for name in online if name in state)


# Parameters
@pytest.mark.parametrize("name", ["dqn", "td3", "tqc", "ddpg"])
def test_parameters_go_from_one_agent_to_another(name: str, tmp_path: Path) -> None:
    source, other = make(name, seed=1).learn(64), make(name, seed=2)
    batch = observations(source)
    other.set_parameters(source.get_parameters())
    np.testing.assert_array_equal(other.predict(batch)[0], source.predict(batch)[0])
    assert_targets_follow(other)
    read = make(name, seed=3)
    read.set_parameters(source.save(tmp_path / "agent"))  # a path, as SB3 takes one
    np.testing.assert_array_equal(read.predict(batch)[0], source.predict(batch)[0])
    with pytest.raises(ZooError, match="parameters are a list; expected arrays by name, or an agent's path"):
        read.set_parameters([])


def test_wrong_parameters_are_refused_without_change() -> None:
    model = make("ppo2")
    before = model.get_parameters()
    changed = {name: value + 1 for name, value in before.items()}
    missing = {name: value for name, value in changed.items() if name != "actor.0.bias"}
    with pytest.raises(ZooError, match=r"actor\.0\.bias is missing"):
        model.set_parameters(missing)
    with pytest.raises(ZooError, match=r"actor\.9\.bias is not part of the policy"):
        model.set_parameters({**changed, "actor.9.bias": np.zeros(3)})
    with pytest.raises(ZooError, match=r"actor\.0\.bias has shape \[3\], expected \[8\]"):
        model.set_parameters({**changed, "actor.0.bias": np.zeros(3)})
    with pytest.raises(ZooError, match=r"actor\.9\.bias is not part of the policy"):
        model.set_parameters({"actor.9.bias": np.zeros(3)}, exact_match=False)
    with pytest.raises(ZooError) as refusal:
        model.set_parameters({})
    assert "config.yaml" not in str(refusal.value)
    assert all(np.array_equal(value, before[name]) for name, value in model.get_parameters().items())
    model.set_parameters({"actor.0.bias": changed["actor.0.bias"]}, exact_match=False)
    assert np.array_equal(model.get_parameters()["actor.0.bias"], changed["actor.0.bias"])
    assert np.array_equal(model.get_parameters()["actor.0.weight"], before["actor.0.weight"])


# Environments
def test_set_env_refuses_other_spaces_without_change() -> None:
    model = make("ppo2_normalized").learn(64)
    env, batch = model.get_env(), observations(model)
    expected, _ = model.predict(batch)
    for other, message in (
        ("CartPole-v1", "the observations of the agent"),
        ("MountainCarContinuous-v0", "the observations of the agent"),
        (
            gym.wrappers.RescaleAction(gym.make("Pendulum-v1"), -1.0, 1.0),
            r"actions .* low\[0\] -2.0 is",
        ),
    ):
        with pytest.raises(ZooError, match=message):
            model.set_env(other)
        assert model.get_env() is env
        assert model.normalizer is not None
        np.testing.assert_array_equal(model.predict(batch)[0], expected)
    model.learn(64)


def with_bounds(env_id: str, low: float, high: float) -> gym.Env[Any, Any]:
    env = gym.make(env_id)
    space: Any = env.observation_space
    env.observation_space = spaces.Box(low, high, space.shape, space.dtype)
    return env


@pytest.mark.parametrize("bound", [np.inf, np.finfo(np.float32).max, 50.0])
def test_other_bounds_of_observations_are_told(bound: float, tmp_path: Path) -> None:
    model = make("ppo2")
    env = with_bounds("CartPole-v1", -bound, bound)
    with pytest.warns(ZooWarning, match=r"bounds differ from the agent's \(low\[0\] -4.8 is not "):
        model.set_env(env)
    with pytest.warns(ZooWarning, match=r"low\[0\]"):
        zoo.load(model.learn(32).save(tmp_path / "agent"), env).learn(32)


def test_bounds_that_make_no_image_are_refused() -> None:
    with pytest.raises(ZooError, match=r"high.* 255 is not 200"):
        make("ppo2_image").set_env(with_bounds("Zoo/IdentityImage-v0", 0, 200))


@pytest.mark.parametrize(
    "env",
    [
        "CartPole-v1",
        lambda: gym.make("CartPole-v1"),
        gym.make("CartPole-v1"),
        make_vec_env("CartPole-v1", 2),
        gym.make_vec("CartPole-v1", 2),
        EnvConfig(id="CartPole-v1", max_episode_steps=7),
    ],
    ids=["id", "function", "env", "own", "gymnasium", "config"],
)
def test_environments_come_in_every_form(env: Any) -> None:
    model = A2C(SMALL, env, seed=0, compile=False).learn(30)
    assert model.num_timesteps >= 30
    if isinstance(env, EnvConfig):
        assert all(episode.length <= 7 for episode in model.recent_episodes)


# Mistakes
@pytest.mark.parametrize(
    ("algorithm", "env", "arguments", "message"),
    [
        (PPO2, "CartPole-v1", {"learning_rat": 1e-3}, r"did you mean `PPO2\.learning_rate`\?"),
        (PPO2, "CartPole-v1", {"lam": 0.9}, "it is `PPO2.gae_lambda` here"),
        (PPO2, "CartPole-v1", {"gamma": 2}, r"`PPO2\.gamma=2` is out of range"),
        (PPO2, "CartPole-v1", {"learning_rate": "fast_1"}, "unknown schedule 'fast'"),
        (PPO2, "CartPole-v1", {"policy": "MlpPolcy"}, "did you mean 'MlpPolicy'"),
        (PPO2, "CartPole-v1", {"policy": "CnnPolicy"}, "CnnPolicy reads images"),
        (PPO2, "CartPole-v1", {"config": PPO2Config(), "gamma": 0.9}, "by name or as `config`, not both"),
        (PPO2, None, {}, "PPO2 needs an env"),
        (PPO2, "CartPol-v1", {}, "CartPole-v1"),
        (PPO2, "CartPole-v1", {"seed": -1}, "seed=-1: expected a whole number, 0 or more"),
        (PPO2, "CartPole-v1", {"seed": 1.5}, "seed=1.5: expected a whole number, 0 or more"),
        (PPO2, "CartPole-v1", {"device": "tpu"}, "`device=tpu` is not one of"),
    ],
)
def test_mistakes_are_told(algorithm: Any, env: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        algorithm(**{"policy": "MlpPolicy", "env": env, **arguments})


def test_policy_given_twice_is_told_beside_options() -> None:
    with pytest.raises(ZooError, match="multiple values for argument 'policy'"):
        PPO2("CartPole-v1", policy="MlpPolicy", batch_size=64)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_unsupported_actions_error_lists_algorithms(env_id: str) -> None:
    refused, taken = {}, []
    for name in ALGORITHMS:
        try:
            algorithm_class(name)(SMALL, env_id)
            taken.append(name)
        except ZooError as error:
            refused[name] = str(error)
    kinds = ("Box", "Discrete") if env_id == "CartPole-v1" else ("Discrete", "Box")
    assert {"a2c", "ppo2"} < set(taken)
    assert refused
    for name, message in refused.items():
        assert message.startswith(f"{name} acts in {kinds[0]} spaces, but the env's actions are {kinds[1]}(")
        assert message.endswith(f"; {', '.join(taken)} can take them")


def test_predict_accepts_every_form_of_choice_masks() -> None:
    model = make("a2c_choices")
    batch = observations(model)
    rng = np.random.default_rng(0)
    masks = [(rng.permutation(3) < 1, rng.permutation(2) < 1) for _ in range(7)]
    expected = [[int(part.argmax()) for part in mask] for mask in masks]
    rows = np.array([np.concatenate(mask) for mask in masks])
    for given in (masks, [list(mask) for mask in masks], rows, list(rows), rows.tolist(), rows.astype(int)):
        assert model.predict(batch, action_masks=given)[0].tolist() == expected
    for one in (masks[0], [part.tolist() for part in masks[0]], rows[0], rows[:1], rows[0].tolist()):
        assert model.predict(batch[0], action_masks=one)[0].tolist() == expected[0]
        probabilities = model.action_probability(batch[0], action_masks=one)
        assert [each.argmax() for each in probabilities] == expected[0]
        assert all(each.max() == pytest.approx(1.0) for each in probabilities)


def test_predict_without_trained_masks_warns_once(tmp_path: Path) -> None:
    model = PPO2({"net_arch": [8]}, "Zoo/Masked-v0", seed=0, compile=False, n_steps=16).learn(16)
    loaded = PPO2.load(model.save(tmp_path / "agent"))
    seen = np.zeros(model.observation_space.shape, np.float32)
    mask = np.arange(model.action_space.n) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.predict(seen, action_masks=mask)[0] == 2
        assert make("ppo2").learn(1).predict(np.zeros(4, np.float32))[0] in (0, 1)
    for agent in (model, loaded):
        with pytest.warns(ZooWarning, match="called without `action_masks`") as told:
            agent.predict(seen)
        assert [warning.filename for warning in told] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            agent.predict(seen)
            agent.action_probability(seen)


def test_recurrent_action_probability_follows_state() -> None:
    policy = {"net_arch": [8], "recurrent": "lstm", "lstm_hidden_size": 8, "ortho_init": False}
    model = A2C(policy, "CartPole-v1", seed=1, compile=False, n_steps=8)
    seen, state = np.array([[1.0, 2.0, 1.0, -2.0], [0.0, 1.0, 0.0, 1.0]], np.float32), None
    for _ in range(6):
        _, state = model.predict(seen, state)
    at_first, later = model.action_probability(seen), model.action_probability(seen, state)
    assert np.abs(at_first - later).max() > 1e-3
    parameters, _ = model.acting.parameters({"observations": seen}, state)
    np.testing.assert_allclose(later, model.acting.head.describe(parameters), rtol=1e-5)
    one_starts = model.action_probability(seen, state, np.array([True, False]))
    np.testing.assert_allclose(one_starts, [at_first[0], later[1]], rtol=1e-5)
    np.testing.assert_allclose(model.action_probability(seen[0], state[:1]), later[0], rtol=1e-5)
    with pytest.raises(ZooError, match="`state` of shape"):
        model.action_probability(seen[0], state)


@pytest.mark.parametrize(
    ("normalize", "expected"), [(False, None), (True, 0.5), ({"gamma": 0.9}, 0.9)], ids=str
)
def test_loaded_gamma_applies_to_reward_normalization(
    normalize: Any, expected: float | None, tmp_path: Path
) -> None:
    env = EnvConfig(id="Pendulum-v1", normalize=normalize)
    model = PPO2(SMALL, env, n_envs=1, n_steps=16, seed=0, compile=False, threads=1)
    loaded = zoo.load(model.save(tmp_path / "agent"), gamma=0.5)
    assert loaded.config.gamma == 0.5
    assert (None if loaded.normalizer is None else loaded.normalizer.gamma) == expected


# -- What models, their methods and callbacks have elsewhere works, or is answered with what is meant -----
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_model_is_pickled_after_it_learned_and_acted(copied: Any) -> None:
    model = make("ppo2").learn(64)
    batch = observations(model)
    again = copied(model)
    assert np.array_equal(again.predict(batch)[0], model.predict(batch)[0])
    assert (again.num_timesteps, again.seed, again.config) == (64, 0, model.config)
    assert again.get_env() is None
    again.set_env("CartPole-v1")
    again.learn(32, reset_num_timesteps=False)
    assert again.num_timesteps == 96


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("logger", "LoggingCallback"),
        ("env", "get_env"),
        ("rollout_buffer", "model.buffer"),
        ("nothing", "nothing'$"),
    ],
)
def test_attributes_of_peers_are_answered(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=meant):
        getattr(make("ppo2"), name)


@pytest.mark.parametrize(
    ("agent", "rate"), [("ppo2", "learning_rate"), ("dqn", "learning_rate"), ("ddpg", "actor_learning_rate")]
)
def test_rates_are_others_from_the_next_update_on(agent: str, rate: str, tmp_path: Path) -> None:
    model = make(agent).learn(64)
    before = model.get_parameters()
    setattr(model, rate, 0.0)
    model.learn(64, reset_num_timesteps=False)
    after = model.get_parameters()
    actors = [name for name in after if "critic" not in name]
    assert all(np.array_equal(before[name], after[name]) for name in actors)
    assert getattr(zoo.load(model.save(tmp_path / "agent")), rate) == 0.0
    setattr(model, rate, 0.25)
    model.learn(64, reset_num_timesteps=False)
    assert any((after[name] != model.get_parameters()[name]).any() for name in actors)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("n_epochs", 0, "at least 1"),
        ("clip_range", -0.1, "more than 0"),
        ("learning_rate", lambda progress: 1e-3, "lin_3e-4"),
        ("n_epochs", 3, "n_epochs=…"),
        ("gamma", 0.9, "gamma=…"),
        ("clip_range_vf", 0.2, "clip_range_vf=…"),
        ("policy", None, "fixed"),
        ("logger", None, "fixed"),
        ("learning_rat", 1e-3, "learning_rate"),
        ("exploration_rate", 1.0, "no attribute"),
    ],
)
def test_what_would_do_nothing_is_not_taken(name: str, value: Any, named: str) -> None:
    model = make("ppo2")
    config = model.config
    with pytest.raises(ZooError, match=f"(?s){name}.*{named}|{named}.*{name}"):
        setattr(model, name, value)
    assert model.config is config


def test_private_and_subclass_attributes_can_be_set() -> None:
    class Counting(DQN):
        def update(self) -> None:
            self.counted = getattr(self, "counted", 0) + 1
            super().update()

    model = Counting("MlpPolicy", "CartPole-v1", learning_starts=8, batch_size=8, compile=False).learn(32)
    assert model.counted > 0
    agent = make("ppo2")
    agent._mine, agent.predict = 1, len  # type: ignore[attr-defined, assignment]
    assert (agent._mine, agent.predict("ab")) == (1, 2)  # type: ignore[attr-defined, call-arg, arg-type]


def test_objects_show_what_they_are() -> None:
    model = make("dqn", n_envs=2, seed=7).learn(64)
    shown = repr([model, model.envs, model.buffer, make("ppo2").buffer])
    for part in (
        "<DQN on Zoo/IdentityDiscrete-v0: MlpPolicy, 2 envs, 64 steps, seed 7>",
        "<ReplayableAdapter of SyncVecEnv(",
        "<ReplayBuffer: 64 of 200 transitions, 2 envs>",
        "<RolloutBuffer: 16 steps × 2 envs>",
    ):
        assert part in shown


@pytest.mark.parametrize("name", PRESETS)
def test_preset_keeps_its_name(name: str, tmp_path: Path) -> None:
    preset = getattr(zoo, name)
    continuous = "Continuous" if preset.name not in ("ppo2", "dqn", "c51") else ""
    env, policy = f"Zoo/BitFlipping{continuous}-v0", "MultiInputPolicy"
    own = {"recurrent_ppo": "MultiInputLstmPolicy", "droq": "DroQPolicy", "simba": "SimbaPolicy"}
    own["simba_v2"] = "SimbaV2Policy"
    policy = own.get(name, policy)
    with pytest.raises(ZooError, match=rf"`{CLASS_NAMES[name]}\.learning_rat`"):
        preset(policy, env, learning_rat=1)
    small = {"buffer_size": 100} if preset.has_replay else {}
    path = preset(policy, env, seed=0, **small).save(tmp_path / "agent")
    model = zoo.load(path, env)
    assert repr(model).startswith(f"<{CLASS_NAMES[name]} on {env}")
    assert f"# {name} on {env}\n" in (path / "README.md").read_text()
    with pytest.raises(ZooError, match=f"an agent of {name}, not of a2c"):
        A2C.load(path)


@pytest.mark.parametrize("callback", [3, [Callback], object(), lambda algorithm: True])
def test_callback_that_is_none_is_told(callback: Any) -> None:
    with pytest.raises(ZooError, match=r"^callback|<lambda>\(…\) takes 1 pos"):
        make("ppo2").learn(64, callback)


def test_arguments_of_peers_are_refused_with_advice(tmp_path: Path) -> None:
    model = make("ppo2")
    with pytest.raises(ZooError, match=r"did you mean `learn\.callback`"):
        model.learn(64, calback=None)
    path = model.save(tmp_path / "agent")
    for name, meant in {
        "custom_objects": "its spaces are those of env=",
        "print_system_info": "doctor",
    }.items():
        with pytest.raises(ZooError, match=meant):
            zoo.load(path, **{name: True})
    with pytest.raises(ZooError, match="vectorization"):
        make_vec_env("CartPole-v1", vec_env_cls=object)


def test_recurrent_ppo_needs_a_recurrent_policy(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match="policy=MlpLstmPolicy"):
        zoo.RecurrentPPO("MlpPolicy", "CartPole-v1", compile=False)
    recurrent = zoo.RecurrentPPO("MlpLstmPolicy", "CartPole-v1", compile=False)
    assert zoo.RecurrentPPO.load(recurrent.save(tmp_path / "agent")).config == recurrent.config


def test_what_was_normalised_is_given_back() -> None:
    model = PPO2(SMALL, make_vec_env("Pendulum-v1", 2, normalize=UNCLIPPED), n_steps=8).learn(16)
    normalizer = model.get_vec_normalize_env()
    assert normalizer is not None
    seen, rewards = observations(model), np.array([-3.0, -8.0])
    np.testing.assert_allclose(
        normalizer.unnormalize_obs(normalizer.normalize_observations(seen)), seen, rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(
        normalizer.unnormalize_reward(normalizer.normalize_rewards(rewards)), rewards, rtol=1e-5
    )


# -- Classes of presets: the same as ``algo=`` of that name is on the command line ------------------------
@pytest.mark.parametrize("preset", PRESETS)
def test_preset_is_what_the_command_line_makes(preset: str) -> None:
    found = getattr(zoo, CLASS_NAMES[preset])
    config = zoo.compose("train", [f"algo={preset}", "env=CartPole-v1", "tuned=none"])
    values = {key: value for key, value in config.algo.items() if key not in ALGO_LABELS}
    assert dataclasses.asdict(found.config_class()) == values
    assert (found.name, found.of_preset) == (config.algo.name, preset)
    assert found.usual_policy == config.policy.name
    assert getattr(zoo, preset) is found


def test_recurrent_ppo_remembers_and_her_relabels() -> None:
    model = zoo.RecurrentPPO(env="CartPole-v1", compile=False, threads=1)
    assert model.policy_config.recurrent == "lstm"
    from zoo.envs.toys import BitFlipping

    relabelling = zoo.HerDQN("MultiInputPolicy", BitFlipping, compile=False, threads=1)
    assert relabelling.replay_config.hindsight is not None
    with_more = zoo.HerDQN("MultiInputPolicy", BitFlipping, replay={"n_step": 2, "prioritized": {}})
    assert with_more.replay_config.n_step == 2
    assert with_more.replay_config.prioritized is not None
    assert with_more.replay_config.hindsight is not None
    plain = zoo.HerDQN("MultiInputPolicy", BitFlipping, replay={"hindsight": None})
    assert plain.replay_config.hindsight is None


# -- Stable-Baselines3's arguments --------------------------------------------------------------------------
class Doubled(zoo.BaseFeaturesExtractor):
    """Returns the observation twice."""

    def __init__(self, observation_space: Any, features_dim: int = 8) -> None:
        super().__init__(observation_space, features_dim)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return torch.cat([observations, observations], -1)


@pytest.mark.parametrize(
    ("algorithm", "policy_kwargs", "expected"),
    [
        (PPO2, {"net_arch": {"pi": [8], "vf": [9]}}, {"net_arch": {"pi": [8], "vf": [9]}}),
        (PPO2, {"net_arch": [{"pi": [8], "vf": [9]}]}, {"net_arch": {"pi": [8], "vf": [9]}}),
        (PPO2, {"net_arch": [5, {"pi": [8]}]}, {"net_arch": {"shared": [5], "pi": [8]}}),
        (PPO2, {"activation_fn": torch.nn.LeakyReLU}, {"activation": "leaky_relu"}),
        (
            PPO2,
            {"activation_fn": "nn.ReLU", "ortho_init": False},
            {"activation": "relu", "ortho_init": False},
        ),
        (PPO2, {"share_features_extractor": False, "log_std_init": -2}, {"share_encoder": False}),
        (PPO2, {"features_extractor_class": Doubled}, {"encoder": {"_target_": f"{__name__}.Doubled"}}),
        (zoo.RecurrentPPO, {"lstm_hidden_size": 8}, {"lstm_hidden_size": 8, "recurrent": "lstm"}),
        (TQC, {"n_critics": 3, "n_quantiles": 7, "net_arch": [8]}, {"net_arch": [8]}),
        (SAC, {"net_arch": {"pi": [4], "qf": [5]}}, {"net_arch": {"pi": [4], "qf": [5]}}),
    ],
)
def test_policy_kwargs_are_fields(algorithm: Any, policy_kwargs: Any, expected: dict[str, Any]) -> None:
    env = "Pendulum-v1" if algorithm.has_replay else "CartPole-v1"
    model = algorithm(env=env, compile=False, policy_kwargs=policy_kwargs)
    fields = dataclasses.asdict(model.policy_config)
    assert {name: fields[name] for name in expected} == expected
    if algorithm is TQC:
        assert (model.n_critics, model.n_quantiles) == (3, 7)
        assert len(model.policy.critics.critics) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: zoo.PPO("MlpPolicy", "CartPole-v1", 3e-4, 64), r"PPO\(…\) takes from 1 to 4 positional"),
        (lambda: zoo.PPO("MlpPolicy", "CartPole-v1", bogus=1), "`PPO.bogus`"),
        (lambda: zoo.PPO("MlpPolicy", "CartPole-v1", tensorboard_lo=1), "`PPO.tensorboard_log`"),
        (
            lambda: zoo.PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"optimizer_class": 1}),
            "the optimizer is",
        ),
        (lambda: zoo.PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arh": []}), "PPO.*net_arch`"),
        (lambda: zoo.PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"activation_fn": zoo.PPO}), "activation"),
        (lambda: zoo.PPO("MlpPolicy", "CartPole-v1", policy_kwargs="dict()"), "expected a dictionary"),
        (lambda: zoo.PPO("MlpPolcy", "CartPole-v1", policy_kwargs={}), "MlpPolicy"),
        (lambda: DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"n_critics": 2}), "DQN.*n_critics"),
        (lambda: SAC(env="Pendulum-v1", policy_kwargs={"share_features_extractor": True}), "SAC.*share"),
        (lambda: make("ppo2").learn(), "learn.*total_timesteps"),
        (
            lambda: make("ppo2").learn(64, None, 1, "x", True, False, 3),
            r"learn\(…\) takes from 2 to 7 positional",
        ),
        (lambda: make("ppo2").learn(64, tb_log_name="x"), "tensorboard_log"),
        (lambda: make("ppo2").save("x", exclude=["gamma"]), "exclude.*gamma"),
        (lambda: make("ppo2").save("x", include=["policy"]), "`save.include`"),
        (lambda: make("ppo2").predict(observation=np.zeros(4)), "observations"),
        (lambda: PPO2.load("x", None, "cpu"), r"load\(…\) takes from 2 to 3 positional"),
        (
            lambda: type("Mine", (Callback,), {"_on_step": lambda self: True}),
            r"Mine\._on_step.*on_steps.*record",
        ),
    ],
)
def test_argument_that_is_not_taken_is_named(call: Any, message: str) -> None:
    with pytest.raises((ZooError, AttributeError), match=message):
        call()


def test_verbose_and_tensorboard_log_let_learn_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged: list[int] = []
    model = PPO2(SMALL, "CartPole-v1", 1e-3, n_steps=16, compile=False, verbose=1, tensorboard_log=tmp_path)
    assert model.learning_rate == 1e-3
    model.learn(64, lambda locals_, globals_: logged.append(locals_["self"].num_timesteps), log_interval=2)
    model.learn(64, tb_log_name="mine", reset_num_timesteps=False)
    model.learn(64, reset_num_timesteps=False)
    assert logged == [16, 32, 48, 64]
    assert "total_timesteps" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["PPO2_1", "mine_1"]
    assert len(list((tmp_path / "PPO2_1").iterdir())) == 2
    PPO2.load(model.save(tmp_path / "agent", exclude=["replay_buffer"]), "CartPole-v1").learn(16)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("agent", "expected"), [("ppo2", [64, 128]), ("dqn", [2, 4])])
def test_log_interval_counts_updates_or_episodes(agent: str, expected: list[int]) -> None:
    model = make(agent)
    counts: list[int] = []

    class Noted(zoo.Logger):
        def write(self, entry: Any) -> None:
            counts.append(model.n_episodes if agent == "dqn" else entry.timesteps)

    from zoo.experiment.loggers import LogInterval

    logging = zoo.LoggingCallback(0, [Noted()])
    model.learn(128, [logging, LogInterval(2, logging)])
    assert counts[:2] == expected


def test_function_that_returns_false_ends_the_training() -> None:
    assert make("ppo2").learn(320, lambda locals_, _: locals_["self"].num_timesteps < 96).num_timesteps == 96


@pytest.mark.parametrize("wrapped", [False, True])
def test_callback_that_returns_false_ends_training(wrapped: bool) -> None:
    class Stop(zoo.Callback):
        every = 64

        def on_steps(self, algorithm: Any) -> bool:
            return algorithm.num_timesteps < 96

    evaluation = zoo.EvalCallback("CartPole-v1", every=64, n_eval_episodes=1, callback_after_eval=Stop())
    callback = evaluation if wrapped else Stop()
    assert make("ppo2").learn(320, callback).num_timesteps == 128
    if wrapped:
        assert evaluation.last is not None
        assert evaluation.last_mean_reward == evaluation.last.mean
        assert evaluation.best_mean_reward == evaluation.best_mean >= evaluation.last.mean


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"total_timesteps": 1.5}, "whole"),
        ({"log_interval": 0}, "at least 1"),
        ({"log_interval": -1}, "at least 1"),
    ],
)
def test_learn_refuses_counts(arguments: dict[str, Any], message: str) -> None:
    model = make("ppo2").learn(64)
    with pytest.raises(ZooError, match=message):
        model.learn(**{"total_timesteps": 64, **arguments})
    assert model.num_timesteps == 64


def test_evaluation_alone_calls_its_callbacks(tmp_path: Path) -> None:
    called: list[str] = []
    evaluation = zoo.EvalCallback(
        "CartPole-v1",
        every=64,
        n_eval_episodes=1,
        callback_on_new_best=zoo.CheckpointCallback(save_freq=1, save_path=tmp_path),
        callback_after_eval=lambda *_: called.append("after"),
    )
    make("ppo2").learn(320, evaluation)
    assert len(called) == evaluation.n_evaluations == 5
    assert 1 <= len(list(tmp_path.glob("*.zip"))) <= 5


def test_loaded_dqn_fills_buffer_across_learn_calls(tmp_path: Path) -> None:
    path = make("dqn", n_envs=1).learn(40).save(tmp_path / "agent")
    counts = []
    for pieces in ([60], [30, 30]):
        model = zoo.load(path, AGENTS["dqn"][2], learning_starts=50, compile=False)
        before = model.n_updates
        for steps in pieces:
            model.learn(steps, reset_num_timesteps=False)
        counts.append(model.n_updates - before)
    assert counts[0] == counts[1] > 0


def test_policy_predicts_as_its_model() -> None:
    model = make("ppo2")
    batch = observations(model)
    assert np.array_equal(model.policy.predict(batch)[0], model.predict(batch)[0])
    alone = copy.deepcopy(model.policy)
    with pytest.raises(ZooError, match="model"):
        alone.predict(batch)
