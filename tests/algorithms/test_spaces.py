"""Algorithms in all kinds of observation and action spaces."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, distributions, nn
from toy_envs import ARM_AND_BITS

import zoo
from zoo import (
    A2C,
    ACER,
    ARS,
    DDPG,
    DQN,
    IQN,
    PPO1,
    PPO2,
    PQN,
    QRDQN,
    SAC,
    TD3,
    TQC,
    TRPO,
    CrossQ,
    make_vec_env,
)
from zoo.errors import ZooError

# -- Every algorithm learns from every kind of observation, stored and normalised as it should be ---------

IMAGE = spaces.Box(0, 255, (3, 36, 40), np.uint8)
WIDE = spaces.Box(-1e3, 1e3, (2,), np.float64)

KINDS: dict[str, tuple[spaces.Space[Any], Any]] = {
    "single": (spaces.Box(-1.0, 1.0, (), np.float32), {"net_arch": [8]}),
    "table": (spaces.Box(-1.0, 1.0, (2, 3), np.float32), {"net_arch": [8]}),
    "double": (WIDE, {"net_arch": [8]}),
    "whole": (spaces.Box(-9, 9, (3,), np.int64), {"net_arch": [8]}),
    "number": (spaces.Discrete(3, start=-1), {"net_arch": [8]}),
    "numbers": (spaces.MultiDiscrete([2, 3]), {"net_arch": [8]}),
    "bits": (spaces.MultiBinary(3), {"net_arch": [8]}),
    "image": (IMAGE, {"encoder": "cnn", "features_dim": 8}),
    "flat_image": (spaces.Box(0, 255, (4, 4, 1), np.uint8), {"net_arch": [8], "flatten_images": True}),
    "small_image": (spaces.Box(0, 255, (4, 4, 1), np.uint8), {}),
    "board": (spaces.Box(0, 1, (5, 4, 2), bool), {"features_dim": 8}),
    "dict": (
        spaces.Dict({"image": IMAGE, "wide": WIDE, "number": spaces.Discrete(3, start=-1)}),
        {"encoder": "multi", "features_dim": 8, "net_arch": [8]},
    ),
}

CHOICE, NUMBERS = spaces.Discrete(3, start=1), spaces.Box(-1.0, 3.0, (2, 1), np.float64)
SHORT = {"n_steps": 8, "n_epochs": 1}
ACER_REPLAY = {"n_steps": 4, "buffer_size": 40, "replay_start": 10}
REPLAY = {"learning_starts": 10, "batch_size": 4, "train_freq": 8, "buffer_size": 40}
UNITS = {"normalize_returns": True, "enable_popart": True, "parameter_noise": {}}

ALGORITHMS: dict[str, tuple[Any, spaces.Space[Any], dict[str, Any]]] = {
    "ppo2": (PPO2, spaces.MultiDiscrete([2, 3]), SHORT),
    "a2c": (A2C, spaces.MultiBinary((2, 2)), {}),
    "acer": (ACER, CHOICE, ACER_REPLAY),
    "acer_box": (ACER, NUMBERS, ACER_REPLAY),
    "ars": (ARS, NUMBERS, {"n_delta": 1, "zero_policy": False}),
    "ppo1": (PPO1, CHOICE, {**SHORT, "batch_size": 8}),
    "trpo": (TRPO, spaces.MultiDiscrete([2, 3]), {"n_steps": 8, "batch_size": 8, "n_critic_updates": 1}),
    "pqn": (PQN, CHOICE, {**SHORT, "batch_size": 8}),
    "dqn": (DQN, CHOICE, REPLAY),
    "dqn_once": (DQN, CHOICE, {**REPLAY, "optimize_memory_usage": True}),
    "qrdqn": (QRDQN, CHOICE, {**REPLAY, "n_quantiles": 5, "dueling": True}),
    "iqn": (IQN, CHOICE, {**REPLAY, "n_quantiles": 5, "munchausen": {}}),
    "ddpg": (DDPG, NUMBERS, {**REPLAY, **UNITS, "gradient_steps": 2}),
    "sac": (SAC, NUMBERS, REPLAY),
    "sac_choice": (SAC, CHOICE, REPLAY),
    "sac_choices": (SAC, spaces.MultiDiscrete([2, 3], start=[1, 0]), REPLAY),
    "td3": (TD3, NUMBERS, {**REPLAY, "gradient_steps": 3}),
    "tqc": (TQC, NUMBERS, REPLAY),
    "crossq": (CrossQ, NUMBERS, REPLAY),
}


class Samples(gym.Env[Any, Any]):
    """Shows samples of its space and checks each action; ends now as terminated, now as truncated."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self._n_episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._n_steps = 0
        self._n_episodes += 1
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self._n_steps += 1
        ends, odd = self._n_steps == 5, self._n_episodes % 2 == 1
        return self.observation_space.sample(), self.np_random.normal(), ends and odd, ends and not odd, {}


@pytest.mark.parametrize("kind", ["board", "flat_image"])
def test_agents_of_boards_act_the_same_when_loaded(kind: str, tmp_path: Path) -> None:
    observations, policy = KINDS[kind]
    observations.seed(1)
    options = {"observation_space": observations, "action_space": CHOICE, "seed": 7}
    model = PQN({**policy, "ortho_init": False}, **options)
    folder = model.save(tmp_path / "agent")
    rows = np.stack([observations.sample() for _ in range(50)])
    expected = model.predict(rows)[0]
    assert len(set(expected)) > 1
    np.testing.assert_array_equal(zoo.load(folder).predict(rows)[0], expected)
    path = folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    del config["policy"]["flatten_images"]  # as in an agent that was saved before there was a choice
    path.write_text(yaml.safe_dump(config))
    loaded = zoo.load(folder)
    assert loaded.policy_config.encoder == ("mlp" if kind == "flat_image" else "small_cnn")
    np.testing.assert_array_equal(loaded.predict(rows)[0], expected)


CELLS = [
    *(("ppo2", kind, "same_step") for kind in KINDS),
    *(("dqn_once", kind, "next_step") for kind in ("table", "double", "number", "image")),
    *(("sac", kind, "same_step") for kind in ("single", "whole", "numbers", "bits", "flat_image")),
    ("sac_choices", "image", "same_step"),
    *(
        (name, "board", "same_step")
        for name in ("acer", "dqn_once", "pqn", "sac", "sac_choice", "trpo", "ars")
    ),
    *((name, "dict", "next_step") for name in ALGORITHMS),
]


@pytest.mark.parametrize(("name", "kind", "autoreset"), CELLS)
def test_learning_from_every_kind_of_observation(name: str, kind: str, autoreset: str) -> None:
    algorithm, actions, hyperparameters = ALGORITHMS[name]
    observations, policy = KINDS[kind]

    def env() -> Samples:
        return Samples(observations, actions)

    envs: Any = (
        make_vec_env(env, 2, normalize=True, check=False)
        if autoreset == "same_step"
        else SyncVectorEnv([env] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    )
    model = algorithm(policy, envs, seed=0, compile=False, threads=1, learning_rate=0.01, **hyperparameters)
    before = model.get_parameters()
    model.learn(60)
    after = model.get_parameters()
    assert all(np.isfinite(value).all() for value in after.values())
    assert sum(not np.array_equal(before[name], after[name]) for name in after) > len(after) // 2
    action, _ = model.predict(observations.sample())
    assert actions.contains(np.asarray(action, actions.dtype))


# -- Actions of Tuple and Dict spaces: from the environment to the update, as if each part stood alone ----

SMALL = {"net_arch": [8]}


class Strict(gym.Env[Any, Any]):
    """Takes nothing but values of its action space, of exactly their types."""

    observation_space: Any = spaces.Box(-1.0, 1.0, (3,), np.float32)

    def __init__(self, action_space: Any = ARM_AND_BITS) -> None:
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.n_steps = 0
        return self._draw(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        assert type(action) is (tuple if isinstance(self.action_space, spaces.Tuple) else dict)
        self.n_steps += 1
        return self._draw(), float(self.np_random.normal()), False, self.n_steps == 7, {}

    def _draw(self) -> Any:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


def made(algorithm: Any, envs: Any, **options: Any) -> Any:
    batch_size = {"batch_size": 8} if algorithm in (PPO1, TRPO) else {}
    options = {"policy": SMALL, "n_steps": 8, **batch_size, **options}
    return algorithm(env=envs, seed=0, compile=False, threads=1, **options)


@pytest.mark.parametrize("algorithm", [A2C, PPO1])
def test_prediction_is_what_an_environment_takes(algorithm: Any, tmp_path: Path) -> None:
    model = made(algorithm, make_vec_env(Strict, 2)).learn(32)
    loaded = zoo.load(model.save(tmp_path / "agent"), Strict)
    assert loaded.action_space == ARM_AND_BITS
    env = Strict()
    observation, _ = env.reset(seed=0)
    vector_env = SyncVectorEnv([Strict] * 4)
    batch, _ = vector_env.reset(seed=0)
    for deterministic in (True, False):
        action, state = loaded.predict(observation, deterministic=deterministic)
        assert state is None
        env.step(action)
        actions, _ = loaded.predict(batch, deterministic=deterministic)
        assert vector_env.action_space.contains(actions)
        vector_env.step(actions)
    one, _ = loaded.predict(batch[1])
    many, _ = model.predict(batch)
    assert one["arm"][0] == many["arm"][0][1]
    np.testing.assert_allclose(one["arm"][1], many["arm"][1][1], rtol=1e-5)
    described = loaded.action_probability(observation)
    assert [len(described["arm"][0]), len(described["arm"][1]), len(described["bits"])] == [3, 2, 2]


def test_masks_of_parts_are_given_to_a_prediction() -> None:
    model = made(PPO2, make_vec_env("Zoo/MaskedComposite-v0", 2))
    seen = np.random.default_rng(0).random((50, 8)).astype(np.float32)
    masks = np.tile([False, False, True, True, False, False, True], (50, 1))
    for deterministic in (True, False):
        actions, _ = model.predict(seen, action_masks=masks, deterministic=deterministic)
        assert (actions["arm"][0] == 3).all()  # counted from 1
        assert (actions["bits"] == [0, 1]).all()
    assert len(np.unique(model.predict(seen, deterministic=False)[0]["arm"][0])) == 3
    nested = {"arm": ([False, False, True], None), "bits": np.array([[True, False], [False, True]])}
    for deterministic in (True, False):
        one, _ = model.predict(seen[0], action_masks=nested, deterministic=deterministic)
        assert (one["arm"][0], one["bits"].tolist()) == (3, [0, 1])
    both = [nested, {"arm": ([True, False, False], None)}]
    several, _ = model.predict(seen[:2], action_masks=both)
    assert several["arm"][0].tolist() == [3, 1]
    probabilities = model.action_probability(seen[:2], action_masks=both)["arm"][0]
    np.testing.assert_allclose(probabilities, [[0, 0, 1], [1, 0, 0]], atol=1e-6)
    for choice in (slice(0, 3), slice(3, 5), slice(5, 7)):  # of one choice, in one row
        masks = np.ones((50, 7), np.bool_)
        masks[7, choice] = False
        with pytest.raises(ZooError, match="forbids every action"):
            model.predict(seen, action_masks=masks)


def parts_by_hand(policy: Any, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies of the actions, part by part, as if they stood alone."""
    features = policy.actor(batch["observations"])
    arm, number, bits = (policy.head.heads[path] for path in ("arm/0", "arm/1", "bits"))
    of_arm, of_bits = batch["action_masks"].split([3, 4], -1)
    logits = arm.logits(features).masked_fill(~of_arm, -torch.inf)
    zero_or_one = torch.stack([torch.zeros(len(features), 2), bits.logits(features)], -1)
    zero_or_one = zero_or_one.masked_fill(~of_bits.reshape(-1, 2, 2), -torch.inf)
    actions = batch["actions"]
    chosen = distributions.Categorical(logits=logits)
    normal = distributions.Normal(number.mean(features), number.log_std.exp())
    drawn = distributions.Categorical(logits=zero_or_one)
    log_prob = chosen.log_prob(actions["arm/0"]) + normal.log_prob(actions["arm/1"]).sum(-1)
    entropy = chosen.entropy() + normal.entropy().sum(-1) + drawn.entropy().sum(-1)
    return log_prob + drawn.log_prob(actions["bits"].long()).sum(-1), entropy


def test_an_update_is_that_of_independent_parts() -> None:
    ent_coef, vf_coef = 0.1, 0.5
    options: dict[str, Any] = {"n_epochs": 1, "n_minibatches": 1, "clip_range_vf": None}
    options |= {"ent_coef": ent_coef, "vf_coef": vf_coef}
    model = made(PPO2, make_vec_env("Zoo/MaskedComposite-v0", 4), **options)
    model.learn(32)
    model.collect()
    rollout = model.finished_rollout()
    by_hand = copy.deepcopy(model.policy)
    log_prob, entropy = parts_by_hand(by_hand, rollout)
    torch.testing.assert_close(log_prob, rollout["log_prob"], rtol=1e-4, atol=1e-5)
    advantages = (rollout["advantages"] - rollout["advantages"].mean()) / (rollout["advantages"].std() + 1e-8)
    error = (by_hand.values(rollout) - rollout["returns"]).square().mean()
    surrogate = (advantages * (log_prob - rollout["log_prob"]).exp()).mean()
    (vf_coef * error - surrogate - ent_coef * entropy.mean()).backward()
    expected = nn.utils.parameters_to_vector(each.grad for each in by_hand.parameters())
    found: list[Tensor] = []
    gradient = model.updater.gradient

    def watched(module: Any, loss: Tensor) -> Tensor:
        found.append(gradient(module, loss).clone())
        return found[-1]

    model.updater.gradient = watched
    model.update()
    torch.testing.assert_close(found[0], expected, rtol=1e-3, atol=1e-6)
    assert expected.abs().max() > 1e-2
